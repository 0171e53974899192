"""Purge: remove all messages of a queue, in whatever state; the queue stays.

Meanwhile consumers claim and release, and timers end. A message that moves to and fro can be
missing from every listing. But then it was claimed, so it came to ``delay/``, which is an event. So
listings and events together show every message, which is removed wherever it is by then. Messages
that were taken away to be removed are looked for after all folders from which they can come: if
that process is dead, recovery would bring them back. Nobody gives messages new names meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...context import Context, Prepared
from ...durability.dedup_records import forget_records
from ...durability.new_names import no_new_names
from ...durability.send_lines import no_sends
from ...durability.sync import Dirty
from ...errors import NoSuchQueue, as_unavailable, is_full
from ...index.events import Events, Kind
from ...layout.names import check_queue, entry, split_entry
from ...layout.steps import giving_way
from ...layout.transitions import CONFIG, DELAY, NEW, PURGED, QUEUES, REMOVE
from ...layout.tree import Tree
from ...layout.uuids import uuid7
from ..removal import removal_work, remove_one
from .deletion import (
    PROGRESS_STEP,
    await_claims,
    has_few,
    purge_folder,
    purge_ready,
    purge_taken,
    sync_afterwards,
)

# With all events one look is enough. Without them (on a network filesystem, if no watches are left,
# or if the kernel lost some) it takes at least two, and at most this many: puts may go on forever.
_LOOKS = 5


def purge(
    context: Context, queue: str, progress: Callable[[int], None] = lambda done: None
) -> Prepared[None]:
    """Remove all messages of a queue, wherever they are; the queue and its settings stay.

    Messages that are put at the same time can be removed too. A fifo queue forgets its
    deduplication ids.

    progress: called now and then with the number removed one by one. If many are ready, they are
        removed all at once.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    tree = context.tree
    dirty = removal_work(tree)
    try:
        with as_unavailable(f"cannot purge queue {queue!r}"):
            if not tree.has_queue(queue):
                raise NoSuchQueue(queue)
            with no_new_names(tree, queue), _Hidden(context, queue) as hidden:
                # In the direction in which messages move, so that none slips past.
                with no_sends(tree, queue, context.settings) as is_fifo:
                    if is_fifo:
                        forget_records(tree, queue)
                        dirty.folders.add(tree.folder(CONFIG))
                    done = purge_folder(context, queue, NEW, progress=progress)
                    # Recovery may have renamed what a dead process left, from a name that was
                    # listed to one that was not.
                    done += purge_folder(context, queue, NEW)
                for look in range(_LOOKS):
                    before = done
                    ids = hidden.listed()
                    done += _empty(context, queue, dirty)
                    done += purge_taken(tree, queue)
                    ids |= hidden.came()
                    done = _remove_all(context, queue, ids, done, progress)
                    if hidden.is_complete or (look and done == before):
                        break
            sync_afterwards(tree, queue, dirty)
            context.ready.forget(queue)
    except BaseException:
        dirty.close()
        raise
    return Prepared(dirty, partial(context.metrics.count, ("purge",)))


def _empty(context: Context, queue: str, dirty: Dirty) -> int:
    """Remove ready messages, many at once where possible; how many were removed one by one."""
    if not has_few(context.tree, queue) and _swap_out(context.tree, queue, dirty):
        return 0
    return purge_ready(context, queue)


def _swap_out(tree: Tree, queue: str, dirty: Dirty) -> bool:
    """Exchange a queue's folder with an empty one; False if that is impossible."""
    while True:
        trash = tree.folder(REMOVE, entry(queue, uuid7()))
        try:
            tree.make_entry(trash)
        except OSError as error:
            if is_full(error):
                return False
            raise
        try:
            sync_afterwards(tree, queue, dirty)
            if tree.exchange(tree.folder(QUEUES, queue), trash):
                await_claims(tree, trash)
                return True
            tree.remove_folder(trash)
            return False
        except FileNotFoundError:
            # The queue was deleted, or the reaper has removed the empty folder: try again.
            if not tree.has_queue(queue):
                raise NoSuchQueue(queue) from None


def _remove_all(
    context: Context, queue: str, ids: set[str], done: int, progress: Callable[[int], None]
) -> int:
    """Remove messages that were hidden, wherever they are by now; the new total."""
    for message_id in giving_way(ids):
        if remove_one(context, queue, message_id):
            context.record(PURGED, queue, message_id)
            done += 1
            if done % PROGRESS_STEP == 0:
                progress(done)
    return done


class _Hidden:
    """The messages of a queue in ``delay/``: those listed, and those that arrive."""

    def __init__(self, context: Context, queue: str) -> None:
        self.is_complete = False  # whether no event was lost since the last call
        self._tree = context.tree
        self._queue = queue
        self._events = None if context.tree.network else _watch(context.tree)

    def __enter__(self) -> _Hidden:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._events is not None:
            self._events.close()

    def listed(self) -> set[str]:
        return self._ours(self._tree.names(self._tree.folder(DELAY)))

    def came(self) -> set[str]:
        """Messages that have arrived since the last call, or since this was created."""
        if self._events is None:
            return set()
        events = self._events.read()
        self.is_complete = all(event.kind is not Kind.LOST for event in events)
        return self._ours([event.name for event in events])

    def _ours(self, names: list[str]) -> set[str]:
        parts = map(split_entry, names)
        return {found[1] for found in parts if found is not None and found[0] == self._queue}


def _watch(tree: Tree) -> Events | None:
    """Watch ``delay/``; None if that is impossible."""
    try:
        events = Events(tree)
    except OSError:
        return None
    if events.watch(tree.folder(DELAY)):
        return events
    events.close()
    return None
