"""The cluster: the hosts and programs of a spool, and the state of its filesystem."""

from __future__ import annotations

import os
import time
from typing import Any, Protocol

from .context import Context
from .durability.sync import Syncer
from .errors import as_unavailable
from .layout.filesystem import Filesystem
from .layout.transitions import JOURNAL, NEW, REMOVE
from .layout.tree import Tree
from .probe.room import left
from .records import peers
from .records.history import HISTORY
from .records.programs import program
from .records.reports import Report, reports_of

_LEFT_S = 120.0
_BUDGET_S = 1.0


class Watched(Protocol):
    """The parts of a spool that are used here."""

    context: Context
    syncer: Syncer
    filesystem: Filesystem

    @property
    def polls(self) -> bool: ...


def look_at_cluster(spool: Watched, node: str, own: Report | None = None) -> dict[str, Any]:
    """What is known about hosts, programs and the spool, as docs/http.md describes.

    node: this host. own: the current report of this process. Raises Unavailable.
    """
    tree = spool.context.tree
    with as_unavailable("cannot look at the cluster"):
        beats = peers.beats(tree)
        found = reports_of(tree)
        if own is not None:
            same = (own.node, own.process, own.pid)
            found = [own, *(r for r in found if (r.node, r.process, r.pid) != same)]
        programs = sorted(program(report, node) for report in found)
        return {
            "node": node,
            "hosts": [{**beat._asdict(), "alive": beat.is_alive} for beat in beats],
            "programs": [one._asdict() for one in programs],
            "spool": {
                "filesystem": spool.filesystem.kind,
                "network": spool.filesystem.network,
                "sync": spool.syncer.mode,
                "watch": "poll" if spool.polls else "events",
                **left(tree.fd)._asdict(),
                "folders": {name: _size(tree, name) for name in (REMOVE, JOURNAL, HISTORY)},
                "left_dot_names": _left_dot_names(tree),
            },
        }


def _size(tree: Tree, name: str) -> dict[str, Any]:
    """The number of a folder's files, and their bytes; incomplete after a second."""
    end = time.monotonic() + _BUDGET_S
    files = size = 0
    for entry in tree.walk(tree.folder(name) if name != HISTORY else HISTORY):
        try:
            size += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
        files += 1
        if time.monotonic() >= end:
            return {"files": files, "bytes": size, "complete": False}
    return {"files": files, "bytes": size, "complete": True}


def _left_dot_names(tree: Tree) -> int:
    """The number of dot-names whose writers have probably died."""
    count = 0
    now = time.time()
    for entry in tree.walk(tree.folder(NEW)):
        if entry.name[0] != ".":
            continue
        found: os.stat_result | None = tree.stat(tree.folder(NEW, entry.name))
        count += found is not None and now - found.st_ctime > _LEFT_S
    return count
