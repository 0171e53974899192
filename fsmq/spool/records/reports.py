"""Reports: ``metrics/<node>:<process>:<pid>``, the recent counts of each process of a host.

With them any process can show the counts of all, and see that a mover is alive. A report is
replaced as a whole and never synced: after a crash nobody needs it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ..layout import documents
from ..layout.transitions import LOGS, METRICS, QUEUES, SCHEDULES
from ..layout.tree import Tree
from .metrics import Metrics, Snapshot

EVERY_S = 1.0
# A report that was not renewed for this time is that of a dead process.
DEAD_AFTER_S = 20.0
_TOUCH_S = 5.0
_OLD_S = 60.0
_MAX_BYTES = 16 * 1024 * 1024


class Report(NamedTuple):
    """The last counts of one process."""

    node: str
    process: str
    snapshot: Snapshot
    pid: int | None = None


class Reports:
    """The reports on one tree, and the one that this process writes."""

    def __init__(self, tree: Tree, node: str, process: str) -> None:
        self.node = node
        self.process = process
        self._tree = tree
        self._name = f"{node}:{process}:{os.getpid()}"
        self._touched = self._cleaned = self._written = float("-inf")

    def write(self, metrics: Metrics, *, now: float | None = None) -> None:
        """Write the counts if they have changed; otherwise touch the file now and then. OSError.

        now: monotonic seconds.
        """
        now = time.monotonic() if now is None else now
        path = self._tree.folder(METRICS, self._name)
        if metrics.changed or self._touched == float("-inf"):
            text = json.dumps(metrics.snapshot().as_json())
            self._tree.replace(path, text.encode(), durable=False)
            self._touched = now
        elif now - self._touched >= _TOUCH_S:
            self._touched = now
            if not self._tree.touch(path):
                metrics.changed = True  # it was removed by hand
        if now - self._cleaned >= _OLD_S:
            self._cleaned = now
            metrics.prune(self._exists)
            self._remove_old()

    def _exists(self, label: str, name: str) -> bool:
        if label == "schedule":
            return self._tree.look(self._tree.folder(SCHEDULES, f"{name}.json")) is not None
        return self._tree.is_folder(self._tree.folder(LOGS if label == "log" else QUEUES, name))

    def is_due(self, metrics: Metrics) -> bool:
        """Whether there is something to write now."""
        return metrics.changed or time.monotonic() - self._touched >= _TOUCH_S

    def write_if_due(self, metrics: Metrics) -> None:
        """Write if that is due, at most once a second; ignores errors of the disk."""
        now = time.monotonic()
        if self.is_due(metrics) and now - self._written >= 0.9 * EVERY_S:
            self._written = now
            with suppress(OSError):
                self.write(metrics)

    def leave(self) -> None:
        """Remove the report of this process; ignores errors of the disk."""
        with suppress(OSError):
            self._tree.unlink(self._tree.folder(METRICS, self._name))

    def read(self) -> list[Report]:
        """The reports of the other live processes, on all hosts. Raises OSError."""
        times = _times(self._tree)
        # Both times are set by the filesystem, so the clocks of hosts do not matter.
        return _living(self._tree, times, times.pop(self._name, 0.0))

    def _remove_old(self) -> None:
        """Remove reports of dead processes: silent for long, or our predecessors."""
        own = self._tree.stat(self._tree.folder(METRICS, self._name))
        for name in self._tree.names(self._tree.folder(METRICS)):
            path = self._tree.folder(METRICS, name)
            found = self._tree.stat(path)
            if own is None or found is None or name == self._name:
                continue
            node, _, rest = name.partition(":")
            process, _, pid = rest.partition(":")
            ours = (node, process) == (self.node, self.process)
            if own.st_mtime - found.st_mtime > _OLD_S or (ours and not _lives(pid)):
                self._tree.unlink(path)


def reports_of(tree: Tree) -> list[Report]:
    """The reports of all live processes, for a process that writes none. Raises OSError."""
    times = _times(tree)
    # By the youngest: a clock of this host that is behind must not let the others look dead.
    return _living(tree, times, max([time.time(), *times.values()]))


def _times(tree: Tree) -> dict[str, float]:
    """When each report was written, by its name."""
    names = tree.names(tree.folder(METRICS))
    stats = {name: tree.stat(tree.folder(METRICS, name)) for name in names}
    return {name: found.st_mtime for name, found in stats.items() if found is not None}


def _living(tree: Tree, times: Mapping[str, float], now: float) -> list[Report]:
    """The reports that are not too old."""
    found = []
    for name, at in sorted(times.items()):
        parts = name.split(":")
        is_one = name[0] != "." and name.isprintable() and len(parts) == 3
        if not is_one or now - at > DEAD_AFTER_S:
            continue
        snapshot = _read(tree, tree.folder(METRICS, name))
        if snapshot is not None:
            found.append(Report(parts[0], parts[1], snapshot, _number(parts[2])))
    return found


def _read(tree: Tree, path: str) -> Snapshot | None:
    try:
        return Snapshot.from_json(documents.read(tree, path, _MAX_BYTES))
    except (OSError, ValueError):
        return None  # its process has just ended, or it is no report


def _number(pid: str) -> int | None:
    return int(pid) if pid.isascii() and pid.isdecimal() and len(pid) < 19 else None


def _lives(pid: str) -> bool:
    return pid.isdecimal() and os.path.exists(f"/proc/{pid}")
