"""What the processes of all hosts share about the limits of one queue: a line under a lock.

The line contains nothing about single messages, and is never synced. A crash can lose it: then its
counts begin anew. The lock ends with its process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..durability.locks import NO_LOCKS, Lock, lock, patiently
from ..durability.shared_names import limits_name
from ..layout.transitions import CONFIG
from ..layout.tree import Tree

_RETRY_S = 0.0001
_BYTES = 80


class Line(NamedTuple):
    """granted: how many messages were ever claimed. tokens: how many the rate allowed at the time
    ``at``, in Unix seconds; more come with time."""

    granted: int = 0
    tokens: float | None = None
    at: float = 0.0


class Shared:
    """The file ``config/.<queue>.limits`` of one queue. Methods raise OSError.

    It is open while it is locked. has_locks: whether the filesystem has locks; without them each
    process has its own line.
    """

    def __init__(self, tree: Tree, queue: str) -> None:
        self.has_locks = True
        self._tree = tree
        self._path = tree.folder(CONFIG, limits_name(queue))
        self._held: Lock | None = None
        self._own = Line()

    @contextmanager
    def locked(self, patience_s: float) -> Iterator[Line | None]:
        """Lock it; yields its line, or None if another process has it for ``patience_s``."""
        try:
            held = patiently(self._lock, patience_s, _RETRY_S)
            is_ours = held is not None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            held, is_ours, self.has_locks = None, True, False
        try:
            self._held = held
            yield self._read() if is_ours else None
        finally:
            self._held = None
            if held is not None:
                held.unlock()

    def _lock(self) -> Lock | None:
        return lock(self._tree, self._path, os.O_CREAT)

    def _read(self) -> Line:
        """The line; the default if there is none that can be parsed."""
        if self._held is None:
            return self._own
        try:
            granted, tokens, at = map(float, os.pread(self._held.fd, _BYTES, 0).split())
            if math.isfinite(tokens) and math.isfinite(at) and tokens >= 0:
                return Line(int(granted), tokens, at)
        except (ValueError, OverflowError):
            pass
        return Line()

    def write(self, line: Line) -> None:
        """Replace the line, while it is locked."""
        if self._held is None:
            self._own = line
        else:
            text = f"{line.granted} {line.tokens or 0:.6f} {line.at:.6f}"
            os.pwrite(self._held.fd, text.ljust(_BYTES - 1).encode() + b"\n", 0)
