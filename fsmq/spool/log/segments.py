"""Segments: what the names in ``log/`` say, and which file has which offset.

    00000000000000004096                        from this offset on
    00000000000000004096-00000000000000069632   exactly these, the end exclusive

The union of the names is the truth. Of overlapping ones the one that reaches furthest counts; one
without an end ends at its last good record, and at the next name in any case.
"""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

from ..layout.tree import Tree
from .disk import GONE
from .record import LINE_BYTES, Line, parse_line

P = ParamSpec("P")
T = TypeVar("T")
_name = re.compile(r"([0-9]{20})(?:-([0-9]{20}))?")
MAX_OFFSET = 10**19


def name_of(base: int, end: int | None = None) -> str:
    """The name of a segment."""
    return f"{base:020}" if end is None else f"{base:020}-{end:020}"


class Name(NamedTuple):
    base: int
    end: int | None = None

    def __str__(self) -> str:
        return name_of(*self)


def parse_name(name: str) -> Name | None:
    """What a name in ``log/`` says; None if it is not that of a segment."""
    match = _name.fullmatch(name)
    if match is None:
        return None
    base, end = int(match[1]), None if match[2] is None else int(match[2])
    return None if end is not None and end <= base else Name(base, end)


class Piece(NamedTuple):
    """A stretch of offsets that one file has: from ``start`` to before ``end``.

    end: None for the last one, which grows. base: the offset of the file's first message.
    """

    start: int
    end: int | None
    base: int
    name: str


def arrange(names: Iterable[str]) -> list[Piece]:
    """The pieces of a log, in order and without overlaps. There may be holes between them."""
    wide: list[Name] = []
    bases: list[int] = []
    for text in names:
        name = parse_name(text)
        if name is None:
            continue
        if name.end is None:
            bases.append(name.base)
        else:
            wide.append(name)
    bases.sort()
    wide.sort()
    starts = sorted({*bases, *(name.base for name in wide)})
    pieces: list[Piece] = []
    at, next_wide, next_start = starts[0] if starts else 0, 0, 0
    reach: Name | None = None
    while True:
        while next_wide < len(wide) and wide[next_wide].base <= at:
            if reach is None or (wide[next_wide].end or 0) > (reach.end or 0):
                reach = wide[next_wide]
            next_wide += 1
        if reach is not None and reach.end is not None and reach.end > at:
            pieces.append(Piece(at, reach.end, reach.base, str(reach)))
            at = reach.end
            continue
        next_start = bisect_right(starts, at, next_start)
        following = starts[next_start] if next_start < len(starts) else None
        if next_start and starts[next_start - 1] == at and _has(bases, at):
            pieces.append(Piece(at, following, at, name_of(at)))
        if following is None:
            return pieces
        at = following


def _has(numbers: list[int], number: int) -> bool:
    at = bisect_right(numbers, number) - 1
    return at >= 0 and numbers[at] == number


def find(pieces: list[Piece], offset: int) -> int:
    """The number of the piece that has an offset, or of the first one behind it."""
    at = bisect_right(pieces, offset, key=lambda piece: piece.start) - 1
    if at < 0:
        return 0
    end = pieces[at].end
    return at + 1 if end is not None and end <= offset else at


class File:
    """An open segment. Close it; nothing keeps one of an idle log open."""

    __slots__ = ("fd", "inode", "line", "name")

    def __init__(self, fd: int, name: str, line: Line | None, inode: int) -> None:
        self.fd = fd
        self.name = name
        self.line = line
        self.inode = inode

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, size: int) -> bytes:
        """Bytes from a position on; fewer at the end."""
        return os.pread(self.fd, size, position)

    def close(self) -> None:
        os.close(self.fd)


def open_file(tree: Tree, folder: str, name: str, access: int = os.O_RDONLY) -> File | None:
    """Open a segment; None if it is not there. Raises OSError."""
    try:
        fd = tree.open(f"{folder}/{name}", access)
        try:
            line = parse_line(os.pread(fd, LINE_BYTES, 0))
            return File(fd, name, line, os.fstat(fd).st_ino)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        if error.errno in GONE:
            return None
        raise


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
