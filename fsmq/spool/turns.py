"""Turns: one mover at a time redelivers, as long as that costs nothing.

A mover looks at a timer and then renames. Between the two another mover may have renamed, and a
claimer won the message: the first one's rename would take it from its new holder. So movers take
turns by a lock (flock) on ``config/.mover``; a file and not the folder itself, since NFS locks only
what is open for writing. The lock ends with its holder. Where there are no such locks, or a holder
hangs, movers go on without: the message is delivered twice then, never lost.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .tree import CONFIG, Tree

LOCK_NAME = ".mover"

# A turn takes milliseconds.
_PATIENCE_S = 1.0
_RETRY_S = 0.002


class Turns:
    """The turns of one mover on one spool."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._refused: float | None = None  # monotonic seconds of the first refusal in a row

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        return 0.0 if self._refused is None else _RETRY_S

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Take a turn; False while another mover has it."""
        try:
            fd = os.open(
                self._tree.folder(CONFIG, LOCK_NAME),
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=self._tree.fd,
            )
        except OSError:
            yield True  # a leg outside a spool, or a disk on which nothing can be created
            return
        try:
            yield self._lock(fd)
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            self._refused = now if self._refused is None else self._refused
            return now - self._refused >= _PATIENCE_S
        except OSError:
            pass  # this filesystem has no locks
        self._refused = None
        return True
