"""What each dialect says for the same verbs: requests at the wire, and what their answers mean.

A dialect that is added to `fsmq.http.dialects` gets a speaker here, and meets all of the suite.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from tests.http.helpers import Answer, Wire


class Claimed(NamedTuple):
    """A message as a dialect gives it. handle: what it is acknowledged and renewed by."""

    handle: str
    body: str


class Asked(NamedTuple):
    """A request."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Speaker(ABC):
    """One dialect, as a client with a key speaks it.

    name: of the dialect. waits: whether a claim can wait for a message. renews: whether a claim
    can be made longer. chooses: whether a claim says for how long; else the queue does.
    """

    name: ClassVar[str]
    waits: ClassVar[bool] = True
    renews: ClassVar[bool] = True
    chooses: ClassVar[bool] = True

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.key = key

    @abstractmethod
    def put(self, queue: str, body: str) -> Asked: ...

    @abstractmethod
    def claim(self, queue: str, visibility: int, wait: int) -> Asked: ...

    @abstractmethod
    def claimed(self, answer: Answer) -> list[Claimed]: ...

    @abstractmethod
    def ack(self, queue: str, handle: str) -> Asked: ...

    @abstractmethod
    def renew(self, queue: str, handle: str, visibility: int) -> Asked: ...

    def send(self, wire: Wire, asked: Asked) -> None:
        method, target, headers, body = asked
        wire.request(method, target, {**self.signed(), **headers}, body)

    def ask(self, asked: Asked) -> Answer:
        with Wire(self.url) as wire:
            self.send(wire, asked)
            return wire.answer()

    def take(self, queue: str, visibility: int = 60, wait: int = 0) -> list[Claimed]:
        """Claim one message, or none."""
        return self.claimed(self.ask(self.claim(queue, visibility, wait)))

    def signed(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Native(Speaker):
    """The dialect of fsmq itself."""

    name = "native"

    def put(self, queue: str, body: str) -> Asked:
        return Asked("POST", f"/{queue}/messages", body=body.encode())

    def claim(self, queue: str, visibility: int, wait: int) -> Asked:
        return Asked("GET", f"/{queue}/messages?visibility={visibility}&wait={wait}")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(answer.id, answer.body.decode())] if answer.status == 200 else []

    def ack(self, queue: str, handle: str) -> Asked:
        return Asked("DELETE", f"/{queue}/messages/{handle}")

    def renew(self, queue: str, handle: str, visibility: int) -> Asked:
        return Asked("PATCH", f"/{queue}/messages/{handle}?visibility={visibility}")


class Emo(Speaker):
    """EmoDB's queue service: bodies are JSON, and a poll does not wait."""

    name = "emodb"
    waits = False

    def put(self, queue: str, body: str) -> Asked:
        return self._post(queue, "send", body)

    def claim(self, queue: str, visibility: int, wait: int) -> Asked:
        return Asked("GET", f"/queue/1/{queue}/poll?ttl={visibility}&limit=1")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(one["id"], one["payload"]) for one in _list(answer)]

    def ack(self, queue: str, handle: str) -> Asked:
        return self._post(queue, "ack", [handle])

    def renew(self, queue: str, handle: str, visibility: int) -> Asked:
        return self._post(queue, f"renew?ttl={visibility}", [handle])

    def signed(self) -> Mapping[str, str]:
        return {"X-BV-API-Key": self.key}

    def _post(self, queue: str, verb: str, body: Any) -> Asked:
        headers = {"Content-Type": "application/json"}
        return Asked("POST", f"/queue/1/{queue}/{verb}", headers, json.dumps(body).encode())


class Dynamiq(Speaker):
    """Dynamiq: the queue says how long messages are hidden; nothing waits."""

    name = "dynamiq"
    waits = renews = chooses = False

    def put(self, queue: str, body: str) -> Asked:
        return Asked("PUT", f"/v1/queues/{queue}/message", body=body.encode())

    def claim(self, queue: str, visibility: int, wait: int) -> Asked:
        return Asked("GET", f"/v1/queues/{queue}/messages/1")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(one["id"], one["body"]) for one in _list(answer)]

    def ack(self, queue: str, handle: str) -> Asked:
        return Asked("DELETE", f"/v1/queues/{queue}/message/{quote(handle)}")

    def renew(self, queue: str, handle: str, visibility: int) -> Asked:
        raise NotImplementedError


class Sqs(Speaker):
    """Amazon SQS, in its JSON protocol."""

    name = "sqs"

    def put(self, queue: str, body: str) -> Asked:
        return self._action("SendMessage", queue, MessageBody=body)

    def claim(self, queue: str, visibility: int, wait: int) -> Asked:
        members = {"VisibilityTimeout": visibility, "WaitTimeSeconds": wait}
        return self._action("ReceiveMessage", queue, **members)

    def claimed(self, answer: Answer) -> list[Claimed]:
        found = answer.json.get("Messages", []) if answer.status == 200 else []
        return [Claimed(one["ReceiptHandle"], one["Body"]) for one in found]

    def ack(self, queue: str, handle: str) -> Asked:
        return self._action("DeleteMessage", queue, ReceiptHandle=handle)

    def renew(self, queue: str, handle: str, visibility: int) -> Asked:
        members = {"ReceiptHandle": handle, "VisibilityTimeout": visibility}
        return self._action("ChangeMessageVisibility", queue, **members)

    def signed(self) -> Mapping[str, str]:
        scope = f"{self.key}/20300101/us-east-1/sqs/aws4_request"
        told = f"Credential={scope}, SignedHeaders=host, Signature=00"
        return {"Authorization": f"AWS4-HMAC-SHA256 {told}"}

    def _action(self, action: str, queue: str, **members: Any) -> Asked:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        url = f"{self.url}/000000000000/{queue}"
        return Asked("POST", "/", headers, json.dumps({"QueueUrl": url, **members}).encode())


def _list(answer: Answer) -> list[Any]:
    found: list[Any] = answer.json if answer.status == 200 else []
    return found


SPEAKERS = (Native, Emo, Dynamiq, Sqs)
