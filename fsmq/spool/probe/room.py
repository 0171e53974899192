"""How much room a filesystem has left.

None at all is a warning, too: stored messages can still be claimed and removed, which makes room.
"""

from __future__ import annotations

import os
from pathlib import Path

from fsmq.words import size

from .finding import Level, Stop

_LOW_SHARE = 0.05
_LOW_BYTES = 1 << 30
_LOW_INODES = 100_000
_CLEANED = ("/tmp", "/var/tmp", "/dev/shm")


def cleaned_at_boot(root: Path) -> str | None:
    """The folder around a root that many systems empty when they start, or None."""
    real = Path(os.path.realpath(root))
    return next((folder for folder in _CLEANED if real.is_relative_to(folder)), None)


def space(fd: int) -> str:
    """Free bytes, as this user may use them. Raises Stop where they are few, and OSError."""
    found = os.statvfs(fd)
    if found.f_blocks == 0:
        return "the filesystem reports no limit"
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    text = f"{size(free)} of {size(total)} are free"
    if free == 0:
        raise Stop(Level.WARNING, f"{text}; free some, nothing can be stored")
    if free < _LOW_SHARE * total or free < _LOW_BYTES:
        raise Stop(Level.WARNING, f"{text}; puts are refused when they are used up")
    return text


def inodes(fd: int) -> str:
    """Free inodes. Raises Stop where they are few, and OSError."""
    found = os.statvfs(fd)
    if found.f_files == 0:
        return "the filesystem has no fixed number of them"
    free, total = found.f_favail, found.f_files
    text = f"{free:,} of {total:,} are free; each message takes one"
    if free == 0:
        raise Stop(Level.WARNING, f"{text}; free some, nothing can be stored")
    if free < _LOW_SHARE * total or free < _LOW_INODES:
        raise Stop(Level.WARNING, f"{text}; puts are refused when they are used up")
    return text
