"""Sealing: one segment ends, and the next one notes where.

The next segment is created first, and only then is the end of the previous one determined: so
whatever a stopped writer still appends there comes after its end, and does not count.
"""

from __future__ import annotations

import os

from ...errors import Unavailable
from ...layout.files import write_at
from ...layout.uuids import uuid7
from .chain import lines_before
from .checkpoint import End
from .disk import Disk
from .record import Line, Piece
from .record_scan import walk
from .segments import File, name_of, open_file


def create(disk: Disk, number: int, *, may_go_on: bool) -> tuple[int, int]:
    """Create an empty segment, without a sync; its descriptor and its number.

    may_go_on: whether to try the next number if this one is taken, because no other writer can be
        at work: the process that created it has died.

    Raises OSError, Unavailable.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | disk.tree.shared
    while True:
        try:
            path = f"{disk.segments}/{name_of(number)}"
            return disk.tree.create(path, flags), number
        except FileExistsError:
            if not may_go_on:
                raise Unavailable(f"another host writes to log {disk.name!r}", 1) from None
            number += 1


def begin(
    disk: Disk, log: str, fd: int, number: int, file: File | None, end: End, base: int
) -> File:
    """Write the line of a segment that was created, durably. Raises OSError.

    file, end: the segment that it follows, if any, and where that ends. If that has no messages,
        its predecessor is followed instead. base: its first offset.
    """
    before = lines_before(disk, log, file) if file is not None else (Piece(), Piece())
    if end.ordinal:
        uuid = file.line.uuid if file is not None and file.line is not None else "-"
        before = Piece(*end.piece, uuid), before[0]
    line = Line(log, uuid7(), number, base, end.time_us, before)
    write_at(fd, line.encode(), 0)
    disk.sync_file(fd)
    disk.sync_folder(disk.segments)
    return File(fd, number, line)


def end_of(file: File, synced: End | None, hinted: End | None) -> End:
    """Where the last whole batch of a segment ends; a torn rest after it is cut.

    synced: the checkpoint ``.sync``. hinted: that of the turn, if this process has compared it with
    the log since the machine started: then no crash can have made it wrong.
    """
    size = file.size
    known = [one for one in (hinted, synced) if one and one.number == file.number]
    end = next((one for one in known if one.position <= size), file.start)
    is_said = end is hinted
    if end.position < size and not (is_said and file.ends_at(end.position)):
        end = walk(file, end, size, doubtful=not is_said)
        file.cut_torn(end.position)
    time_us = end.time_us or (file.line.time_us if file.line is not None else 0)
    return end._replace(base=file.base, time_us=time_us, state=0)


def has_counted(disk: Disk, number: int, end: End) -> bool:
    """Whether an append ended before the place at which its segment was sealed. Raises OSError.

    number: of a later segment in the chain.
    """
    while number > end.number:
        file = open_file(disk, number)
        if file is None:
            return False
        file.close()
        if file.line is None:
            return False
        before = file.line.before[0]
        if before.number == end.number:
            return before.limit >= end.position
        number = before.number
    return False
