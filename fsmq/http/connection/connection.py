"""What aiohttp answers by itself, to what is no HTTP, told in our shape of errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web import BaseRequest, StreamResponse

from fsmq.spool.errors import FsmqError

from ..problems import HttpError, Overloaded, SlowHead, problem
from .lingering import Lingering, skip
from .malformed import error_for, last_words, missing_of, too_long
from .render import sign

if TYPE_CHECKING:
    from .serving import ProblemServer

log = logging.getLogger(__name__)
# What is not public in aiohttp and yet used here, by what it is used for; nothing else of that kind
# is used in fsmq. A test tells when a later aiohttp lacks one of these.
BORROWED: Mapping[str, str] = {
    "_current_request": "to end a request whose body turns out to be broken",
    "_force_close": "to take in nothing more on a connection that is to end",
    "_messages": "to see whether a request has come, and whether its head or body is broken",
    "_next_keepalive_close_time": "to keep a connection whose requests the lane answers",
    "_waiter": "to know a connection that is idle, which may have to give its place up",
}
# On the clock of the loop.
_NEVER = 1e12


class Occupant(Protocol):
    """What a connection's bytes and its end go to, in the place of aiohttp."""

    def more(self, data: bytes) -> None:
        """Bytes have come."""

    def gone(self) -> None:
        """The client has hung up."""

    def look_after(self) -> None:
        """See to it that nothing takes too long; called now and then."""

    def outlives_sending(self) -> bool:
        """Whether it goes on where the client sends no more, which may have hung up."""


class Lane(Protocol):
    """What may take a request before aiohttp sees it: `fsmq.http.lane`."""

    def take(self, connection: Connection, data: bytes) -> bool:
        """Become the occupant of a connection for the request in ``data``; False to leave it."""


