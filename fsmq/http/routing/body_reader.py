"""Reads a body as it arrives: within its limits, and with turns for other requests.

A compressed body that is small to send can take long to read. So turns are limited by time and not
by size.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiohttp import http_exceptions
from aiohttp.streams import StreamReader
from aiohttp.web import RequestPayloadError

from fsmq.spool.errors import MessageTooLarge

from ..connection.turns import LoopTurns
from ..problems import SlowBody, UnreadableBody
from .encodings import Decoder

# Compression makes incompressible data longer, by a few bytes in each block.
_PACKED_SHARE, _PACKED_MORE = 64, 1024
_DISCARDED_BYTES = 64 * 1024
# The room for a body of unknown length. The C library maps a block of this size by itself (see
# `unmap_large_blocks`), and its pages take memory only once they are written. A smaller block that
# grows would leave holes in the library's pools: many of them once took as much as all bodies.
_ROOM_BYTES = 4 * 1024 * 1024


def object_in(body: bytes, what: str = "the body is") -> dict[str, Any]:
    """Parse a body as a JSON object; errors begin with ``what``. Raises UnreadableBody."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"{what} not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableBody(f"{what} not a JSON object")
    return found


class BodyReader:
    """Reads one body.

    size: of the body as it comes; None: unknown. limit: on its decompressed bytes. keep: called
    with their number before more are kept; :meth:`read` raises what it raises. turns: in which all
    bodies are decompressed.
    """

    def __init__(
        self,
        content: StreamReader,
        size: int | None,
        limit: int,
        keep: Callable[[int], None],
        turns: LoopTurns,
    ) -> None:
        self._content = content
        self._turns = turns
        self._is_known = size is not None
        self._limit = limit
        self._keep = keep
        # Gives what it has without a copy. Parts would have to be joined, which takes the memory of
        # a body twice; and the C library keeps that of small blocks, so it is not made to grow.
        self._body = BytesIO(bytes(_ROOM_BYTES if size is None else size))
        self._size = 0

    async def read(self, decode: Decoder | None) -> bytes:
        """All of it.

        Raises:
            MessageTooLarge, UnreadableBody: as early as it is known.
            And what ``keep`` raises.
        """
        # Pieces of a body with a known length are used as they come. Chunks can be small, so all
        # that have arrived are joined.
        read = self._next_piece if self._is_known else self._all_pieces
        packed = 0
        while piece := await read():
            packed += len(piece)
            if packed > most_packed(self._limit):
                raise MessageTooLarge(None, self._limit)
            if decode is None:
                self._add(piece)
            else:
                await self._turns.through(self._decode(decode, piece))
        if decode is not None:
            decode.finish()
        self._body.truncate(self._size)
        return self._body.getvalue()

    async def _next_piece(self) -> bytes:
        return (await self._content.readchunk())[0]

    async def _all_pieces(self) -> bytes:
        return await read_any(self._content)

    def _decode(self, decode: Decoder, piece: bytes) -> Iterator[None]:
        for part in decode.feed(piece):
            self._add(part)
            yield

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._size += len(part)
        if self._size > self._limit:
            raise MessageTooLarge(None, self._limit)
        self._keep(self._size)
        self._body.write(part)


def most_packed(limit: int) -> int:
    """The largest compressed size of a body that has at most ``limit`` bytes."""
    return limit + limit // _PACKED_SHARE + _PACKED_MORE


async def discard(content: StreamReader) -> None:
    """Throw a body away; one that is too large is left to the end of the connection."""
    left = _DISCARDED_BYTES
    while left > 0 and not content.at_eof():
        left -= len(await read_any(content))


async def read_any(content: StreamReader) -> bytes:
    """The bytes of a body that have arrived, at least one. Raises ConnectionError on a hang-up."""
    try:
        return await content.readany()
    except RuntimeError as error:
        # aiohttp raises this instead if the end of a chunk has just woken the reader.
        ended = content.exception()
        raise (ended if isinstance(ended, ConnectionError) else error) from None


@asynccontextmanager
async def reading(timeout: float) -> AsyncIterator[None]:
    """Limit the time to read a body to ``timeout`` seconds, and translate the errors of reading."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        raise SlowBody(f"the body did not arrive within {timeout:g} seconds") from None
    except (RequestPayloadError, http_exceptions.HttpProcessingError) as error:
        raise UnreadableBody(f"the body cannot be read: {error}") from error
    except ConnectionError as error:
        raise UnreadableBody("the client hung up before the body's end") from error
