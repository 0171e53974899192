"""The libraries as speakers: requests are calls in a thread, on a spool or on a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Self, TypeAlias

from fsmq import Client, FsmqError, Spool
from fsmq.dyno import DynoQueue, DynoQueues
from fsmq.dyno import Message as DynoMessage
from fsmq.spool import Unavailable
from fsmq.spool.layout.uuids import uuid7
from tests.http.conformance.speaker import Claimed, Line, Speaker
from tests.http.helpers import Answer

Call: TypeAlias = Callable[[Any], object]
"""Called with the spool or the client."""


class Thread:
    """A thread that makes calls, one after the other. place: the spool or client."""

    def __init__(self, place: Spool | Client) -> None:
        self._place = place
        self._thread = ThreadPoolExecutor(1)
        self._calls: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self._thread.shutdown()
        if isinstance(self._place, Client):
            self._place.close()

    def begin(self, asked: Call) -> None:
        self._calls.append(self._thread.submit(asked, self._place))

    def is_read(self) -> bool:
        return all(call.running() or call.done() for call in self._calls)

    def answer(self) -> Answer:
        try:
            found = self._calls.pop(0).result()
        except Unavailable:
            raise
        except FsmqError as error:
            return Answer(400, {}, str(error).encode())
        return Answer(200, {}, json.dumps(found).encode())


class Called(Speaker):
    """A library on a spool."""

    lacks: ClassVar[Mapping[str, str]] = {
        "keys": "who can open the folder has every right",
        "hanging up": "a call ends when it returns",
    }

    def line(self) -> Line:
        return Thread(self.spool)

    def claimed(self, answer: Answer) -> list[Claimed]:
        return [Claimed(*one) for one in answer.json] if answer.status == 200 else []


class Library(Called):
    """`fsmq.Spool`."""

    name = "library"

    def put(self, queue: str, body: str) -> Call:
        return lambda place: place.queue(queue).put(body)

    def claim(self, queue: str, visibility: int, wait: int) -> Call:
        return lambda place: [
            Claimed(one.id, one.body.decode())
            for one in place.queue(queue).claim(1, visibility, wait)
        ]

    def ack(self, queue: str, handle: str) -> Call:
        return lambda place: place.queue(queue).ack(handle)

    def renew(self, queue: str, handle: str, visibility: int) -> Call:
        return lambda place: place.queue(queue).renew(handle, visibility)


class Dyno(Called):
    """`fsmq.dyno`, where producers choose the ids."""

    name = "dyno"
    lacks: ClassVar[Mapping[str, str]] = {
        **Called.lacks,
        "sharing": "a shard has only what was put with an id of its producer",
    }

    def folders(self, queue: str) -> tuple[str, ...]:
        return (f"{queue}@zone",)

    def make(self, queue: str) -> None:
        _dyno(self.spool, queue)

    def put(self, queue: str, body: str) -> Call:
        return lambda place: _dyno(place, queue).push([DynoMessage(str(uuid7()), body)])

    def claim(self, queue: str, visibility: int, wait: int) -> Call:
        return lambda place: [
            Claimed(one.id, str(one.payload))
            for one in _dyno(place, queue, visibility).pop(1, wait, "s")
        ]

    def ack(self, queue: str, handle: str) -> Call:
        return lambda place: _dyno(place, queue).ack(handle)

    def renew(self, queue: str, handle: str, visibility: int) -> Call:
        return lambda place: _dyno(place, queue).set_unack_timeout(handle, visibility, "s")


def _dyno(place: Spool | Client, queue: str, visibility: int = 60) -> DynoQueue:
    return DynoQueues(place, zone="zone", unack_time=visibility * 1000).get(queue)


class _OverHttp(Called):
    """The same on a server."""

    lacks: ClassVar[Mapping[str, str]] = {"hanging up": Called.lacks["hanging up"]}

    def line(self) -> Line:
        return Thread(Client(self.url, key=self.key, retry_for=0))


class OfClient(_OverHttp, Library):
    """`fsmq.Client`."""

    name = "client"


class DynoOverHttp(_OverHttp, Dyno):
    """`fsmq.dyno` on a server."""

    name = "dyno-over-http"
    lacks: ClassVar[Mapping[str, str]] = {**_OverHttp.lacks, "sharing": Dyno.lacks["sharing"]}
