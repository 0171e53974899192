"""Splits what arrives on a connection, so that aiohttp never has more than one request.

Otherwise aiohttp would read up to 32 requests ahead, and make several objects for each chunk of a
body, however small.
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import hdrs
from aiohttp.streams import StreamReader

from .ahead import END_OF_HEAD

_PART_BYTES = 4096
_OVERLAP = len(END_OF_HEAD) - 1
_length = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)


class Parts:
    """The state of splitting one connection's bytes.

    barren: bytes of a chunked body that have come since the last one of its content.
    """

    __slots__ = ("_before", "_left", "barren")

    def __init__(self) -> None:
        self._left = 0  # of a body whose length is known
        self._before = b""  # the last bytes of the previous part, which may begin the end of a head
        self.barren = 0

    def end_of_next(self, data: bytes, at: int, *, in_body: bool) -> int:
        """Where the part that begins at ``at`` ends: at the end of a head or body, or before.

        A chunked body ends with an empty line as a head does, so no part goes beyond the end of a
        request: after one with Upgrade, aiohttp throws away the rest of the same piece.
        """
        if self._left:
            return min(len(data), at + self._left)
        end = self._end_of_head(data, at)
        if end < 0:
            end = min(len(data), at + _PART_BYTES)
            self._before = (self._before + data[max(at, end - _OVERLAP) : end])[-_OVERLAP:]
            return end
        self._before = b""
        if not in_body and end < len(data) and (length := _length.search(data, at, end)):
            end += int(length[1])  # two parts in one
        return min(len(data), end)

    def _end_of_head(self, data: bytes, at: int) -> int:
        """Where a head or a chunked body ends; -1 if not in the next part."""
        before = self._before
        across = (before + data[at : at + _OVERLAP]).find(END_OF_HEAD) if before else -1
        if across >= 0:
            return at - len(before) + across + len(END_OF_HEAD)
        blank = data.find(END_OF_HEAD, at, at + _PART_BYTES)
        return -1 if blank < 0 else blank + len(END_OF_HEAD)

    def note_head(self, message: Any, body: StreamReader) -> None:
        """A head is complete."""
        self.barren = self._left = 0
        if not body.is_eof() and not message.chunked:
            length = int(message.headers.get(hdrs.CONTENT_LENGTH, "0"))
            self._left = max(0, length - body.total_bytes)

    def note_body(self, size: int, came: int) -> None:
        """A part of ``size`` bytes has been read, ``came`` of which are content of the body."""
        if self._left:
            self._left = max(0, self._left - size)
        else:
            self.barren = 0 if came else self.barren + size
