"""What a client of the load can do to a spool: over HTTP, or with the embedded library."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

from fsmq.http.emodb import ids as emodb
from fsmq.spool import (
    DuplicateMessage,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    Unavailable,
)
from fsmq.spool import dedup as spool_dedup
from fsmq.spool.errors import Reserved
from tests.power import bodies, dedup

_TIMEOUT_S = 10.0
_TYPE, _TRACE = "text/x-power", "Trace"


class Got(NamedTuple):
    """A message as a client got it; ``key`` is None and ``fault`` says why if it was broken."""

    id: str
    key: str | None
    deadline: float
    fault: str = ""


class Refused(Exception):
    """No answer, or one that leaves open whether it was done."""


class Verbs(Protocol):
    """What a client can do; each gives the HTTP status, and what it was told."""

    def create(self, queue: str) -> int: ...
    def delete_queue(self, queue: str) -> int: ...
    def purge(self, queue: str) -> int: ...
    def configure(self, queue: str, visibility: float) -> int: ...
    def post(
        self, queue: str, body: bytes, id: str | None, delay: float | None, rich: bool
    ) -> tuple[int, str]: ...
    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]: ...
    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]: ...
    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]: ...
    def renew(self, queue: str, id: str, visibility: float) -> tuple[int, float]: ...
    def release(self, queue: str, id: str) -> int: ...
    def delete(self, queue: str, id: str) -> int: ...
    def move(self, queue: str, to: str) -> int: ...
    def dedup_send(self, sent: Sequence[str]) -> int: ...
    def dedup_poll(self, count: int, visibility: float) -> list[Got]: ...
    def dedup_ack(self, ids: Sequence[str]) -> int: ...


class OverHttp:
    """One connection to mq."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=_TIMEOUT_S
        )

    def connect(self) -> None:
        """Connect now, and not with the first request."""
        self._connection.connect()

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            self._connection.request(method, path, body, dict(headers or {}))
            response = self._connection.getresponse()
            answer = response.status, response.headers, response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Refused(str(error)) from error
        if answer[0] == 503:
            raise Refused("503")
        return answer

    def create(self, queue: str) -> int:
        return self.ask("PUT", f"/{queue}")[0]

    def delete_queue(self, queue: str) -> int:
        return self.ask("DELETE", f"/{queue}")[0]

    def purge(self, queue: str) -> int:
        return self.ask("DELETE", f"/{queue}/messages")[0]

    def configure(self, queue: str, visibility: float) -> int:
        settings = json.dumps({"visibility_timeout": visibility}).encode()
        return self.ask("PATCH", f"/{queue}", settings)[0]

    def post(
        self, queue: str, body: bytes, id: str | None, delay: float | None, rich: bool
    ) -> tuple[int, str]:
        query: dict[str, object] = {} if delay is None else {"delay": delay}
        headers = {}
        if id is not None:
            query["id"] = id
        elif rich:
            query |= {"priority": 7, "ttl": 9000}
            headers = {"Content-Type": _TYPE, f"X-Message-Attribute-{_TRACE}": "4bf92f35"}
        status, told, _ = self.ask("POST", _messages(queue, query), body, headers)
        return status, told["X-Message-Id"] or ""

    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]:
        batch = [{"body_base64": base64.b64encode(body).decode()} for body in sent]
        status, _, told = self.ask("POST", f"/{queue}/batch", json.dumps(batch).encode())
        return status, json.loads(told)["ids"] if status == 201 else []

    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]:
        status, _, told = self.ask("POST", f"/_topics/{topic}/messages", body)
        return status, json.loads(told)["messages"] if status == 201 else {}

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        query: dict[str, object] = {"visibility": visibility}
        if count == 1:
            status, told, body = self.ask("GET", _messages(queue, query))
            if status != 200:
                return []
            deadline = _seconds(told["X-Message-Deadline"])
            return [_got(told["X-Message-Id"], body, deadline)]
        status, _, body = self.ask("GET", _messages(queue, query | {"count": count}))
        return [_from_json(m) for m in json.loads(body)["messages"]] if status == 200 else []

    def renew(self, queue: str, id: str, visibility: float) -> tuple[int, float]:
        status, told, _ = self.ask("PATCH", _message(queue, id) + f"?visibility={visibility}")
        return status, _seconds(told["X-Message-Deadline"]) if status == 204 else 0.0

    def release(self, queue: str, id: str) -> int:
        return self.ask("PATCH", _message(queue, id) + "?visibility=0")[0]

    def delete(self, queue: str, id: str) -> int:
        return self.ask("DELETE", _message(queue, id))[0]

    def move(self, queue: str, to: str) -> int:
        return self.ask("POST", f"/{queue}/move?to={to}&in_flight=true")[0]

    def dedup_send(self, sent: Sequence[str]) -> int:
        return self._emo("POST", "/sendbatch", sent)[0]

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        asked = time.time()
        status, told = self._emo("GET", f"/poll?limit={count}&ttl={round(visibility)}")
        if status != 200:
            return []
        deadline = asked + round(visibility)  # at least; EmoDB's answer does not tell it
        return [
            _got(emodb.decode(dedup.READ, m["id"]), m["payload"], deadline, dedup.payload_key)
            for m in json.loads(told)
        ]

    def dedup_ack(self, ids: Sequence[str]) -> int:
        return self._emo("POST", "/ack", [emodb.encode(dedup.READ, one) for one in ids])[0]

    def dedup_purge(self) -> int:
        return self._emo("DELETE", "")[0]

    def _emo(self, method: str, what: str, asked: object = None) -> tuple[int, bytes]:
        body = b"" if asked is None else json.dumps(asked).encode()
        headers = {} if asked is None else {"Content-Type": "application/json"}
        status, _, told = self.ask(method, f"/dedupq/1/{dedup.DUPS}{what}", body, headers)
        return status, told


