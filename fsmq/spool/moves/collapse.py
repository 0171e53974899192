"""Move a message to a dedup queue, or remove it if an equal one waits there."""

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

# Where it can be, in the direction in which messages move.
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)


class Stays(Exception):
    """A message has to stay until a person has renamed it or changed its access rights.

    Or until a program that reads larger messages moves it.
    """


def collapse(
    context: Context, source: str, target: str, message_id: str, attempts: Sequence[Transition]
) -> bool:
    """Move a message to a write side, or remove it if an equal one waits there.

    attempts: the moves to try, in order. False if it is at the source of none of them. Raises:
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
    """Deliver a message of ``new/`` that may have a delay: its timer moves from ``delay/`` only."""
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
    # It can go straight to the queue, as its new name is reserved.
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
    """Reserve a message's names in both its source and its target.

    A process that finds an equal message in a queue removes its own: so nobody may move that one
    away.
    """
    with ExitStack() as held:
        for queue, message_id in sorted(names):  # so that one of two processes gets both names
            one = reserve(tree, queue, message_id)
            if one is None:
                raise Reserved(message_id)
            held.callback(one.free)
        yield
