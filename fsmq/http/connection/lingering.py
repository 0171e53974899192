"""The end of a connection whose client may still be sending.

If a socket is closed while it has unread bytes, the kernel resets the connection, and a reset can
discard the answer before the client has seen it (RFC 9112, section 9.6). So what comes after the
last answer is read and thrown away until the client closes, within limits of time, bytes and the
number of such connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import StreamReader
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from .leftovers import forget_frames

LINGER_S = 2.0
# Enough for a client that reads the answer only after it has sent all of a body that is twice as
# large as allowed.
_MOST_BYTES = 32 * 1024 * 1024
# Lingering connections do not count as open, so they have a limit of their own.
MOST_CONNECTIONS = 128


class Lingering:
    """The protocol of a connection that has had its last answer."""

    def __init__(self, wire: asyncio.Transport) -> None:
        self._wire = wire
        self._left = _MOST_BYTES
        if wire.can_write_eof():
            wire.write_eof()  # after the answer; over TLS the client has to rely on its headers
        wire.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, wire.close)

    def more(self, data: bytes) -> bytes:
        """Throw bytes away."""
        self._left -= len(data)
        if self._left < 0:
            self._wire.close()
        return b""

    def gone(self) -> None:
        """The client has closed."""
        self._timer.cancel()

    def enforce_timeouts(self) -> None:
        """Do nothing: its timer limits the time."""

    def outlives_sending(self) -> bool:
        """Return False: the client's end of file is what it waits for."""
        return False


async def skip(body: StreamReader, is_gone: Callable[[], bool]) -> bool:
    """Read an unwanted body, so that the connection can be kept; whether it came to its end."""
    left = _MOST_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while not body.is_eof() and left > 0 and not is_gone():
                left -= len(await body.readany())
    except (
        TimeoutError,
        ConnectionError,
        RuntimeError,  # instead of those, if the end of a chunk has just woken the reader
        RequestPayloadError,
        HttpProcessingError,
    ) as error:
        forget_frames(error)
        return False
    return body.is_eof()
