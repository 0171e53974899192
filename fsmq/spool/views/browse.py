"""Browse: look at messages without claiming them, and move them between queues."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from ..context import Context
from ..errors import InvalidValue, NoSuchQueue, as_unavailable
from ..layout.message import Message
from ..layout.names import check_id, check_queue, fits, is_id, split_entry
from ..layout.steps import portions
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
from .look import Page
from .reading import Room

_PROGRESS_STEP = 1000
_HIDDEN = ("in_flight", "delayed")
# The states in which a message may be found, in the direction in which it moves.
_STREAM = (State.NEW, State.READY, State.DELAY, State.READY)


class Moved(NamedTuple):
    """The outcome of a move."""

    moved: int = 0
    # Messages that stay: the target has their id already, or its name leaves no room for the id.
    conflicts: int = 0


def ids(context: Context, queue: str, state: State) -> list[str]:
    """The ids of a queue's messages in one state, in order. Raises OSError."""
    return sorted(_ids(context, queue, state))


def _ids(context: Context, queue: str, state: State) -> Iterator[str]:
    tree = context.tree
    if state is State.READY:
        yield from tree.ready_names(queue) or ()
        return
    prefix = queue + ":"
    for name in tree.names(tree.folder(state.value)):
        if name.startswith(prefix):
            part = split_entry(name)
            if part is not None and part[0] == queue:
                yield part[1]


def peek(
    context: Context,
    queue: str,
    state: State | str = "ready",
    limit: int = 10,
    after: str = "",
    max_bytes: int | None = None,
    room: Room | None = None,
) -> list[Message]:
    """Up to ``limit`` messages of one state in order, beginning behind the id ``after``.

    state: as a message has it; or a State or its name, where "delay" is in flight or delayed.
    max_bytes, room: as :class:`Page` has them.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    check_queue(queue)
    if limit < 1:
        raise InvalidValue("count", "must be at least 1")
    place, kind = _place(state)
    fault = as_unavailable(f"cannot look into queue {queue!r}")
    with Page(limit, room, max_bytes) as page, fault:
        context.settings_of(queue)
        for message_id in _from(context, queue, place, limit, after):
            if message_id > after and _is_of(context, queue, message_id, kind):
                page.look(context, queue, message_id, place)
            if page.is_full:
                break
    return page.messages


def peek_all(context: Context, queue: str, limit: int, room: Room | None = None) -> list[Message]:
    """Up to ``limit`` messages in order, whatever their state; ``room``: as a Page has it.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    with Page(limit, room) as page:
        fill(context, queue, page)
    return page.messages


def fill(context: Context, queue: str, page: Page) -> None:
    """Fill a page with messages in order, whatever their state.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    check_queue(queue)
    limit = page.left
    with as_unavailable(f"cannot look into queue {queue!r}"):
        context.settings_of(queue)
        # In the direction in which messages move: one that moves on is seen twice, never missed.
        states: dict[str, State] = {}
        for state in (State.NEW, State.READY, State.DELAY):
            states |= dict.fromkeys(islice(_from(context, queue, state, limit), limit), state)
        for message_id in sorted(states):
            if page.is_full:
                break
            # It may have moved on since.
            any(page.look(context, queue, message_id, at) for at in (states[message_id], *_STREAM))


def find(context: Context, queue: str, message_id: str, room: Room | None = None) -> Message | None:
    """Look one message up in whatever state it is (removed ones left out).

    room: the memory for its body.

    Raises:
        InvalidValue, NoRoom, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    with as_unavailable(f"cannot look into queue {queue!r}"), Page(1, room) as page:
        any(page.look(context, queue, message_id, state) for state in _STREAM)
        return page.messages[0] if page.messages else None


def _from(context: Context, queue: str, state: State, limit: int, after: str = "") -> Iterator[str]:
    """A queue's ids in order. The first ``limit`` ready ones come without a listing if they can."""
    first = None
    if state is State.READY and not after:
        first = context.ready.first(queue, limit)
    if first is None:
        yield from _in_order(_ids(context, queue, state))
        return
    yield from first
    if len(first) == limit:
        # Some were gone, or are not messages.
        yield from _in_order(i for i in _ids(context, queue, state) if i > first[-1])


def _in_order(names: Iterable[str]) -> Iterator[str]:
    """Sort only as many as the caller takes: to sort a million at once takes half a second."""
    return merge(*map(sorted, portions(names)))


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


def _place(state: State | str) -> tuple[State, str | None]:
    """The folder of messages in a state, and which kind of its messages is meant."""
    if state in _HIDDEN:
        return State.DELAY, str(state)
    try:
        return State(state), None
    except ValueError:
        known = ", ".join([State.NEW.value, State.READY.value, *_HIDDEN])
        raise InvalidValue("state", f"unknown state {state!r}; expected one of: {known}") from None


def _is_of(context: Context, queue: str, message_id: str, kind: str | None) -> bool:
    """Whether a message in ``delay/`` is of a kind, without opening it. Raises OSError."""
    if kind is None:
        return True
    found = context.tree.stat(context.tree.path(State.DELAY, queue, message_id))
    if found is None:
        return False
    return context.stamps.hidden_state(message_id, found.st_mtime_ns, context.now_ms()) == kind
