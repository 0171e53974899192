"""The side of a connection that writes, and that limits what waits to be read or sent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web import BaseRequest, StreamResponse

from ..problems import problem
from .ahead import Ahead, has_hung_up
from .byte_protocol import ByteProtocol
from .leftovers import forget_frames
from .lingering import Lingering
from .malformed import error_for
from .open_connections import OpenConnections
from .taking import Taking

log = logging.getLogger(__name__)
# Until all of a body is sent, it is in memory twice: alone, and behind its head as aiohttp writes.
WRITTEN_TIMES = 2


class OnWire(web.RequestHandler):
    """A connection without the parsing of what arrives.

    ahead: bytes that were sent ahead. has_ended: the client sends no more, and may have hung up.
    protocol: what receives its bytes; None: aiohttp does.
    """

    __slots__ = (
        "_connections",
        "_is_full",
        "_is_last",
        "_limits",
        "_now",
        "_payload",
        "_taking",
        "_wire",
        "_writes",
        "ahead",
        "has_ended",
        "protocol",
    )

    def __init__(
        self,
        server: web.Server,
        connections: OpenConnections[Any],
        *,
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._now = loop.time  # get_running_loop() costs a system call
        self._connections = connections
        self._limits = connections.limits
        self._wire: asyncio.Transport | None = None
        self._payload = EMPTY_PAYLOAD  # of the newest request
        self._is_full = False  # whether so much of a body is unread that more waits in the kernel
        self._is_last = False  # whether nothing is read after this request
        self._taking = Taking(self._now())
        self._writes = 0  # the memory of the last part of an answer that was written
        self.ahead = Ahead(connections.ahead)
        self.has_ended = False
        self.protocol: ByteProtocol | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as the server can tell."""
        return self.has_ended or self._wire is None or self._wire.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the client has hung up."""
        if self._wire is not None:
            self.will_write(len(data))
            self._wire.write(data)

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client to take them."""
        return 0 if self._wire is None else self._wire.get_write_buffer_size()

    @property
    def slow_since(self) -> float:
        """Since when the client has been reading too slowly."""
        return self._taking.since

    def cut_off(self) -> None:
        """Close at once: the client reads its answer too slowly."""
        if self._wire is not None:
            self._wire.abort()

    def force_close(self) -> None:
        """Close at once, with an error for the reader of a body, even one that comes later."""
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
        """Nothing has to wait for the client any more."""
        super().resume_writing()
        self._connections.unsent.note(self, 0)

    def _note_unsent(self) -> None:
        # A part stays in memory whole until its last byte is sent.
        self._connections.unsent.note(self, max(self._writes, self.unsent))

    def will_write(self, size: int) -> None:
        """Record that a part of an answer is written, to measure how fast the client reads it."""
        self._writes = size
        self._taking.written += size

    def _keep(self, data: bytes) -> None:
        """Keep bytes for later; when there are many, the rest waits in the kernel."""
        if self._is_last:
            return
        self.ahead.keep(data, self._now())
        in_body = self.protocol is None and not self._payload.is_eof()
        if self.ahead.is_too_much and not in_body:
            self._is_last = True
            self.ahead.forget()
        self._let_come()

    def _let_come(self) -> None:
        """Resume reading, or pause it and leave bytes in the kernel."""
        wire = self._wire
        if wire is None or wire.is_closing() or isinstance(self.protocol, Lingering):
            return
        more = not (self.has_ended or self._is_full or self._is_last or self.ahead.is_long)
        if more != wire.is_reading():
            (wire.resume_reading if more else wire.pause_reading)()

    def _close_if_gone(self) -> None:
        """Close as the transport would that reads the end of what was sent, if it is paused."""
        wire = self._wire
        if wire is not None and not (wire.is_reading() or wire.is_closing()) and has_hung_up(wire):
            wire.close()

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Log an unexpected error, and drop its traceback."""
        super().log_exception(*args, **more)
        forget_frames(more.get("exc_info"))

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """Answer a request that never reached a handler, or an error that no handler expects."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun: another cannot be sent")
        if status >= 500 and not isinstance(exc, ConnectionError):  # caused by the client
            log.error("a request failed outside its handler", exc_info=exc)
        response = problem(error_for(status, exc, message))
        response.force_close()
        return response
