"""Consumers claim messages in batches, and get the same batch again after a crash.

A batch is a file ``consumers/<name>/<batch>.json``, stored durably before it is given out. It lists
the claimed messages. One rename to ``<batch>.done`` commits it: from then on its messages will be
removed, whatever crashes. Before that they are given out again, unless another consumer has claimed
them after their timers. A program that works as a consumer holds its lock.

A program that numbers its batches names this numbering, the ``stream``. (Spark does; its log notes
up to which batch all is done.) A batch of an old stream is given to the next stream that asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..context import Context
from ..durability.locks import Lock, lock, patiently
from ..errors import ConsumerInUse, FsmqError, as_unavailable
from ..layout.names import check_queue, is_queue
from ..layout.transitions import CONSUMERS, QUEUES, REMOVED
from ..layout.tree import Tree
from ..verbs.removal import dirty_of
from ..verbs.remove_known import remove_known
from .claims import Claimed, Renewals
from .manifest import DONE, LOCK, batches, folder_of, load, names_of, path_of
from .stream_note import advance

_RETRY_S = 0.05
# Others lock it for a moment, to see whether it is in use, or to finish its commits.
_LEAST_PATIENCE_S = 1.0


class Overview(NamedTuple):
    """A consumer as others see it: whether a program uses it now, and its open batches."""

    in_use: bool
    batches: int
    messages: int


def overview(context: Context) -> dict[str, Overview]:
    """All consumers of a spool by name. Raises Unavailable."""
    tree = context.tree
    with as_unavailable("cannot list the consumers"):
        found = {}
        for name in _names(tree):
            held = _try_lock(tree, name)
            if held is not None:
                held.unlock()  # its file tells what the consumer reads
            open_now = list(batches(tree, name))
            found[name] = Overview(held is None, len(open_now), sum(map(len, open_now)))
        return found


def forget(context: Context, name: str) -> bool:
    """Forget a consumer; False if there is none. Its messages are ready again by their timers.

    The messages of committed batches are removed first.

    Raises:
        InvalidValue, ConsumerInUse, Unavailable
    """
    check_queue(name, "consumer")
    tree = context.tree
    with as_unavailable(f"cannot forget consumer {name!r}"):
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


def finish_abandoned(
    context: Context, on_fault: Callable[[str, str], None] = lambda name, reason: None
) -> int:
    """Finish the commits of consumers whose programs have ended; how many messages were removed.

    on_fault: called with a consumer that failed (its folder, the reason). Raises OSError.
    """
    removed = 0
    for name in _names(context.tree):
        try:
            removed += _finish_abandoned(context, name)
        except (OSError, FsmqError) as error:
            on_fault(folder_of(context.tree, name), str(error))
    return removed


def _finish_abandoned(context: Context, name: str) -> int:
    tree = context.tree
    if not names_of(tree, name, DONE):
        return 0
    held = _try_lock(tree, name)
    if held is None:
        return 0
    try:
        return finish_committed(context, name)
    finally:
        held.unlock()


def finish_committed(context: Context, name: str) -> int:
    """Remove the messages of all committed batches durably; how many. The caller has the lock.

    If one fails, raises OSError or Unavailable after all others are done.
    """
    removed = 0
    first: OSError | FsmqError | None = None
    for batch_name in names_of(context.tree, name, DONE):
        try:
            removed += _finish(context, name, batch_name)
        except (OSError, FsmqError) as error:
            first = first or error  # an error of one must not stop the others
    if first is not None:
        raise first
    return removed


def _finish(context: Context, name: str, batch_name: str) -> int:
    tree = context.tree
    batch = load(tree, name, batch_name, DONE)
    if batch is None:
        return 0
    advance(tree, name, batch.stream, batch.number)
    removed = 0
    faults: list[OSError | FsmqError] = []
    for queue, claims in batch.claims.items():
        removed += _remove(context, queue, claims, batch.renewals, faults)
    if faults:
        raise faults[0]
    tree.unlink(path_of(tree, name, batch.name, DONE))
    # If a crash brought the file back, later messages with the same own ids would be removed.
    tree.sync_folder(folder_of(tree, name))
    return removed


def _remove(
    context: Context,
    queue: str,
    claims: Sequence[Claimed],
    renewals: Renewals,
    faults: list[OSError | FsmqError],
) -> int:
    """Remove the messages of claims durably; how many. A failure does not stop the others."""
    tree = context.tree
    dirty = dirty_of(tree, queue)
    removed: list[str] = []
    for claim in claims:
        try:
            if remove_known(context, queue, claim.id, partial(claim.is_done, renewals=renewals)):
                removed.append(claim.id)
        except (OSError, FsmqError) as error:
            faults.append(error)
    if len(removed) < len(claims):
        # A purge or a deletion of the queue may have removed them, and not have synced that yet.
        dirty.folders.add(tree.folder(QUEUES))
    try:
        for folder in sorted(dirty.folders):
            tree.sync_folder(folder)
    except OSError as error:
        faults.append(error)
    context.record_all(REMOVED, queue, [(message_id, {}) for message_id in removed])
    return len(removed)


def _names(tree: Tree) -> list[str]:
    names = sorted(filter(is_queue, tree.names(tree.folder(CONSUMERS))))
    return [name for name in names if tree.is_folder(folder_of(tree, name))]


def take_lock(tree: Tree, name: str, patience: float = 0.0) -> Lock:
    """Lock a consumer, creating it if needed; wait up to ``patience`` seconds for its holder.

    It waits at least for a moment, as others lock it just to look.

    Raises:
        ConsumerInUse, OSError
    """

    def attempt() -> Lock | None:
        tree.make_folder(CONSUMERS, name)
        return _try_lock(tree, name)

    held = patiently(attempt, max(patience, _LEAST_PATIENCE_S), _RETRY_S)
    if held is None:
        raise ConsumerInUse(name)
    return held


def _try_lock(tree: Tree, name: str) -> Lock | None:
    try:
        return lock(tree, path_of(tree, name, "", LOCK), os.O_CREAT)
    except FileNotFoundError:
        return None  # another process has just forgotten it
