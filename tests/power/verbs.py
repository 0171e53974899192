"""Verbs for clients of the load: over HTTP, or with the embedded library."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

from fsmq.http.emodb import ids as emodb
from fsmq.spool import (
    ClaimEnded,
    DuplicateMessage,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.errors import Reserved
from fsmq.spool.verbs import dedup as spool_dedup
from tests.power import bodies, dedup
from tests.power.burying import BuriesInProcess, BuriesOverHttp, in_claim, path_of
from tests.power.ops import content

_TIMEOUT_S = 30.0  # for a hanging daemon; waiting for a busy disk is no failure
_TYPE, _TRACE = "text/x-power", "Trace"
ATTEMPT = "Attempt"  # an attribute that two tries of one put may have with different values


class Got(NamedTuple):
    """A message that a client got. content: None if it is broken; fault: why."""

    id: str
    content: str | None
    deadline: float
    fault: str = ""
    claim: str = ""


class Post(NamedTuple):
    """A message to post. rich: with a priority and more; attempt: the value of an attribute."""

    body: bytes
    own: str | None = None
    delay: float | None = None
    rich: bool = False
    attempt: int = 0


class Refused(Exception):
    """An operation without a definite answer.

    is_over: whether no program can act on it any more.
    """

    def __init__(self, reason: object, is_over: bool = True) -> None:
        super().__init__(str(reason))
        self.is_over = is_over


class Verbs(Protocol):
    """The verbs; each returns an HTTP status and a result."""

    def create(self, queue: str) -> int: ...
    def delete_queue(self, queue: str) -> int: ...
    def purge(self, queue: str) -> int: ...
    def configure(self, queue: str, visibility: float) -> int: ...
    def post(self, queue: str, post: Post) -> tuple[int, str]: ...
    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]: ...
    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]: ...
    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]: ...
    def hang_up(self, queue: str, visibility: float, patience: float) -> int: ...
    def renew(
        self, queue: str, id: str, visibility: float, claim: str = ""
    ) -> tuple[int, float]: ...
    def release(self, queue: str, id: str, claim: str = "") -> int: ...
    def delete(self, queue: str, id: str, claim: str = "") -> int: ...
    def move(self, queue: str, to: str) -> int: ...
    def prepare_burials(self, queue: str, dead: str) -> int: ...
    def bury(self, queue: str, id: str, reason: str, claim: str = "") -> int: ...
    def redrive(self, dead: str, ids: Sequence[str]) -> tuple[int, int]: ...
    def set_priority(self, queue: str, id: str, priority: int) -> tuple[int, str]: ...
    def dedup_send(self, sent: Sequence[str]) -> int: ...
    def dedup_poll(self, count: int, visibility: float) -> list[Got]: ...
    def dedup_ack(self, ids: Sequence[str]) -> int: ...


class OverHttp(BuriesOverHttp):
    """One connection to mq."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=_TIMEOUT_S
        )

    def connect(self) -> None:
        """Connect now, not at the first request."""
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
            # If the connection is closed, its program has ended; after a timeout it may still work.
            raise Refused(error, is_over=not isinstance(error, TimeoutError)) from error
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

    def post(self, queue: str, post: Post) -> tuple[int, str]:
        query: dict[str, object] = {} if post.delay is None else {"delay": post.delay}
        headers = {}
        if post.own is not None:
            query["id"] = post.own
        if post.attempt:
            headers[f"X-Message-Attribute-{ATTEMPT}"] = str(post.attempt)
        if post.rich:
            query |= {"priority": 7, "ttl": 9000}
            headers |= {"Content-Type": _TYPE, f"X-Message-Attribute-{_TRACE}": "4bf92f35"}
        status, result, _ = self.ask("POST", _messages(queue, query), post.body, headers)
        return status, result["X-Message-Id"] or ""

    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]:
        batch = [{"body_base64": base64.b64encode(body).decode()} for body in sent]
        status, _, result = self.ask("POST", f"/{queue}/batch", json.dumps(batch).encode())
        return status, json.loads(result)["ids"] if status == 201 else []

    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]:
        status, _, result = self.ask("POST", f"/_topics/{topic}/messages", body)
        return status, json.loads(result)["messages"] if status == 201 else {}

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        query: dict[str, object] = {"visibility": visibility}
        if count == 1:
            status, result, body = self.ask("GET", _messages(queue, query))
            if status != 200:
                return []
            deadline = _seconds(result["X-Message-Deadline"])
            attempt = result[f"X-Message-Attribute-{ATTEMPT}"]
            claim = result["X-Message-Claim"]
            return [_got(result["X-Message-Id"], body, deadline, attempt=attempt, claim=claim)]
        status, _, body = self.ask("GET", _messages(queue, query | {"count": count}))
        return [_from_json(m) for m in json.loads(body)["messages"]] if status == 200 else []

    def hang_up(self, queue: str, visibility: float, patience: float) -> int:
        """Fetch on a new connection, and close it after some time."""
        parts = self._connection
        leaving = http.client.HTTPConnection(parts.host, parts.port, timeout=_TIMEOUT_S)
        try:
            leaving.request("GET", _messages(queue, {"visibility": visibility}))
            time.sleep(patience)
        except OSError as error:
            raise Refused(error) from error
        finally:
            leaving.close()
        return 0

    def renew(self, queue: str, id: str, visibility: float, claim: str = "") -> tuple[int, float]:
        path = path_of(queue, id) + f"?visibility={visibility}"
        status, result, _ = self.ask("PATCH", path, headers=in_claim(claim))
        return status, _seconds(result["X-Message-Deadline"]) if status == 204 else 0.0

    def release(self, queue: str, id: str, claim: str = "") -> int:
        path = path_of(queue, id) + "?visibility=0"
        return self.ask("PATCH", path, headers=in_claim(claim))[0]

    def delete(self, queue: str, id: str, claim: str = "") -> int:
        return self.ask("DELETE", path_of(queue, id), headers=in_claim(claim))[0]

    def move(self, queue: str, to: str) -> int:
        return self.ask("POST", f"/{queue}/move?to={to}&in_flight=true")[0]

    def dedup_send(self, sent: Sequence[str]) -> int:
        return self._emo("POST", "/sendbatch", sent)[0]

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        requested = time.time()
        status, result = self._emo("GET", f"/poll?limit={count}&ttl={round(visibility)}")
        if status != 200:
            return []
        deadline = requested + round(visibility)  # at least; EmoDB's answer has no deadline
        return [
            _got(emodb.decode(dedup.READ, m["id"]), m["payload"], deadline, dedup.payload_key)
            for m in json.loads(result)
        ]

    def dedup_ack(self, ids: Sequence[str]) -> int:
        return self._emo("POST", "/ack", [emodb.encode(dedup.READ, one) for one in ids])[0]

    def dedup_purge(self) -> int:
        return self._emo("DELETE", "")[0]

    def _emo(self, method: str, what: str, request: object = None) -> tuple[int, bytes]:
        body = b"" if request is None else json.dumps(request).encode()
        headers = {} if request is None else {"Content-Type": "application/json"}
        status, _, result = self.ask(method, f"/dedupq/1/{dedup.DUPS}{what}", body, headers)
        return status, result


