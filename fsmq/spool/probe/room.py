"""How much room a filesystem has left.

A full disk is only a warning: stored messages can still be claimed and removed, which makes room.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fsmq.words import size

from .finding import Level, Stop

_LOW_SHARE = 0.05
_LOW_BYTES = 1 << 30
_LOW_INODES = 100_000
_CLEANED = ("/tmp", "/var/tmp", "/dev/shm")


def cleaned_at_boot(root: Path) -> str | None:
    """The parent folder of a root that many systems empty when they start, if any."""
    real = Path(os.path.realpath(root))
    return next((folder for folder in _CLEANED if real.is_relative_to(folder)), None)


class Left(NamedTuple):
    """The size of a filesystem, and how much of it this user may still use; 0 of 0: no limit."""

    bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int


def left(fd: int) -> Left:
    """What the filesystem of an open file has left. Raises OSError."""
    found = os.statvfs(fd)
    unit = found.f_frsize
    return Left(found.f_blocks * unit, found.f_bavail * unit, found.f_files, found.f_favail)


def space(fd: int) -> str:
    """The free bytes for this user. Raises Stop if they are few, and OSError."""
    total, free, _, _ = left(fd)
    if total == 0:
        return "the filesystem reports no limit"
    text = f"{size(free)} of {size(total)} are free"
    if free == 0:
        raise Stop(Level.WARNING, f"{text}; free some, nothing can be stored", passing=True)
    if free < _LOW_SHARE * total or free < _LOW_BYTES:
        raise Stop(Level.WARNING, f"{text}; puts are refused when they are used up")
    return text


def inodes(fd: int) -> str:
    """The free inodes. Raises Stop if they are few, and OSError."""
    _, _, total, free = left(fd)
    if total == 0:
        return "the filesystem has no fixed number of them"
    text = f"{free:,} of {total:,} are free; each message takes one"
    if free == 0:
        raise Stop(Level.WARNING, f"{text}; free some, nothing can be stored", passing=True)
    if free < _LOW_SHARE * total or free < _LOW_INODES:
        raise Stop(Level.WARNING, f"{text}; puts are refused when they are used up")
    return text
