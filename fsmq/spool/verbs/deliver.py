"""Deliver: what becomes of a message of ``new/``, for the mover and for verbs that do not wait."""

from __future__ import annotations

from ..context import Context
from ..layout.transitions import DEFER, DELIVER, State


def deliver_one(context: Context, queue: str, message_id: str) -> None:
    """Deliver one message of ``new/``, as the mover will do.

    Raises:
        OSError
    """
    path = context.tree.path(State.NEW, queue, message_id)
    found = context.tree.look(path)
    if found is None:
        return
    is_deferred = is_delayed(context, path, message_id, found.st_mtime_ns)
    try:
        context.make(DEFER if is_deferred else DELIVER, queue, message_id)
    except FileExistsError:
        return


def is_delayed(context: Context, path: str, message_id: str, mtime_ns: int) -> bool:
    """Whether a delay was asked for a message of ``new/`` that is not over.

    Nothing in ``new/`` has been delivered: a count there is that of a foreign time that verifies by
    chance. It is set to 0, because it must not bring the message to the dead letters.

    Raises:
        OSError
    """
    stamp = context.stamps.decode(message_id, mtime_ns)
    if stamp is None:
        return False
    if stamp.deliveries:
        context.tree.stamp(path, context.stamps.encode(message_id, context.now_ms(), 0))
        return False
    return stamp.deadline_ms > context.now_ms()
