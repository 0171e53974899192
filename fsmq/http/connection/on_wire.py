"""What a connection does with its transport, whoever has it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web import BaseRequest, StreamResponse

from ..problems import problem
from .ahead import Ahead
from .byte_protocol import ByteProtocol
from .leftovers import forget_frames
from .lingering import Lingering
from .malformed import error_for
from .taking import Taking

if TYPE_CHECKING:
    from .serving import ProblemServer

log = logging.getLogger(__name__)


class OnWire(web.RequestHandler):
    """A connection, but for what is read from it.

    ahead: what was sent ahead on it. has_ended: the client sends no more, and may have hung up.
    protocol: what has it, as long as that is not aiohttp.
    """

    __slots__ = (
        "_is_full",
        "_is_last",
        "_limits",
        "_now",
        "_payload",
        "_server",
        "_taking",
        "_wire",
        "_writes",
        "ahead",
        "has_ended",
        "protocol",
    )

    def __init__(
        self, server: ProblemServer, *, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._now = loop.time  # to ask which loop runs costs a system call
        self._server = server
        self._limits = server.limits
        self._wire: asyncio.Transport | None = None
        self._payload = EMPTY_PAYLOAD  # of the request that came last
        self._is_full = False  # whether so much of a body waits that more has to wait elsewhere
        self._is_last = False  # whether what stands behind this request is not read
        self._taking = Taking(self._now())
        self._writes = 0  # the memory of the part of an answer that was written last
        self.ahead = Ahead(server.ahead)
        self.has_ended = False
        self.protocol: ByteProtocol | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as one can tell."""
        return self.has_ended or self._wire is None or self._wire.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes to a client that has not hung up."""
        if self._wire is not None:
            self.will_write(len(data))
            self._wire.write(data)

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client to take them."""
        return 0 if self._wire is None else self._wire.get_write_buffer_size()

    @property
    def slow_since(self) -> float:
        """Since when the client has taken less than it has to."""
        return self._taking.since

    def cut_off(self) -> None:
        """End it at once: the client takes its answer too slowly."""
        if self._wire is not None:
            self._wire.abort()

    def force_close(self) -> None:
        """End at once; who reads a body is told, also where its request has not begun yet."""
        super().force_close()
        if not self._payload.is_eof():
            self._payload.set_exception(ConnectionResetError("the connection is closed"))

    def pause_reading(self) -> None:
        """Read no more of a body until its reader has caught up."""
        self._is_full = True
        super().pause_reading()

    def pause_writing(self) -> None:
        """A part of an answer has to wait for the client."""
        super().pause_writing()
        self._note_unsent()

    def resume_writing(self) -> None:
        """None has to wait any more."""
        super().resume_writing()
        self._server.unsent.note(self, 0)

    def _note_unsent(self) -> None:
        # Of a part that was begun all stays in memory.
        self._server.unsent.note(self, max(self._writes, self.unsent))

    def will_write(self, size: int) -> None:
        """Take note of a part of an answer: what the client takes of it counts."""
        self._writes = size
        self._taking.written += size

    def _keep(self, data: bytes) -> None:
        """Keep what is for later; a little here, the rest in the kernel."""
        if self._is_last:
            return
        self.ahead.keep(data, self._now())
        in_body = self.protocol is None and not self._payload.is_eof()
        if self.ahead.is_too_much and not in_body:
            self._is_last = True
            self.ahead.forget()
        self._let_come()

    def _let_come(self) -> None:
        """Let more come, or leave it in the kernel."""
        wire = self._wire
        if wire is None or wire.is_closing() or isinstance(self.protocol, Lingering):
            return
        more = not (self.has_ended or self._is_full or self._is_last or self.ahead.is_long)
        if more != wire.is_reading():
            (wire.resume_reading if more else wire.pause_reading)()

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Tell of an error that nobody expects, and keep nothing of it."""
        super().log_exception(*args, **more)
        forget_frames(more.get("exc_info"))

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
        if status >= 500 and not isinstance(exc, ConnectionError):  # which is the client's doing
            log.error("a request failed outside its handler", exc_info=exc)
        response = problem(error_for(status, exc, message))
        response.force_close()
        return response
