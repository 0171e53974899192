"""A server of aiohttp whose connections are ours."""

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
from .connection import Connection
from .malformed import ends_in_doubt, head_size, no_room, other_version, too_long
from .open_connections import OpenConnections

log = logging.getLogger(__name__)
Handler: TypeAlias = Callable[[BaseRequest], Awaitable[StreamResponse]]
# How much of an unread body aiohttp may keep.
_UNREAD_BYTES = 64 * 1024
# The key in a request of an unsupported version of HTTP whose value is that version.
_VERSION = "version"


class ProblemServer(web.Server):
    """A server whose connections answer every error as a problem, and enforce the limits."""

    def __init__(self, handler: Handler, limits: Limits, **options: Any) -> None:
        super().__init__(self._answer, request_factory=_request)
        self.open_connections: OpenConnections[Connection] = OpenConnections(limits)
        self._handler = handler
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

    def __call__(self) -> Connection:
        loop = asyncio.get_running_loop()
        return Connection(self, self.open_connections, loop=loop, **self._options)

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        # Connections check only incomplete heads; one that came in a single piece is checked here.
        limit = self.open_connections.limits.header_bytes
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

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        await super().shutdown(timeout)
        for connection in list(self.open_connections.lingering):
            connection.give_way()


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
