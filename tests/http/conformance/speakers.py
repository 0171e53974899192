"""The requests and answers of each dialect.

A new dialect in `fsmq.http.dialects` needs a speaker here, and gets all tests of conformance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote, urlencode

from fsmq.spool.verbs.dedup import read_side, write_side
from tests.http.conformance.libraries import Dyno, DynoOverHttp, Library, OfClient
from tests.http.conformance.speaker import Claimed, Line, Speaker
from tests.http.helpers import Answer, Wire


class Request(NamedTuple):
    """A request of HTTP."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class SignedWire(Wire):
    """A connection whose requests have a key."""

    def __init__(self, url: str, signed: Mapping[str, str]) -> None:
        super().__init__(url)
        self._signed = signed

    def begin(self, asked: Request) -> None:
        method, target, headers, body = asked
        self.request(method, target, {**self._signed, **headers}, body)


class Wired(Speaker):
    """A dialect of HTTP."""

    def line(self) -> Line:
        return SignedWire(self.url, self.signed())

    def signed(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


class Native(Wired):
    """The dialect of fsmq itself."""

    name = "native"

    def put(self, queue: str, body: str) -> Request:
        return Request("POST", f"/{queue}/messages", body=body.encode())

    def claim(self, queue: str, visibility: int, wait: int) -> Request:
        return Request("GET", f"/{queue}/messages?visibility={visibility}&wait={wait}")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(answer.id, answer.body.decode())] if answer.status == 200 else []

    def ack(self, queue: str, handle: str) -> Request:
        return Request("DELETE", f"/{queue}/messages/{handle}")

    def renew(self, queue: str, handle: str, visibility: int) -> Request:
        return Request("PATCH", f"/{queue}/messages/{handle}?visibility={visibility}")


class Emo(Wired):
    """EmoDB's queue service: bodies are JSON, and a poll does not wait."""

    name = "emodb"
    lacks: ClassVar[Mapping[str, str]] = {"waiting": "a poll of EmoDB answers at once"}
    service = "queue"

    def put(self, queue: str, body: str) -> Request:
        return self._post(queue, "send", body)

    def claim(self, queue: str, visibility: int, wait: int) -> Request:
        return Request("GET", f"/{self.service}/1/{queue}/poll?ttl={visibility}&limit=1")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(one["id"], one["payload"]) for one in _list(answer)]

    def ack(self, queue: str, handle: str) -> Request:
        return self._post(queue, "ack", [handle])

    def renew(self, queue: str, handle: str, visibility: int) -> Request:
        return self._post(queue, f"renew?ttl={visibility}", [handle])

    def signed(self) -> Mapping[str, str]:
        return {"X-BV-API-Key": self.key}

    def _post(self, queue: str, verb: str, body: Any) -> Request:
        headers = {"Content-Type": "application/json"}
        return Request(
            "POST", f"/{self.service}/1/{queue}/{verb}", headers, json.dumps(body).encode()
        )


class EmoDedup(Emo):
    """EmoDB's dedup queue service."""

    name = "emodb-dedup"
    lacks: ClassVar[Mapping[str, str]] = {
        **Emo.lacks,
        "sharing": "a dedup queue is unrelated to all others",
    }
    service = "dedupq"

    def folders(self, queue: str) -> tuple[str, ...]:
        return (write_side(queue), read_side(queue))


class Dynamiq(Wired):
    """Dynamiq: visibility timeouts belong to the queue, and no request waits."""

    name = "dynamiq"
    lacks: ClassVar[Mapping[str, str]] = {
        "waiting": "a request of Dynamiq answers at once",
        "renewal": "Dynamiq has no request that renews",
        "visibility": "a queue of Dynamiq says how long claims are",
    }

    def put(self, queue: str, body: str) -> Request:
        return Request("PUT", f"/v1/queues/{queue}/message", body=body.encode())

    def claim(self, queue: str, visibility: int, wait: int) -> Request:
        return Request("GET", f"/v1/queues/{queue}/messages/1")

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(one["id"], one["body"]) for one in _list(answer)]

    def ack(self, queue: str, handle: str) -> Request:
        return Request("DELETE", f"/v1/queues/{queue}/message/{quote(handle)}")

    def renew(self, queue: str, handle: str, visibility: int) -> Request:
        raise NotImplementedError


class Sqs(Wired):
    """Amazon SQS, in its JSON protocol."""

    name = "sqs"

    def put(self, queue: str, body: str) -> Request:
        return self._action("SendMessage", queue, MessageBody=body)

    def claim(self, queue: str, visibility: int, wait: int) -> Request:
        members = {"VisibilityTimeout": visibility, "WaitTimeSeconds": wait}
        return self._action("ReceiveMessage", queue, **members)

    def claimed(self, answer: Answer) -> list[Claimed]:
        found = answer.json.get("Messages", []) if answer.status == 200 else []
        return [Claimed(one["ReceiptHandle"], one["Body"]) for one in found]

    def ack(self, queue: str, handle: str) -> Request:
        return self._action("DeleteMessage", queue, ReceiptHandle=handle)

    def renew(self, queue: str, handle: str, visibility: int) -> Request:
        members = {"ReceiptHandle": handle, "VisibilityTimeout": visibility}
        return self._action("ChangeMessageVisibility", queue, **members)

    def signed(self) -> Mapping[str, str]:
        scope = f"{self.key}/20300101/us-east-1/sqs/aws4_request"
        credential = f"Credential={scope}, SignedHeaders=host, Signature=00"
        return {"Authorization": f"AWS4-HMAC-SHA256 {credential}"}

    def _action(self, action: str, queue: str, **members: Any) -> Request:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        url = f"{self.url}/000000000000/{queue}"
        return Request("POST", "/", headers, json.dumps({"QueueUrl": url, **members}).encode())


class Sns(Sqs):
    """Amazon SNS: publishes to a topic of the name of the queue, which subscribes to it."""

    name = "sns"

    def make(self, queue: str) -> None:
        super().make(queue)
        endpoint = f"arn:aws:sqs:us-east-1:000000000000:{queue}"
        raw = {"Attributes.entry.1.key": "RawMessageDelivery", "Attributes.entry.1.value": "true"}
        for asked in (
            self._form("CreateTopic", Name=queue),
            self._of_topic("Subscribe", queue, Protocol="sqs", Endpoint=endpoint, **raw),
        ):
            assert self.ask(asked).status == 200

    def put(self, queue: str, body: str) -> Request:
        return self._of_topic("Publish", queue, Message=body)

    def _of_topic(self, action: str, topic: str, **members: str) -> Request:
        return self._form(action, TopicArn=f"arn:aws:sns:us-east-1:000000000000:{topic}", **members)

    def _form(self, action: str, **members: str) -> Request:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        form = urlencode({"Action": action, "Version": "2010-03-31", **members})
        return Request("POST", "/", headers, form.encode())


def _list(answer: Answer) -> list[Any]:
    found: list[Any] = answer.json if answer.status == 200 else []
    return found


SPEAKERS: tuple[type[Speaker], ...] = (
    Native,
    Emo,
    EmoDedup,
    Dynamiq,
    Sqs,
    Sns,
    Library,
    OfClient,
    Dyno,
    DynoOverHttp,
)
