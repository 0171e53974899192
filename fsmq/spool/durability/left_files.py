"""Small files that outlive what they are of, because a program died: a mover removes them.

Whoever deletes a queue removes what processes share of it, but for what one of them holds right
then; and who dies leaves its lock's file, or the draft of a file that it was to replace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..layout.filesystem import is_older
from ..layout.names import UUID7, claims_name, is_queue, limits_name, sends_name
from ..layout.transitions import CONFIG, CONSUMERS, LOGS, MOVES, SCHEDULES, TOPICS
from ..layout.tree import Tree
from .locks import free_lock

EVERY_S = 300.0
# Where small files are replaced; elsewhere who looks after the folder removes its drafts, too.
_WITH_DRAFTS = (CONFIG, SCHEDULES, MOVES, CONSUMERS, TOPICS, LOGS)
# A program that is stopped for longer is told that its change was not made.
_OLD_S = 3600.0
_draft = re.compile(rf"\.{UUID7}\.tmp")
_ENDS = tuple(name("") for name in (limits_name, sends_name, claims_name))


def shared_by(name: str) -> str | None:
    """The queue of a file of ``config/`` that processes share; None for any other name."""
    ends = [end[1:] for end in _ENDS if name.endswith(end[1:])]
    return name[1:].removesuffix(ends[0]) if ends and name[0] == "." else None


def remove_left_files(tree: Tree, finish: Callable[[str], bool] = lambda queue: True) -> int:
    """Remove them all; how many. Raises OSError.

    finish: does what who had the lock of a queue's name has left undone, under that lock; False if
        it cannot do so now.
    """
    removed = sum(_remove_drafts(tree, tree.folder(room)) for room in _WITH_DRAFTS)
    for folder in map(tree.folder, (CONFIG, SCHEDULES)):
        for name in _names(tree, folder):
            if name[0] == "." and name.endswith(".lock"):
                queue = name[1:].removesuffix(".lock")
                is_of_queue = folder == tree.folder(CONFIG) and is_queue(queue)
                may = partial(finish, queue) if is_of_queue else lambda: True
                removed += _free(tree, f"{folder}/{name}", may)
    for name in _names(tree, tree.folder(CONFIG)):
        if shared_by(name) is not None:
            removed += forget_shared(tree, name)
    return removed


def forget_shared(tree: Tree, name: str) -> bool:
    """Remove what processes share of a queue that is gone, unless one of them has it locked."""
    queue = shared_by(name)
    if queue is None or tree.has_queue(queue):
        return False
    # Looked at again under the lock: who uses it for the next queue of that name needs that, too.
    return _free(tree, tree.folder(CONFIG, name), lambda: not tree.has_queue(queue))


def _free(tree: Tree, path: str, may: Callable[[], bool] = lambda: True) -> bool:
    with suppress(OSError):  # another user's, or there are no locks
        return free_lock(tree, path, may)
    return False


def _remove_drafts(tree: Tree, folder: str) -> int:
    """Remove those of a folder, and of all folders in it."""
    removed = 0
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError):  # it has gone, is no folder, or is another user's
        entries += tree.walk(folder)
    for entry in entries:
        path = f"{folder}/{entry.name}"
        with suppress(OSError):
            if _draft.fullmatch(entry.name):
                found = tree.stat(path)
                if found is not None and is_older(tree, found, _OLD_S):
                    removed += tree.unlink(path)
            elif entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                removed += _remove_drafts(tree, path)
    return removed


def _names(tree: Tree, folder: str) -> list[str]:
    with suppress(OSError):  # it has gone, is no folder, or is another user's
        return tree.names(folder)
    return []
