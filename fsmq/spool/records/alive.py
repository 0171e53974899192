"""Finds out which programs are working on a tree, by giving each of them something to do.

A message that has already expired, in ``new/``, tests the mover, and an empty file in ``remove/``
the reaper, on any host; no other program ever sees them. mq shows that it is alive by touching a
file in ``peers/``.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from ..layout.names import ALIVE, entry
from ..layout.transitions import METRICS, NEW, PEERS, REMOVE
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .history import HISTORY
from .peers import DEAD_AFTER_S

_EXPIRED = ".x1"
_PROGRAMS = ("mq", "mover", "reaper")
_LOOK_EVERY_S = 0.01


class Alive(NamedTuple):
    """Which programs answered. ``nodes``: the hosts whose mq is alive; ``mover``, ``reaper``: after
    how many seconds each had done its work, or None."""

    nodes: list[str]
    mover: float | None
    reaper: float | None


def find_alive(tree: Tree, patience: float = 3.0) -> Alive:
    """Wait for mover and reaper up to ``patience`` seconds. Leaves no files. Raises OSError."""
    expired = entry(ALIVE, f"{uuid7()}{_EXPIRED}")
    for_mover = tree.folder(NEW, expired)
    for_reaper = tree.folder(REMOVE, entry(ALIVE, uuid7()))
    given = [for_mover, for_reaper]
    started = time.monotonic()
    done: dict[str, float] = {}
    try:
        for path in given:
            os.close(tree.create(path))
        found = tree.stat(for_mover) or tree.stat(for_reaper)
        while len(done) < len(given) and time.monotonic() - started < patience:
            time.sleep(_LOOK_EVERY_S)
            for path in given:
                if path not in done and tree.stat(path) is None:
                    done[path] = time.monotonic() - started
    finally:
        for path in (*given, tree.folder(REMOVE, expired)):
            tree.unlink(path)
    # By the filesystem's clock, which has set the other files' times too.
    now = found.st_mtime if found is not None else time.time()
    return Alive(_nodes(tree, now), done.get(for_mover), done.get(for_reaper))


def have_run(tree: Tree) -> set[str]:
    """Which of ``mq``, ``mover`` and ``reaper`` have left a trace: they run, or have run here.

    One that was stopped properly leaves none, but for the history of mq. Raises OSError.
    """
    reports = (name.split(":") for name in tree.names(tree.folder(METRICS)) if name[0] != ".")
    # Several movers have names of their own: mover, and what they do.
    found = {
        name
        for parts in reports
        for name in _PROGRAMS
        if len(parts) == 3 and parts[1].startswith(name)
    }
    if tree.is_folder(HISTORY) or any(name[0] != "." for name in tree.names(tree.folder(PEERS))):
        found.add("mq")
    return found


def _nodes(tree: Tree, now: float) -> list[str]:
    nodes = []
    for name in tree.names(tree.folder(PEERS)):
        found = tree.stat(tree.folder(PEERS, name))
        if name[0] != "." and found is not None and now - found.st_mtime < DEAD_AFTER_S:
            nodes.append(name)
    return sorted(nodes)
