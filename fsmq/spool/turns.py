"""Turns: one mover at a time redelivers, as long as that costs nothing.

A mover looks at a timer and then renames. Between the two another mover may have renamed, and a
claimer won the message: the first one's rename would take it from its new holder. So movers take
turns by a lock (flock) on the folder. The lock ends with its holder. Where there are no such
locks, or a holder hangs, movers go on without: the message is delivered twice then, never lost.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .tree import Tree

# A turn takes milliseconds.
_PATIENCE_S = 1.0
_RETRY_S = 0.002


class Turns:
    """The turns of one mover on one folder, given by its path relative to the root."""

    def __init__(self, tree: Tree, folder: str) -> None:
        self._tree = tree
        self._folder = folder
        self._refused: float | None = None  # monotonic seconds of the first refusal in a row

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        return 0.0 if self._refused is None else _RETRY_S

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Take a turn; False while another mover has it. Raises OSError."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        fd = os.open(self._folder, flags, dir_fd=self._tree.fd)
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
            pass  # this filesystem has no locks, or none for folders
        self._refused = None
        return True
