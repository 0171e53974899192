"""Delete queues. A queue, too, is removed by a rename into ``remove/``."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import islice

from ...context import Context, Prepared
from ...durability.dedup_records import forget_records
from ...durability.leaving import unlink_message
from ...durability.locks import free_lock
from ...durability.send_lines import no_sends
from ...durability.settings_lock import no_ids, settings_held
from ...durability.shared_names import claims_name, limits_name, sends_name
from ...durability.sync import Dirty
from ...errors import NoSuchQueue, as_unavailable, is_full
from ...layout.names import check_queue, entry, fits, split_entry, split_staged, split_taken
from ...layout.steps import giving_way
from ...layout.transitions import (
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
    TOPICS,
    State,
)
from ...layout.tree import Tree
from ...layout.uuids import uuid7
from ..removal import remove_from, remove_one

PROGRESS_STEP = 1000
# Up to this many ready messages are removed one by one as quickly as all at once.
_FEW = 1000
# A rename takes microseconds, but can have to wait for other renames and for a processor.
_CLAIM_ENDS_S = 0.1


def delete_queue(context: Context, queue: str) -> Prepared[None]:
    """Delete a queue, its settings and all its messages, wherever they are.

    It runs under the lock of the name: a deletion that is stopped in the middle meets no later
    queue of that name when it continues. If there is no queue, a dead deletion is finished.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    # A subscription may have ended, alone or with its topic, without a sync so far.
    dirty = Dirty(folders={tree.folder(name) for name in (QUEUES, REMOVE, TOPICS)})
    try:
        with (
            as_unavailable(f"cannot delete queue {queue!r}"),
            settings_held(tree, queue, writes=False),
            no_ids(tree, queue),
        ):
            dirty.folders.update(context.topics.folders())
            was_there = tree.has_queue(queue)
            if was_there:
                with no_sends(tree, queue, context.settings):
                    _delete(context, queue)
            else:
                tree.sync_folder(tree.folder(QUEUES))  # its deletion may not be synced yet
            forget(context, queue, leaves=was_there)
            if not was_there:
                raise NoSuchQueue(queue)
    except BaseException:
        dirty.close()
        raise
    return Prepared(dirty, partial(context.metrics.count, ("delete_queue",)))


def forget(context: Context, queue: str, *, leaves: bool = False) -> None:
    """Remove, durably, what is left of a queue that is gone; the caller has the lock and all ids.

    leaves: the caller has just removed its folder. Raises OSError.
    """
    tree, settings, left = context.tree, context.settings.path(queue), leaving(context.tree, queue)
    leaves = leaves or tree.look(left) is not None
    if not leaves and not any(map(tree.look, (settings, tree.folder(IDS, queue)))):
        return
    # Now no put and no delivery finds the queue. A listing can miss a name that changes meanwhile.
    # A put's file is renamed once, so two listings see all that is left.
    if leaves:
        await_claims(tree, left)
        purge_folder(context, queue, NEW, is_gone=True)
        purge_folder(context, queue, NEW, is_gone=True)
        purge_folder(context, queue, DELAY, is_gone=True)
        purge_taken(tree, queue, is_gone=True)
        for path in context.topics.entries_of(queue):
            if not tree.has_queue(queue) and not context.topics.outlives_its_queue(path):
                tree.unlink(path)
                tree.sync_folder(path.rpartition("/")[0])
    # Sync before the records and settings go: a power cut can bring back what nobody has synced,
    # even the queue, or a message in new/ that a mover had delivered.
    for folder in (left, *map(tree.folder, MESSAGE_FOLDERS)):
        tree.sync_folder(folder)
    forget_records(tree, queue)
    if tree.rename(tree.folder(IDS, queue), tree.folder(REMOVE, INDEX_TRASH + uuid7())):
        tree.sync_folder(tree.folder(IDS))
    for name in (limits_name(queue), sends_name(queue), claims_name(queue)):
        try:
            free_lock(tree, tree.folder(CONFIG, name))  # a locked one stays for its holder
        except OSError:
            tree.unlink(tree.folder(CONFIG, name))  # it is another user's, or there are no locks
    tree.unlink(settings)
    tree.sync_folder(tree.folder(CONFIG))
    _discard(tree, queue)


