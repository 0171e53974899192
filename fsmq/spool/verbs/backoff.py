"""``retry_backoff``: a message whose claim has ended without an ack waits before it comes again.

Only its stamp changes: it says both that the claim has ended and until when the message waits. So a
crash leaves either the claim or the backoff, and the mover handles whichever it finds.
"""

from __future__ import annotations

import random

from ..context import Context
from ..layout.claim_names import of_same_claim
from ..layout.settings import QueueSettings
from ..layout.stamps import Stamp
from ..layout.transitions import State
from .latch import Latched

# A deadline that keeps the digits of its claim is at most this much later.
_DIGITS_MS = 99


def backoff_s(settings: QueueSettings, deliveries: int) -> float:
    """How long a message waits after this number of claims; 0 if not at all."""
    first = settings.retry_backoff
    if first is None:
        return 0.0
    longest = min(settings.retry_most, first * settings.retry_factor ** max(0, deliveries - 1))
    return longest * (1.0 - random.uniform(0.0, settings.retry_jitter))


def end_in_place(context: Context, latched: Latched, queue: str, message_id: str) -> bool:
    """End the claim, or the delay, of a message that cannot leave ``delay/`` since another one of
    its id is ready: a claim of that id gets this one first. False if it is gone.

    Raises OSError.
    """
    stamps = context.stamps
    before = stamps.decode(message_id, latched.found.st_mtime_ns)
    count = 0 if before is None else before.deliveries or 0
    # Keep the digits of the claim, and be over now.
    over = Stamp(of_same_claim(before, context.now_ms() - _DIGITS_MS), count, count > 0)
    path = context.tree.path(State.DELAY, queue, message_id)
    return latched.stamp(context, path, stamps.encoded(message_id, over))


def back_off(
    context: Context, settings: QueueSettings, latched: Latched, queue: str, message_id: str
) -> int | None:
    """Make a latched message of ``delay/`` wait instead of its claim; until when, in Unix ms.

    None if it is in no claim (any more), or nothing is known of it because times are coarse.

    Raises OSError.
    """
    stamps = context.stamps
    before = stamps.decode(message_id, latched.found.st_mtime_ns)
    if before is None or not before.deliveries or not before.is_claim:
        return None
    wait_ms = round(backoff_s(settings, before.deliveries) * 1000)
    # Keep the claim's digits: the next claim can avoid them where counts are equal, at 99.
    until_ms = of_same_claim(before, context.now_ms() + wait_ms)
    waits = Stamp(until_ms, before.deliveries, True)
    path = context.tree.path(State.DELAY, queue, message_id)
    return until_ms if latched.stamp(context, path, stamps.encoded(message_id, waits)) else None
