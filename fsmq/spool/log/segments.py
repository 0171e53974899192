"""Segments: the files of ``log/``, and the chain that they form.

A segment has a number, which is its name. Its first line says which one it follows, and where that
one ends. The log is the segment with the highest number whose line verifies, and back from there.
"""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from .disk import GONE, Disk
from .hints import End
from .record import FIRST, Closed, Line, any_mark, parse_line

P = ParamSpec("P")
T = TypeVar("T")
_SEARCHED = 1 << 20  # bytes in which a mark is looked for, if the line is damaged
_name = re.compile(r"[0-9]{20}")


def name_of(number: int) -> str:
    """The name of a segment."""
    return f"{number:020}"


def numbers_in(names: Iterable[str]) -> list[int]:
    """The numbers of segments among some names, the lowest first."""
    return sorted(int(name) for name in names if _name.fullmatch(name))


class Piece(NamedTuple):
    """A segment in the chain: offsets from ``start`` to before ``end``, at positions up to
    ``limit``."""

    start: int
    end: int
    number: int
    limit: int

    @property
    def name(self) -> str:
        return name_of(self.number)


class File:
    """An open segment. Close it; nothing keeps one of an idle log open.

    line: None if it is damaged, or not written yet. base: the offset of its first message.
    mark: the UUID as its marks have it; None if it is not known.
    """

    __slots__ = ("base", "fd", "line", "mark", "number")

    def __init__(self, fd: int, number: int, line: Line | None, base: int = 0) -> None:
        self.fd = fd
        self.number = number
        self.line = line
        self.base = base if line is None else line.base
        self.mark = None if line is None else UUID(line.uuid).bytes

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position on; fewer at the end."""
        return os.pread(self.fd, size, position)

    def close(self) -> None:
        os.close(self.fd)


def open_file(disk: Disk, number: int, access: int = os.O_RDONLY, base: int = 0) -> File | None:
    """Open a segment; None if it is not there. base: if its line does not say it. OSError."""
    try:
        fd = disk.tree.open(f"{disk.segments}/{name_of(number)}", access)
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


def newest(
    disk: Disk, log: str, known: End | None, access: int = os.O_RDWR
) -> tuple[File | None, int]:
    """The newest segment of a log, opened, and the number behind all.

    log: its UUID. known: a place that there was. Raises OSError.
    """
    numbers = {*numbers_in(disk.tree.names(disk.segments)), known.number if known else 0}
    top = max(numbers)
    while has_number(disk, top + 1):  # a listing may have missed it
        top += 1
        numbers.add(top)
    for number in sorted(numbers - {0}, reverse=True):
        base = known.base if known and known.number == number else -1
        file = open_file(disk, number, access, base)
        if file is None:
            continue
        # One whose line is damaged is known by its marks, if the hint knows its place.
        if file.line.log == log if file.line else file.mark and base >= 0:
            return file, top + 1
        file.close()
    return None, top + 1


def lines_before(disk: Disk, log: str, file: File) -> tuple[Closed, Closed]:
    """The segment that a segment follows, and the one which that follows. Raises OSError."""
    if file.line is not None:
        return file.line.before
    # Its line is damaged, and none behind it says more: then it is the next one that is there.
    for number in reversed(numbers_in(disk.tree.names(disk.segments))):
        found = open_file(disk, number) if number < file.number else None
        if found is not None:
            size = found.size
            found.close()
            if found.line is not None and found.line.log == log:
                return Closed(number, found.base, file.base - found.base, size), found.line.before[
                    0
                ]
    return Closed(), Closed()


def has_number(disk: Disk, number: int) -> bool:
    """Whether a segment of this number was begun, and not removed. Raises OSError."""
    return disk.tree.stat(f"{disk.segments}/{name_of(number)}") is not None


def chain(disk: Disk, log: str, last: Piece, known: list[Piece]) -> list[Piece]:
    """The pieces of a log up to the last one, in order. Raises OSError.

    log: its UUID. known: pieces that were found before. A file that is missing in between costs its own messages:
    the line behind it says which they are, and what comes before it.
    """
    at = {piece: number for number, piece in enumerate(known)}
    found, carried = [last], Closed()
    while True:
        before, carried = _before(disk, log, found[-1], carried)
        if not before.number:
            break
        piece = Piece(before.base, before.base + before.messages, before.number, before.position)
        if piece in at:
            found += reversed(known[: at[piece] + 1])
            break
        found.append(piece)
    return without_gone(disk, found[::-1])


def _before(disk: Disk, log: str, piece: Piece, carried: Closed) -> tuple[Closed, Closed]:
    """The segment before one, and the one before that; carried: what the line behind it said."""
    file = open_file(disk, piece.number, base=piece.start)
    if file is None:
        return carried, Closed()
    file.close()
    if file.line is None and carried.number:
        return carried, Closed()
    return lines_before(disk, log, file)


def without_gone(disk: Disk, pieces: list[Piece]) -> list[Piece]:
    """Pieces without the first ones that are gone, of which the last never counts. OSError."""
    disk.tree.refresh(disk.segments)
    gone = 0
    while gone < len(pieces) - 1 and not has_number(disk, pieces[gone].number):
        gone += 1
    return pieces[gone:]


def find(pieces: list[Piece], offset: int) -> int:
    """The number of the piece that has an offset, or of the first one behind it."""
    at = bisect_right(pieces, offset, key=lambda piece: piece.start) - 1
    if at < 0:
        return 0
    return at + 1 if pieces[at].end <= offset else at


def none_if_gone(read: Callable[P, T]) -> Callable[P, T | None]:
    """Of a file that another host removes while it is read, give what is given of a missing one."""

    def give(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return read(*args, **kwargs)
        except OSError as error:
            if error.errno == errno.ESTALE:
                return None
            raise

    return give
