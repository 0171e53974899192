"""Remove messages. (`fsmq.spool.verbs.queues.purge` empties a queue, `deletion` deletes one.)

A removal is a rename into ``remove/``; `fsmq.spool.reaper` unlinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..context import Context, Prepared
from ..durability.leaving import unlink_message
from ..durability.sync import Dirty
from ..durability.taken import bring_back_one
from ..durability.unfinished import exists
from ..errors import Unavailable, is_full, reraise
from ..layout.names import (
    check_id,
    check_queue,
    is_id,
)
from ..layout.steps import giving_way
from ..layout.transitions import (
    DELAY,
    MESSAGE_FOLDERS,
    NEW,
    QUEUES,
    REMOVE,
    REMOVE_READY,
    REMOVED,
    State,
    Transition,
)
from ..layout.tree import Tree
from .remove_known import ATTEMPTS, ROUNDS


def remove(
    context: Context,
    queue: str,
    message_ids: Sequence[str],
) -> Prepared[list[bool]]:
    """Remove messages in whatever state they are; for each id, whether it was there.

    Raises:
        InvalidValue: one of the ids is invalid; nothing is removed then.
    ``commit`` raises Unavailable if one could not be removed; all others are.
    """
    check_queue(queue)
    for message_id in message_ids:
        check_id(queue, message_id)
    tree = context.tree
    # Also for messages that are gone: an earlier try that got no answer may have removed them.
    dirty = dirty_of(tree, queue)
    found, fault = _each(message_ids, lambda message_id: remove_one(context, queue, message_id))
    if not all(found):
        # A purge or a deletion of the queue may have removed them, and not have synced that yet.
        dirty.folders.add(tree.folder(QUEUES))

    def commit() -> list[bool]:
        pairs = zip(message_ids, found, strict=True)
        context.record_all(REMOVED, queue, [(i, {}) for i, was_there in pairs if was_there])
        if fault is not None:
            reraise(fault, f"cannot remove from queue {queue!r}")
        return found

    return Prepared(dirty, commit)


def _each(
    message_ids: Sequence[str], remove: Callable[[str], bool]
) -> tuple[list[bool], OSError | Unavailable | None]:
    """Which of some messages were removed, and the first error, which does not stop the others."""
    found: list[bool] = []
    fault: OSError | Unavailable | None = None
    for message_id in giving_way(message_ids):
        try:
            found.append(remove(message_id))
        except (OSError, Unavailable) as error:
            found.append(False)
            fault = fault or error
    return found, fault


def remove_one(context: Context, queue: str, message_id: str) -> bool:
    """Remove a message wherever it is; False if it is nowhere. Raises Unavailable, OSError."""
    tree = context.tree
    for _ in range(ROUNDS):
        if remove_from(tree, ATTEMPTS, queue, message_id):
            return True
        # A network filesystem may have renamed it and yet answered ENOENT, if its server restarted.
        if tree.network and tree.stat(tree.path(State.REMOVE, queue, message_id)) is not None:
            return True
        # Or it was claimed and released such that each try looked where it had just been.
        if not tree.has_queue(queue) or not exists(tree, queue, message_id):
            return False
        bring_back_one(tree, queue, message_id, context.clock())
    raise Unavailable(f"the message {message_id!r} keeps moving from folder to folder")


def remove_from(tree: Tree, attempts: Sequence[Transition], queue: str, message_id: str) -> bool:
    """Move a message to ``remove/`` from the first place where it is, or unlink it there.

    It is unlinked if ``remove/`` has no room for its name: a removal must succeed on a full disk.
    """
    try:
        for how in attempts:
            if tree.move(how, queue, message_id):
                return True
    except OSError as error:
        if not is_full(error):
            raise
    else:
        return False
    return any(
        unlink_message(tree, tree.path(how.source, queue, message_id), queue, message_id)
        for how in attempts
        if how.source is not State.READY or tree.has_queue(queue)
    )


def remove_ready(context: Context, queue: str, message_ids: Sequence[str]) -> Prepared[int]:
    """Remove messages that are ready; how many. Others stay where they are.

    Raises InvalidValue. ``commit`` raises Unavailable if one could not be removed; all others are.
    """
    check_queue(queue)
    tree = context.tree
    dirty = Dirty(folders={tree.folder(QUEUES, queue), tree.folder(REMOVE)})

    def remove(message_id: str) -> bool:
        # If another process has claimed it before us, it is in flight and stays.
        return is_id(message_id) and tree.move(REMOVE_READY, queue, message_id)

    found, fault = _each(message_ids, remove)

    def commit() -> int:
        pairs = zip(message_ids, found, strict=True)
        context.record_all(REMOVED, queue, [(i, {}) for i, was_there in pairs if was_there])
        if fault is not None:
            reraise(fault, f"cannot remove from queue {queue!r}")
        return sum(found)

    return Prepared(dirty, commit)


def dirty_of(tree: Tree, queue: str) -> Dirty:
    """What a removal syncs: every folder in which a message may have been.

    Otherwise an earlier, unsynced rename of it could survive a crash that undoes this one.
    """
    folders = {tree.folder(name) for name in (NEW, DELAY, REMOVE)}
    return Dirty(folders=folders | {tree.folder(QUEUES, queue)})


def removal_work(tree: Tree) -> Dirty:
    return Dirty(folders={tree.folder(name) for name in MESSAGE_FOLDERS})
