"""Move: bring messages from one queue to another, each by one rename.

`fsmq.spool.moves` does it in the background, for whole queues.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..context import Context
from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from ..layout.names import check_id, check_queue, fits, is_id
from ..layout.transitions import (
    MOVE_DELAY,
    MOVE_NEW,
    MOVE_READY,
    NEW,
    REMOVE_NEW,
    State,
    Transition,
)
from ..layout.tree import Tree
from ..views.browse import ids

_PROGRESS_STEP = 1000


class Moved(NamedTuple):
    """The outcome of a move."""

    moved: int = 0
    # Messages that stay: the target has their id already, or its name leaves no room for the id.
    conflicts: int = 0


def move_messages(
    context: Context,
    source: str,
    target: str,
    *,
    only: Sequence[str] | None = None,
    in_flight: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Moved:
    """Move a queue's messages to another, each by one rename, ids and counts kept.

    New and ready ones move; with ``in_flight`` also those in ``delay/``, which are ready then.
    only: the ids to move; None is all. Ids that are not there are skipped.
    progress: called now and then with the number of messages moved so far.

    Raises:
        NoSuchQueue: also if one is deleted during the move; the rest is in the source then.
        InvalidValue, Unavailable
    """
    check_queue(source, "source")
    check_queue(target, "target")
    if source == target:
        raise InvalidValue("target", "is the same queue as the source")
    tree = context.tree
    moved = 0
    # An id may come more than once, because a message may move on between two tries.
    stay: set[str] = set()
    with as_unavailable(f"cannot move from {source!r} to {target!r}"):
        for queue in (source, target):
            if not tree.has_queue(queue):
                raise NoSuchQueue(queue)
        for transition, message_id in _to_move(context, source, only, in_flight):
            try:
                done = move_one(context, transition, source, message_id, target)
            except FileExistsError:
                stay.add(message_id)
                continue
            moved += done
            if moved % _PROGRESS_STEP == 0:
                progress(moved)
    progress(moved)
    return Moved(moved, len(stay))


def move_one(context: Context, how: Transition, source: str, message_id: str, target: str) -> bool:
    """Move one message to another queue; False if it is not in the state in which ``how`` begins.

    Raises:
        NoSuchQueue: the target was deleted; the message is in the source.
        FileExistsError: the target has a message of this id in any state, or its name leaves no
            room for the id; nothing was changed.
        OSError
    """
    tree = context.tree
    path = tree.path(how.source, source, message_id)
    has_room = fits(target, message_id)
    is_there = tree.stat(path) is not None
    if is_there and not (has_room and not _exists_elsewhere(tree, how, target, message_id)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if not has_room:
        return False
    if not tree.move(how, source, message_id, target):
        if not tree.has_queue(target):
            raise NoSuchQueue(target)
        return False
    if how.target is State.READY:
        context.ready.add(target, message_id)
    elif not tree.has_queue(target):
        # It was deleted just now, and may have purged new/ before the message came there.
        _bring_back(context, target, message_id, source)
        raise NoSuchQueue(target)
    context.record(how.step, target, message_id, source=source)
    return True


def _exists_elsewhere(tree: Tree, how: Transition, queue: str, message_id: str) -> bool:
    """Whether a queue has an id in another state than the one to which ``how`` leads.

    A rename would not fail because of it, and two messages of one id block each other later.
    """
    states = (State.NEW, State.READY, State.DELAY)
    paths = (tree.path(state, queue, message_id) for state in states if state is not how.target)
    return any(tree.look(path) is not None for path in paths)


def _bring_back(context: Context, gone: str, message_id: str, source: str) -> None:
    """Return a message in ``new/`` whose queue is gone to the queue that it came from."""
    tree = context.tree
    try:
        tree.move(MOVE_NEW, gone, message_id, source)
    except FileExistsError:
        return  # a message of its id was put there; this one waits for a queue as it is
    if not tree.has_queue(source):
        # Both were deleted, and their messages with them.
        for queue in (gone, source):
            tree.move(REMOVE_NEW, queue, message_id)
    tree.sync_folder(tree.folder(NEW))  # nobody else does: this move has failed


def _to_move(
    context: Context, source: str, only: Sequence[str] | None, in_flight: bool
) -> Iterator[tuple[Transition, str]]:
    if only is not None:
        for message_id in only:
            check_id(source, message_id)
        # In the direction in which messages move: the next try finds one that has moved on.
        hows = (MOVE_NEW, MOVE_READY, MOVE_DELAY, MOVE_READY)
        for how in hows if in_flight else (MOVE_NEW, MOVE_READY):
            yield from ((how, message_id) for message_id in only)
        return
    # Against that direction: a message that is delivered at the same time is not seen twice.
    if in_flight:
        yield from ((MOVE_DELAY, i) for i in ids(context, source, State.DELAY))
    yield from ((MOVE_READY, i) for i in ids(context, source, State.READY) if is_id(i))
    yield from ((MOVE_NEW, i) for i in ids(context, source, State.NEW))
