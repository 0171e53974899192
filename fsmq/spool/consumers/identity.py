"""Identities: which file has a name now.

An own id can be used again, so a name does not say whether its message is the one of a moment ago.
Nor do the stamp and the count, which may be equal by chance. The file does: a file is written once,
so a message is the same file as long as it lives, whatever its name is.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import NamedTuple

# FS_IOC_GETVERSION: ext4, xfs, btrfs and f2fs draw a number each time an inode is used again.
_GET_VERSION = 0x80087601


class Identity(NamedTuple):
    """A file, whatever its name: no other file of its filesystem has both numbers.

    generation: 0 if the filesystem has none; there the number of an inode may come again.
    """

    inode: int = 0
    generation: int = 0


UNKNOWN = Identity()


def identify(fd: int, found: os.stat_result | None = None) -> Identity:
    """The identity of an open file or folder; ``found`` if fstat was just asked. Raises OSError."""
    inode = (found or os.fstat(fd)).st_ino
    try:
        answer = fcntl.ioctl(fd, _GET_VERSION, bytes(8))
    except OSError:
        return Identity(inode)
    return Identity(inode, int.from_bytes(answer[:4], sys.byteorder))
