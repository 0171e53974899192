"""Bring a message to a dedup queue: what is equal to one that waits there is removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ..context import Context
from ..durability.locks import reserve
from ..durability.unfinished import exists
from ..errors import Reserved
from ..layout.names import fits
from ..layout.transitions import (
    MOVE_DELAY,
    MOVE_DELIVER,
    MOVE_NEW,
    MOVE_READY,
    MOVE_TIMER,
    PURGE_DELAY,
    PURGE_NEW,
    PURGE_READY,
    State,
    Transition,
)
from ..layout.tree import Tree
from ..verbs.dedup import content_id
from ..verbs.deliver import deliver_one
from ..verbs.moves.move import latched_delayed, move_timer
from ..views.look import look

_PURGES = {MOVE_READY: PURGE_READY, MOVE_NEW: PURGE_NEW, MOVE_DELAY: PURGE_DELAY}

# Where it may be, in the direction in which messages move.
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)


class Stays(Exception):
    """A message has to stay where it is, until a person has renamed it, or lets it be read.

    Or until who may read larger ones moves it.
    """


def collapse(
    context: Context, source: str, target: str, message_id: str, attempts: Sequence[Transition]
) -> bool:
    """Bring a message to a write side, or remove it if an equal one waits there.

    attempts: the moves of one message, in the order in which they are tried. False if it is not
    where one of them begins. Raises:
        Stays
        Reserved: an equal one is being put right now.
        OSError
    """
    tree = context.tree
    if not fits(source, message_id):
        raise Stays  # a name given by hand, too long to be looked up
    body = _body(context, source, message_id)
    if body is None:
        return False
    to_id = content_id(body)
    with _reserved(tree, (source, message_id), (target, to_id)):
        act = _remove if exists(tree, target, to_id) else _bring
        return any(
            act(context, how, source, message_id, target, to_id)
            for how in attempts
            if how is not MOVE_NEW or not _is_delivered(context, source, message_id)
        )


def _is_delivered(context: Context, source: str, message_id: str) -> bool:
    """Deliver what may be delayed in ``new/``: its timer goes with it from ``delay/`` alone."""
    found = context.tree.stat(context.tree.path(State.NEW, source, message_id))
    if found is None or context.stamps.decode(message_id, found.st_mtime_ns) is None:
        return False
    deliver_one(context, source, message_id)
    return True


def _bring(
    context: Context, how: Transition, source: str, message_id: str, target: str, to_id: str
) -> bool:
    if how is MOVE_TIMER:
        is_moved = move_timer(context, source, message_id, target, to_id)
        if is_moved:
            context.record(how.step, target, to_id, source=source, was=message_id)
        return is_moved
    # Under its new name it may go to the queue at once: that is reserved.
    how = MOVE_DELIVER if how is MOVE_NEW else how
    return context.make(how, source, message_id, target, to_id)


def _remove(
    context: Context, how: Transition, source: str, message_id: str, target: str, to_id: str
) -> bool:
    if how is not MOVE_TIMER:
        return context.make(_PURGES[how], source, message_id)
    with latched_delayed(context, source, message_id) as delayed:
        if delayed is None or not delayed.message.move(context, PURGE_DELAY, source, message_id):
            return False
        context.record(PURGE_DELAY.step, source, message_id)
        return True


def _body(context: Context, source: str, message_id: str) -> bytes | None:
    try:
        for state in _STATES:
            if (found := look(context, source, message_id, state)) is not None:
                return found.body
            there = context.tree.stat(context.tree.path(state, source, message_id))
            if there is not None and there.st_size > context.max_file_bytes:
                raise Stays
    except PermissionError:
        raise Stays from None  # another user's file
    return None


@contextmanager
def _reserved(tree: Tree, *names: tuple[str, str]) -> Iterator[None]:
    """Reserve a message's name in the queue that it leaves, too, and not only where it comes.

    Who has seen an equal one there removes its own: so nobody takes that one away meanwhile.
    """
    with ExitStack() as held:
        for queue, message_id in sorted(names):  # of two who want the same two one gets both
            one = reserve(tree, queue, message_id)
            if one is None:
                raise Reserved(message_id)
            held.callback(one.free)
        yield
