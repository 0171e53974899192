"""Expiry: a message goes when its time to live, or the retention of its queue, is over.

Most often its name tells, and what it tells is so of every message of that name. One whose id was
given to it, and tells an older moment, says in its file when it came. Then that file goes, and no
other one that has the id by now.
"""

from __future__ import annotations

import errno
import os
from typing import Unpack

from ..context import Context
from ..layout.messages.message import MAX_HEADER_BYTES, arrived_ms
from ..layout.names import facts
from ..layout.transitions import Transition
from ..records.journal import Details
from .latch import Latched, pin


def expire(
    context: Context,
    how: Transition,
    queue: str,
    message_id: str,
    retention: float | None,
    latched: Latched | None = None,
    *,
    removes: bool = True,
    **details: Unpack[Details],
) -> bool:
    """Whether a message is over; then it is removed from where ``how`` begins.

    latched: the message, if the caller has it open. removes: False leaves it there. details: what
    is noted of it. Raises OSError.
    """
    is_over = _is_over(context, message_id, retention)
    if is_over is not None:
        if is_over and removes:
            context.make(how, queue, message_id, **details)
        return is_over
    opened = latched or pin(context, context.tree.path(how.source, queue, message_id))
    if opened is None:
        return False  # it has moved on
    try:
        came_ms = _arrived_ms(opened.fd)
        if came_ms is not None and came_ms / 1000 + (retention or 0) > context.clock():
            return False
        if removes and opened.move(context, how, queue, message_id) is not None:
            context.record(how.step, queue, message_id, **details)
    finally:
        if latched is None:
            opened.close()
    return True


def _is_over(context: Context, message_id: str, retention: float | None) -> bool | None:
    """Whether a message is over, as its name tells; None if its file may say that it came later."""
    known, now = facts(message_id), context.clock()
    if known.expires_s is not None and known.expires_s <= now:
        return True
    since_ms = known.created_ms
    if retention is None or since_ms is None or since_ms / 1000 + retention > now:
        return False
    return None if known.headed else True


def _arrived_ms(fd: int) -> int | None:
    try:
        return arrived_ms(os.pread(fd, MAX_HEADER_BYTES, 0))
    except OSError as error:
        if error.errno == errno.EBADF:
            return None  # it is another user's, and open to be recognised only
        raise
