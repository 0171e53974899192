"""Expiry: removes messages whose time to live, or whose queue's retention, is over.

Claimers refuse expired messages anyway; the sweep makes room.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from .context import Context
from .names import facts
from .tree import REMOVE_READY

# Sweeping may take at most this share of the time.
_SWEEP_SHARE = 0.01


class Sweeper:
    """Looks through all queues every ``interval`` seconds, one queue a :meth:`step`."""

    def __init__(self, context: Context, interval: float) -> None:
        self._context = context
        self._interval = interval
        self._due = time.monotonic() + interval
        self._rest: Iterator[str] | None = None
        self._queue_due: dict[str, float] = {}

    @property
    def is_behind(self) -> bool:
        """Whether a round is under way."""
        return self._rest is not None

    def step(self, now: float) -> int:
        """Sweep the next queue if one is due; how many messages expired. Raises OSError.

        now: in monotonic seconds.
        """
        if self._rest is None:
            if now < self._due:
                return 0
            queues = self._context.tree.queues()
            self._queue_due = {q: self._queue_due.get(q, 0.0) for q in queues}
            self._rest = iter(queues)
        for queue in self._rest:
            if now >= self._queue_due[queue]:
                return self._sweep(queue, now)
        self._rest = None
        self._due = now + self._interval
        return 0

    def _sweep(self, queue: str, now: float) -> int:
        context = self._context
        settings = context.settings.get(queue)
        expired = 0
        for message_id in context.tree.ready_names(queue) or ():
            if settings.retention is None and ".x" not in message_id:
                continue
            if context.is_expired(facts(message_id), settings):
                expired += context.tree.move(REMOVE_READY, queue, message_id)
        context.metrics.count(("expire", queue), expired)
        self._queue_due[queue] = now + (time.monotonic() - now) / _SWEEP_SHARE
        return expired
