"""Segments: the files of ``log/``. The name of each is its number."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, Self, TypeVar
from uuid import UUID

from .disk import GONE, Disk
from .hints import LockFile
from .record import FIRST, Line, any_mark, parse_line

P = ParamSpec("P")
T = TypeVar("T")
# An NFS client may write more than it was given, of a page that it knows; not with this.
SYNCED = os.O_DSYNC
_SEARCHED = 1 << 20  # bytes in which a mark is looked for, if the line is damaged
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def close_on_error(opened: File | LockFile) -> Iterator[None]:
    """Close what was opened if what is done with it raises, since nobody has it then."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def open_file(disk: Disk, number: int, access: int = os.O_RDONLY, base: int = 0) -> File | None:
    """Open a segment; None if it is not there. base: if its line does not say it. OSError."""
    if access == os.O_RDWR and disk.tree.network:
        access |= SYNCED
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


def has_number(disk: Disk, number: int) -> bool:
    """Whether a segment of this number was begun, and not removed. Raises OSError."""
    return disk.tree.stat(f"{disk.segments}/{name_of(number)}") is not None


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