class Connection(web.RequestHandler):
    """One connection.

    beginning: its TLS handshake, as long as that is under way.
    occupant: what has it, as long as that is not aiohttp.
    on_hang_up: what the request that is being answered wants done when the client goes.
    on_written: what is to be done when the answer is written, or cannot be.
    has_ended: the client sends no more, and may have hung up.
    """

    __slots__ = (
        "_has_read",
        "_head_bytes",
        "_head_since",
        "_is_last",
        "_limits",
        "_now",
        "_payload",
        "_server",
        "_unanswered",
        "_unsent",
        "_unsent_since",
        "_upgrade_left",
        "_wire",
        "beginning",
        "has_ended",
        "occupant",
        "on_hang_up",
        "on_written",
    )

    def __init__(
        self, server: ProblemServer, *, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self._now = loop.time  # to ask which loop runs costs a system call
        self.beginning: asyncio.Task[None] | None = None
        self.occupant: Occupant | None = None
        self.on_hang_up: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        self._server = server
        self._limits = server.limits
        self._wire: asyncio.Transport | None = None
        self._payload = EMPTY_PAYLOAD  # of the request that came last
        self._has_read = False  # whether aiohttp has had anything of it
        self._head_bytes = 0  # of a head that has not come to its end
        self._head_since = 0.0
        self.has_ended = False
        self._is_last = False  # whether what stands behind this request is not read
        self._upgrade_left = 0  # bytes of a request for another protocol that have not come
        self._unanswered = 0  # requests that aiohttp has read
        self._unsent = 0  # bytes that wait for the client to take them
        self._unsent_since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, or is on its way."""
        if self.beginning is not None:
            return True
        if self._wire is not None and self._wire.is_closing():
            return True
        return self.occupant is None and self._waiter is not None and not self._is_begun

    @property
    def is_gone(self) -> bool:
        """Whether the client has hung up, as far as one can tell."""
        return self.has_ended or self._wire is None or self._wire.is_closing()

    @property
    def _is_begun(self) -> bool:
        """Whether a part of a request has come that aiohttp has not answered."""
        return bool(self._messages or self._head_bytes or not self._payload.is_eof())

    def give_way(self) -> None:
        """End at once, for another to have the place."""
        wire = self._wire
        if wire is None:
            if self.beginning is not None:
                self.beginning.cancel()
            return
        nothing_unsent = not wire.get_write_buffer_size()
        self.force_close()
        if nothing_unsent:
            wire.abort()  # over TLS, to close is to wait for the client's goodbye

    def force_close(self) -> None:
        """End at once; who reads a body is told, also where its request has not begun yet."""
        super().force_close()
        if not self._payload.is_eof():
            self._payload.set_exception(ConnectionResetError("the connection is closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, if it has got a place."""
        self._wire = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self in self._server.open:
            super().connection_made(transport)
        else:
            limit = self._limits.connections  # aiohttp never hears of it
            self._answer_last(Overloaded(f"{limit} connections are open and busy"))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the request, if it has asked for that."""
        super().connection_lost(exc)
        self._server.forget(self)
        self._wire = None
        if self.occupant is not None:
            self.occupant.gone()
        if self.on_hang_up is not None:
            self.on_hang_up()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio asks for it
        """Whether the connection stays, for answers to a client that sends no more.

        It may as well have hung up: nobody can tell. What waits takes it for that.
        """
        wire = self._wire
        if wire is None or wire.get_extra_info("sslcontext") is not None:
            return False  # TLS ends both ways at once
        if self.on_hang_up is not None or not self._payload.is_eof():
            return False
        if self.occupant is not None:
            self.has_ended = self.occupant.outlives_sending()
        else:
            self.has_ended = self._unanswered > 0
        return self.has_ended

    def data_received(self, data: bytes) -> None:
        """Take bytes in, for whoever has the connection."""
        if self.occupant is not None:
            self.occupant.more(data)
            return
        lane, wire = self._server.lane, self._wire
        if (
            lane is not None
            and wire is not None
            and (self._waiter is not None or not self._has_read)
            and not self._is_begun
            and not wire.get_write_buffer_size()
            and lane.take(self, data)
        ):
            # Who waits for an answer is not idle; aiohttp, which knows nothing of it, would close.
            self._next_keepalive_close_time = _NEVER
            return
        self.read(data)

    # -- for an occupant ---------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes to a client that has not hung up."""
        if self._wire is not None:
            self._wire.write(data)

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client to take them."""
        return 0 if self._wire is None else self._wire.get_write_buffer_size()

    def pause(self) -> None:
        """Let what comes wait in the kernel until `go_on`."""
        if self._wire is not None:
            self._wire.pause_reading()

    def resume(self) -> None:
        """Take note of what comes again."""
        if self._wire is not None:
            self._wire.resume_reading()

    def go_on(self, behind: bytes, *, closing: bool) -> None:
        """The occupant has answered. behind: what has come since. closing: that was the last."""
        self._next_keepalive_close_time = self._now() + self._limits.idle_timeout
        if closing and behind:
            self._linger()
        elif closing:
            self.force_close()
        elif behind:
            self.resume()
            self.data_received(behind)
        if self.has_ended and not self.is_answering:
            self.force_close()

    def read(self, data: bytes) -> None:
        """Let aiohttp read; a body that turns out to be broken ends the request that reads it."""
        body = self._payload
        in_body = not body.is_eof()
        if self._force_close or (self._is_last and not in_body):
            return
        self._has_read = True
        is_begun, before = self._is_begun, len(self._messages)
        super().data_received(data)
        if self._upgrade_left:
            self._await_upgrade(self._upgrade_left - len(data))
        if len(self._messages) == before:
            if not in_body and data:
                self._count_head(len(data))
            return
        self._unanswered += len(self._messages) - before
        self._head_bytes = 0
        newest, self._payload = self._messages[-1]
        # aiohttp puts the error in line behind the request, and lets that one wait for its body,
        # whether it has begun to answer it or not.
        if not isinstance(newest, RawRequestMessage):
            self._is_last = True
            if not body.is_eof():
                body.set_exception(newest.exc)
        elif newest.upgrade:
            is_alone = not is_begun and len(self._messages) == 1
            self._await_upgrade(missing_of(newest, data) if is_alone else -1)

    def _await_upgrade(self, missing: int) -> None:
        """So many bytes are missing of a request for another protocol; negative: too many came.

        aiohttp throws away what comes in one piece with the end of such a request. Without that
        the connection is kept: some clients ask with each request.
        """
        self._upgrade_left = max(0, missing)
        if missing < 0:
            self._is_last = True
            if not self.is_answering:
                self.force_close()

    def look_after(self, now: float) -> None:
        """End it if the client takes too long: for a head, for an answer, or between the two."""
        wire = self._wire
        if wire is None:
            return
        if self.is_idle and now >= self._next_keepalive_close_time:
            self.force_close()
            return
        if self.occupant is not None:
            self.occupant.look_after()
        if self._head_bytes and now - self._head_since > self._limits.header_timeout:
            seconds = self._limits.header_timeout
            self._refuse(SlowHead(f"the request did not arrive within {seconds:g} seconds"))
        unsent = wire.get_write_buffer_size()
        if not unsent or not self._unsent or unsent < self._unsent:
            self._unsent_since = now
        elif now - self._unsent_since > self._limits.write_timeout:
            wire.abort()
        self._unsent = unsent

    def has_taken(self) -> None:
        """Take note that the client has taken a part of the answer: the next may be as large."""
        self._unsent = 0

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        """Write an answer."""
        if not resp.prepared:
            sign(resp.headers)
        if self._is_last and not self._messages:
            resp.force_close()
        try:
            finished = await super().finish_response(request, resp, start_time)
        finally:
            written, self.on_written = self.on_written, None
            if written is not None:
                written()
        self._unanswered = max(0, self._unanswered - 1)
        await self._end(request.content, is_kept=bool(resp.keep_alive))
        return finished

    async def _end(self, body: StreamReader, *, is_kept: bool) -> None:
        """See to what stands behind a request that has been answered, or is still to come of it."""
        if self.has_ended and not self._messages:
            self.close()
        elif is_kept:
            if not body.is_eof() and not await skip(body, lambda: self.is_gone):
                self._linger()
        elif self._is_begun or self._is_last:
            self._linger()

    def _count_head(self, size: int) -> None:
        if not self._head_bytes:
            self._head_since = self._now()
        self._head_bytes += size
        limit = self._limits.header_bytes
        if self._head_bytes > limit:
            self._refuse(too_long(limit))

    def _refuse(self, error: HttpError) -> None:
        """End a connection on which there is half a head."""
        if self.is_answering:
            # Its answer must be the next thing here; what comes behind it, nobody waits for yet.
            self.close()
        else:
            self._answer_last(error)
        self._head_bytes = 0

    @property
    def is_answering(self) -> bool:
        return (
            self.occupant is not None or self._current_request is not None or bool(self._messages)
        )

    def _answer_last(self, error: FsmqError) -> None:
        assert self._wire is not None
        self._wire.write(last_words(error))
        self._linger()

    def _linger(self) -> None:
        """End it when the client has seen its last answer."""
        wire = self._wire
        if wire is None or wire.is_closing():
            return
        self._force_close = True  # and aiohttp leaves the end to us
        if self._server.let_linger(self):
            self.occupant = Lingering(wire)
        else:
            wire.close()

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
