"""Places: in which queues, and in which states, messages of an id are."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..context import Context
from ..errors import Unavailable, as_unavailable
from ..layout.names import PLAIN, check_id, facts, fits, siblings
from ..layout.transitions import State

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
        names = context.tree.ready_names(queue) or []
        return Filed(found.st_size, sum(name < message_id for name in names), len(names))


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

    may_look: selects the queues to look into. budget_s: seconds that it may take. Ids: `known_as`.

    Raises:
        InvalidValue
        Unavailable: also when it would take longer.
    """
    check_id("", message_id)
    found, known = [], known_as(message_id)
    end = None if budget_s is None else time.monotonic() + budget_s
    with as_unavailable("cannot look for the message"):
        for queue in may_look(context.tree.queues()):
            names = (name for name in known if fits(queue, name))
            place = next(filter(None, (_place_in(context, queue, name) for name in names)), None)
            if place is not None:
                found.append(place)
            if end is not None and time.monotonic() > end:
                raise Unavailable(f"to look into all queues takes longer than {budget_s:g} s")
    return found


def _place_in(context: Context, queue: str, message_id: str) -> Place | None:
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
