"""Scan: read the messages of a queue one by one, until the caller has found what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..context import Context
from ..errors import InvalidValue, as_unavailable
from ..layout.messages.message import Message
from ..layout.names import check_queue, is_id, split_entry
from ..layout.transitions import State
from . import browse
from .look import look

STATES = ("new", "ready", "in_flight", "delayed")
_PLACES = {"new": State.NEW, "ready": State.READY}
# In the direction in which messages move: one that moves on can come twice, but is not missed.
_ORDER = (State.NEW, State.READY, State.DELAY)


def scan(
    context: Context,
    queue: str,
    states: tuple[str, ...] = STATES,
    *,
    sorted_by_name: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[Message]:
    """The messages in these states, each read on demand; new ones may be left out.

    sorted_by_name: in the order in which they would be claimed; otherwise in directory order,
    without holding all names in memory. is_over: called before each message; True ends the scan.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
    """
    check_queue(queue)
    for state in states:
        if state not in STATES:
            raise InvalidValue(
                "state", f"unknown state {state!r}; expected one of: {', '.join(STATES)}"
            )
    with as_unavailable(f"cannot scan queue {queue!r}"):
        context.settings_of(queue)
        places = {_PLACES.get(state, State.DELAY) for state in states}
        for place in _ORDER:
            if place not in places:
                continue
            list_names = browse.ids if sorted_by_name else _names
            names: Iterable[str] = list_names(context, queue, place)
            for name in names:
                if is_over():
                    return
                message = look(context, queue, name, place)
                if message is not None and message.state in states:
                    yield message


def _names(context: Context, queue: str, place: State) -> Iterator[str]:
    tree = context.tree
    if place is State.READY:
        for found in tree.walk(tree.folder("queues", queue)):
            if is_id(found.name):
                yield found.name
        return
    prefix = queue + ":"
    for found in tree.walk(tree.folder(place.value)):
        if found.name.startswith(prefix):
            parts = split_entry(found.name)
            if parts is not None and parts[0] == queue:
                yield parts[1]
