"""Removal of what ended moves have left: outcomes, after some days; locks that nobody holds; and
files beside an order that is gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from ..durability.locks import free_lock
from ..layout.names import facts
from ..layout.transitions import MOVES
from ..layout.tree import Tree
from ..verbs.dedup import write_side
from .order import DONE, FOUND, LOCKS, OPEN, STOP, load

KEEP_S = 3 * 86_400
# This many outcomes for each existing source stay, however old they are.
KEEP_OF_A_SOURCE = 10


def forget_ended(tree: Tree, now: Callable[[], float] = time.time) -> int:
    """Unlink outcomes of moves that were ordered and ended days ago; how many.

    Raises OSError.
    """
    found = tree.names(tree.folder(MOVES))
    for name in found:
        with suppress(PermissionError):
            if name[0] == "." and name.endswith(LOCKS):
                free_lock(tree, tree.folder(MOVES, name))  # a program died at the end of it
            elif name.endswith((STOP, FOUND)):
                _forget_beside(tree, name)
    names = sorted((name for name in found if name.endswith(DONE)), reverse=True)
    before = now() - KEEP_S
    if not any(_is_old(tree, name, before) for name in names):
        return 0  # the usual case: no file has to be read
    kept: Counter[str | None] = Counter()
    number = 0
    for name in names:  # the newest first
        source = _source(tree, name.removesuffix(DONE))
        kept[source] += 1
        is_one_of_the_last = source is not None and kept[source] <= KEEP_OF_A_SOURCE
        if not is_one_of_the_last and _is_old(tree, name, before):
            number += tree.unlink(tree.folder(MOVES, name))
    return number


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


def _is_old(tree: Tree, name: str, before: float) -> bool:
    """Whether a move ended before a time; it was ordered, by its name, before that."""
    ordered_ms = facts(name.removesuffix(DONE)).created_ms
    if ordered_ms is None or ordered_ms >= before * 1000:
        return False  # not our file, or too young
    found = tree.stat(tree.folder(MOVES, name))
    return found is not None and found.st_mtime < before
