"""The bytes of the newest segment of a log, which grows.

Where small appends follow each other, zeros are written ahead of them. An append that takes their
place does not change the size of the file. So its sync has bytes to write, and no journal, which
takes longer than the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from ..layout.files import write_at
from .record import FIRST, HEAD_BYTES
from .segments import File

_AGAIN_BYTES = 1 << 20
# So many zeros are written ahead, once so many appends in a row were small: zeros are bytes, too,
# and a large append is mostly bytes.
_AHEAD = bytes(1 << 20)
_SMALL_BYTES = 64 * 1024
_SMALL_IN_A_ROW = 8


class RecentSizes:
    """How large the appends of one process were of late, in whichever segment."""

    def __init__(self) -> None:
        self._small = 0  # in a row

    def note(self, size: int) -> None:
        """Take note of an append of so many bytes."""
        self._small = self._small + 1 if size <= _SMALL_BYTES else 0

    def note_full(self) -> None:
        """Take note that the disk has no room for zeros."""
        self._small = 0

    @property
    def is_small(self) -> bool:
        """Whether the next append is likely to take the place of zeros."""
        return self._small >= _SMALL_IN_A_ROW


class Growing(File):
    """The segment, open to be read and written. For who has the lock. Methods raise OSError."""

    __slots__ = ("_zeros_to",)

    def __init__(self, file: File) -> None:
        super().__init__(file.fd, file.number, file.line, file.base)
        self.mark = file.mark
        self._zeros_to = self.size  # behind the end of the log it has zeros up to here

    def append(self, position: int, chunks: Iterable[bytes]) -> None:
        """Write what comes behind a place, all of it or nothing."""
        at = position
        try:
            for chunk in chunks:
                write_at(self.fd, chunk, at)
                at += len(chunk)
        except OSError:
            with suppress(OSError):
                self.cut(position)
            raise

    def write_ahead(self, end: int, written: int, segment_bytes: int) -> bool:
        """Write zeros behind the end, unless enough are there; False if the disk refuses.

        written: how many bytes the last append had. segment_bytes: how large the segment gets.
        """
        size = min(len(_AHEAD), segment_bytes - end)
        if self._zeros_to - end >= written or size < written:
            return True
        try:
            write_at(self.fd, memoryview(_AHEAD)[:size], end)
        except OSError:  # it is full, say; what was to be stored is there
            with suppress(OSError):
                self.cut(end)  # others need the room
            return False
        self._zeros_to = end + size
        return True

    def write_again(self, begin: int, end: int) -> None:
        """Write bytes over themselves; and both copies of the line, of which one may be torn."""
        if begin < FIRST and self.line is not None:
            write_at(self.fd, self.line.encode(), 0)
            begin = FIRST
        while begin < end:
            data = self.read(begin, min(_AGAIN_BYTES, end - begin))
            if not data:
                break
            write_at(self.fd, data, begin)
            begin += len(data)

    def ends_at(self, position: int) -> bool:
        """Whether no append has come behind a place."""
        behind = _behind(self, position)
        if len(behind) <= HEAD_BYTES:
            self._zeros_to = position  # another process has cut what there was
        return _is_blank(behind)

    def cut_torn(self, position: int) -> None:
        """Cut what a crash has left behind a place. Zeros stay: a writer that lives needs them."""
        size = self.size - position
        if size > len(_AHEAD) or self.read(position, size).strip(b"\0"):
            self.cut(position)

    def cut(self, position: int) -> None:
        """Cut all that stands behind a place."""
        self._zeros_to = position
        if self.size > position:
            os.ftruncate(self.fd, position)


def ends_at(file: File, position: int) -> bool:
    """Whether no append has come behind a place: the file ends there, or has zeros, as no head."""
    return _is_blank(_behind(file, position))


def _behind(file: File, position: int) -> bytes:
    """The byte before a place, which tells a file that ends too early, and a head behind it."""
    return file.read(position - 1, 1 + HEAD_BYTES)


def _is_blank(behind: bytes) -> bool:
    return bool(behind) and not behind[1:].strip(b"\0")
