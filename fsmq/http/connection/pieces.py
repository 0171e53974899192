"""Answers that are made and written piece by piece.

The whole of such an answer is never there, though one byte of a message may be six in JSON. And no
piece takes longer to make than others may wait; between two of them it is their turn.
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

# Bytes of a body in one piece; base64 takes them by three.
PIECE_BYTES = 96 * 1024
# A byte may be six in JSON: "\\u0001".
JSON_FACTOR = 6
_WRITE_BYTES = 64 * 1024
# So much of an answer is there at a time in the form in which it is written.
FORM_BYTES = JSON_FACTOR * PIECE_BYTES + _WRITE_BYTES
_VALUES = 256


class Pieces(Payload):
    """The body of an answer, each piece of which is made when the one before is on its way.

    size: of all of them, where it is known.
    """

    def __init__(self, pieces: Iterable[bytes], size: int | None = None) -> None:
        super().__init__(None)
        self._pieces = pieces
        self._bytes = size

    @property
    def size(self) -> int | None:
        """How many bytes it has, where that is known."""
        return self._bytes

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole as text, which takes the memory that pieces save: for a look at it in tests."""
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it, as quickly as the client takes it."""
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
    """The body of an answer whose pieces come when they are found; ``first`` has been."""

    def __init__(self, first: bytes, following: AsyncIterator[bytes]) -> None:
        super().__init__(())
        self._first = first
        self._following = following

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write each piece when it is there."""
        await _write(writer, [self._first])
        async for piece in self._following:
            await _write(writer, [piece])


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
    """An answer in JSON that is a list, or an object, but for what stands before and behind it.

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
