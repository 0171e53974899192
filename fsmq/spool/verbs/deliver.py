"""Deliver a message of ``new/``, for verbs that do not wait for the mover."""

from __future__ import annotations

from ..context import Context
from ..layout.transitions import DEFER, DELIVER, State
from ..layout.unclaimed import is_delayed
from .latch import pin


def deliver_one(context: Context, queue: str, message_id: str) -> None:
    """Deliver one message of ``new/``, as the mover does.

    Raises:
        OSError
    """
    path = context.tree.path(State.NEW, queue, message_id)
    pinned = pin(context, path)
    if pinned is None:
        return
    try:
        mtime_ns, now_ms = pinned.found.st_mtime_ns, context.now_ms()
        runs = is_delayed(context.tree, context.stamps, path, message_id, mtime_ns, now_ms)
        how = DEFER if runs else DELIVER
        if pinned.move(context, how, queue, message_id) is not None:
            context.record(how.step, queue, message_id)
    except FileExistsError:
        return
    finally:
        pinned.close()
