"""Removal of what ended moves have left: outcomes, after some days, or if there are many; locks
that nobody holds; and files beside an order that is gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..durability.locks import free_lock
from ..layout.names import facts
from ..layout.transitions import MOVES
from ..layout.tree import Tree
from ..verbs.dedup import write_side
from .order import DONE, FOUND, LOCKS, OPEN, STOP, load

KEEP_S = 3 * 86_400
# This many outcomes stay until then: each listing can read them all.
KEEP = 1000
# This many outcomes for each existing source stay, however old they are.
KEEP_OF_A_SOURCE = 10


def forget_ended(tree: Tree, now: Callable[[], float] = time.time) -> int:
    """Unlink outcomes of moves that ended days ago, or before many others; how many.

    Raises OSError.
    """
    found = tree.names(tree.folder(MOVES))
    for name in found:
        with suppress(PermissionError):
            if name[0] == "." and name.endswith(LOCKS):
                free_lock(tree, tree.folder(MOVES, name))  # a program died at the end of it
            elif name.endswith((STOP, FOUND)):
                _forget_beside(tree, name)
    ends = _ends(tree, (name for name in found if name.endswith(DONE)))
    newest = sorted(ends.values(), reverse=True)[:KEEP]
    before = max(now() - KEEP_S, newest[-1] if len(newest) == KEEP else 0.0)
    if not any(end < before for end in ends.values()):
        return 0  # the usual case: no file has to be read
    kept: Counter[str | None] = Counter()
    number = 0
    for name in sorted(ends, reverse=True):  # the newest first
        source = _source(tree, name.removesuffix(DONE))
        kept[source] += 1
        is_one_of_the_last = source is not None and kept[source] <= KEEP_OF_A_SOURCE
        if not is_one_of_the_last and ends[name] < before:
            number += tree.unlink(tree.folder(MOVES, name))
    return number


def _ends(tree: Tree, names: Iterable[str]) -> dict[str, float]:
    """When moves ended, by the names of their outcomes; other files are left out."""
    ours = (name for name in names if facts(name.removesuffix(DONE)).created_ms is not None)
    found = ((name, tree.stat(tree.folder(MOVES, name))) for name in ours)
    return {name: status.st_mtime for name, status in found if status is not None}


def _forget_beside(tree: Tree, name: str) -> None:
    """Unlink a file beside the order of a move, if the order is gone."""
    ref = name.rpartition(".")[0]
    if facts(ref).created_ms is not None and not tree.look(tree.folder(MOVES, ref + OPEN)):
        tree.unlink(tree.folder(MOVES, name))


def _source(tree: Tree, ref: str) -> str | None:
    """The source of a move, if it still exists: then its last outcomes are kept. Otherwise None."""
    try:
        move = load(tree, ref, DONE)
    except PermissionError:
        return None  # another user's
    if move is None or not tree.has_queue(write_side(move.source) if move.dedup else move.source):
        return None
    return move.source
