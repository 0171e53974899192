"""The end of a connection whose client may still be sending.

Who closes a socket with bytes in it that nobody has read makes the kernel reset the connection, and
a reset can take away the answer before the client has seen it (RFC 9112, section 9.6). So what
comes behind the last answer is read and thrown away: until the client closes, for a moment, up to
so many bytes, and on so many connections at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import StreamReader
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from .leftovers import forget_frames

LINGER_S = 2.0
# A client that reads no answer before it has sent all of its body gets one for a body that is
# twice as large as it may be.
_MOST_BYTES = 32 * 1024 * 1024
# They take up no place among the connections, so there is a limit to their number, too.
MOST_CONNECTIONS = 128


class Lingering:
    """The protocol of a connection that has had its last answer."""

    def __init__(self, wire: asyncio.Transport) -> None:
        self._wire = wire
        self._left = _MOST_BYTES
        if wire.can_write_eof():
            wire.write_eof()  # behind the answer; over TLS the client has to go by its headers
        wire.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, wire.close)

    def more(self, data: bytes) -> bytes:
        """Throw away what comes."""
        self._left -= len(data)
        if self._left < 0:
            self._wire.close()
        return b""

    def gone(self) -> None:
        """It is over."""
        self._timer.cancel()

    def look_after(self) -> None:
        """Its timer does."""

    def outlives_sending(self) -> bool:
        """That the client sends no more was waited for."""
        return False


async def skip(body: StreamReader, is_gone: Callable[[], bool]) -> bool:
    """Read a body that nobody has wanted, so that the connection can be kept; whether it ended."""
    left = _MOST_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while not body.is_eof() and left > 0 and not is_gone():
                left -= len(await body.readany())
    except (
        TimeoutError,
        ConnectionError,
        RuntimeError,  # in its place, where it was woken by the end of a chunk just before
        RequestPayloadError,
        HttpProcessingError,
    ) as error:
        forget_frames(error)
        return False
    return body.is_eof()
