"""Deliver a message of ``new/``, for verbs that do not wait for the mover."""

from __future__ import annotations

from ..context import Context
from ..layout.transitions import DEFER, DELIVER, State
from ..layout.unclaimed import is_delayed


def deliver_one(context: Context, queue: str, message_id: str) -> None:
    """Deliver one message of ``new/``, as the mover will do.

    Raises:
        OSError
    """
    path = context.tree.path(State.NEW, queue, message_id)
    found = context.tree.look(path)
    if found is None:
        return
    runs = is_delayed(
        context.tree, context.stamps, path, message_id, found.st_mtime_ns, context.now_ms()
    )
    try:
        context.make(DEFER if runs else DELIVER, queue, message_id)
    except FileExistsError:
        return
