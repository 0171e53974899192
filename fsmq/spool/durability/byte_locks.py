"""Locks on single bytes of a file, one byte for each of many things.

They are open-file-description locks: they exclude threads, processes and hosts alike, and end with
their process. Where the system has none, the whole file is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from contextlib import suppress

from ..layout.tree import Tree
from .owned import OwnedFile

HAS_BYTES = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")
# Held by others; or another host has just removed the file.
_IS_HELD = (errno.EAGAIN, errno.EACCES, errno.ESTALE)
_flock = struct.Struct("hhqqi0q")  # type, whence, start, length, process


class ByteLocks(OwnedFile):
    """An open file some of whose bytes this process has locked; a child has none of the locks.

    path: the file, created if it is missing. shared: others can share these locks, and the file is
        not open for writing, so that the disk can be made read-only while they are held. Methods
        raise OSError, except `give`.
    """

    def __init__(self, tree: Tree, path: str, *, shared: bool = False) -> None:
        self._tree = tree
        self._path = path
        self._kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
        access = os.O_RDONLY if shared else os.O_RDWR
        super().__init__(tree.create(path, access | os.O_CREAT))
        self._inode: int | None = None  # until it is asked for

    @property
    def _fd(self) -> int:
        return self.fd if self.is_open else -1

    def take(self, offset: int, size: int = 1) -> bool:
        """Lock bytes; False if another open file of this path has locked one of them.

        size: how many; 0: all from the offset on.
        """
        try:
            if HAS_BYTES:
                wanted = _flock.pack(self._kind, 0, offset, size, 0)
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, wanted)
            else:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _IS_HELD:
                return False
            raise
        return True

    def is_held(self, offset: int) -> bool:
        """Whether another open file of this path has locked a byte; does not lock it."""
        if HAS_BYTES:
            wanted = _flock.pack(self._kind, 0, offset, 1, 0)
            found = _flock.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, wanted))
            return bool(found[0] != fcntl.F_UNLCK)
        return not self.take(offset)

    def give(self, offset: int, size: int = 1) -> None:
        """Unlock bytes that `take` has locked; all of them where the whole file is locked.

        If the disk or its server refuses that, the lock ends when the file is closed. It is no
        error: what was done under the lock is done.
        """
        with suppress(OSError):
            if HAS_BYTES:
                none = _flock.pack(fcntl.F_UNLCK, 0, offset, size, 0)
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, none)
            else:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _unlock(self) -> None:
        self.give(0, size=0)

    def stands(self) -> bool:
        """Whether the file is still the one at its path."""
        if not self.is_open:
            return False
        if self._inode is None:
            try:
                self._inode = os.fstat(self.fd).st_ino
            except OSError:
                return False  # another host has removed it
        here = self._tree.look(self._path)
        return here is not None and here.st_ino == self._inode
