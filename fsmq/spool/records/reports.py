"""Reports: ``metrics/<node>:<process>:<pid>``, what each process of a host counted lately.

They let any process tell of all of them, and show that a mover lives. Each is replaced as a whole
and never synced: after a crash nothing of it is missed.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import NamedTuple

from ..layout import documents
from ..layout.files import write_all
from ..layout.transitions import METRICS
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .metrics import Metrics, Snapshot

EVERY_S = 1.0
# One that was not renewed for so long is that of a process that died.
DEAD_AFTER_S = 20.0
_TOUCH_S = 5.0
_SWEEP_S = 60.0
_MAX_BYTES = 16 * 1024 * 1024


class Report(NamedTuple):
    """What one process told last."""

    node: str
    process: str
    snapshot: Snapshot


class Reports:
    """The reports on one tree, and the one that this process writes."""

    def __init__(self, tree: Tree, node: str, process: str) -> None:
        self.node = node
        self.process = process
        self._tree = tree
        self._name = f"{node}:{process}:{os.getpid()}"
        self._touched = self._swept = self._told = float("-inf")

    def write(self, metrics: Metrics, *, now: float | None = None) -> None:
        """Tell what has changed, or now and then that this process lives. Raises OSError.

        now: monotonic seconds.
        """
        now = time.monotonic() if now is None else now
        path = self._tree.folder(METRICS, self._name)
        if metrics.changed or self._touched == float("-inf"):
            self._replace(path, json.dumps(metrics.snapshot().as_json()))
            self._touched = now
        elif now - self._touched >= _TOUCH_S:
            self._touched = now
            if not self._tree.touch(path):
                metrics.changed = True  # someone removed it
        if now - self._swept >= _SWEEP_S:
            self._swept = now
            metrics.prune(self._tree.has_queue)
            self._sweep()

    def is_due(self, metrics: Metrics) -> bool:
        """Whether there is something to tell now."""
        return metrics.changed or time.monotonic() - self._touched >= _TOUCH_S

    def tell(self, metrics: Metrics) -> None:
        """Write if it is time to, at most once a second; a disk that refuses is no fault here."""
        now = time.monotonic()
        if self.is_due(metrics) and now - self._told >= 0.9 * EVERY_S:
            self._told = now
            with suppress(OSError):
                self.write(metrics)

    def leave(self) -> None:
        """Take this process's report away; a disk that refuses is no fault here."""
        with suppress(OSError):
            self._tree.unlink(self._tree.folder(METRICS, self._name))

    def read(self) -> list[Report]:
        """The reports of the other processes that live, on all hosts. Raises OSError."""
        own = self._tree.stat(self._tree.folder(METRICS, self._name))
        found = []
        for name in self._tree.names(self._tree.folder(METRICS)):
            parts = name.split(":")
            if name == self._name or name[0] == "." or len(parts) != 3:
                continue
            path = self._tree.folder(METRICS, name)
            there = self._tree.stat(path)
            # Both times are the filesystem's, so the clocks of hosts do not matter.
            if there is None or (own and own.st_mtime - there.st_mtime > DEAD_AFTER_S):
                continue
            snapshot = self._read(path)
            if snapshot is not None:
                found.append(Report(parts[0], parts[1], snapshot))
        return found

    def _replace(self, path: str, text: str) -> None:
        draft = self._tree.folder(METRICS, f".{uuid7()}.tmp")
        fd = self._tree.create(draft)
        try:
            try:
                write_all(fd, text.encode())
            finally:
                os.close(fd)
            self._tree.rename(draft, path, replace=True)
        except OSError:
            self._tree.unlink(draft)
            raise

    def _read(self, path: str) -> Snapshot | None:
        try:
            return Snapshot.from_json(documents.read(self._tree, path, _MAX_BYTES))
        except (OSError, ValueError):
            return None  # it left just now, or is no report

    def _sweep(self) -> None:
        """Remove what dead processes left: long silent ones, and earlier ones of our own name."""
        own = self._tree.stat(self._tree.folder(METRICS, self._name))
        for name in self._tree.names(self._tree.folder(METRICS)):
            path = self._tree.folder(METRICS, name)
            found = self._tree.stat(path)
            if own is None or found is None or name == self._name:
                continue
            node, _, rest = name.partition(":")
            process, _, pid = rest.partition(":")
            ours = (node, process) == (self.node, self.process)
            if own.st_mtime - found.st_mtime > _SWEEP_S or (ours and not _lives(pid)):
                self._tree.unlink(path)


def _lives(pid: str) -> bool:
    return pid.isdecimal() and os.path.exists(f"/proc/{pid}")
