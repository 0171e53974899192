"""Remove messages, and delete queues. (`fsmq.spool.verbs.purge` empties a queue.)

A removal is a rename into ``remove/``, of a whole queue too; `fsmq.spool.reaper` unlinks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from ..context import Context, Pending
from ..durability.dedup_records import forget_records
from ..durability.leaving import unlink_message
from ..durability.locks import free_lock
from ..durability.send_lines import no_sends
from ..durability.settings_lock import no_ids, settings_held
from ..durability.sync import Work
from ..durability.taken import bring_back_one
from ..durability.unfinished import exists
from ..errors import NoSuchQueue, Unavailable, as_unavailable, is_full, unavailable
from ..layout.names import (
    check_id,
    check_queue,
    claims_name,
    entry,
    fits,
    is_id,
    limits_name,
    sends_name,
    split_entry,
    split_staged,
    split_taken,
)
from ..layout.transitions import (
    CONFIG,
    DELAY,
    IDS,
    INDEX_TRASH,
    MESSAGE_FOLDERS,
    NEW,
    PURGED,
    QUEUES,
    REMOVE,
    REMOVE_DELAY,
    REMOVE_NEW,
    REMOVE_READY,
    REMOVED,
    TOPICS,
    State,
    Transition,
)
from ..layout.tree import Tree
from ..layout.uuids import uuid7
from .latch import IsWanted
from .remove_known import ATTEMPTS, ROUNDS, remove_known

PROGRESS_STEP = 1000
# Up to this many ready messages are removed one by one as quickly as all at once.
_FEW = 1000
# A rename takes microseconds, but it may have to wait for other renames and for a processor.
_CLAIM_ENDS_S = 0.1


def remove(
    context: Context,
    queue: str,
    message_ids: Sequence[str],
    known: Sequence[IsWanted] | None = None,
) -> Pending[list[bool]]:
    """Remove messages in whatever state they are; for each id, whether it was there.

    known: for each id which file is meant. Another message of this id stays.

    Raises:
        InvalidValue: one of the ids cannot be one; nothing is removed then.
        Unavailable
    """
    check_queue(queue)
    for message_id in message_ids:
        check_id(queue, message_id)
    tree = context.tree
    # Also for messages that are gone: an earlier try without an answer may have removed them.
    work = work_of(tree, queue)
    try:
        if known is None:
            found = [remove_one(context, queue, message_id) for message_id in message_ids]
        else:
            pairs = zip(message_ids, known, strict=True)
            found = [remove_known(context, queue, i, is_wanted) for i, is_wanted in pairs]
    except OSError as error:
        raise unavailable(error, f"cannot remove from queue {queue!r}") from error
    if not all(found):
        # A purge or a deletion of the queue may have removed them, and not have synced that yet.
        work.folders.add(tree.folder(QUEUES))

    def finish() -> list[bool]:
        pairs = zip(message_ids, found, strict=True)
        context.record_all(REMOVED, queue, [(i, {}) for i, was_there in pairs if was_there])
        return found

    return Pending(work, finish)


def remove_one(context: Context, queue: str, message_id: str) -> bool:
    """Remove a message wherever it is; False if it is nowhere. Raises Unavailable, OSError."""
    tree = context.tree
    for _ in range(ROUNDS):
        if remove_from(tree, ATTEMPTS, queue, message_id):
            return True
        # A network filesystem may have renamed it and yet answered ENOENT, if its server restarted.
        if tree.network and tree.stat(tree.path(State.REMOVE, queue, message_id)) is not None:
            return True
        # Or it was claimed and released in such a way that each try looked where it had been.
        if not tree.has_queue(queue) or not exists(tree, queue, message_id):
            return False
        bring_back_one(tree, queue, message_id, context.clock())
    raise Unavailable(f"the message {message_id!r} keeps moving from folder to folder")


def remove_from(tree: Tree, attempts: Sequence[Transition], queue: str, message_id: str) -> bool:
    """Bring a message to ``remove/`` from the first place where it is, or unlink it there.

    It is unlinked if ``remove/`` has no room for its name: on a full disk a removal must not need
    room.
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


