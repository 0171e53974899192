"""A server's connections: how many there may be, which of them give way, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web import BaseRequest, RequestHandler, StreamResponse
from aiohttp.web_protocol import ERROR

from ..guard.limits import Limits
from ..problems import problem
from .ahead import AheadOfAll
from .byte_protocol import FastPath
from .connection import Connection
from .leftovers import Leftovers
from .lingering import MOST_CONNECTIONS
from .malformed import ends_in_doubt, head_size, no_room, too_long
from .unsent import UnsentOfAll

log = logging.getLogger(__name__)
Handler: TypeAlias = Callable[[BaseRequest], Awaitable[StreamResponse]]
# How often connections are looked at that may have been too slow.
_LOOK_EVERY_S = 1.0
# So much of a body that nobody reads aiohttp may keep.
_UNREAD_BYTES = 64 * 1024


class ProblemServer(web.Server):
    """A server whose connections tell every error as a problem, and keep the limits.

    fast_path: what takes the requests that it knows; None leaves all to aiohttp.
    """

    def __init__(self, handler: Handler, limits: Limits, **options: Any) -> None:
        super().__init__(self._answer, request_factory=_request)
        self.limits = limits
        self._handler = handler
        self.fast_path: FastPath | None = None
        self._options = {
            "keepalive_timeout": limits.idle_timeout,
            # One line may be all of the head: a request that names many ids is one long line.
            "max_line_size": limits.header_bytes,
            "max_field_size": limits.header_bytes,
            "max_headers": limits.headers,
            "access_log": None,
            "logger": log,
            "lingering_time": 0,  # connections linger on their own
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
        # A connection counts what has no end yet; a head that came in one piece is seen only here.
        limit = self.limits.header_bytes
        connection = request.protocol
        is_too_much = isinstance(connection, Connection) and connection.ahead.is_too_much
        if head_size(request) > limit or is_too_much:
            response: StreamResponse = problem(no_room() if is_too_much else too_long(limit))
            response.force_close()
        else:
            response = await self._handler(request)
        if ends_in_doubt(request):
            response.force_close()
        return response

    def take_in(self, connection: Connection) -> bool:
        """Count a connection in, if there is a place or someone idle gives one up."""
        if not self._make_room():
            return False
        self.open[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self.lingering.discard(connection)
        self.open.pop(connection, None)
        if not self.open:
            self._none_open.set()

    def let_linger(self, connection: Connection) -> bool:
        """Count a connection out that has had its last answer; False if it has to end at once."""
        self.forget(connection)
        if len(self.lingering) >= MOST_CONNECTIONS:
            return False
        self.lingering.add(connection)
        return True

    async def shutdown(self, timeout: float | None = None) -> None:
        """End all connections."""
        await super().shutdown(timeout)
        for connection in list(self.lingering):
            connection.give_way()

    def counts(self) -> dict[str, int]:
        """How many connections are open, and how many of them are not idle."""
        in_use = sum(not connection.is_idle for connection in self.open)
        return {"open": len(self.open) + len(self.lingering), "in_use": in_use}

    async def until_none_open(self) -> None:
        """Wait for the end of the last connection."""
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

    async def look_after_all(self) -> None:
        """End the connections whose clients are too slow, for ever."""
        loop = asyncio.get_running_loop()
        pause = min(_LOOK_EVERY_S, self.limits.header_timeout / 4, self.limits.write_timeout / 4)
        while True:
            await asyncio.sleep(pause)
            now = loop.time()
            for connection in (*self.open, *self.lingering):
                connection.look_after(now)
            self.leftovers.look_after()


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    connection: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> BaseRequest:
    """A request; one that cannot be parsed is answered as of the HTTP that we speak."""
    if message is ERROR:
        message = message._replace(version=HttpVersion11)
    loop = asyncio.get_running_loop()
    return BaseRequest(message, payload, connection, writer, task, loop)
