"""A server's connections: how many may be open, which are closed for others, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web import BaseRequest, RequestHandler, StreamResponse
from aiohttp.web_protocol import ERROR

from ..guard.limits import Limits
from ..problems import problem
from .ahead import AheadOfAll
from .connection import Connection
from .leftovers import Leftovers
from .lingering import MOST_CONNECTIONS
from .malformed import ends_in_doubt, head_size, no_room, other_version, too_long
from .unsent import UnsentOfAll

log = logging.getLogger(__name__)
Handler: TypeAlias = Callable[[BaseRequest], Awaitable[StreamResponse]]
# How often connections are checked for timeouts.
_LOOK_EVERY_S = 1.0
# How much of an unread body aiohttp may keep.
_UNREAD_BYTES = 64 * 1024
# The key in a request of an unsupported version of HTTP whose value is that version.
_VERSION = "version"


class FastPath(Protocol):
    """Can take a request before aiohttp sees it: `fsmq.http.fast_path`."""

    def take(self, connection: Connection, data: bytes) -> bool:
        """Become the protocol of a connection for the request in ``data``; False to leave it."""


class ProblemServer(web.Server):
    """A server whose connections answer every error as a problem, and enforce the limits.

    fast_path: takes the requests that it knows; None: aiohttp gets them all.
    """

    def __init__(self, handler: Handler, limits: Limits, **options: Any) -> None:
        super().__init__(self._answer, request_factory=_request)
        self.limits = limits
        self._handler = handler
        self.fast_path: FastPath | None = None
        self._options = {
            "keepalive_timeout": limits.idle_timeout,
            # One line can be nearly all of the head, in a request that names many ids.
            "max_line_size": limits.header_bytes,
            "max_field_size": limits.header_bytes,
            "max_headers": limits.headers,
            "access_log": None,
            "logger": log,
            "lingering_time": 0,  # see Connection._linger
            "read_bufsize": _UNREAD_BYTES,
            **options,
        }
        self.open: dict[Connection, None] = {}  # the oldest first
        self.lingering: set[Connection] = set()
        self.leftovers = Leftovers()
        self.ahead = AheadOfAll(self.leftovers)
        self.unsent = UnsentOfAll(limits.memory)
        self._none_open = asyncio.Event()

    def __call__(self) -> Connection:
        return Connection(self, loop=asyncio.get_running_loop(), **self._options)

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        # Connections check only incomplete heads; one that came in a single piece is checked here.
        limit = self.limits.header_bytes
        connection = request.protocol
        is_too_much = isinstance(connection, Connection) and connection.ahead.is_too_much
        response: StreamResponse
        if _VERSION in request:
            response = problem(other_version(request[_VERSION]))
            response.force_close()
        elif head_size(request) > limit or is_too_much:
            response = problem(no_room() if is_too_much else too_long(limit))
            response.force_close()
        else:
            response = await self._handler(request)
        if ends_in_doubt(request):
            response.force_close()
        return response

    def take_in(self, connection: Connection) -> bool:
        """Count a connection as open, if there is room or an idle one can be closed for it."""
        if not self._make_room():
            return False
        self.open[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """Count a connection as open no longer."""
        self.lingering.discard(connection)
        self.open.pop(connection, None)
        if not self.open:
            self._none_open.set()

    def let_linger(self, connection: Connection) -> bool:
        """Let a connection linger after its last answer; False: it has to be closed at once."""
        self.forget(connection)
        if len(self.lingering) >= MOST_CONNECTIONS:
            return False
        self.lingering.add(connection)
        return True

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        await super().shutdown(timeout)
        for connection in list(self.lingering):
            connection.give_way()

    def counts(self) -> dict[str, int]:
        """How many connections are open, and how many of them are not idle."""
        in_use = sum(not connection.is_idle for connection in self.open)
        return {"open": len(self.open) + len(self.lingering), "in_use": in_use}

    async def until_none_open(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            self._none_open.clear()
            await self._none_open.wait()

    def _make_room(self) -> bool:
        if len(self.open) < self.limits.connections:
            return True
        for connection in self.open:
            if connection.is_idle:
                self.forget(connection)
                connection.give_way()
                return True
        return False

    async def enforce_timeouts_of_all(self) -> None:
        """Close, until cancelled, the connections whose clients are too slow."""
        loop = asyncio.get_running_loop()
        pause = min(_LOOK_EVERY_S, self.limits.header_timeout / 4, self.limits.write_timeout / 4)
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for connection in (*self.open, *self.lingering):
                connection.enforce_timeouts(now)
            self.leftovers.collect_rest()


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    connection: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> BaseRequest:
    """A request; one of an unsupported version of HTTP is answered in HTTP/1.1."""
    version, loop = message.version, asyncio.get_running_loop()
    is_other = version.major != HttpVersion11.major
    if is_other or message is ERROR:
        message = message._replace(version=HttpVersion11)
    request = BaseRequest(message, payload, connection, writer, task, loop)
    if is_other:
        request[_VERSION] = f"{version.major}.{version.minor}"
    return request
