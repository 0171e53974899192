"""Segments: the files of ``log/``. The name of each is its number.

If small appends follow each other, zeros are written ahead of them. An append over zeros does not
change the size of the file, so its sync writes only data and no journal, which takes longer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Self
from uuid import UUID

from ...layout.files import write_at
from .checkpoint import End, LockFile
from .disk import GONE, Disk
from .record import FIRST, HEAD_BYTES, Line, any_mark, parse_line

_SEARCHED = 1 << 20  # bytes searched for a mark, if the line is damaged
_AGAIN_BYTES = 1 << 20
_AHEAD = bytes(1 << 20)
_name = re.compile(r"[0-9]{20}")


def name_of(number: int) -> str:
    """The name of a segment."""
    return f"{number:020}"


def numbers_in(names: Iterable[str]) -> list[int]:
    """The numbers of segments among some names, the lowest first."""
    return sorted(int(name) for name in names if _name.fullmatch(name))


class File:
    """An open segment. Close it; nothing keeps one of an idle log open.

    line: None if it is damaged, or not written yet. base: the offset of its first message.
    mark: the UUID as its marks have it; None if it is not known.
    """

    __slots__ = ("_zeros_to", "base", "fd", "line", "mark", "number")

    def __init__(self, fd: int, number: int, line: Line | None, base: int = 0) -> None:
        self.fd = fd
        self.number = number
        self.line = line
        self.base = base if line is None else line.base
        self.mark = None if line is None else UUID(line.uuid).bytes
        self._zeros_to = 0  # how far the zeros after the end of the log reach

    @property
    def start(self) -> End:
        """The place before its first message."""
        return End(self.number, self.base, 0, FIRST)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position on; fewer at the end."""
        return os.pread(self.fd, size, position)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for a caller with the lock, or the turn -------------------------------------------------

    def append(self, position: int, chunks: Iterable[bytes]) -> None:
        """Write data after a place, all or nothing."""
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
        """Write zeros after the end, unless there are enough; False if that fails.

        written: how many bytes the last append had. segment_bytes: how large the segment gets.
        """
        size = min(len(_AHEAD), segment_bytes - end)
        self._zeros_to = self._zeros_to or self.size  # another process may have written some
        if self._zeros_to - end >= written or size < written:
            return True
        try:
            write_at(self.fd, memoryview(_AHEAD)[:size], end)
        except OSError:  # the disk may be full; the messages are stored
            with suppress(OSError):
                self.cut(end)  # others need the room
            return False
        self._zeros_to = end + size
        return True

    def write_again(self, begin: int, end: int) -> None:
        """Rewrite bytes unchanged, and both copies of the line, one of which may be torn."""
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
        """Whether no append follows a place: the file ends there, or has zeros, which no head has.

        Reading the byte before it detects a file that ends too early.
        """
        behind = self.read(position - 1, 1 + HEAD_BYTES)
        if len(behind) <= HEAD_BYTES:
            self._zeros_to = position  # another process has cut the zeros
        return bool(behind) and not behind[1:].strip(b"\0")

    def cut_torn(self, position: int) -> None:
        """Cut what a crash has left after a place. Zeros stay: a living writer needs them."""
        size = self.size - position
        if size > len(_AHEAD) or self.read(position, size).strip(b"\0"):
            self.cut(position)

    def cut(self, position: int) -> None:
        """Cut everything after a place."""
        self._zeros_to = position
        if self.size > position:
            os.ftruncate(self.fd, position)


@contextmanager
def close_on_error(opened: File | LockFile) -> Iterator[None]:
    """Close what was opened if the block raises, since nobody else has it."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def open_file(disk: Disk, number: int, access: int = os.O_RDONLY, base: int = 0) -> File | None:
    """Open a segment; None if it is missing. base: used if its line is damaged. OSError."""
    try:
        fd = disk.tree.open(f"{disk.segments}/{name_of(number)}", access | disk.tree.shared)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    try:
        line = parse_line(os.pread(fd, FIRST, 0))
        file = File(fd, number, line if line and line.number == number else None, base)
        if file.line is None:
            file.mark = any_mark(file.read(FIRST, _SEARCHED), FIRST)
        return file
    except OSError as error:
        os.close(fd)
        if error.errno in GONE:
            return None
        raise
    except BaseException:
        os.close(fd)
        raise


def has_number(disk: Disk, number: int) -> bool:
    """Whether a segment of this number was begun, and not removed. Raises OSError."""
    return disk.tree.stat(f"{disk.segments}/{name_of(number)}") is not None