def remove_ready(context: Context, queue: str, message_ids: Sequence[str]) -> Pending[int]:
    """Remove messages that are ready; how many. Others are left where they are.

    Raises:
        InvalidValue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    work = Work(folders={tree.folder(QUEUES, queue), tree.folder(REMOVE)})
    removed: list[str] = []
    with as_unavailable(f"cannot remove from {queue!r}"):
        for message_id in message_ids:
            # If another process has claimed it before us, it is in flight and stays.
            if is_id(message_id) and tree.move(REMOVE_READY, queue, message_id):
                removed.append(message_id)

    def finish() -> int:
        context.record_all(REMOVED, queue, [(message_id, {}) for message_id in removed])
        return len(removed)

    return Pending(work, finish)


def delete_queue(context: Context, queue: str) -> Pending[None]:
    """Delete a queue, its settings and all its messages, wherever they are.

    All of it under the lock of its name: one that is stopped in the middle meets no later queue
    when it goes on. Where there is none, a deletion that died is finished.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    # A subscription may have ended, alone or with its topic, and no one have come to sync that.
    work = Work(folders={tree.folder(name) for name in (QUEUES, REMOVE, TOPICS)})
    try:
        with (
            as_unavailable(f"cannot delete queue {queue!r}"),
            settings_held(tree, queue, writes=False),
            no_ids(tree, queue),
        ):
            work.folders.update(context.topics.folders())
            was_there = tree.has_queue(queue)
            if was_there:
                with no_sends(tree, queue, context.settings):
                    _delete(context, queue)
            else:
                tree.sync_folder(tree.folder(QUEUES))  # who deleted it may not have done so yet
            forget(context, queue, leaves=was_there)
            if not was_there:
                raise NoSuchQueue(queue)
    except BaseException:
        work.close()
        raise
    return Pending(work, partial(context.metrics.count, ("delete_queue",)))


def forget(context: Context, queue: str, *, leaves: bool = False) -> None:
    """Remove, durably, what is left of a queue that is gone; the caller has its lock and its ids'.

    leaves: it was there until now. Raises OSError.
    """
    tree, settings, left = context.tree, context.settings.path(queue), leaving(context.tree, queue)
    leaves = leaves or tree.look(left) is not None
    if not leaves and not any(map(tree.look, (settings, tree.folder(IDS, queue)))):
        return
    # Now no put and no delivery finds the queue. A listing may miss what is renamed meanwhile,
    # as what a put has written is once: so two see all that is left.
    if leaves:
        await_claims(tree, left)
        purge_folder(context, queue, NEW, is_gone=True)
        purge_folder(context, queue, NEW, is_gone=True)
        purge_folder(context, queue, DELAY, is_gone=True)
        for path in context.topics.entries_of(queue):
            if not tree.has_queue(queue):
                tree.unlink(path)
                tree.sync_folder(path.rpartition("/")[0])
    # Before it is forgotten: a power cut may bring back what nobody has synced, the queue, too,
    # or a message in new/ that a mover had brought to its folder.
    for folder in (left, *map(tree.folder, MESSAGE_FOLDERS)):
        tree.sync_folder(folder)
    forget_records(tree, queue)
    if tree.rename(tree.folder(IDS, queue), tree.folder(REMOVE, INDEX_TRASH + uuid7())):
        tree.sync_folder(tree.folder(IDS))
    for name in (limits_name(queue), sends_name(queue), claims_name(queue)):
        try:
            free_lock(tree, tree.folder(CONFIG, name))  # one that is held stays, for its holder
        except OSError:
            tree.unlink(tree.folder(CONFIG, name))  # another user's, or there are no locks
    tree.unlink(settings)
    tree.sync_folder(tree.folder(CONFIG))
    _discard(tree, queue)


def leaving(tree: Tree, queue: str) -> str:
    """Where a queue's folder is while the rest of the queue is removed."""
    return tree.folder(QUEUES, f".{queue}")


def _discard(tree: Tree, queue: str) -> None:
    """Bring the folder of a deleted queue to ``remove/``, or empty it where that has no room."""
    left = leaving(tree, queue)
    try:
        tree.rename(left, tree.folder(REMOVE, entry(queue, uuid7())))
    except OSError as error:
        if not is_full(error):
            raise
        for name in tree.names(left):
            unlink_message(tree, f"{left}/{name}", queue, name)
        if not tree.remove_folder(left):
            raise


