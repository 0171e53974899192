"""Places: in which queues, and in which states, messages of an id are."""

from __future__ import annotations

import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ..context import Context
from ..errors import Unavailable, as_unavailable
from ..layout.names import (
    PLAIN,
    check_id,
    facts,
    fits,
    is_id,
    sequence_of,
    siblings,
    split_entry,
)
from ..layout.steps import portions
from ..layout.transitions import DELAY, NEW, QUEUES, State

HIDDEN = ("in_flight", "delayed")
# The states of a message in the direction in which it moves; a release returns it to ready.
STREAM = (State.NEW, State.READY, State.DELAY, State.READY)


class Place(NamedTuple):
    """Where a message is. ``state``: new, ready, in_flight or delayed, as in `Message`.

    id: its id there, which is the one that was looked for, or tells more than that. deliveries:
    None if the filesystem cannot keep the count. deadline: when its claim or its delay ends, in
    Unix seconds; None if no timer runs.
    """

    queue: str
    id: str
    state: str
    deliveries: int | None
    deadline: float | None


class Filed(NamedTuple):
    """The file of a message.

    size: its bytes on disk. before: how many of its queue's ``ready`` messages come before it; both
    are None if it is not ready.
    """

    size: int
    before: int | None
    ready: int | None


def filed(context: Context, queue: str, message_id: str, state: str) -> Filed | None:
    """The file of a message in a state; None if it is no longer there.

    Raises Unavailable.
    """
    at = State.DELAY if state in HIDDEN else State(state)
    with as_unavailable("cannot look for the message"):
        found = context.tree.stat(context.tree.path(at, queue, message_id))
        if found is None:
            return None
        if at is not State.READY:
            return Filed(found.st_size, None, None)
        counted = Counter[bool]()  # a queue may have millions
        context.tree.show_ready(
            queue, lambda names: counted.update(name < message_id for name in names)
        )
        return Filed(found.st_size, counted[True], counted.total())


def known_as(message_id: str) -> list[str]:
    """The names under which a look for an id finds a message.

    A client's own id also finds one whose id tells of a header block or compression, but none with
    a priority or an expiry.
    """
    return siblings(message_id) if facts(message_id) == PLAIN else [message_id]


def places(
    context: Context,
    message_id: str,
    may_look: Callable[[Iterable[str]], Iterable[str]] = lambda queues: queues,
    budget_s: float | None = None,
) -> list[Place]:
    """Where messages of this id are: a few lookups for each queue, whatever its size.

    For an own id all messages are listed, as those with a priority or an expiry have other names.

    may_look: selects the queues to look into. budget_s: seconds that it may take: if a list takes
    longer, only what was found without it is returned.

    Raises:
        InvalidValue
        Unavailable: also when it would take longer, and nothing is found without a list.
    """
    check_id("", message_id)
    end = None if budget_s is None else time.monotonic() + budget_s
    known = known_as(message_id)
    is_own = len(known) > 1 and sequence_of(message_id) is None

    def check_time() -> None:
        if end is not None and time.monotonic() > end:
            raise Unavailable(f"to look into all queues takes longer than {budget_s:g} s")

    with as_unavailable("cannot look for the message"):
        queues = list(may_look(context.tree.queues()))
        found = list(_places_in(context, queues, lambda queue: known, check_time))
        if is_own:
            try:
                marked = _marked(context, message_id, queues, check_time)
                more = list(_places_in(context, queues, lambda queue: marked[queue], check_time))
            except Unavailable:
                if not found:
                    raise
                return found
            order = {queue: number for number, queue in enumerate(queues)}
            found = sorted({*found, *more}, key=lambda place: (order[place.queue], place.id))
            # One that was claimed meanwhile was found twice.
            found = list({(place.queue, place.id): place for place in found}.values())
    return found


def _places_in(
    context: Context,
    queues: Iterable[str],
    names_in: Callable[[str], Iterable[str]],
    check_time: Callable[[], None],
) -> Iterator[Place]:
    """The messages in each queue with one of the names that they can have there."""
    for queue in queues:
        names = (name for name in dict.fromkeys(names_in(queue)) if fits(queue, name))
        yield from filter(None, (place_of(context, queue, name) for name in names))
        check_time()


def _marked(
    context: Context, own: str, queues: Iterable[str], check_time: Callable[[], None]
) -> dict[str, list[str]]:
    """The ids in queues that tell a priority or an expiry with an own id.

    In the direction in which messages move: one that moves on is seen twice, never missed.
    """
    tree, mark = context.tree, f"@{own}@"
    found: dict[str, list[str]] = {queue: [] for queue in queues}

    def add(queue: str, message_id: str) -> None:
        if queue in found and siblings(message_id)[0] == own:
            found[queue].append(message_id)

    def marked_in(folder: str) -> Iterator[str]:
        for portion in portions(entry.name for entry in tree.walk(folder)):
            yield from (name for name in portion if mark in name)
            check_time()  # a folder may have millions

    def add_hidden(folder: str) -> None:
        for entry in map(split_entry, marked_in(folder)):
            if entry is not None:
                add(*entry)

    add_hidden(tree.folder(NEW))
    for queue in found:
        for name in filter(is_id, marked_in(tree.folder(QUEUES, queue))):
            add(queue, name)
    add_hidden(tree.folder(DELAY))
    return found


def place_of(context: Context, queue: str, message_id: str) -> Place | None:
    """Where a message is whose id is just this; None if it is not in the queue. Raises OSError."""
    tree, stamps = context.tree, context.stamps
    for state in STREAM:
        found = tree.stat(tree.path(state, queue, message_id))
        if found is None or not stat.S_ISREG(found.st_mode):
            continue
        stamp = stamps.decode(message_id, found.st_mtime_ns) if state is not State.NEW else None
        count = None if stamps.coarse else (stamp.deliveries if stamp else 0)
        if state is not State.DELAY:
            return Place(queue, message_id, state.value, count, None)
        hidden = stamps.hidden_state(message_id, found.st_mtime_ns, context.now_ms())
        deadline = None if stamp is None else stamp.deadline_ms / 1000
        return Place(queue, message_id, hidden, count, deadline)
    return None
