"""Answers that are made and written piece by piece.

Such an answer is never in memory as a whole; one byte of a message can be six in JSON. Each piece
is made quickly, and other requests have their turn between two of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from aiohttp.web import Response

from fsmq.spool.prepare import FEW, portions

from .connection import Connection

# Bytes of a body in one piece; a multiple of three, for base64.
PIECE_BYTES = 96 * 1024
# A byte can be six in JSON: "\\u0001".
JSON_FACTOR = 6
_WRITE_BYTES = 64 * 1024
# The most bytes of an encoded answer that are in memory at a time.
FORM_BYTES = JSON_FACTOR * PIECE_BYTES + _WRITE_BYTES
_VALUES = 256


class Pieces(Payload):
    """The body of an answer; each piece is made after the one before is written.

    size: of all pieces together, if it is known.
    """

    def __init__(self, pieces: Iterable[bytes], size: int | None = None) -> None:
        super().__init__(None)
        self._pieces = pieces
        self._bytes = size

    @property
    def size(self) -> int | None:
        """The number of bytes, if it is known."""
        return self._bytes

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole body as text, for tests: it takes the memory that pieces save."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it, as fast as the client reads."""
        waiting: list[bytes] = []
        size = 0
        for piece in self._pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= _WRITE_BYTES or len(waiting) >= FEW:
                await _write(writer, waiting)
                waiting, size = [], 0
                await asyncio.sleep(0)
        await _write(writer, waiting)


class PiecesInTime(Pieces):
    """The body of an answer whose pieces are found over time; ``first`` is there already."""

    def __init__(self, first: bytes, following: AsyncIterator[bytes]) -> None:
        super().__init__(())
        self._first = first
        self._following = following

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write each piece when it is found."""
        await _write(writer, [self._first])
        async for piece in self._following:
            await _write(writer, [piece])
            await asyncio.sleep(0)


async def _write(writer: AbstractStreamWriter, pieces: list[bytes]) -> None:
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if not whole:
        return
    connection = getattr(writer, "protocol", None)
    if isinstance(connection, Connection):
        connection.will_write(len(whole))
    await writer.write(whole)


def listed(
    before: str,
    values: Collection[Any],
    behind: str,
    *,
    dumps: Callable[[Any], str] = json.dumps,
    content_type: str = "application/json",
    status: int = 200,
) -> Response:
    """An answer in JSON: a list or an object between the texts ``before`` and ``behind``.

    ``before`` ends with the opening bracket.
    """
    pieces = _listed(before, values, behind, dumps)
    body = b"".join(pieces) if len(values) <= _VALUES else Pieces(pieces)
    return Response(status=status, body=body, headers={"Content-Type": content_type})


def _listed(
    before: str, values: Collection[Any], behind: str, dumps: Callable[[Any], str]
) -> Iterator[bytes]:
    comma = dumps([0, 0])[2:-2]
    items = values.items() if isinstance(values, Mapping) else values
    for number, portion in enumerate(portions(items, _VALUES)):
        text = dumps(dict(portion) if isinstance(values, Mapping) else portion)[1:-1]
        yield f"{comma if number else before}{text}".encode("utf-8", "replace")
    yield f"{'' if values else before}{behind}".encode()
