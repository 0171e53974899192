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
import time
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, Protocol

from fsmq.spool.errors import FsmqError
from fsmq.spool.records.journal import via

from ..connection.connection import Connection
from ..guard.access import Access, Identity
from ..guard.admission import Admission
from ..running.open_requests import OpenRequests
from ..service.service import Service
from .groups import fail_all
from .heads import Fields, Line
from .request import Request, Verb

# A longer body goes to aiohttp, which reads it piece by piece.
_MAX_BODY = 64 * 1024
# So many bytes of bodies are done at once, which may have to be packed.
_MAX_AT_ONCE = 1024 * 1024


class Reader(Protocol):
    """Knows the heads of a dialect's requests."""

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""


class Lane:
    """Takes requests from connections, and gives them to verbs.

    heads: which requests it takes. through: what the journal says that their steps came through.
    beside: the lane of another dialect, which is offered the others. context: in which they are
    done.
    """

    def __init__(
        self,
        service: Service,
        heads: Reader,
        open_requests: OpenRequests,
        through: str,
        beside: Lane | None = None,
    ) -> None:
        self.is_off = False
        self.beside = beside
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
        if self.beside is not None:
            self.beside.begin_stop()
        for request in list(self._partial):
            request.hand_over()

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take what has come on a connection where nothing else goes on; False to leave it."""
        if self.is_off:
            return False
        read = self._heads.read(data)
        if read is None:
            return self.beside is not None and self.beside.take(connection, data)
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
        identity = self._admit(line, fields)
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
        self._join(request.verb, request)

    def end(self, request: Request) -> None:
        """A request is answered, or for aiohttp."""
        self._partial.discard(request)
        request.connection.occupant = None
        if request.held:
            self._admission.free(request.account, request.held)
            request.held = 0
        self._admission.leave(request.account)
        self._open.end()

    def hold(self, request: Request, size: int, sure: bool) -> None:
        if size:
            self._admission.hold(request.account, size, sure=sure)
            request.held += size

    def observe(self, request: Request, status: int) -> None:
        """Measure an answer."""
        key = ("request", request.verb.operation.id, str(status))
        self._metrics.observe(key, time.perf_counter() - request.started)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        task = asyncio.get_running_loop().create_task(work, context=self.context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _admit(self, line: Line, fields: Fields) -> Identity | None:
        admission, signer = self._admission, fields.signer
        try:
            identity = (
                signer.identity if signer is not None else self._access.identify(fields.token)
            )
            # Which queue it is about may stand in the body: then its verb asks for the right.
            if not line.queue:
                identity.require_any()
            elif not identity.may(line.verb.right, line.queue):
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
            number = _number_at_once(verb.at_once, requests)
            some, rest = requests[:number], requests[number:]
            for request in rest:
                self._join(verb, request)
            try:
                verb.do(some)
            except Exception:
                fail_all(some)


def _number_at_once(most: int, requests: list[Request]) -> int:
    size = 0
    for number, request in enumerate(requests[:most]):
        size += request.held
        if number and size > _MAX_AT_ONCE:
            return number
    return most
