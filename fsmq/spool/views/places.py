"""Places: in which queue, and in which state, a message of some id is."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..context import Context
from ..errors import Unavailable, as_unavailable
from ..layout.names import check_id, fits
from ..layout.transitions import State

# In the direction in which a message moves, and back to where a release brings it.
HIDDEN = ("in_flight", "delayed")
_STREAM = (State.NEW, State.READY, State.DELAY, State.READY)


class Place(NamedTuple):
    """Where a message is. ``state``: new, ready, in_flight or delayed, as a message has it.

    deliveries: None where the filesystem cannot keep the count. deadline: when its claim or its
    delay ends, in Unix seconds; None if no timer runs.
    """

    queue: str
    state: str
    deliveries: int | None
    deadline: float | None


class Filed(NamedTuple):
    """The file of a message.

    size: its bytes, with the attributes, and compressed or not. before: how many of its queue
    stand before it, of ``ready`` that do; both None for one that is not ready.
    """

    size: int
    before: int | None
    ready: int | None


def filed(context: Context, queue: str, message_id: str, state: str) -> Filed | None:
    """What the tree has of a message in a state; None if it is not there any more.

    Raises Unavailable.
    """
    at = State.DELAY if state in HIDDEN else State(state)
    with as_unavailable("cannot look for the message"):
        found = context.tree.stat(context.tree.path(at, queue, message_id))
        if found is None:
            return None
        if at is not State.READY:
            return Filed(found.st_size, None, None)
        names = context.tree.ready_names(queue) or []
        return Filed(found.st_size, sum(name < message_id for name in names), len(names))


def places(
    context: Context,
    message_id: str,
    may_look: Callable[[Iterable[str]], Iterable[str]] = lambda queues: queues,
    budget_s: float | None = None,
) -> list[Place]:
    """Where messages of this id are: three or four looks for each queue, whatever is in it.

    may_look: the queues of these that are looked into. budget_s: seconds that it may take.

    Raises:
        InvalidValue
        Unavailable: also when it would take longer.
    """
    check_id("", message_id)
    found = []
    end = None if budget_s is None else time.monotonic() + budget_s
    with as_unavailable("cannot look for the message"):
        for queue in may_look(context.tree.queues()):
            place = _place_in(context, queue, message_id) if fits(queue, message_id) else None
            if place is not None:
                found.append(place)
            if end is not None and time.monotonic() > end:
                raise Unavailable(f"to look into all queues takes longer than {budget_s:g} s")
    return found


def _place_in(context: Context, queue: str, message_id: str) -> Place | None:
    tree, stamps = context.tree, context.stamps
    for state in _STREAM:
        found = tree.stat(tree.path(state, queue, message_id))
        if found is None or not stat.S_ISREG(found.st_mode):
            continue
        stamp = stamps.decode(message_id, found.st_mtime_ns) if state is not State.NEW else None
        count = None if stamps.coarse else (stamp.deliveries if stamp else 0)
        if state is not State.DELAY:
            return Place(queue, state.value, count, None)
        hidden = stamps.hidden_state(message_id, found.st_mtime_ns, context.now_ms())
        deadline = None if stamp is None else stamp.deadline_ms / 1000
        return Place(queue, hidden, count, deadline)
    return None
