"""TLS between a socket and a connection, without buffers that the connection does not know of.

The TLS transports of event loops go on reading when they are paused, and do not report what waits
in the transport below them. Here what is read is passed on at once, pausing stops the reading from
the socket, and all that waits to be sent is counted.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, cast

from .tls_records import MOST_EMPTY, PART_BYTES, Records
from .turns import LoopTurns

# How much is read at once, into one buffer for all connections of a process: each is done with it
# before the next one reads.
_READ_BYTES = 64 * 1024
_place = memoryview(bytearray(_READ_BYTES))
# How much is encrypted before the socket gets it.
_WRITE_BYTES = 64 * 1024
# The beginning, in that of its hello, of the random bytes by which a server asks for another hello.
_HELLO_RETRY, _RANDOM_AT = bytes.fromhex("cf21ad74e59a6111"), 11
_LATER = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsWire(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of a socket's transport, and the transport of a connection.

    begun: whether the handshake succeeded, once that is known.
    """

    def __init__(
        self,
        connection: asyncio.Protocol,
        context: ssl.SSLContext,
        turns: LoopTurns,
        *,
        handshake: float | None,
        shutdown: float | None,
    ) -> None:
        """``handshake`` and ``shutdown``: the seconds that each may take; None: no limit.

        turns: of all handshakes, each of which takes the time of several requests.
        """
        super().__init__()
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[bool] = loop.create_future()
        self._connection = connection
        self._context = context
        self._turns = turns
        self._come = b""  # what has come of a handshake, and waits for its turn
        self._times = handshake, shutdown
        self._timer: asyncio.TimerHandle | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport | None = None
        self._records = Records()
        self._contents = 0  # how many records had content
        self._unwritten: deque[bytes | memoryview] = deque()  # and not encrypted yet
        self._unwritten_size = 0
        self._is_closing = False
        self._is_full = False  # whether something waits in the transport below
        self._has_paused = False  # whether the connection was told to pause writing

    # -- for the transport below -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a handshake."""
        self._raw = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self._abort_after(self._times[0])

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection, or whoever waits for the handshake."""
        self._abort_after(None)
        self._is_closing = True
        self._raw = None
        self._forget()
        if not self.begun.done():
            self.begun.set_result(False)
        elif self.begun.result():
            self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return _place

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self.begun.done() or self._raw is None:
            self._take(_place[:nbytes])
            return
        self._come = bytes(_place[:nbytes])
        self._raw.pause_reading()
        self._turns.do(self._go_on)

    def _go_on(self) -> None:
        """Go on with a handshake in its turn."""
        if self._raw is not None and not self._is_closing:
            self._raw.resume_reading()
            self._take(memoryview(self._come))
        self._come = b""

    def _take(self, data: memoryview) -> None:
        try:
            if self._read(data):
                self._end()
        except ssl.SSLError:
            self._flush()  # sends the TLS alert
            self.abort()

    def eof_received(self) -> bool:
        """The client closed without close_notify, as an attacker could: close without an answer."""
        self._is_closing = True
        return False

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._is_full = True
        if self.begun.done() and not self._has_paused:
            self._has_paused = True
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self._is_full = False
        self._send()
        if self._has_paused and not self._is_full:
            self._has_paused = False
            self._connection.resume_writing()

    # -- for the connection ------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about TLS, or about the socket."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether reading is not paused."""
        return self._raw is not None and self._raw.is_reading()

    def pause_reading(self) -> None:
        """Leave what arrives in the kernel."""
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._raw is not None:
            self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many unsent bytes the connection is told to pause writing."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """How many bytes wait for the client to take them."""
        below = 0 if self._raw is None else self._raw.get_write_buffer_size()
        return below + self._unwritten_size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if self._is_closing or not data:
            return
        self._unwritten.append(data if isinstance(data, bytes) else bytes(data))
        self._unwritten_size += len(data)
        self._send()

    def can_write_eof(self) -> bool:
        """Return False: TLS closes both directions at once."""
        return False

    def close(self) -> None:
        """Close when all is sent and the client has sent close_notify, or has not in time."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self.begun.done():
            self.abort()
            return
        self._abort_after(self._times[1])
        self.resume_reading()  # closing with unread bytes makes the kernel reset the connection
        self._part()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._forget()
        if self._raw is not None:
            self._raw.abort()

    # -- between the two ---------------------------------------------------------------------------

    def _read(self, data: memoryview) -> bool:
        """Decrypt and pass on what has arrived; whether the client has sent close_notify."""
        parts: list[bytes] = []
        is_over = False
        end = 0
        while end < len(data):
            at, end = end, self._records.end_of_next(data, end)
            self._check_records(len(parts))
            self._incoming.write(data[at:end])
            if self.begun.done() or self._has_begun():
                is_over = self._decrypt(parts)
        self._contents += len(parts)
        self._flush()
        if parts and not self._is_closing:
            self._connection.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        return is_over

    def _check_records(self, came: int) -> None:
        """Raises SSLError. came: how many records with content have come, beside those counted."""
        records = self._records
        if records.is_bad:
            raise ssl.SSLError("a hello does not fit into its record")
        if records.number - self._contents - came > MOST_EMPTY:
            raise ssl.SSLError("too many records have no content")

    def _has_begun(self) -> bool:
        """Go on with the handshake; whether it is complete."""
        try:
            self._tls.do_handshake()
        except _LATER:
            if self._outgoing.pending and self._raw is not None:
                answer = self._outgoing.read()
                self._records.expects_hello = answer.startswith(_HELLO_RETRY, _RANDOM_AT)
                self._raw.write(answer)
            return False
        self._abort_after(None)
        self.begun.set_result(True)
        # Before the next bytes are sent, which can reveal that the client has gone.
        self._connection.connection_made(self)
        return True

    def _decrypt(self, parts: list[bytes]) -> bool:
        try:
            while self._incoming.pending or self._tls.pending():
                part = self._tls.read(PART_BYTES)
                if not part:
                    return True
                parts.append(part)
        except ssl.SSLZeroReturnError:
            return True
        except _LATER:
            pass
        return False

    def _end(self) -> None:
        """The client has sent close_notify."""
        if not self._is_closing:
            self._connection.eof_received()
            self.close()
        elif not self._unwritten:
            self._part()

    def _send(self) -> None:
        """Encrypt and send, as long as the socket takes it."""
        try:
            while self._unwritten and not self._is_full and self._raw is not None:
                self._raw.write(self._encrypted())
        except ssl.SSLError:
            self.abort()
            return
        if self._is_closing and not self._unwritten:
            self._part()

    def _encrypted(self) -> bytes:
        """The next bytes for the socket."""
        parts = []
        left = _WRITE_BYTES
        while self._unwritten and left > 0:
            data = self._unwritten[0]
            count = self._tls.write(data)  # perhaps only a part: one record
            if count == len(data):
                self._unwritten.popleft()
            else:
                self._unwritten[0] = memoryview(data)[count:]
            self._unwritten_size -= count
            left -= count
            parts.append(self._outgoing.read())
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _flush(self) -> None:
        """Send what TLS has to send."""
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _part(self) -> None:
        """Send close_notify when all is sent, and close the socket when the client has sent its."""
        if self._unwritten or self._raw is None:
            return
        try:
            self._tls.unwrap()
        except _LATER:
            self._flush()
            return
        except ssl.SSLError:
            pass  # the client goes on sending instead
        self._flush()
        self._raw.close()

    def _forget(self) -> None:
        self._unwritten.clear()
        self._unwritten_size = 0

    def _abort_after(self, seconds: float | None) -> None:
        """Abort after this time, whatever goes on; None: cancel that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)
