"""A connection: shares its bytes between the fast path and aiohttp, and enforces its limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web import BaseRequest, RequestPayloadError, Response, StreamResponse

from fsmq.spool.errors import FsmqError

from ..problems import Overloaded, SlowHead
from .lingering import Lingering, skip
from .malformed import last_words, no_room, too_long
from .on_wire import WRITTEN_TIMES, OnWire
from .open_connections import OpenConnections
from .parts import Parts
from .render import sign

log = logging.getLogger(__name__)
# On the clock of the loop.
_NEVER = 1e12
# The private attributes of aiohttp that fsmq uses (there are no others), and what each is used for.
# A test fails when a later aiohttp lacks one of them.
BORROWED: Mapping[str, str] = {
    "_force_close": "to read nothing more on a connection that is to be closed",
    "_messages": "to see whether a request has come, and whether its head or body is broken",
    "_next_keepalive_close_time": "to keep a connection whose requests the fast path answers",
    "_waiter": "to recognize an idle connection, which can be closed to make room for another",
}


class Connection(OnWire):
    """One connection.

    beginning: its TLS handshake, while that is under way.
    on_hang_up: set by the request being answered; called when the client hangs up.
    on_written: called when the answer is written, or cannot be.
    """

    __slots__ = (
        "_has_read",
        "_head_bytes",
        "_head_since",
        "_parts",
        "_unanswered",
        "_will_read_on",
        "beginning",
        "on_hang_up",
        "on_written",
    )

    def __init__(
        self, server: web.Server, connections: OpenConnections[Connection], **options: Any
    ) -> None:
        super().__init__(server, connections, **options)
        self.beginning: asyncio.Task[None] | None = None
        self.on_hang_up: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        self._has_read = False  # whether aiohttp has had any bytes of it
        self._head_bytes = 0  # of an incomplete head
        self._head_since = 0.0
        self._parts = Parts()
        self._unanswered = 0  # requests that aiohttp has read
        self._will_read_on = False  # in one of the next turns; bytes that come before that wait

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered or received, and no answer waits to be sent."""
        if self.beginning is not None:
            return True
        if self._wire is not None and self._wire.is_closing():
            return not self.unsent  # closing waits for a slow client, too, whose time is limited
        return self.protocol is None and self._waiter is not None and not self._is_begun

    @property
    def _is_begun(self) -> bool:
        """Whether a request has arrived, at least in part, that aiohttp has not answered."""
        return bool(
            self._messages or self._head_bytes or self.ahead.behind or not self._payload.is_eof()
        )

    def give_way(self) -> None:
        """Close at once, to make room for another connection."""
        wire = self._wire
        if wire is None:
            if self.beginning is not None:
                self.beginning.cancel()
            return
        nothing_unsent = not wire.get_write_buffer_size()
        self.force_close()
        if nothing_unsent:
            wire.abort()  # over TLS, close() would wait for the client's close_notify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, if the server has a place for it."""
        self._wire = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        # An answer counts as unsent while there is a byte that the kernel has not taken.
        self._wire.set_write_buffer_limits(high=1)
        if self in self._connections.open:
            super().connection_made(transport)
        else:
            limit = self._limits.connections  # aiohttp never sees this connection
            self._answer_last(Overloaded(f"{limit} connections are open and busy"))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Notify the request, if it has asked for that, and drop what is held for it."""
        if self.writing_paused:
            # The handler notices at its next write. aiohttp would raise an error in it, which keeps
            # itself alive, and everything that its traceback refers to.
            self.resume_writing()
        super().connection_lost(exc)
        self._connections.forget(self)
        self._wire = None
        self._messages.clear()
        self._payload = EMPTY_PAYLOAD  # the old one refers to this connection
        self.ahead.forget()
        if self.protocol is not None:
            self.protocol.gone()
        on_hang_up, self.on_hang_up = self.on_hang_up, None
        if on_hang_up is not None:
            on_hang_up()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio declares it
        """The client sends no more; whether the connection stays open for answers."""
        wire = self._wire
        if wire is None or wire.get_extra_info("sslcontext") is not None:
            return False  # TLS closes both directions at once
        self.has_ended = self._outlives_sending
        return self.has_ended

    @property
    def _needs_client(self) -> bool:
        """Whether the current request ends when the client sends no more.

        It may just as well have hung up, which is what a waiting request, such as a claim, assumes.
        """
        if self.protocol is not None:
            return not self.protocol.outlives_sending()
        return self.on_hang_up is not None

    @property
    def _outlives_sending(self) -> bool:
        """Whether something is still to be answered after the client's end of file."""
        if self._needs_client:
            return False
        is_whole = self._unanswered > 0 and self._payload.is_eof()
        # Bytes can be left that aiohttp has not parsed yet.
        is_unread = self._is_full or self._will_read_on or bool(self.ahead.behind)
        return is_whole or self.protocol is not None or is_unread

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the protocol, the fast path or aiohttp."""
        if self.protocol is not None:
            if behind := self.protocol.more(data):
                self._keep(behind)
                self._take_up_behind()  # its request may have been answered just now
            return
        if self._connections.has_to_wait(len(data)):
            self._plan_to_read_on()
            self._keep(data)
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        fast_path, wire = self._connections.fast_path, self._wire
        if (
            fast_path is not None
            and wire is not None
            and (self._waiter is not None or not self._has_read)
            and not self._is_begun
            and not wire.get_write_buffer_size()
        ):
            # Waiting for an answer is not idle; aiohttp, which knows of no request, would close.
            idle_at, self._next_keepalive_close_time = self._next_keepalive_close_time, _NEVER
            if fast_path.take(self, data):
                return
            self._next_keepalive_close_time = idle_at
        self.read(data)

    # -- for its protocol --------------------------------------------------------------------------

    @property
    def is_last_answer(self) -> bool:
        """Whether the next answer is the last: nothing that follows it can be answered."""
        if self._is_last and not self._messages:
            return True
        ahead, seconds = self.ahead, self._limits.header_timeout
        return bool(ahead.behind) and ahead.is_late(self._now(), seconds)

    def go_on(self, *, closing: bool) -> None:
        """Continue after the protocol has answered. closing: that was the last answer."""
        self._next_keepalive_close_time = self._now() + self._limits.idle_timeout
        if closing:
            self._end()
        elif self.ahead.behind or self.has_ended:
            self._take_up_behind()

    def leave_to_aiohttp(self, data: bytes) -> None:
        """Let aiohttp answer a request whose bytes went to the protocol."""
        self.read(data + self.ahead.take())

    # -- for aiohttp -------------------------------------------------------------------------------

    @property
    def _is_occupied(self) -> bool:
        """Whether new bytes have to wait, such as for the answer to a complete request."""
        if self._is_full or self._is_last:
            return True
        return self._unanswered > 1 or (self._unanswered == 1 and self._payload.is_eof())

    def read(self, data: bytes) -> None:
        """Let aiohttp read to the end of a request; what follows that is kept."""
        self._read(self.ahead.take() + data)
        self._after_reading()

    def _read_on(self) -> None:
        """Let aiohttp read what it has kept of the last part, and then what follows that."""
        self._will_read_on = False
        # aiohttp fails with a request that comes just before the connection is lost.
        if (wire := self._wire) and not (wire.is_closing() or self._force_close or self.protocol):
            if self._has_read:
                self._feed(b"")
            self._receive(self.ahead.take())

    def _plan_to_read_on(self) -> None:
        if not self._will_read_on:  # once, however often more comes before that
            self._will_read_on = True
            self._connections.readings.do_later(self._read_on)

    def _take_up_behind(self) -> None:
        """Go on with what follows a request that has been answered."""
        if self.ahead.behind and self.protocol is None:
            self.data_received(self.ahead.take())
        self._after_reading()

    def _after_reading(self) -> None:
        self._let_come()
        if self.has_ended and not self._outlives_sending:
            self.force_close()  # the rest of the request will never come

    def _read(self, data: bytes) -> None:
        at = 0
        while not (self._force_close or self._is_occupied or self._will_read_on):
            end = self._parts.end_of_next(data, at, in_body=not self._payload.is_eof())
            self._feed(data[at:end])
            at = end
            if at == len(data):
                return
            if self._connections.readings.is_over:
                self._plan_to_read_on()
        if at < len(data) and not self._force_close:
            self._keep(data[at:])
            if self._is_last and self._head_bytes and not self._unanswered:
                self._answer_last(no_room())  # there was no room for the rest of this head

    def _feed(self, data: bytes) -> None:
        """Let aiohttp parse bytes; a broken body raises an error in the request that reads it."""
        self._has_read = True
        before = len(self._messages)
        body = self._payload
        in_body, size = not body.is_eof(), body.total_bytes
        super().data_received(data)
        came = len(self._messages) - before
        if not came:
            if in_body:
                self._note_body(body, len(data), body.total_bytes - size)
            elif data:
                self._count_head(data)
            return
        self._unanswered += came
        self._head_bytes = 0
        newest, self._payload = self._messages[-1]
        self.ahead.add_to_head(data[: len(data) - self._payload.total_bytes])
        # aiohttp queues the error after the request, and leaves that request waiting for its body,
        # whether it has begun to handle it or not.
        if isinstance(newest, RawRequestMessage):
            self._parts.note_head(newest, self._payload)
        else:
            self._is_last = True
            if not body.is_eof():
                body.set_exception(newest.exc)

    def waits(self, on_hang_up: Callable[[], None] | None) -> None:
        """The request waits for an event and ignores the rest of its body; None: no longer."""
        self.on_hang_up = on_hang_up
        self._forget_unwanted(self._payload)

    def _forget_unwanted(self, body: StreamReader) -> None:
        if self.on_hang_up is not None and body.exception() is None:
            body.read_nowait()

    def _note_body(self, body: StreamReader, size: int, came: int) -> None:
        self._parts.note_body(size, came)
        self._forget_unwanted(body)
        limit = self._limits.header_bytes
        if self._parts.barren > limit and not body.is_eof():
            self._is_last = True
            body.set_exception(RequestPayloadError(f"more than {limit} bytes without content"))

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read more of a body; not at once, because its reader is running now."""
        self._is_full = False
        super().resume_reading(resume_parser=False)
        self._let_come()
        if resume_parser:
            self._plan_to_read_on()

    def enforce_timeouts(self, now: float) -> None:
        """Close if the client takes too long to send a head, to take an answer, or in between."""
        wire = self._wire
        if wire is None:
            return
        if self._taking.is_too_slow(self.unsent, now, self._limits.write_timeout):
            self.cut_off()
            return
        if self.writing_paused:
            self._note_unsent()  # a stream may have written more
        if self.is_idle and now >= self._next_keepalive_close_time:
            self.force_close()
            return
        if self.protocol is not None:
            self.protocol.enforce_timeouts()
        seconds = self._limits.header_timeout
        if self._head_bytes and now - self._head_since > seconds:
            self._answer_last(SlowHead(f"the request did not arrive within {seconds:g} seconds"))
        if self._needs_client:
            self._close_if_gone()

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        """Write an answer, and go on with what follows the request."""
        if not resp.prepared:
            sign(resp.headers)
        if self.is_last_answer or self.ahead.has_long_head:
            # Otherwise aiohttp would keep the head in memory until the next one comes.
            resp.force_close()
        if isinstance(resp, Response) and isinstance(resp.body, bytes):
            self._writes = WRITTEN_TIMES * len(resp.body)
        try:
            response, is_reset = await super().finish_response(request, resp, start_time)
        finally:
            written, self.on_written = self.on_written, None
            if written is not None:
                written()
            if isinstance(resp, Response):
                resp.body = None  # aiohttp would keep it until the next request comes
        body = request.content
        is_kept = bool(response.keep_alive) and not is_reset
        if is_kept and not body.is_eof():
            is_kept = await skip(body, lambda: self.is_gone)
        self._unanswered -= 1
        self.ahead.forget_head()
        if is_kept:
            self._take_up_behind()
        else:
            self._end()
        return response, is_reset

    def _count_head(self, data: bytes) -> None:
        if not self._head_bytes:
            self._head_since = self._now()
        self._head_bytes += len(data)
        self.ahead.add_to_head(data)
        limit = self._limits.header_bytes
        if self._head_bytes > limit:
            self._answer_last(too_long(limit))
        elif self.ahead.is_too_much:
            self._answer_last(no_room())

    def _answer_last(self, error: FsmqError) -> None:
        self.write(last_words(error))
        self._linger()

    def _end(self) -> None:
        """Close after the last answer; linger where the client may still be sending."""
        is_unread = self._wire is not None and not self._wire.is_reading()
        if (is_unread or self._is_begun or self._is_last) and not self.has_ended:
            self._linger()
        else:
            self.force_close()

    def _linger(self) -> None:
        """Close once the client has had a chance to see the last answer."""
        self.ahead.forget()
        self._head_bytes = 0
        wire = self._wire
        if wire is None or wire.is_closing():
            return
        self._force_close = True  # so that aiohttp does not close it
        if self._connections.let_linger(self):
            self.protocol = Lingering(wire)
        else:
            wire.close()
