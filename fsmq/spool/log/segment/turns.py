"""Turns: who may append to a log, if more than one host writes.

A turn is a file ``.turn.<n>`` that was created exclusively; the one with the highest n is valid. It
notes where the last whole append ended, and whether its writer is in. A writer notes that it is in
and then looks for a higher turn. A writer that takes the turn creates it, and then reads the one
before. So one of the two sees the other, however long either was stopped in between.
"""

from __future__ import annotations

import os
import re

from ...errors import Unavailable
from .checkpoint import UNDER_WAY, Checkpoint, End, read_checkpoint
from .disk import Disk
from .record import FIRST
from .segments import close_on_error

_name = re.compile(r"\.turn\.([0-9]{20})")
TRIES = 20
NOWHERE = End(0, 0, 0, FIRST)  # the end of a log without segments


def turn_of(name: str) -> int | None:
    """The number of a turn, by its name; None for any other name."""
    match = _name.fullmatch(name)
    return None if match is None else int(match[1])


class Turn(Checkpoint):
    """One turn, opened."""

    def __init__(self, disk: Disk, number: int, flags: int = 0) -> None:
        super().__init__(disk.tree, _path(disk, number), flags)
        self.number = number
        self._disk = disk

    def is_last(self) -> bool:
        """Whether nobody has taken the turn since. Raises OSError."""
        self._disk.tree.refresh(self._disk.segments)
        # Turns are removed from the lowest on: as this one exists, the next was never removed.
        return not _has(self._disk, self.number + 1) and self.is_current()


def _path(disk: Disk, number: int) -> str:
    return f"{disk.segments}/.turn.{number:020}"


def _has(disk: Disk, number: int) -> bool:
    return disk.tree.stat(_path(disk, number)) is not None


def turns(disk: Disk) -> list[int]:
    """The numbers of all turns, the lowest first. Raises OSError."""
    disk.tree.refresh(disk.segments)
    found = map(turn_of, disk.tree.names(disk.segments))
    return sorted(number for number in found if number is not None)


def last_end(disk: Disk) -> End | None:
    """The content of the highest turn that has any. Raises OSError."""
    for number in reversed(turns(disk)):
        hinted = read_checkpoint(disk.tree, _path(disk, number))
        if hinted is not None:
            return hinted
    return None


def shared(disk: Disk) -> Turn:
    """The highest turn, for all processes of the only host that writes. Raises OSError."""
    return Turn(disk, max(turns(disk), default=1))


def create(disk: Disk) -> Turn:
    """A new, empty turn. Raises OSError, Unavailable.

    It stays, whatever happens to its writer: a check of the next number alone would miss a later
    one.
    """
    for _ in range(TRIES):
        before = max(turns(disk), default=0)
        try:
            turn = Turn(disk, before + 1, os.O_EXCL)
        except FileExistsError:
            continue
        with close_on_error(turn):
            disk.tree.refresh(disk.segments)
            if not before or _has(disk, before):
                return turn
            # This number was used and removed: the listing was out of date.
            disk.tree.unlink(turn.path)
        turn.close()
    raise taken(disk)


def begin(disk: Disk, turn: Turn) -> tuple[bool, End | None]:
    """Note in a new turn that its writer is in; returns whether it is the last one, and the end in
    the one before it. Raises OSError.
    """
    hinted = last_end(disk)
    turn.write((hinted or NOWHERE)._replace(state=UNDER_WAY))
    _unlink_before(disk, turn.number)
    return turn.is_last(), hinted


def taken(disk: Disk) -> Unavailable:
    """The error if others keep taking turns faster."""
    return Unavailable(f"log {disk.name!r} keeps being taken by other hosts", 1)


def _unlink_before(disk: Disk, turn: int) -> None:
    """Unlink the turns below one that has content, the lowest first."""
    lowest = min(turns(disk), default=turn)
    while _has(disk, lowest - 1):  # a listing may have missed it
        lowest -= 1
    for number in range(lowest, turn):
        disk.tree.unlink(_path(disk, number))
