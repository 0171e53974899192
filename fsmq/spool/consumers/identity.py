"""Identities: which file a name leads to.

An own id can be used again, so a name does not tell whether its message is still the same. Nor do
the stamp and the count, which can be equal by chance. The file does: it is written once, so a
message remains the same file as long as it exists, whatever its name.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import NamedTuple

# FS_IOC_GETVERSION: ext4, xfs, btrfs and f2fs set a new number each time an inode is reused.
_GET_VERSION = 0x80087601


class Identity(NamedTuple):
    """Identifies a file, whatever its name: no other file of the filesystem has both numbers.

    generation: 0 if the filesystem has none: then inode numbers can recur.
    """

    inode: int = 0
    generation: int = 0


UNKNOWN = Identity()


def identify(fd: int, found: os.stat_result | None = None) -> Identity:
    """The identity of an open file or folder; ``found``: its fstat, if known. Raises OSError."""
    inode = (found or os.fstat(fd)).st_ino
    try:
        answer = fcntl.ioctl(fd, _GET_VERSION, bytes(8))
    except OSError:
        return Identity(inode)
    return Identity(inode, int.from_bytes(answer[:4], sys.byteorder))
