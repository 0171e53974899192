"""What the processes of all hosts share about the limits of one queue: a line behind a lock.

The line says nothing about any message, and is never synced. A crash can take it: then what it
counted begins anew. The lock ends with its process.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from typing import NamedTuple

from ..layout.names import limits_name
from ..layout.transitions import CONFIG
from ..layout.tree import Tree

# Others hold the lock for as long as one claim takes; a host that is far away, longer.
_PATIENCE_S = 0.01
_RETRY_S = 0.0001
_BYTES = 80
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Line(NamedTuple):
    """granted: how many messages were ever claimed. tokens: how many may be claimed at a time,
    in Unix seconds; more come with time."""

    granted: int = 0
    tokens: float | None = None
    at: float = 0.0


class Shared:
    """The file ``config/.<queue>.limits`` of one queue. Methods raise OSError.

    has_locks: whether they keep out other processes here.
    """

    def __init__(self, tree: Tree, queue: str) -> None:
        self.has_locks = True
        self._tree = tree
        self._path = tree.folder(CONFIG, limits_name(queue))
        self._fd: int | None = None

    def lock(self) -> bool:
        """Lock it; False if another process has it for long."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(_RETRY_S)
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                self.has_locks = False
                return True
            here = self._tree.look(self._path)
            if here is not None and here.st_ino == os.fstat(fd).st_ino:
                return True
            self.close()  # the queue was deleted, and created anew

    def unlock(self) -> None:
        if self._fd is not None and self.has_locks:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def read(self) -> Line:
        """The line, while it is locked; the first one where there is none that makes sense."""
        try:
            granted, tokens, at = map(float, os.pread(self._open(), _BYTES, 0).split())
            if math.isfinite(tokens) and math.isfinite(at) and tokens >= 0:
                return Line(int(granted), tokens, at)
        except (ValueError, OverflowError):
            pass
        return Line()

    def write(self, line: Line) -> None:
        """Replace the line, while it is locked."""
        text = f"{line.granted} {line.tokens or 0:.6f} {line.at:.6f}"
        os.pwrite(self._open(), text.ljust(_BYTES - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """End the lock, too."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _open(self) -> int:
        if self._fd is None:
            self._fd = self._tree.create_with(self._path, os.O_RDWR | os.O_CREAT)
        return self._fd