def _delete(context: Context, queue: str) -> None:
    """Remove the messages of a queue, and have its folder leave."""
    tree, folder = context.tree, context.tree.folder(QUEUES, queue)
    # The folder goes behind the messages: after a crash in between a retry finds it.
    purge_folder(context, queue, NEW)
    purge_folder(context, queue, DELAY)
    if has_few(tree, queue):
        purge_ready(context, queue)
    _discard(tree, queue)  # who deleted another one died, and this one was made by hand
    try:
        is_gone = tree.rename(folder, leaving(tree, queue))
    except OSError as error:
        if not is_full(error):
            raise
        purge_ready(context, queue)
        is_gone = tree.remove_folder(folder)
        if not is_gone and tree.has_queue(queue):
            raise  # it has got a message since
    if not is_gone:
        raise NoSuchQueue(queue)
    context.ready.forget(queue)


def has_few(tree: Tree, queue: str) -> bool:
    """Whether few enough messages are ready to remove them one by one."""
    return next(islice(tree.walk(tree.folder(QUEUES, queue)), _FEW, None), None) is None


def purge_ready(context: Context, queue: str) -> int:
    """Remove the ready messages one by one, also if they are claimed just then; how many."""
    tree = context.tree
    removed = 0
    for message_id in tree.ready_names(queue) or ():
        if fits(queue, message_id):
            is_gone = remove_one(context, queue, message_id)
        else:
            # A name given by hand, which is too long for any other folder.
            path = tree.path(State.READY, queue, message_id)
            is_gone = unlink_message(tree, path, queue, message_id)
        if is_gone:
            context.record(PURGED, queue, message_id)
            removed += 1
    return removed


def await_claims(tree: Tree, trash: str) -> None:
    """Wait for claims that looked a queue's folder up before it was renamed to ``trash``.

    The kernel looks a path up first, and then waits for its turn to rename. So a message can still
    move from there to ``delay/``.
    """
    if next(tree.walk(trash), None) is not None:
        time.sleep(_CLAIM_ENDS_S)


def sync_afterwards(tree: Tree, queue: str, work: Work) -> None:
    """Have a queue's folder synced, under whatever name.

    The mover has brought messages there without a sync: after a crash they must not be back in
    ``new/`` or ``delay/``. By its descriptor, because the reaper may come before the sync.
    """
    try:
        work.moved_folders.append(tree.open_folder(tree.folder(QUEUES, queue)))
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchQueue(queue) from None


def purge_folder(
    context: Context,
    queue: str,
    folder: str,
    is_gone: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Remove a queue's messages from ``new/`` or ``delay/``, unfinished ones included; how many.

    is_gone: the queue is. If there is one of its name again, which a shell user has made, what is
        there may be its own, and stays: to remove an acknowledged message is a loss.
    """
    tree = context.tree
    purged = 0
    transition = REMOVE_NEW if folder == NEW else REMOVE_DELAY
    for name in tree.names(tree.folder(folder)):
        staged = split_staged(name) if folder == NEW else None
        taken = split_taken(name) if folder == NEW else None
        parts = taken or split_entry(staged[0] if staged is not None else name)
        if parts is None or parts[0] != queue:
            continue
        path = tree.folder(folder, name)
        if is_gone and tree.has_queue(queue):
            break
        if staged is None and taken is None:
            if remove_from(tree, [transition], queue, parts[1]):
                context.record(PURGED, queue, parts[1])
        else:
            # A complete one may have been acknowledged before a crash: recovery would promote it.
            unlink_message(tree, path, queue, parts[1])
        purged += 1
        if purged % PROGRESS_STEP == 0:
            progress(purged)
    return purged


def work_of(tree: Tree, queue: str) -> Work:
    """What a removal syncs: every folder in which a message may have been.

    An earlier rename of it that nobody synced must not survive a crash that this one does not.
    """
    folders = {tree.folder(name) for name in (NEW, DELAY, REMOVE)}
    return Work(folders=folders | {tree.folder(QUEUES, queue)})


def removal_work(tree: Tree) -> Work:
    return Work(folders={tree.folder(name) for name in MESSAGE_FOLDERS})
