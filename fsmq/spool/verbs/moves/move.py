"""Move: bring messages from one queue to another, each by one rename.

`fsmq.spool.moves` does it in the background, for whole queues.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ...context import Context, Prepared
from ...durability.ids import IS_HELD
from ...durability.sync import Dirty
from ...errors import InUse, InvalidValue, NoSuchQueue, Unavailable, as_unavailable
from ...layout.duty_cycle import Rate, check_rate
from ...layout.names import check_id, check_queue, fits, is_id
from ...layout.stamps import Stamp
from ...layout.steps import giving_way, portions
from ...layout.transitions import (
    DELAY,
    MOVE_DELAY,
    MOVE_NEW,
    MOVE_READY,
    MOVE_TIMER,
    NEW,
    QUEUES,
    REMOVE_DELAY,
    REMOVE_NEW,
    State,
    Transition,
)
from ...layout.tree import Tree
from ...views.browse import ids
from ..latch import Latched, latch_patiently
from .links_of_move import PART, Turns, keeps_order, receiving, together_or_alone

_PROGRESS_STEP = 1000


class Moved(NamedTuple):
    """The outcome of a move."""

    moved: int = 0
    # Messages that stay: the target has their id already, its name leaves no room for the id, or
    # nobody here may read which id they have.
    conflicts: int = 0


def move_messages(
    context: Context,
    source: str,
    target: str,
    *,
    only: Sequence[str] | None = None,
    in_flight: bool = False,
    delayed: bool = False,
    rate: float | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Prepared[Moved]:
    """Move a queue's messages to another, each by one rename, ids and counts kept.

    New and ready ones move; with ``in_flight`` also those in ``delay/``, which are ready then.
    only: the ids to move; None is all. Ids that are not there are skipped.
    delayed: delayed ones, which nobody has claimed, move, too, and are delayed there.
    rate: the most messages a second; None: no limit.
    progress: called now and then with the number of messages moved so far.

    Raises:
        NoSuchQueue: also if one is deleted during the move; the rest is in the source then.
        InvalidValue, Unavailable
        InUse: other programs have locked the ids of some; the others have moved.
    """
    _check(source, target)
    limit = Rate(check_rate(rate))
    tree = context.tree
    done = _Done()
    with as_unavailable(f"cannot move from {source!r} to {target!r}"):
        for queue in (source, target):
            if not tree.has_queue(queue):
                raise NoSuchQueue(queue)
        check_order(context, source, target)
        turns = Turns()
        found = _to_move(context, source, only, in_flight, delayed)
        for part in portions(found, limit.part(PART)):
            before = done.moved
            fault = together_or_alone(partial(done.try_part, context, source, target), part)
            done.fault = done.fault or fault
            if rate is not None or done.moved // _PROGRESS_STEP > before // _PROGRESS_STEP:
                progress(done.moved)
            time.sleep(turns.pause(limit.pause(done.moved - before)))
        progress(done.moved)
        moved = done.finish()
    queues = {tree.folder(QUEUES, source), tree.folder(QUEUES, target)}
    dirty = Dirty(folders={tree.folder(NEW), tree.folder(DELAY), *queues})
    return Prepared(dirty, lambda: moved)


@dataclass(slots=True)
class _Done:
    """What a move has done. An id may come more than once: a message may move on between two tries.

    stay, later: the ids of those that cannot move (now). fault: why one is not there.
    """

    moved: int = 0
    stay: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    fault: OSError | Unavailable | None = None

    def try_part(
        self,
        context: Context,
        source: str,
        target: str,
        part: Sequence[tuple[Transition, str]],
    ) -> None:
        """Move messages, each if it can come; none if it raises. Raises as `receiving`."""
        names = [name for _, name in part]
        with receiving(context, source, target, names) as not_now:
            self.stay |= not_now.stay
            self.later = self.later.difference(names) | not_now.later
            for transition, message_id in giving_way(part):
                self.try_one(context, transition, source, message_id, target)

    def try_one(
        self, context: Context, how: Transition, source: str, message_id: str, target: str
    ) -> None:
        """Move a message, if it can come. What it fails at keeps none of the others."""
        if message_id in self.stay or message_id in self.later:
            return
        try:
            self.moved += move_one(context, how, source, message_id, target)
        except FileExistsError:
            self.stay.add(message_id)
        except (OSError, Unavailable) as error:
            self.fault = self.fault or error

    def finish(self) -> Moved:
        """The outcome. Raises InUse if other programs had locked some ids, Unavailable, OSError."""
        if self.fault is not None:
            raise self.fault
        if self.later:
            raise InUse(IS_HELD)
        return Moved(self.moved, len(self.stay))


def _check(source: str, target: str) -> None:
    check_queue(source, "source")
    check_queue(target, "target")
    if source == target:
        raise InvalidValue("target", "is the same queue as the source")


def check_order(context: Context, source: str, target: str, field: str = "target") -> None:
    """Make sure that a move keeps the order of a fifo queue. Raises InvalidValue, OSError.

    A moved message keeps its name, and with it a place that only its own queue has given. So only
    dead letters come back.
    """
    if not keeps_order(context.settings.get(target), source):
        reason = f"{target!r} is a fifo queue, whose order only puts make: put the messages there"
        raise InvalidValue(field, f"{reason} (its own dead letters may be moved back)")


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
    if is_there and not (has_room and not is_elsewhere(tree, how, target, message_id)):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if not has_room:
        return False
    if how is MOVE_TIMER:
        is_moved = move_timer(context, source, message_id, target)
    else:
        is_moved = tree.move(how, source, message_id, target)
    if not is_moved:
        if not tree.has_queue(target):
            raise NoSuchQueue(target)
        return False
    if how.target is State.READY:
        context.ready.add(target, message_id)
    elif not tree.has_queue(target):
        # It was deleted just now, and may have purged the folder before the message came there.
        _bring_back(context, how, target, message_id, source)
        raise NoSuchQueue(target)
    context.record(how.step, target, message_id, source=source)
    return True


def move_timer(
    context: Context, source: str, message_id: str, target: str, to_id: str | None = None
) -> bool:
    """Move a delayed message with its timer; False if it is not there, or is claimed."""
    if not context.tree.has_queue(target):
        return False
    with latched_delayed(context, source, message_id) as latched:
        if latched is None:
            return False
        path, before_ns = latched.path, latched.message.found.st_mtime_ns
        moved = None
        try:
            if to_id is not None:
                # A stamp is checked with the id, so it is set anew for another one.
                renamed_ns = context.stamps.encoded(to_id, latched.stamp)
                latched.message.stamp(context, path, renamed_ns)
            moved = latched.message.move(context, MOVE_TIMER, source, message_id, target, to_id)
        finally:
            if moved is None and to_id is not None:
                latched.message.stamp(context, path, before_ns)
        return moved is not None


def is_in_flight(context: Context, queue: str, message_id: str) -> bool:
    """Whether a message of ``delay/`` is, as far as can be seen: who moves one finds out."""
    try:
        found = context.tree.stat(context.tree.path(State.DELAY, queue, message_id))
    except OSError:
        return False
    stamp = None if found is None else context.stamps.decode(message_id, found.st_mtime_ns)
    return found is not None and (stamp is None or stamp.is_claim)


class Delayed(NamedTuple):
    """A delayed message that is latched: where it is, and its timer."""

    message: Latched
    path: str
    stamp: Stamp


@contextmanager
def latched_delayed(context: Context, queue: str, message_id: str) -> Iterator[Delayed | None]:
    """Latch a message that is delayed and that nobody has claimed; None if it is none."""
    path = context.tree.path(State.DELAY, queue, message_id)
    latched = latch_patiently(context, path)
    if latched is None:
        yield None
        return
    try:
        stamp = context.stamps.decode(message_id, latched.found.st_mtime_ns)
        yield None if stamp is None or stamp.is_claim else Delayed(latched, path, stamp)
    finally:
        latched.close()


def is_elsewhere(tree: Tree, how: Transition, queue: str, message_id: str) -> bool:
    """Whether a queue has an id in another state than the one to which ``how`` leads.

    A rename would not fail because of it, and of two messages of one id one waits for the other.
    """
    states = (State.NEW, State.READY, State.DELAY)
    paths = (tree.path(state, queue, message_id) for state in states if state is not how.target)
    return any(tree.look(path) is not None for path in paths)


def _bring_back(context: Context, how: Transition, gone: str, message_id: str, source: str) -> None:
    """Return a message whose queue is gone to the queue that it came from."""
    tree = context.tree
    try:
        tree.move(how, gone, message_id, source)
    except FileExistsError:
        return  # a message of its id was put there; this one waits for a queue as it is
    if not tree.has_queue(source):
        # Both were deleted, and their messages with them.
        remove = REMOVE_NEW if how is MOVE_NEW else REMOVE_DELAY
        for queue in (gone, source):
            tree.move(remove, queue, message_id)
    tree.sync_folder(tree.folder(how.source.value))  # nobody else does: this move has failed


def _to_move(
    context: Context, source: str, only: Sequence[str] | None, in_flight: bool, delayed: bool
) -> Iterator[tuple[Transition, str]]:
    hidden: tuple[Transition, ...] = (MOVE_DELAY,) if in_flight else ()
    if delayed and not in_flight:
        hidden = (MOVE_TIMER,)
    if only is not None:
        for message_id in only:
            check_id(source, message_id)
        # In the direction in which messages move: the next try finds one that has moved on.
        for how in (MOVE_NEW, MOVE_READY, *hidden, *((MOVE_READY,) if hidden else ())):
            yield from ((how, message_id) for message_id in only)
        return
    # Against that direction: a message that is delivered at the same time is not seen twice.
    for how in hidden:
        yield from ((how, i) for i in ids(context, source, State.DELAY))
    yield from ((MOVE_READY, i) for i in ids(context, source, State.READY) if is_id(i))
    yield from ((MOVE_NEW, i) for i in ids(context, source, State.NEW))
