"""The fast path: plain requests are taken as bytes, and those of one turn are done together.

A request costs aiohttp more than it costs the spool: objects, tasks, futures. So where nothing else
goes on on a connection, what it sends is offered to the fast path first. The fast path takes a
request that it knows to the last byte. It leaves any other to aiohttp, which reads the same bytes.
The fast path never says what is wrong with a request: if a route cannot read it, the request goes
to aiohttp, too. So there is one truth about errors.

While the fast path has a request, it is the protocol of its connection: what comes there, and its
end, come to `Request`. A route reads it, asks the engine (`service/queues.py`), and calls one of
``answer``, ``respond``, ``refuse`` and ``fall_back``, at once or later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from fsmq.spool.errors import FsmqError
from fsmq.spool.records.journal import via

from ..connection.connection import Connection
from ..guard.access import Access, Identity
from ..guard.admission import Admission
from ..running.open_requests import OpenRequests
from ..service.asking import Tasks
from ..service.service import Service
from .request import Fields, Line, Request

log = logging.getLogger(__name__)

# A longer body goes to aiohttp, which reads it piece by piece.
_MAX_BODY = 64 * 1024


class Reader(Protocol):
    """Knows the heads of a dialect's requests."""

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""


class FastPath:
    """Takes requests from connections, and gives them to routes.

    heads: which requests it takes. through: what the journal says that their steps came through.
    beside: the fast path of another dialect, which is offered the others.
    """

    def __init__(
        self,
        service: Service,
        heads: Reader,
        open_requests: OpenRequests,
        through: str,
        beside: FastPath | None = None,
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
        self._tasks = Tasks()
        self._through = through

    def begin_stop(self) -> None:
        """Take no more, and let aiohttp have what has not come whole."""
        self.is_off = True
        if self.beside is not None:
            self.beside.begin_stop()
        for request in list(self._partial):
            request.fall_back()

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take what has come on a connection where nothing else goes on; False to leave it."""
        if self.is_off:
            return False
        read = self._heads.read(data)
        if read is None:
            return self.beside is not None and self.beside.take(connection, data)
        line, fields, size = read
        route, length = line.route, fields.length
        if route.has_body:
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
        connection.protocol = request
        self._open.begin()
        if missing:
            self._partial.add(request)
        else:
            self._do(request)
        return True

    def complete(self, request: Request) -> None:
        """The last byte of a request has come."""
        self._partial.discard(request)
        self._do(request)

    def end(self, request: Request) -> None:
        """A request is answered, or for aiohttp."""
        self._partial.discard(request)
        request.connection.protocol = None
        self._admission.leave(request.account, request.held)
        request.held = 0
        self._open.end()

    def hold(self, request: Request, size: int, sure: bool) -> None:
        if size:
            self._admission.hold(request.account, size, sure=sure)
            request.held += size

    def observe(self, request: Request, status: int) -> None:
        """Measure an answer."""
        key = ("request", request.route.operation.id, str(status))
        self._metrics.observe(key, time.perf_counter() - request.started)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what takes longer than a turn of the loop."""
        self._tasks.spawn(work)

    def _admit(self, line: Line, fields: Fields) -> Identity | None:
        admission, signer = self._admission, fields.signer
        try:
            identity = (
                signer.identity if signer is not None else self._access.identify(fields.token)
            )
            # Which queue it is about may stand in the body: then its route asks for the right.
            if not line.queue:
                identity.require_any()
            elif not identity.may(line.route.right, line.queue):
                return None
            admission.enter(identity.account, fields.length or 0)
        except FsmqError:
            return None  # aiohttp finds the same, and says it
        return identity

    def _do(self, request: Request) -> None:
        via.set(self._through)
        try:
            request.route.do(request)
        except FsmqError:
            request.fall_back()
        except Exception:
            log.exception("a request failed")
            request.fail()
