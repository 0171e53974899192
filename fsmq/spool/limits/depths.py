"""Depths: how many more messages a queue with a ``max_depth`` takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..errors import QueueFull
from ..index import listings
from ..layout.duty_cycle import DutyCycle
from ..layout.of_queues import OfQueues
from ..layout.tree import Tree

# How old the count that enforces max_depth may be.
_THROTTLE = DutyCycle(0.05, least_s=1.0)


class _Depth:
    """The last count of one queue."""

    __slots__ = ("counting", "depth", "until")

    def __init__(self) -> None:
        self.counting = threading.Lock()
        self.until = 0.0  # monotonic seconds
        self.depth = 0


class Depths:
    """Enforces ``max_depth`` by a count, seldom older than a second, plus later puts."""

    def __init__(self, tree: Tree, counted: Callable[[str], int]) -> None:
        self._counted = counted
        self._known: OfQueues[_Depth] = OfQueues(tree)
        self._lock = threading.Lock()

    def learn(self, queue: str) -> _Depth:
        """Count a queue whose depth is unknown. If several threads ask at once, one counts.

        Raises what the count raises.
        """
        with self._lock:
            known = self._known.get(queue)
            if known is None:
                known = self._known[queue] = _Depth()
        with known.counting:
            started = time.monotonic()
            if started < known.until:
                return known
            depth = self._counted(queue)
            cost = time.monotonic() - started
            with self._lock:
                known.depth = depth
                known.until = started + _THROTTLE.pause(cost)
        return known

    def admit(self, queue: str, limit: int | None, more: int, *, least: int | None = None) -> int:
        """Let ``more`` messages in, or the first that there is room for; returns how many.

        least: how many there must be room for; all by default.

        Raises:
            QueueFull
            Unlisted: this thread may not list folders.
        """
        if limit is None:
            return more
        known = self._known.get(queue)
        if known is None or time.monotonic() >= known.until:
            listings.check(queue)
            known = self.learn(queue)
        with self._lock:
            admitted = min(more, max(0, limit - known.depth))
            if admitted < (more if least is None else least):
                raise QueueFull(queue, limit)
            known.depth += admitted
        return admitted
