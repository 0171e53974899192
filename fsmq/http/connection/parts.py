"""Where what comes on a connection is parted, so that aiohttp never has more than one request.

It would read up to 32 of them ahead, and makes some objects for each chunk of a body, however small
that is.
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
    """Of one connection.

    barren: bytes that have come since the last one of a body in chunks, and are none of it.
    """

    __slots__ = ("_before", "_left", "barren")

    def __init__(self) -> None:
        self._left = 0  # of a body that has said how long it is
        self._before = b""  # the last bytes of the part before: of the end of a head, perhaps
        self.barren = 0

    def end_of_next(self, data: bytes, at: int, *, in_body: bool) -> int:
        """Where the part ends that begins there: with its body, or its head, if that is sooner.

        The chunks of a body end as a head does. So no part has a request's end within it: behind
        one that asks for another protocol, aiohttp throws away what comes in the same piece.
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
        """Where a head ends, or chunks do; -1 if that is not in the next part."""
        before = self._before
        across = (before + data[at : at + _OVERLAP]).find(END_OF_HEAD) if before else -1
        if across >= 0:
            return at - len(before) + across + len(END_OF_HEAD)
        blank = data.find(END_OF_HEAD, at, at + _PART_BYTES)
        return -1 if blank < 0 else blank + len(END_OF_HEAD)

    def note_head(self, message: Any, body: StreamReader) -> None:
        """A head has come to its end."""
        self.barren = self._left = 0
        if not body.is_eof() and not message.chunked:
            length = int(message.headers.get(hdrs.CONTENT_LENGTH, "0"))
            self._left = max(0, length - body.total_bytes)

    def note_body(self, size: int, came: int) -> None:
        """A part of so many bytes has been read, of which so many are the body's."""
        if self._left:
            self._left = max(0, self._left - size)
        else:
            self.barren = 0 if came else self.barren + size
