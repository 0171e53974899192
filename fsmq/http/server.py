"""The HTTP server: routes requests to dialects, turns errors into answers, stops gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from functools import partial

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.web import BaseRequest, Response, StreamResponse

from fsmq.spool.errors import FsmqError, MessageTooLarge, Unavailable
from fsmq.spool.inspection import via

from .connection.connection import Connection
from .connection.leftovers import forget_frames
from .connection.lingering import LINGER_S
from .connection.listener import Listener
from .connection.on_wire import WRITTEN_TIMES
from .connection.pieces import Pieces
from .connection.serving import ProblemServer
from .dialect import Dialect
from .fast_path.fast_path import FastPath
from .guard.origin import Origins
from .monitor import Monitor
from .native.dialect import NativeDialect
from .native.fast_path.fast_batches import FastBatches
from .native.fast_path.fast_logs import FastLogs
from .native.fast_path.fast_messages import FastMessages
from .native.fast_path.heads import NativeHeads
from .problems import (
    InternalError,
    MethodNotAllowed,
    Overloaded,
    SlowBody,
    UnreadableBody,
    UnsupportedEncoding,
)
from .routing.call import Call, split_target
from .routing.system import System
from .running.open_requests import OpenRequests
from .service.asking import work_for
from .service.service import Service

log = logging.getLogger(__name__)
# How long an idle connection may still send a request after the stop has begun.
_MOMENT_S = 0.5
# How long answers that are being sent may take after the time for open requests is over.
_LAST_WORDS_S = 1.0
_BACKLOG = 4096
_BODY_LEFT = (MessageTooLarge, Overloaded, SlowBody, UnreadableBody, UnsupportedEncoding)


class Server:
    """Serves one :class:`Service` on listening sockets, in the native dialect and others.

    dialects: the others, of this service.
    host_names: names of this server besides its own and its addresses; None: any name.
    """

    def __init__(
        self,
        service: Service,
        dialects: Iterable[Dialect] = (),
        *,
        host_names: Iterable[str] | None = None,
    ) -> None:
        self.service = service
        self._native = NativeDialect(service)
        self._others = list(dialects)
        self._by_prefix = {prefix: one for one in self._others for prefix in one.prefixes}
        documented = [self._native, *(one for one in self._others if one.in_document)]
        routers = [one.router for one in documented]
        self.system = System(routers, service)
        self.system.add_routes(self._native.router)
        self.monitor = Monitor(service)
        self.monitor.add_routes(self._native.router)
        self._origins = Origins(host_names)
        self._open = OpenRequests()
        self._keeper: asyncio.Task[None] | None = None
        self._listening: list[Listener] = []
        self._server = ProblemServer(self.handle, service.admission.limits, auto_decompress=False)
        self._connections = self._server.open_connections
        service.connections = self._connections.counts
        routes = {**FastMessages(service).routes, **FastBatches(service).routes}
        needs_keys = service.access.needs_keys
        logs = FastLogs(service)
        reserved = frozenset(self._by_prefix)
        heads = NativeHeads(
            routes, logs.of_logs, logs.of_channels, reserved, self._origins, needs_keys
        )
        beside: FastPath | None = None
        for one in self._others:
            if (reader := one.reader(self._origins)) is not None:
                beside = FastPath(service, reader, self._open, one.name, beside)
        self._fast_path = FastPath(service, heads, self._open, self._native.name, beside)
        self._connections.fast_path = self._fast_path
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_LAST_WORDS_S)

    async def start(
        self, sockets: list[socket.socket], tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """Begin to serve. tls: for HTTPS, the context of each new connection."""
        self.service.start()
        self._keeper = asyncio.create_task(self._connections.enforce_timeouts())
        await self._runner.setup()
        for listening in sockets:
            # A handshake has the same time limit as a head.
            handshake = self.service.admission.limits.header_timeout
            listener = Listener(
                listening, self._server, tls, handshake=handshake, shutdown=LINGER_S
            )
            listener.start(_BACKLOG)
            self._listening.append(listener)

    async def stop(self, timeout: float) -> None:
        """Accept no more connections, answer within ``timeout`` seconds, close everything.

        From now on each connection is closed after its next answer. Idle ones stay open for
        ``_MOMENT_S``, because a request may be on its way, which would get no answer.
        """
        for listening in self._listening:
            listening.close()
        self.service.begin_stop()
        self._fast_path.begin_stop()
        for listening in self._listening:
            await listening.begun(min(_MOMENT_S, timeout))
        try:
            async with asyncio.timeout(min(_MOMENT_S, timeout)):
                await self._connections.until_none_open()
        except TimeoutError:
            pass  # connections are left: requests that are being answered have their time now
        try:
            async with asyncio.timeout(max(0.0, timeout - _MOMENT_S)):
                await self._open.until_none()
        except TimeoutError:
            log.warning("%d requests were still open after %g seconds", self._open.number, timeout)
        if self._keeper is not None:
            self._keeper.cancel()
        await self._runner.cleanup()
        await self.service.stop()

    async def handle(self, request: BaseRequest) -> StreamResponse:
        self._open.begin()
        started = time.perf_counter()
        service = self.service
        # As it came over the wire: the other forms of the path are normalized already.
        path, query = split_target(request.raw_path)
        call = Call(request, {}, query, service.access, service.admission, service)
        work_for(call)
        try:
            response = await self._answer(call, path)
        except ConnectionError:
            # The client has gone. aiohttp would keep the error, and everything it refers to.
            response = _nobody_answers(request)
        except BaseException:
            call.end()
            raise
        finally:
            self._open.end()
            forget_frames(request.content.exception())
        if response.prepared:
            call.end()  # a stream, which is written already
            return response
        if service.stopping:
            response.force_close()
        self._end_when_written(call, response)
        key = ("request", call.operation.id, str(response.status))
        service.spool.context.metrics.observe(key, time.perf_counter() - started)
        return response

    async def _answer(self, call: Call, path: str) -> StreamResponse:
        request = call.request
        dialect = self._dialect(request, path, call.raw_query)
        via.set(dialect.name)
        try:
            dialect.admit(self._origins, request)
            endpoint, call.names = dialect.find(request.method, path)
            call.operation = endpoint.operation
            if endpoint.need is not None:
                endpoint.need.ask(call, await dialect.identify(call))
            call.let_in()
            return await endpoint.handler(call)
        except FsmqError as error:
            if isinstance(error, MethodNotAllowed) and request.method == hdrs.METH_OPTIONS:
                allowed = sorted({*error.allowed, hdrs.METH_OPTIONS})
                return Response(status=204, headers={hdrs.ALLOW: ", ".join(allowed)})
            try:
                response = await dialect.refuse(call, error)
            except FsmqError as another:  # a page about an error takes memory, too
                response = dialect.problem(another)
            if isinstance(error, _BODY_LEFT) and not (
                isinstance(error, Overloaded) and request.content.is_eof()
            ):
                # The rest of the body is not read, so the connection cannot be used again.
                response.force_close()
            if isinstance(error, Unavailable) and not isinstance(error, Overloaded):
                log.warning("%s %s: %s", request.method, path, error)
            forget_frames(error)
            return response
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, path)
            forget_frames(error)
            return dialect.problem(InternalError())

    def _end_when_written(self, call: Call, response: StreamResponse) -> None:
        """Count the memory of an answer until it is written."""
        body = response.body if isinstance(response, Response) else None
        if isinstance(body, bytes | bytearray):
            call.answer_with(WRITTEN_TIMES * len(body))
        elif (
            isinstance(body, Pieces) and body.size is None and call.request.version < HttpVersion11
        ):
            # HTTP/1.0 has no chunks: only the end of the connection marks the end of the answer.
            response.force_close()
        connection = call.request.protocol
        if isinstance(connection, Connection):
            connection.on_written = partial(self._end, call, response)
        else:
            self._end(call, response)

    def _end(self, call: Call, response: StreamResponse) -> None:
        """End a request; count the memory it held if it failed or its client has gone."""
        if response.status >= 400 or call.is_gone:
            self._connections.leftovers.add(call.held)
        call.end()

    def _dialect(self, request: BaseRequest, path: str, query: str) -> Dialect:
        # A matrix parameter (";…") is not part of a segment's name.
        first = path[1:].partition("/")[0].partition(";")[0]
        for one in self._others:
            if one.claims(request.method, path, query, request.headers):
                return one
        return self._by_prefix.get(first, self._native)


def _nobody_answers(request: BaseRequest) -> Response:
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.force_close()
    return Response()
