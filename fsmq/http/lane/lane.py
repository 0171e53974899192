"""The lane: plain requests are taken as bytes, and those of one turn are done together.

A request costs aiohttp more than it costs the spool: objects, tasks, futures. So where nothing else
goes on on a connection, what it sends is offered to the lane first. The lane takes a request that
it knows to the last byte. It leaves any other to aiohttp, which reads the same bytes. The lane
never says what is wrong with a request: if a verb raises before anything was done, the request goes
to aiohttp, too. So there is one truth about errors.

While the lane has a request, it is the occupant of its connection: what comes there, and its end,
come to `Request`. A verb gets all requests for it of one turn as a list, and calls for each of them
one of ``answer``, ``respond`` and ``hand_over``, at once or later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from aiohttp.http import StreamWriter
from aiohttp.web import Response

from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.steps import FEW
from fsmq.spool.records.journal import via

from ..connection.connection import Connection
from ..connection.pieces import Pieces
from ..describe import Operation
from ..guard.access import Access, Identity
from ..guard.admission import Admission
from ..guard.keys import Right
from ..problems import InternalError, problem
from ..running.open_requests import OpenRequests
from ..service.service import Service
from .groups import fail_all
from .heads import Fields, Heads, Line
from .render import head, render

log = logging.getLogger(__name__)
# A longer body goes to aiohttp, which reads it piece by piece.
_MAX_BODY = 64 * 1024
# What is not whole after so many seconds goes to aiohttp, which knows how long it may take.
_PATIENCE_S = 1.0
# So many bytes may come behind a request; more have to wait in the kernel.
_MAX_BEHIND = 64 * 1024
# So many bytes of an answer may be left to be sent when the next request is taken.
_MAX_UNSENT = 64 * 1024
# So many requests of one verb are done at once; then others have their turn.
_AT_ONCE = 4 * FEW
# And so many bytes of their bodies, which may have to be packed.
_MAX_AT_ONCE = 1024 * 1024


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """What the lane can do. ``do`` gets requests that came in the same turn of the loop."""

    operation: Operation
    right: Right
    do: Callable[[list[Request]], None]
    has_body: bool = False


class Request:
    """A request that the lane has taken: the occupant of its connection until it is answered.

    queue, message_id, values: of its line. fields: of its head. held: the bytes of bodies that are
    counted for it. is_gone: the client has hung up; on_gone: what its verb wants done then.
    """

    __slots__ = (
        "_behind",
        "_behind_since",
        "_identity",
        "_lane",
        "_missing",
        "_parts",
        "_size",
        "_started",
        "_verb",
        "account",
        "connection",
        "fields",
        "held",
        "is_gone",
        "message_id",
        "on_gone",
        "queue",
        "values",
    )

    def __init__(
        self,
        lane: Lane,
        connection: Connection,
        head: tuple[Line, Fields, int],
        identity: Identity,
        data: bytes,
        missing: int,
    ) -> None:
        line, self.fields, self._size = head
        self._verb, self.queue, self.message_id, self.values = line
        self.connection = connection
        self.account = identity.account
        self.held = self.fields.length or 0
        self.is_gone = False
        self.on_gone: Callable[[], None] | None = None
        self._identity = identity
        self._lane = lane
        self._started = time.perf_counter()
        self._parts = [data]
        self._missing = missing
        self._behind = b""
        self._behind_since = 0.0

    @property
    def body(self) -> bytes:
        """Of a request that has come whole."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0][self._size :]

    # -- as the occupant of its connection ---------------------------------------------------------

    def more(self, data: bytes) -> None:
        """Bytes have come: of the body, or of what is for later."""
        if not self._behind:
            self._behind_since = time.perf_counter()
        if not self._missing:
            self._behind += data
            if len(self._behind) > _MAX_BEHIND:
                self.connection.pause()
            return
        mine, self._behind = data[: self._missing], data[self._missing :]
        self._parts.append(mine)
        self._missing -= len(mine)
        if not self._missing:
            self._lane.complete(self)

    def gone(self) -> None:
        """The client has hung up."""
        self.is_gone = True
        if self._missing:
            self._lane.end(self)
        if self.on_gone is not None:
            self.on_gone()

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered, or handed over."""
        return self.connection.occupant is self

    @property
    def is_over(self) -> bool:
        """Whether it must wait no longer: the server stops, or its key was taken away."""
        return self._lane.is_off or self._identity.stale

    def look_after(self) -> None:
        """Leave it to aiohttp to wait for what takes long to come."""
        if self._missing and time.perf_counter() - self._started > _PATIENCE_S:
            self.hand_over()

    # -- its end -----------------------------------------------------------------------------------

    @property
    def _is_last(self) -> bool:
        """Whether its answer ends the connection: the server stops, or what came behind it is a
        head that does not end."""
        if self._lane.is_off:
            return True
        if not self._behind or b"\r\n\r\n" in self._behind:
            return False
        return time.perf_counter() - self._behind_since > self._lane.header_timeout

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are there, until it is answered."""
        self._lane.hold(self, size)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        self._lane.spawn(work)

    def soon(self, work: Callable[[], None]) -> None:
        """Do something in the next turn of the loop."""
        asyncio.get_running_loop().call_soon(work, context=self._lane.context)

    def hand_over(self) -> None:
        """Let aiohttp answer it; nothing must have been done."""
        if not self.is_open:
            return
        self._lane.end(self)
        if not self.is_gone:
            if self._behind:
                self.connection.resume()
            self.connection.read(b"".join(self._parts) + self._behind)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer it, if that is still to be done."""
        if not self.is_open:
            return
        closing = self._is_last
        self._lane.observe(self, status)
        if not self.is_gone:
            self.connection.write(render(status, headers, body, closing=closing))
            if len(body) > _MAX_UNSENT and self.connection.unsent > _MAX_UNSENT:
                self.hold(max(0, len(body) - self.held))
                self._lane.spawn(self._drain(closing))
                return
        self._finish(closing)

    async def _drain(self, closing: bool) -> None:
        """Wait until the client has taken the answer: so long it lies in memory."""
        try:
            await StreamWriter(self.connection, asyncio.get_running_loop()).drain()
        except ConnectionError:
            return  # the client has gone
        finally:
            self._finish(closing)

    def respond(self, response: Response) -> None:
        """Answer it with what a handler for aiohttp would return."""
        body = response.body
        if isinstance(body, Pieces):
            self._lane.spawn(self._write(response, body))
        else:
            assert body is None or isinstance(body, bytes)
            self.answer(response.status, response.headers, body or b"")

    def fail(self) -> None:
        """Answer it as one whose verb has failed in a way that nobody could foresee."""
        if self.is_open:
            self.respond(problem(InternalError()))
        elif not self.is_gone:
            self.connection.force_close()  # what it has been told so far nobody knows

    async def _write(self, response: Response, body: Pieces) -> None:
        """Answer it piece by piece, as quickly as the client takes it."""
        closing = self._is_last
        self._lane.observe(self, response.status)
        writer = StreamWriter(self.connection, asyncio.get_running_loop())
        if body.size is None:
            writer.enable_chunking()
        try:
            if not self.is_gone:
                self.connection.write(
                    head(response.status, response.headers, body.size, closing=closing)
                )
                await body.write(writer)
                await writer.write_eof()
        except ConnectionError:
            return  # the client has gone
        except BaseException:
            closing = True  # half an answer is none
            raise
        finally:
            self._finish(closing)

    def _finish(self, closing: bool) -> None:
        self._lane.end(self)
        if not self.is_gone:
            self.connection.go_on(self._behind, closing=closing)


class Lane:
    """Takes requests from connections, and gives them to verbs.

    through: what the journal says that their steps came through. context: in which they are done.
    """

    def __init__(
        self, service: Service, heads: Heads, open_requests: OpenRequests, through: str
    ) -> None:
        self.is_off = False
        self.header_timeout = service.admission.limits.header_timeout
        self._access: Access = service.access
        self._admission: Admission = service.admission
        self._metrics = service.spool.context.metrics
        self._heads = heads
        self._open = open_requests
        self._partial: set[Request] = set()
        self._turn: dict[Verb, list[Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.context = copy_context()
        self.context.run(via.set, through)

    def begin_stop(self) -> None:
        """Take no more, and let aiohttp have what has not come whole."""
        self.is_off = True
        for request in list(self._partial):
            request.hand_over()

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take what has come on a connection where nothing else goes on; False to leave it."""
        if self.is_off:
            return False
        read = self._heads.read(data)
        if read is None:
            return False
        line, fields, size = read
        verb, length = line.verb, fields.length
        if verb.has_body:
            if length is None or length > _MAX_BODY:
                return False
        elif length:
            return False
        missing = size + (length or 0) - len(data)
        if missing < 0:
            return False  # there is more behind it
        identity = self._admit(fields, verb.right, line.queue)
        if identity is None:
            return False
        request = Request(self, connection, read, identity, data, missing)
        connection.occupant = request
        self._open.begin()
        if missing:
            self._partial.add(request)
        else:
            self._join(verb, request)
        return True

    def complete(self, request: Request) -> None:
        """The last byte of a request has come."""
        self._partial.discard(request)
        self._join(request._verb, request)

    def end(self, request: Request) -> None:
        """A request is answered, or for aiohttp."""
        self._partial.discard(request)
        request.connection.occupant = None
        if request.held:
            self._admission.free(request.account, request.held)
            request.held = 0
        self._admission.leave(request.account)
        self._open.end()

    def hold(self, request: Request, size: int) -> None:
        if size:
            self._admission.hold(request.account, size, sure=True)
            request.held += size

    def observe(self, request: Request, status: int) -> None:
        """Measure an answer."""
        key = ("request", request._verb.operation.id, str(status))
        self._metrics.observe(key, time.perf_counter() - request._started)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        task = asyncio.get_running_loop().create_task(work, context=self.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _admit(self, fields: Fields, right: Right, queue: str) -> Identity | None:
        admission = self._admission
        try:
            identity = self._access.identify(fields.token)
            if not identity.may(right, queue):
                return None
            admission.enter(identity.account)
            try:
                if fields.length:
                    admission.hold(identity.account, fields.length)
            except FsmqError:
                admission.leave(identity.account)
                raise
        except FsmqError:
            return None  # aiohttp finds the same, and says it
        return identity

    def _join(self, verb: Verb, request: Request) -> None:
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._run, context=self.context)
        self._turn.setdefault(verb, []).append(request)

    def _run(self) -> None:
        turn, self._turn = self._turn, {}
        for verb, requests in turn.items():
            number = _number_at_once(requests)
            some, rest = requests[:number], requests[number:]
            for request in rest:
                self._join(verb, request)
            try:
                verb.do(some)
            except Exception:
                fail_all(some)


def _number_at_once(requests: list[Request]) -> int:
    size = 0
    for number, request in enumerate(requests[:_AT_ONCE]):
        size += request.held
        if number and size > _MAX_AT_ONCE:
            return number
    return _AT_ONCE
