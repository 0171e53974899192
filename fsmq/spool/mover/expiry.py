"""Removal of ready messages that expired: their time to live, or their queue's retention, is over.

Claims skip expired messages anyway; this makes room. For the ends of timers see ``delay.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice

from ..context import Context
from ..layout.duty_cycle import DutyCycle
from ..layout.names import is_id
from ..layout.transitions import EXPIRE_READY, QUEUES
from ..verbs.expire import expire

# For a queue whose messages were looked at.
_THROTTLE = DutyCycle(0.01)
# The names that one step looks at; deliveries wait for its end.
_MAX_STEP = 2000


class Expiry:
    """Looks through all queues every ``interval`` seconds, a part of a queue per :meth:`step`.

    on_fault: called with a queue that failed (its folder, the reason): the next round retries it.
    """

    def __init__(
        self, context: Context, interval: float, on_fault: Callable[[str, str], None]
    ) -> None:
        self._context = context
        self._interval = interval
        self._on_fault = on_fault
        self._rest: Iterator[str] | None = None  # queues of this round
        self._queue = ""
        self._names: Iterator[str] = iter(())  # what is left of the queue
        self._cost = 0.0  # seconds for the queue so far
        self._queue_due: dict[str, float] = {}

    def step(self, now: float) -> float:
        """Expire a part of a queue; in how many seconds the next part is due. Raises OSError.

        now: in monotonic seconds.
        """
        if self._rest is None:
            queues = self._context.tree.queues()
            self._queue_due = {q: self._queue_due.get(q, 0.0) for q in queues}
            self._rest = iter(queues)
        try:
            part = list(islice(self._names, _MAX_STEP))
            if not part and self._next_queue(now):
                part = list(islice(self._names, _MAX_STEP))
            if part:
                self._expire(part, now)
        except OSError as error:  # a fault of one must not stop the others
            self._names = iter(())
            self._on_fault(self._context.tree.folder(QUEUES, self._queue), str(error))
        if self._queue:
            return 0.0
        self._rest = None
        return self._interval

    def _next_queue(self, now: float) -> bool:
        """Begin with the next queue that is due; False at the end of the round."""
        if self._queue:
            self._queue_due[self._queue] = now + _THROTTLE.pause(self._cost)
        self._queue = next((q for q in self._rest or () if now >= self._queue_due[q]), "")
        self._names = self._ids() if self._queue else iter(())
        self._cost = 0.0
        return bool(self._queue)

    def _ids(self) -> Iterator[str]:
        # In directory order: sorting a million names would hold deliveries up.
        tree = self._context.tree
        return (e.name for e in tree.walk(tree.folder(QUEUES, self._queue)) if is_id(e.name))

    def _expire(self, names: list[str], now: float) -> None:
        context, queue = self._context, self._queue
        settings = context.settings.get(queue)
        first: OSError | None = None
        for message_id in names:
            if settings.retention is None and ".x" not in message_id:
                continue
            try:
                expire(context, EXPIRE_READY, queue, message_id, settings.retention)
            except OSError as error:
                first = first or error
        self._cost += time.monotonic() - now
        if first is not None:
            self._on_fault(context.tree.folder(QUEUES, queue), str(first))
