"""Deadlines: when entries of ``delay/`` are due, one at a time or a whole folder at once."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..layout.names import split_entry
from ..layout.stamps import Stamps
from ..layout.transitions import DELAY
from ..layout.tree import Tree

_PART = 10_000
# Of the time for a cold folder the kernel takes most, for reading inodes: it can use every core,
# and more threads than these only fight for the interpreter.
_LOOKERS = min(4, os.cpu_count() or 1)


class Deadline(NamedTuple):
    """When an entry is due (Unix milliseconds), and its count of deliveries."""

    due_ms: int
    deliveries: int


class Deadlines:
    """Reads deadlines. ``delay_ms`` is how long an entry stays in the folder at least."""

    def __init__(self, tree: Tree, stamps: Stamps, delay_ms: int) -> None:
        self._tree = tree
        self._stamps = stamps
        self._delay_ms = delay_ms

    def read(self, name: str, found: os.stat_result) -> Deadline | None:
        """What an entry's stat says; None for what is no message."""
        parts = split_entry(name)
        if parts is None or not stat.S_ISREG(found.st_mode):
            return None
        stamp = self._stamps.decode(parts[1], found.st_mtime_ns)
        floor_ms = found.st_ctime_ns // 1_000_000 + self._delay_ms if self._delay_ms else 0
        if stamp is None:
            return Deadline(floor_ms, 0)
        return Deadline(max(stamp.deadline_ms, floor_ms), stamp.deliveries or 0)

    def due_ms(self, names: list[str]) -> list[int | None]:
        """When entries are due, in their order; None for what is gone, bad or is no message."""
        if not names:
            return []
        folder = os.open(
            self._tree.folder(DELAY),
            os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
            dir_fd=self._tree.fd,
        )
        try:
            if len(names) <= _PART:
                return self._due_ms(folder, names)
            parts = [names[i : i + _PART] for i in range(0, len(names), _PART)]
            with ThreadPoolExecutor(_LOOKERS, "fsmq-look") as threads:
                found = threads.map(lambda part: self._due_ms(folder, part), parts)
                return [due_ms for part in found for due_ms in part]
        finally:
            os.close(folder)

    def _due_ms(self, folder: int, names: list[str]) -> list[int | None]:
        dues: list[int | None] = []
        for name in names:
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                dues.append(None)
                continue
            deadline = self.read(name, found)
            dues.append(None if deadline is None else deadline.due_ms)
        return dues
