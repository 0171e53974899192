"""Waiting for messages that this process has just stored, and that a mover is about to deliver.

Else who has just been told that a message is stored would not find it. Both ways to claim, the
fast path's and the other, wait by this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fsmq.spool.index.recent_puts import RecentPuts

# How often is looked whether a message that was just stored has been delivered.
LOOK_S = 0.002


class Delivery:
    """What had been stored for a queue when a request first came up short there.

    The request waits for that, for 50 ms at most, and for nothing that is stored later: else where
    one message comes after the other it would never be answered.
    """

    __slots__ = ("_put", "_queue", "_recent_puts")

    def __init__(self, recent_puts: RecentPuts, queue: str) -> None:
        self._recent_puts = recent_puts
        self._queue = queue
        self._put = recent_puts.last(queue)

    @property
    def is_due(self) -> bool:
        """Whether it may still be waited for. It asks the disk."""
        if self._put is not None and not self._recent_puts.is_new(self._queue, self._put):
            self._put = None
        return self._put is not None


def is_any_due(
    deliveries: Mapping[str, Delivery],
    queues: Sequence[str],
    most: int,
    ready: Callable[[str], int],
) -> bool:
    """Whether one may be waited for by a request for ``most`` messages of these queues.

    ready: how many a queue has already; of several the first ones are asked first.
    """
    if len(queues) == 1:
        delivery = deliveries.get(queues[0])
        return delivery is not None and delivery.is_due
    left = most if deliveries else 0
    for queue in queues:
        if left <= 0:
            break
        here = ready(queue)
        if here < left and queue in deliveries and deliveries[queue].is_due:
            return True
        left -= here
    return False
