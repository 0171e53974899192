"""Browse: look at the messages of a queue, or find one, without claiming them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from ..context import Context
from ..errors import InvalidValue, as_unavailable
from ..layout.messages.message import Message
from ..layout.names import check_id, check_queue, split_entry
from ..layout.steps import in_order
from ..layout.transitions import State
from .look import Page
from .places import HIDDEN, STREAM, known_as
from .reading import Room
from .wanted import Found, Wanted


def ids(context: Context, queue: str, state: State) -> Iterator[str]:
    """The ids of a queue's messages in one state, in order, as they are now. Raises OSError."""
    return in_order(_ids(context, queue, state))


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
    """Up to ``limit`` messages of one state in order, beginning after the id ``after``.

    For the arguments, and what it raises, see :func:`search`.
    """
    return search(context, queue, state, limit, after, None, None, max_bytes, room).messages


def search(
    context: Context,
    queue: str,
    state: State | str = "ready",
    limit: int = 10,
    after: str = "",
    wanted: Wanted | None = None,
    budget_s: float | None = None,
    max_bytes: int | None = None,
    room: Room | None = None,
) -> Found:
    """Up to ``limit`` wanted messages of one state in order, and where it stopped.

    state: as in `Message`; or a State or its name, where "delay" is in flight or delayed.
    after: an id; only messages after it are looked at.
    budget_s: seconds that it may look at messages, once the first is known.
    max_bytes, room: as in :class:`Page`.

    Raises:
        InvalidValue, NoSuchQueue, Unavailable
        NoRoom: there is no memory for the first of them.
    """
    check_queue(queue)
    if limit < 1:
        raise InvalidValue("count", "must be at least 1")
    place, kind = _place(state)
    passed, end = after, float("inf")
    fault = as_unavailable(f"cannot look into queue {queue!r}")
    with Page(limit, room, max_bytes) as page, fault:
        context.settings_of(queue)
        for message_id in _from(context, queue, place, limit, after):
            if message_id <= after:
                continue
            if budget_s is not None and end == float("inf"):
                end = time.monotonic() + budget_s
            if (wanted is None or wanted.fits_id(message_id)) and _is_of(
                context, queue, message_id, kind
            ):
                is_shown = page.look(context, queue, message_id, place, wanted)
                if page.is_full and not is_shown:
                    return Found(page.messages, passed)  # no memory for this one
            passed = message_id
            if page.is_full or time.monotonic() >= end:
                return Found(page.messages, passed)
    return Found(page.messages, None)


def peek_all(context: Context, queue: str, limit: int, room: Room | None = None) -> list[Message]:
    """Up to ``limit`` messages in order, in any state. room: as in `Page`.

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
            # It may have moved on.
            any(page.look(context, queue, message_id, at) for at in (states[message_id], *STREAM))


def find(context: Context, queue: str, message_id: str, room: Room | None = None) -> Message | None:
    """Look up one message in any state (but not if it was removed); ids: `known_as`.

    room: the memory for its body.

    Raises:
        InvalidValue, NoRoom, Unavailable
    """
    check_queue(queue)
    check_id(queue, message_id)
    with as_unavailable(f"cannot look into queue {queue!r}"), Page(1, room) as page:
        any(
            page.look(context, queue, name, state)
            for name in known_as(message_id)
            for state in STREAM
        )
        return page.messages[0] if page.messages else None


def _from(context: Context, queue: str, state: State, limit: int, after: str = "") -> Iterator[str]:
    """A queue's ids in order; if possible the first ``limit`` ready ones without a listing."""
    first = None
    if state is State.READY and not after:
        first = context.ready.first(queue, limit)
    if first is None:
        yield from ids(context, queue, state)
        return
    yield from first
    if len(first) == limit:
        # Some were gone, or are not messages.
        yield from in_order(i for i in _ids(context, queue, state) if i > first[-1])


def _place(state: State | str) -> tuple[State, str | None]:
    """The folder of messages in a state, and the kind of its messages that is meant."""
    if state in HIDDEN:
        return State.DELAY, str(state)
    try:
        return State(state), None
    except ValueError:
        known = ", ".join([State.NEW.value, State.READY.value, *HIDDEN])
        raise InvalidValue("state", f"unknown state {state!r}; expected one of: {known}") from None


def _is_of(context: Context, queue: str, message_id: str, kind: str | None) -> bool:
    """Whether a message in ``delay/`` is of a kind, without opening it. Raises OSError."""
    if kind is None:
        return True
    found = context.tree.stat(context.tree.path(State.DELAY, queue, message_id))
    if found is None:
        return False
    return context.stamps.hidden_state(message_id, found.st_mtime_ns, context.now_ms()) == kind
