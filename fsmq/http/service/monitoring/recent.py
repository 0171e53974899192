"""The last minutes of queues in more detail than the history: in memory, while someone looks."""

from __future__ import annotations

import math
import struct
from collections import OrderedDict, deque

from fsmq.spool import Counts

from .rates import Rate

SPAN_S = 900.0
EVERY_S = 2.0
MOST_QUEUES = 200
# Several people can look at one queue, and their points together would be too many to see.
_SOONEST_S = 0.9 * EVERY_S
_MINUTE_S = 60.0
# A tuple of numbers would take six times the memory.
_POINT = struct.Struct("<d10f")


class Recent:
    """Points of the queues that were last looked at, up to a quarter of an hour old."""

    def __init__(self) -> None:
        self._points: OrderedDict[str, deque[bytes]] = OrderedDict()

    def add(
        self, queue: str, now: float, counts: Counts, oldest: float | None, rate: Rate | None
    ) -> None:
        """Record a queue's state. oldest: when its oldest waiting message was created."""
        points = self._points.get(queue)
        if points is None:
            points = self._points[queue] = deque(maxlen=round(SPAN_S / EVERY_S))
            if len(self._points) > MOST_QUEUES:
                self._points.popitem(last=False)
        self._points.move_to_end(queue)
        if points and now - _POINT.unpack(points[-1])[0] < _SOONEST_S:
            return
        age = math.nan if oldest is None else max(0.0, now - oldest)
        happened = [math.nan] * 5 if rate is None else [_MINUTE_S * one for one in rate]
        points.append(_POINT.pack(now, *counts, age, *happened))

    def of(self, queue: str, since: float) -> list[list[float | None]]:
        """The points of a queue since a moment: the time of each, and its figures.

        Their order is that of :class:`fsmq.spool.records.history.Figures`; rates are per minute,
        over the last ten seconds.
        """
        found = (_POINT.unpack(point) for point in self._points.get(queue, ()))
        return [
            [None if math.isnan(value) else round(value, 1) for value in point]
            for point in found
            if point[0] >= since
        ]
