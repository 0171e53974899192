"""What aiohttp answers by itself, to what is no HTTP, told in our shape of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiohttp import http_exceptions, web
from aiohttp.web import BaseRequest, StreamResponse

from .problems import HttpError, InternalError, MalformedRequest, UnreadableBody, problem

log = logging.getLogger(__name__)
Handler: TypeAlias = Callable[[BaseRequest], Awaitable[StreamResponse]]


class ProblemServer(web.Server):
    """A server whose connections tell every error as a problem, and which knows its last one."""

    def __init__(self, handler: Handler, **options: Any) -> None:
        super().__init__(handler, **options)
        self._connected = 0
        self._none_connected = asyncio.Event()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection."""
        super().connection_made(handler, transport)
        self._connected += 1

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        """Count a connection out."""
        super().connection_lost(handler, exc)
        self._connected -= 1
        if not self._connected:
            self._none_connected.set()

    async def until_none_connected(self) -> None:
        """Wait for the end of the last connection."""
        while self._connected:
            self._none_connected.clear()
            await self._none_connected.wait()

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


class Connection(web.RequestHandler):
    """``on_hang_up``: what the request that is being answered wants done when the client goes."""

    __slots__ = ("on_hang_up",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self.on_hang_up: Callable[[], None] | None = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the request, if it has asked for that."""
        super().connection_lost(exc)
        if self.on_hang_up is not None:
            self.on_hang_up()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; a body that turns out to be broken ends the request that reads it."""
        before = len(self._messages)
        super().data_received(data)
        # aiohttp puts the error in line behind the request, and lets that one wait for its body.
        request = self._current_request
        if request is None or len(self._messages) == before or request.content.is_eof():
            return
        error = getattr(self._messages[-1][0], "exc", None)
        if error is not None:
            request.content.set_exception(error)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer what never reached a handler, or what a handler could not have foreseen."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: there is no place for another one")
        if status >= 500:
            log.error("a request failed outside its handler", exc_info=exc)
        response = problem(_error_for(status, exc, message))
        response.force_close()
        return response


def _error_for(status: int, exc: BaseException | None, message: str | None) -> HttpError:
    if status >= 500:
        return InternalError()
    # The parser draws the place of the error below it: of no use in one line.
    reason = (message or "").split("\n")[0].rstrip(": ")[:200] or "no reason known"
    if isinstance(exc, http_exceptions.PayloadEncodingError):
        return UnreadableBody(f"the body cannot be read: {reason}")
    return MalformedRequest(f"the request cannot be understood: {reason}")
