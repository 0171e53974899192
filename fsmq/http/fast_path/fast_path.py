"""The fast path: plain requests are parsed from bytes, and those of one turn are done together.

A request costs aiohttp more than it costs the spool: objects, tasks, futures. So if a connection is
idle, the bytes that arrive are offered to the fast path first. It takes a request only if it knows
every byte of it, and leaves all others to aiohttp, which reads the same bytes. The fast path never
reports what is wrong with a request: if a route cannot read one, aiohttp gets it, too. So only the
handlers for aiohttp define these errors.

While the fast path has a request, the `Request` is the protocol of its connection, and gets its
bytes and its end. A route reads it, calls the engine (`service/queues.py`), and then one of
``answer``, ``respond``, ``refuse`` and ``fall_back``, at once or later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from fsmq.spool.errors import FsmqError
from fsmq.spool.inspection import via

from ..connection.connection import Connection
from ..guard.access import Access, Identity
from ..guard.admission import Admission
from ..running.open_requests import OpenRequests
from ..service.asking import Tasks
from ..service.service import Service
from .request import Fields, Line, Request

log = logging.getLogger(__name__)

# Requests with longer bodies go to aiohttp, which reads them piece by piece.
_MAX_BODY = 64 * 1024


class Reader(Protocol):
    """Reads heads of a dialect's requests."""

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""


class FastPath:
    """Takes requests from connections, and passes them to routes.

    heads: reads the requests that it takes. through: the dialect that the journal records for them.
    beside: the fast path of another dialect, which is offered all other requests.
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
        """Take no more, and leave incomplete requests to aiohttp."""
        self.is_off = True
        if self.beside is not None:
            self.beside.begin_stop()
        for request in list(self._partial):
            request.fall_back()

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take the bytes that arrived on an idle connection; False to leave them."""
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
            return False  # more follows the request
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
        """Continue when the last byte of a request has come."""
        self._partial.discard(request)
        if request.sender.has_expired:
            request.fall_back()  # aiohttp finds out why
        else:
            self._do(request)

    def end(self, request: Request) -> None:
        """End a request that is answered, or left to aiohttp."""
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
        """Record the metrics of an answer."""
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
            # Without a queue, its name is in the body: then the route checks the right.
            if not line.queue:
                identity.require_any()
            elif not identity.may(line.route.right, line.queue):
                return None
            admission.enter(identity.account, fields.length or 0)
        except FsmqError:
            return None  # the handler for aiohttp finds the same error, and answers it
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
