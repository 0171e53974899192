"""Bring a message to a dedup queue: what is equal to one that waits there is removed."""

from __future__ import annotations

from ..context import Context
from ..durability.locks import reserve
from ..durability.unfinished import exists
from ..errors import Reserved
from ..layout.names import fits
from ..layout.transitions import (
    MOVE_DELAY,
    MOVE_DELIVER,
    MOVE_READY,
    PURGE_DELAY,
    PURGE_NEW,
    PURGE_READY,
)
from ..verbs.dedup import content_id
from ..views import browse

_PURGES = {MOVE_READY: PURGE_READY, MOVE_DELIVER: PURGE_NEW, MOVE_DELAY: PURGE_DELAY}


def collapse(context: Context, source: str, target: str, message_id: str) -> bool:
    """Bring a message to a write side, or remove it if an equal one waits there.

    False if it is not there. Raises:
        FileExistsError: its name leaves no room for that of its source.
        Reserved: an equal one is being put right now.
        OSError
    """
    tree = context.tree
    if not fits(source, message_id):
        raise FileExistsError  # a name given by hand, too long to be looked up
    message = browse.find(context, source, message_id)
    if message is None:
        return False
    to_id = content_id(message.body)
    held = reserve(tree, target, to_id)
    if held is None:
        raise Reserved(to_id)
    try:
        is_there = exists(tree, target, to_id)
        for transition in (MOVE_READY, MOVE_DELIVER, MOVE_READY, MOVE_DELAY, MOVE_READY):
            if is_there:
                if context.make(_PURGES[transition], source, message_id):
                    return True
            elif context.make(transition, source, message_id, target, to_id):
                return True
    finally:
        held.free()
    return False
