"""Expiry: a message goes when its time to live, or the retention of its queue, is over.

Usually its name tells, for every message of that name. A message whose given id contains an older
time says in its file when it came. Then only that file is removed, not a later one of the id.
"""

from __future__ import annotations

import errno
import os
from typing import Unpack

from ..context import Context
from ..layout.messages.message import MAX_HEADER_BYTES, arrived_ms
from ..layout.names import facts
from ..layout.transitions import EXPIRE_DELAY, Transition
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
    """Whether a message has expired; if so it is removed from the source of ``how``.

    latched: the message, if the caller has it open. removes: False leaves it there. details: those
    to record. Raises OSError.
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


def expire_unclaimed(context: Context, queue: str, message_id: str, latched: Latched) -> bool:
    """The same for a latched message of ``delay/`` that is in no claim. Raises OSError."""
    retention = context.settings.get(queue).retention
    return expire(context, EXPIRE_DELAY, queue, message_id, retention, latched)


def _is_over(context: Context, message_id: str, retention: float | None) -> bool | None:
    """Whether a message has expired by its name; None if its file may say that it came later."""
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
            return None  # another user's file, opened without the right to read
        raise
