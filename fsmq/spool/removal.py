"""Remove, purge, delete a queue, reap: how messages leave.

A removal is a rename into ``remove/``; the reaper unlinks. A whole queue goes there in one too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from uuid6 import uuid7

from .context import Context, Pending
from .errors import NoSuchQueue, unavailable
from .names import check_id, check_queue, entry, split_entry, split_staged
from .sync import Work
from .tree import (
    DELAY,
    MESSAGE_FOLDERS,
    NEW,
    QUEUES,
    REMOVE,
    REMOVE_DELAY,
    REMOVE_NEW,
    REMOVE_READY,
    State,
    Tree,
)

# Where most messages are when they are acknowledged comes first. A message may travel on between
# two tries, so the folders that it can reach from those already tried are tried again.
_ATTEMPTS = (REMOVE_DELAY, REMOVE_NEW, REMOVE_READY, REMOVE_DELAY, REMOVE_READY)


def remove(context: Context, queue: str, message_ids: Sequence[str]) -> Pending[list[bool]]:
    """Remove messages in whatever state they are; tells for each id whether it was there.

    Raises:
        InvalidValue: one of the ids cannot be one; nothing is removed then.
        Unavailable
    """
    check_queue(queue)
    for message_id in message_ids:
        check_id(queue, message_id)
    tree = context.tree
    try:
        found = [_remove(context, queue, message_id) for message_id in message_ids]
    except OSError as error:
        raise unavailable(error, f"cannot remove from queue {queue!r}") from error
    work = Work()
    if any(found):
        # Every folder in which the message may have stood: an earlier rename of it, which no one
        # synced, must not come back after a crash without this one.
        work.folders.update(tree.folder(name) for name in (NEW, DELAY, REMOVE))
        work.folders.add(tree.folder(QUEUES, queue))
    context.counters["remove"] += sum(found)
    return Pending(work, lambda: found)


def _remove(context: Context, queue: str, message_id: str) -> bool:
    tree = context.tree
    if any(tree.move(attempt, queue, message_id) for attempt in _ATTEMPTS):
        return True
    # A network filesystem may have renamed and yet said ENOENT, when the server restarted.
    return context.network and (tree.stat(tree.path(State.REMOVE, queue, message_id)) is not None)


def purge(context: Context, queue: str) -> Pending[None]:
    """Remove all messages of a queue, wherever they are; the queue and its settings stay.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    try:
        if not tree.has_queue(queue):
            raise NoSuchQueue(queue)
        _swap_out(tree, queue)
        context.ready.forget(queue)
        _sweep(tree, queue)
    except OSError as error:
        raise unavailable(error, f"cannot purge queue {queue!r}") from error
    context.counters["purge"] += 1
    return Pending(_removal_work(tree), lambda: None)


def delete_queue(context: Context, queue: str) -> Pending[None]:
    """Delete a queue, its settings and all its messages, wherever they are.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    try:
        grave = tree.folder(REMOVE, entry(queue, str(uuid7())))
        if not tree.has_queue(queue) or not tree.rename(tree.folder(QUEUES, queue), grave):
            raise NoSuchQueue(queue)
        # From here on no put and no delivery finds the queue, so one sweep sees all that is left.
        context.ready.forget(queue)
        _sweep(tree, queue)
        context.settings.forget(queue)
    except OSError as error:
        raise unavailable(error, f"cannot delete queue {queue!r}") from error
    context.counters["delete_queue"] += 1
    return Pending(_removal_work(tree), lambda: None)


def _swap_out(tree: Tree, queue: str) -> None:
    """Empty a queue's folder: at once by an exchange with an empty one, or file by file."""
    grave = tree.folder(REMOVE, entry(queue, str(uuid7())))
    os.mkdir(grave, 0o700, dir_fd=tree.fd)
    if tree.exchange(tree.folder(QUEUES, queue), grave):
        return
    os.rmdir(grave, dir_fd=tree.fd)
    for message_id in tree.ready_names(queue) or ():
        tree.move(REMOVE_READY, queue, message_id)


def _sweep(tree: Tree, queue: str) -> None:
    """Remove a queue's messages from ``new/`` and ``delay/``, unfinished ones included."""
    for folder, transition in ((NEW, REMOVE_NEW), (DELAY, REMOVE_DELAY)):
        for name in tree.names(tree.folder(folder)):
            parts = split_entry(name)
            if parts is not None and parts[0] == queue:
                tree.move(transition, queue, parts[1])
                continue
            staged = split_staged(name) if folder == NEW else None
            # A complete one may have been acknowledged before a crash, and would come back.
            if staged is not None and (split_entry(staged[0]) or ("",))[0] == queue:
                tree.unlink(tree.folder(NEW, name))


def _removal_work(tree: Tree) -> Work:
    return Work(folders={tree.folder(name) for name in MESSAGE_FOLDERS})


def reap(tree: Tree, *, stop: Callable[[], bool] = lambda: False, step: int = 1000) -> int:
    """Unlink what is in ``remove/``; returns how many messages went. Holds no listing in memory.

    ``stop`` is asked after every ``step`` messages. Raises OSError.
    """
    return _reap_folder(tree, tree.folder(REMOVE), stop, step)


def _reap_folder(tree: Tree, folder: str, stop: Callable[[], bool], step: int) -> int:
    reaped = 0
    while True:
        # Unlinking may make a running listing skip names: list again until one finds nothing.
        before = reaped
        for found in tree.walk(folder):
            if found.name.startswith(".nfs"):
                continue  # someone still reads it; NFS removes it itself
            path = f"{folder}/{found.name}"
            if found.is_dir(follow_symlinks=False):
                reaped += _reap_folder(tree, path, stop, step)
                if stop():
                    return reaped
                tree.remove_folder(path)
            elif tree.unlink(path):
                reaped += 1
                if reaped % step == 0 and stop():
                    return reaped
        if reaped == before:
            return reaped
