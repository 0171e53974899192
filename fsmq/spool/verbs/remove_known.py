"""Remove one particular message, not another one that has its id by now."""

from __future__ import annotations

from ..context import Context
from ..durability.taken import bring_back_one
from ..durability.unfinished import exists
from ..errors import Unavailable
from ..layout.transitions import REMOVE_DELAY, REMOVE_NEW, REMOVE_READY
from .latch import IsWanted, pin

# The folder in which most messages are when they are acknowledged comes first. A message can move
# between two tries, so the folders that it can reach from those already tried are tried again.
ATTEMPTS = (REMOVE_DELAY, REMOVE_NEW, REMOVE_READY, REMOVE_DELAY, REMOVE_READY)
# How often to try again for a message that exists: it must not be reported gone.
ROUNDS = 20


def remove_known(context: Context, queue: str, message_id: str, is_wanted: IsWanted) -> bool:
    """Remove a message, and no other one of its id; False if it is not there.

    Raises Unavailable, OSError.
    """
    for _ in range(ROUNDS):
        is_removed = _look_and_remove(context, queue, message_id, is_wanted)
        if is_removed:
            return True
        # An earlier try may have taken it away and died; or each look came too early or too late.
        if not bring_back_one(context.tree, queue, message_id, context.clock()) and (
            is_removed is False or not exists(context.tree, queue, message_id)
        ):
            return False
    raise Unavailable(f"the message {message_id!r} keeps moving from folder to folder")


def _look_and_remove(
    context: Context, queue: str, message_id: str, is_wanted: IsWanted
) -> bool | None:
    """Whether it was removed: False if another message has its id, None if none was found."""
    met = None
    for attempt in ATTEMPTS:
        pinned = pin(context, context.tree.path(attempt.source, queue, message_id))
        if pinned is None:
            continue
        try:
            if not is_wanted(context, pinned.fd, pinned.found):
                met = False
            elif pinned.move(context, attempt, queue, message_id) is not None:
                return True
        finally:
            pinned.close()
    return met