def leaving(tree: Tree, queue: str) -> str:
    """The path of a queue's folder while the rest of the queue is removed."""
    return tree.folder(QUEUES, f".{queue}")


def _discard(tree: Tree, queue: str) -> None:
    """Move the folder of a deleted queue to ``remove/``, or empty it if that has no room."""
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
    """Remove the messages of a queue, and rename its folder."""
    tree, folder = context.tree, context.tree.folder(QUEUES, queue)
    # The folder goes after the messages: after a crash in between a retry finds it.
    purge_folder(context, queue, NEW)
    purge_folder(context, queue, DELAY)
    if has_few(tree, queue):
        purge_ready(context, queue)
    _discard(tree, queue)  # left by a dead deletion, before this queue was made by hand
    try:
        is_gone = tree.rename(folder, leaving(tree, queue))
    except OSError as error:
        if not is_full(error):
            raise
        purge_ready(context, queue)
        is_gone = tree.remove_folder(folder)
        if not is_gone and tree.has_queue(queue):
            raise  # it has just got a message
    if not is_gone:
        raise NoSuchQueue(queue)
    context.ready.forget(queue)


def has_few(tree: Tree, queue: str) -> bool:
    """Whether few enough messages are ready to remove them one by one."""
    return next(islice(tree.walk(tree.folder(QUEUES, queue)), _FEW, None), None) is None


def purge_ready(context: Context, queue: str) -> int:
    """Remove the ready messages one by one, even if they are just being claimed; how many."""
    tree = context.tree
    removed = 0
    for message_id in giving_way(tree.ready_names(queue) or ()):
        if fits(queue, message_id):
            is_gone = remove_one(context, queue, message_id)
        else:
            # A name that was given by hand, too long for any other folder.
            path = tree.path(State.READY, queue, message_id)
            is_gone = unlink_message(tree, path, queue, message_id)
        if is_gone:
            context.record(PURGED, queue, message_id)
            removed += 1
    return removed


def await_claims(tree: Tree, trash: str) -> None:
    """Wait for claims that resolved a queue's folder before it was renamed to ``trash``.

    The kernel resolves a path first, and then waits for its turn to rename. So a message can still
    move from there to ``delay/``.
    """
    if next(tree.walk(trash), None) is not None:
        time.sleep(_CLAIM_ENDS_S)


def sync_afterwards(tree: Tree, queue: str, dirty: Dirty) -> None:
    """Add a queue's folder to ``dirty``, under whatever name it has by then.

    The mover has moved messages there without a sync: after a crash they must not be back in
    ``new/`` or ``delay/``. By its descriptor, because the reaper can come before the sync.
    """
    try:
        dirty.moved_folders.append(tree.open_folder(tree.folder(QUEUES, queue)))
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

    is_gone: the queue was deleted. If a shell user has made it again, messages can be its own, and
        stay: removing an acknowledged message would be a loss.
    """
    tree = context.tree
    purged = 0
    transition = REMOVE_NEW if folder == NEW else REMOVE_DELAY
    for name in giving_way(tree.names(tree.folder(folder))):
        staged = split_staged(name) if folder == NEW else None
        parts = split_entry(staged[0] if staged is not None else name)
        if parts is None or parts[0] != queue:
            continue
        path = tree.folder(folder, name)
        if is_gone and tree.has_queue(queue):
            break
        if staged is None:
            if remove_from(tree, [transition], queue, parts[1]):
                context.record(PURGED, queue, parts[1])
        else:
            # A complete one may have been acknowledged before a crash: recovery would promote it.
            unlink_message(tree, path, queue, parts[1])
        purged += 1
        if purged % PROGRESS_STEP == 0:
            progress(purged)
    return purged


def purge_taken(tree: Tree, queue: str, is_gone: bool = False) -> int:
    """Remove messages of a queue that were taken away, also by processes that died; how many.

    Messages can be taken away from any folder, so this comes after those. is_gone: as in
    `purge_folder`.
    """
    purged = 0
    for name in tree.names(tree.folder(NEW)):
        parts = split_taken(name)
        if parts is None or parts[0] != queue:
            continue
        if is_gone and tree.has_queue(queue):
            break
        purged += unlink_message(tree, tree.folder(NEW, name), queue, parts[1])
    return purged
