"""Removal, by a mover, of small files that were left behind, mostly because a program died.

Deleting a queue removes the files that processes share for it, except those that one of them has
locked right then. A program that dies leaves the file of its lock, the draft of another file, or
what it has tried the disk with.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..layout.filesystem import is_older
from ..layout.names import UUID7, is_queue, is_scratch
from ..layout.transitions import CONFIG, CONSUMERS, LOGS, MOVES, SCHEDULES, TOPICS
from ..layout.tree import Tree
from .locks import free_lock
from .shared_names import claims_name, limits_name, sends_name

EVERY_S = 300.0
# Folders in which drafts replace small files; the upkeep of other folders removes drafts, too.
_WITH_DRAFTS = (CONFIG, SCHEDULES, MOVES, CONSUMERS, TOPICS, LOGS)
# A program that is stopped for longer is told that its change was not made.
_OLD_S = 3600.0
_draft = re.compile(rf"\.{UUID7}\.tmp")
_ENDS = tuple(name("") for name in (limits_name, sends_name, claims_name))


def shared_by(name: str) -> str | None:
    """The queue to which a shared file of ``config/`` belongs; None for any other name."""
    ends = [end[1:] for end in _ENDS if name.endswith(end[1:])]
    return name[1:].removesuffix(ends[0]) if ends and name[0] == "." else None


def remove_left_files(tree: Tree, finish: Callable[[str], bool] = lambda queue: True) -> int:
    """Remove all such files; returns how many. Raises OSError.

    finish: completes, under the lock of a queue's name, what a dead holder of that lock has left
        undone; False if it cannot do so now.
    """
    removed = sum(_remove_drafts(tree, tree.folder(room)) for room in _WITH_DRAFTS)
    for name in _names(tree, tree.folder(CONFIG)):
        if name[0] == "." and name.endswith(".lock"):
            queue = name[1:].removesuffix(".lock")
            may = partial(finish, queue) if is_queue(queue) else lambda: True
            removed += _free(tree, tree.folder(CONFIG, name), may)
    for name in _names(tree, tree.folder(CONFIG)):
        if shared_by(name) is not None:
            removed += forget_shared(tree, name)
    return removed


def forget_shared(tree: Tree, name: str) -> bool:
    """Remove a file that processes share for a queue that is gone, unless one has locked it."""
    queue = shared_by(name)
    if queue is None or tree.has_queue(queue):
        return False
    # Checked again under the lock, which users of the file for a new queue of that name take, too.
    return _free(tree, tree.folder(CONFIG, name), lambda: not tree.has_queue(queue))


def _free(tree: Tree, path: str, may: Callable[[], bool] = lambda: True) -> bool:
    with suppress(OSError):  # it is another user's, or there are no locks
        return free_lock(tree, path, may)
    return False


def remove_scratch(tree: Tree, path: str) -> bool:
    """Remove a scratch file of a probe, or its scratch folder of one level; False if it was gone.

    Raises OSError.
    """
    if not tree.is_folder(path):
        return tree.unlink(path)
    for name in tree.names(path):
        tree.unlink(f"{path}/{name}")
    return tree.remove_folder(path)


def _remove_drafts(tree: Tree, folder: str) -> int:
    """Remove the drafts, and what probes left, in a folder and all folders below it."""
    removed = 0
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError):  # it has gone, is no folder, or is another user's
        entries += tree.walk(folder)
    for entry in entries:
        path = f"{folder}/{entry.name}"
        with suppress(OSError):
            if _draft.fullmatch(entry.name) or is_scratch(entry.name):
                found = tree.stat(path)
                if found is not None and is_older(tree, found, _OLD_S):
                    removed += remove_scratch(tree, path)
            elif entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                removed += _remove_drafts(tree, path)
    return removed


def _names(tree: Tree, folder: str) -> list[str]:
    with suppress(OSError):  # it has gone, is no folder, or is another user's
        return tree.names(folder)
    return []