class InProcess(BuriesInProcess):
    """The embedded library on the spool of the daemons."""

    def __init__(self, root: str, sync: str) -> None:
        self.spool = Spool(root, sync=sync, delivers=False)  # type: ignore[arg-type]

    def create(self, queue: str) -> int:
        return self.status(lambda: self.spool.create_queue(queue), 201)

    def delete_queue(self, queue: str) -> int:
        return self.status(lambda: self.spool.delete_queue(queue), 200)

    def purge(self, queue: str) -> int:
        return self.status(Queue(self.spool, queue).purge, 200)

    def configure(self, queue: str, visibility: float) -> int:
        return self.status(
            lambda: Queue(self.spool, queue).configure(visibility_timeout=visibility), 200
        )

    def post(self, queue: str, post: Post) -> tuple[int, str]:
        result: list[str] = []
        more: dict[str, Any] = {}
        if post.attempt:
            more = {"attributes": {ATTEMPT: str(post.attempt)}}
        if post.rich:
            more = {"priority": 7, "content_type": _TYPE, "attributes": {_TRACE: "4bf92f35"}}

        def put() -> None:
            result.append(
                Queue(self.spool, queue).put(post.body, id=post.own, delay=post.delay, **more)
            )

        return self.status(put, 201), "".join(result)

    def batch(self, queue: str, sent: Sequence[bytes]) -> tuple[int, list[str]]:
        result: list[str] = []
        messages = [NewMessage(body) for body in sent]
        status = self.status(
            lambda: result.extend(Queue(self.spool, queue).put_many(messages)), 201
        )
        return status, result

    def publish(self, topic: str, body: bytes) -> tuple[int, dict[str, str]]:
        result: dict[str, str] = {}
        status = self.status(lambda: result.update(self.spool.topic(topic).publish(body)), 201)
        return status, result

    def fetch(self, queue: str, count: int, visibility: float) -> list[Got]:
        got: list[Got] = []

        def claim() -> None:
            for m in Queue(self.spool, queue).claim(count, visibility):
                attempt = m.attributes.get(ATTEMPT)
                name = m.claim or ""
                got.append(_got(m.id, m.body, m.deadline or 0.0, attempt=attempt, claim=name))

        self.status(claim, 200)
        return got

    def hang_up(self, queue: str, visibility: float, patience: float) -> int:
        """Claim, sync, and release, as mq does when its client has hung up."""

        def claim() -> None:
            prepared = prepare.claim(self.spool.context, queue, 1, visibility)
            self.spool.syncer.sync(prepared.dirty)
            prepared.abort()

        return self.status(claim, 0)

    def renew(self, queue: str, id: str, visibility: float, claim: str = "") -> tuple[int, float]:
        result = [0.0]

        def renew() -> None:
            result[0] = Queue(self.spool, queue).renew(id, visibility, claim=claim or None)

        return self.status(renew, 204), result[0]

    def release(self, queue: str, id: str, claim: str = "") -> int:
        opened = Queue(self.spool, queue)
        return self.status(lambda: opened.release(id, claim=claim or None), 204)

    def delete(self, queue: str, id: str, claim: str = "") -> int:
        if claim:
            result: list[str] = []
            opened = Queue(self.spool, queue)
            status = self.status(lambda: result.extend(opened.ack_each([id], [claim])), 202)
            return {"missing": 404, "ended": 409}.get("".join(result), status)
        there: list[int] = []
        status = self.status(lambda: there.append(Queue(self.spool, queue).remove(id)), 202)
        return 404 if there == [0] else status

    def move(self, queue: str, to: str) -> int:
        return self.status(lambda: self.spool.begin_move(queue, to), 202)

    def dedup_send(self, sent: Sequence[str]) -> int:
        stored = [json.dumps(text).encode() for text in sent]
        verb = partial(prepare.dedup_send, self.spool.context)
        return self.status(lambda: self.spool.complete(verb(dedup.DUPS, stored)), 200)

    def dedup_poll(self, count: int, visibility: float) -> list[Got]:
        got: list[Got] = []

        def poll() -> None:
            prepared = spool_dedup.poll(self.spool.context, dedup.DUPS, count, visibility)
            for m in self.spool.complete(prepared):
                got.append(_got(m.id, m.body, m.deadline or 0.0, dedup.key_of))

        self.status(poll, 200)
        return got

    def dedup_ack(self, ids: Sequence[str]) -> int:
        return self.status(lambda: Queue(self.spool, dedup.READ).remove(*ids), 200)

    def status(self, verb: Callable[[], object], done: int) -> int:
        try:
            verb()
        except (NoSuchMessage, NoSuchQueue):
            return 404
        except (DuplicateMessage, ClaimEnded):
            return 409
        except (Unavailable, Reserved, OSError) as error:
            raise Refused(error) from error
        return done


def _got(
    message_id: str,
    body: Any,
    deadline: float,
    key_of: Callable[[Any], str] = bodies.key_of,
    *,
    attempt: str | None = None,
    claim: str = "",
) -> Got:
    try:
        result, fault = content(key_of(body), int(attempt or 0)), ""
    except bodies.BrokenBody as error:
        result, fault = None, str(error)
    return Got(message_id, result, deadline, fault, claim)


def _from_json(message: dict[str, Any]) -> Got:
    text = message.get("body")
    body = base64.b64decode(message["body_base64"]) if text is None else text.encode()
    attempt = message["attributes"].get(ATTEMPT)
    deadline, claim = _seconds(message["deadline"]), message["claim"]
    return _got(message["id"], body, deadline, attempt=attempt, claim=claim)


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _messages(queue: str, query: Mapping[str, object]) -> str:
    return f"/{queue}/messages?{urlencode(query)}"
