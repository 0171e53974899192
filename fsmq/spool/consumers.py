"""Consumers: whoever takes messages in batches, and has to be given the same batch after a crash.

A batch is a file of the tree, ``consumers/<name>/<batch>.json``, stored durably before anyone
learns of it: which messages it has claimed. It is committed by one rename to ``<batch>.done``; from
that instant its messages are removed, whatever crashes, and before it they are given again, as far
as nobody else has taken them after their timers. Whoever works as a consumer holds its lock.

Someone who counts batches (Spark does: its log says up to which one all is done) gives the count a
name, the ``stream``. A batch that was left by another stream is given to the next one that asks.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from . import removal
from .context import Context
from .errors import FsmqError, telling
from .manifest import DONE, LOCK, batches, folder_of, path_of
from .names import check_queue, is_queue
from .reservation import Reservation, lock
from .transitions import CONSUMERS
from .tree import Tree

_RETRY_S = 0.05


class ConsumerInUse(FsmqError):
    """Someone else works as this consumer; ``consumer`` is its name."""

    def __init__(self, consumer: str) -> None:
        super().__init__(
            f"another program works as the consumer {consumer!r}: stop it, or take another name;"
            " consumers of different names share a queue"
        )
        self.consumer = consumer


class Overview(NamedTuple):
    """A consumer as others see it: whether someone works as it now, and its open batches."""

    in_use: bool
    batches: int
    messages: int


def overview(context: Context) -> dict[str, Overview]:
    """All consumers of a spool by name. Raises Unavailable."""
    tree = context.tree
    with telling("cannot list the consumers"):
        found = {}
        for name in _names(tree):
            held = _try_lock(tree, name)
            if held is not None:
                held.free()
            open_now = list(batches(tree, name))
            found[name] = Overview(held is None, len(open_now), sum(map(len, open_now)))
        return found


def drop(context: Context, name: str) -> bool:
    """Forget a consumer; False if there is none. Its messages go back when their timers end.

    What it has committed is removed first.

    Raises:
        InvalidValue, ConsumerInUse, Unavailable
    """
    check_queue(name, "consumer")
    tree = context.tree
    with telling(f"cannot drop consumer {name!r}"):
        if not tree.is_folder(folder_of(tree, name)):
            return False
        held = take_lock(tree, name)
        try:
            finish_committed(context, name)
            for entry in tree.names(folder_of(tree, name)):
                if entry != LOCK:
                    tree.unlink(f"{folder_of(tree, name)}/{entry}")
        finally:
            held.free()
        tree.remove_folder(folder_of(tree, name))
        tree.sync_folder(tree.folder(CONSUMERS))
        return True


def finish_abandoned(context: Context) -> int:
    """Remove what consumers have committed whose programs have ended; how many messages.

    Raises OSError.
    """
    tree = context.tree
    removed = 0
    for name in _names(tree):
        if not any(entry.endswith(DONE) for entry in tree.names(folder_of(tree, name))):
            continue
        held = _try_lock(tree, name)
        if held is not None:
            try:
                removed += finish_committed(context, name)
            finally:
                held.free()
    return removed


def finish_committed(context: Context, name: str) -> int:
    """Remove the messages of all committed batches durably; how many. Hold the lock. OSError."""
    tree = context.tree
    removed = 0
    for batch in batches(tree, name, DONE):
        for queue, claims in batch.claims.items():
            pending = removal.remove(context, queue, [claim.id for claim in claims])
            for folder in sorted(pending.work.folders):
                tree.sync_folder(folder)
            removed += sum(pending.finish())
        tree.unlink(path_of(tree, name, batch.name, DONE))
        # Back after a crash it would remove what was put with the same own ids since then.
        tree.sync_folder(folder_of(tree, name))
    return removed


def _names(tree: Tree) -> list[str]:
    names = sorted(filter(is_queue, tree.names(tree.folder(CONSUMERS))))
    return [name for name in names if tree.is_folder(folder_of(tree, name))]


def take_lock(tree: Tree, name: str, patience: float = 0.0) -> Reservation:
    """Become a consumer, which is made if there is none; waits ``patience`` seconds for another.

    Raises:
        ConsumerInUse, OSError
    """
    end = time.monotonic() + patience
    while True:
        tree.make_folder(CONSUMERS, name)
        held = _try_lock(tree, name)
        if held is not None:
            return held
        if time.monotonic() >= end:
            raise ConsumerInUse(name)
        time.sleep(_RETRY_S)


def _try_lock(tree: Tree, name: str) -> Reservation | None:
    try:
        return lock(tree, path_of(tree, name, "", LOCK), os.O_CREAT)
    except FileNotFoundError:
        return None  # dropped just now
