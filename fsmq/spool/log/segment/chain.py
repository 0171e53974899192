"""The chain of segments that is a log.

The first line of a segment names the one that it follows, and where that ends. The log consists of
the segment with the highest number whose line verifies, and its predecessors.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from .checkpoint import End
from .disk import Disk
from .record import Piece
from .record_scan import walk
from .segments import File, close_on_error, has_number, numbers_in, open_file


def newest(
    disk: Disk, log: str, known: End | None, access: int = os.O_RDWR
) -> tuple[File | None, int]:
    """The newest segment of a log, opened, and the first number after all.

    log: its UUID. known: an earlier end of the log. Raises OSError.
    """
    numbers = {*numbers_in(disk.tree.names(disk.segments)), known.number if known else 0}
    top = max(numbers)
    while has_number(disk, top + 1):  # a listing may have missed it
        top += 1
        numbers.add(top)
    for number in sorted(numbers - {0}, reverse=True):
        file = open_file(disk, number, access)
        if file is None:
            continue
        is_it = file.line.log == log if file.line is not None else file.mark is not None
        if is_it and file.line is None:  # damaged, but followed by messages
            has_told = known is not None and known.number == number
            with close_on_error(file):
                file.base = known.base if known and has_told else _base_of(disk, log, file)
        if is_it:
            return file, top + 1
        file.close()
    return None, top + 1


def _base_of(disk: Disk, log: str, file: File) -> int:
    """The first offset of a segment whose line is damaged: where the one before it ends."""
    before, _ = lines_before(disk, log, file)
    found = open_file(disk, before.number) if before.number else None
    if found is None:
        return 0
    with found:
        return before.start + walk(found, found.start, found.size, doubtful=True).ordinal


def lines_before(disk: Disk, log: str, file: File) -> tuple[Piece, Piece]:
    """The segment that a segment follows, and the one which that follows. Raises OSError."""
    if file.line is not None:
        return file.line.before
    # Its line is damaged, and no later one tells: then take the next lower one that exists.
    for number in reversed(numbers_in(disk.tree.names(disk.segments))):
        found = open_file(disk, number) if number < file.number else None
        if found is not None:
            size = found.size
            found.close()
            if found.line is not None and found.line.log == log:
                before = Piece(number, found.base, file.base, size, uuid=found.line.uuid)
                return before, found.line.before[0]
    return Piece(), Piece()


def chain(disk: Disk, log: str, last: Piece, known: list[Piece]) -> list[Piece]:
    """The pieces of a log up to the last one, in order. Raises OSError.

    log: its UUID. known: pieces that were found before. A missing file costs only its own messages:
    the line after it tells which they are, and what comes before it.
    """
    disk.tree.refresh(disk.segments)  # a segment of another host may be cached as missing
    at = {piece: number for number, piece in enumerate(known)}
    found, carried = [last], Piece()
    while True:
        before, carried = _before(disk, log, found[-1], carried)
        if not before.number:
            break
        if before in at:
            found += reversed(known[: at[before] + 1])
            break
        found.append(before)
    return without_gone(disk, log, found[::-1])


def _before(disk: Disk, log: str, piece: Piece, carried: Piece) -> tuple[Piece, Piece]:
    """The segment before one, and the one before that. carried: what the line after it says."""
    file = open_piece(disk, log, piece)
    if file is None:
        return carried, Piece()
    file.close()
    if file.line is None and carried.number:
        return carried, Piece()
    return lines_before(disk, log, file)


def open_piece(disk: Disk, log: str, piece: Piece) -> File | None:
    """Open a segment of the chain; None if it is gone. Raises OSError."""
    file = open_file(disk, piece.number, base=piece.start)
    line = file.line if file is not None else None
    if file is None or line is None:
        return file
    if line.log == log and piece.uuid in ("-", line.uuid):
        return file
    file.close()  # a stopped writer has recreated a removed number
    return None


def without_gone(disk: Disk, log: str, pieces: list[Piece]) -> list[Piece]:
    """The pieces without the first ones that are gone; the last always stays. OSError."""
    disk.tree.refresh(disk.segments)
    gone = 0
    while gone < len(pieces) - 1:
        file = open_piece(disk, log, pieces[gone])
        if file is not None:
            file.close()
            break
        gone += 1
    return pieces[gone:]


def find(pieces: list[Piece], offset: int) -> int:
    """The index of the piece that has an offset, or of the first one after it."""
    at = bisect_right(pieces, offset, key=lambda piece: piece.start) - 1
    if at < 0:
        return 0
    return at + 1 if pieces[at].end <= offset else at