class InProcess:
    """The embedded library, on the same tree as the daemons."""

    def __init__(self, root: str, sync: str) -> None:
        self._spool = Spool(root, sync=sync, delivers=False)  # type: ignore[arg-type]

    def create(self, queue: str) -> int:
        return self._status(lambda: self._spool.create_queue(queue), 201)

    def delete_queue(self, queue: str) -> int:
        return self._status(lambda: self._spool.delete_queue(queue), 200)

    def purge(self, queue: str) -> int:
        return self._status(Queue(self._spool, queue).purge, 200)

    def configure(self, queue: str, visibility: float) -> int:
        return self._status(
            lambda: Queue(self._spool, queue).configure(visibility_timeout=visibility), 200
        )

    def post(
        self, queue: str, body: bytes, id: str | None, delay: float | None, rich: bool
    ) -> tuple[int, str]:
        told: list[str] = []

        def put() -> None:
            more: dict[str, Any] = {}
            if rich and id is None:
                more = {"priority": 7, "content_type": _TYPE, "attributes": {_TRACE: "4bf92f35"}}
            told.append(Queue(self._spool, queue).put(body, id=id, delay=delay, **more))

        return self._status(put, 201), "".join(told)

    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]:
        told: list[str] = []
        messages = [NewMessage(body) for body in sent]
        status = self._status(
            lambda: told.extend(Queue(self._spool, queue).put_many(messages)), 201
        )
        return status, told

    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]:
        told: dict[str, str] = {}
        status = self._status(
            lambda: told.update(self._spool.topic(topic, create=False).publish(body)), 201
        )
        return status, told

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        got: list[Got] = []

        def claim() -> None:
            for m in Queue(self._spool, queue).claim(count, visibility):
                got.append(_got(m.id, m.body, m.deadline or 0.0))

        self._status(claim, 200)
        return got

    def renew(self, queue: str, id: str, visibility: float) -> tuple[int, float]:
        told = [0.0]

        def renew() -> None:
            told[0] = Queue(self._spool, queue).renew(id, visibility)

        return self._status(renew, 204), told[0]

    def release(self, queue: str, id: str) -> int:
        return self._status(lambda: Queue(self._spool, queue).release(id), 204)

    def delete(self, queue: str, id: str) -> int:
        there: list[int] = []
        status = self._status(lambda: there.append(Queue(self._spool, queue).remove(id)), 202)
        return 404 if there == [0] else status

    def move(self, queue: str, to: str) -> int:
        return self._status(lambda: self._spool.begin_move(queue, to), 202)

    def dedup_send(self, sent: Sequence[str]) -> int:
        stored = [json.dumps(text).encode() for text in sent]
        verb = self._spool.dedup_send
        return self._status(lambda: self._spool.complete(verb(dedup.DUPS, stored)), 200)

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        got: list[Got] = []

        def poll() -> None:
            pending = spool_dedup.poll(self._spool.context, dedup.DUPS, count, visibility)
            for m in self._spool.complete(pending):
                got.append(_got(m.id, m.body, m.deadline or 0.0, dedup.key_of))

        self._status(poll, 200)
        return got

    def dedup_ack(self, ids: Sequence[str]) -> int:
        return self._status(lambda: Queue(self._spool, dedup.READ).remove(*ids), 200)

    def _status(self, verb: Callable[[], object], done: int) -> int:
        try:
            verb()
        except (NoSuchMessage, NoSuchQueue):
            return 404
        except DuplicateMessage:
            return 409
        except (Unavailable, Reserved, OSError) as error:
            raise Refused(str(error)) from error
        return done


def _got(
    message_id: str,
    body: Any,
    deadline: float,
    key_of: Callable[[Any], str] = bodies.key_of,
) -> Got:
    try:
        return Got(message_id, key_of(body), deadline)
    except bodies.BrokenBody as error:
        return Got(message_id, None, deadline, str(error))


def _from_json(message: dict[str, Any]) -> Got:
    text = message.get("body")
    body = base64.b64decode(message["body_base64"]) if text is None else text.encode()
    return _got(message["id"], body, _seconds(message["deadline"]))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _messages(queue: str, query: Mapping[str, object]) -> str:
    return f"/{queue}/messages?{urlencode(query)}"


def _message(queue: str, message_id: str) -> str:
    return f"/{queue}/messages/{quote(message_id)}"
