"""The last minutes of queues, finer than the history has them: in memory, as long as one looks."""

from __future__ import annotations

import math
import struct
from collections import OrderedDict, deque

from fsmq.spool import Counts

from .rates import Rate

SPAN_S = 900.0
EVERY_S = 2.0
MOST_QUEUES = 200
# Several may look at one queue: a point of each would be more than is seen.
_SOONEST_S = 0.9 * EVERY_S
_MINUTE_S = 60.0
# A tuple of numbers would take six times the room.
_POINT = struct.Struct("<d10f")


class Recent:
    """Points of the queues that were looked at last, a quarter of an hour at most."""

    def __init__(self) -> None:
        self._points: OrderedDict[str, deque[bytes]] = OrderedDict()

    def add(
        self, queue: str, now: float, counts: Counts, oldest: float | None, rate: Rate | None
    ) -> None:
        """Note a queue as it is now. oldest: when its oldest that waits was created."""
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
        """The points of a queue since a moment: when each was, and its figures.

        They stand as in :class:`fsmq.spool.records.history.Figures`; what happened is told as so
        many a minute, over the last ten seconds.
        """
        found = (_POINT.unpack(point) for point in self._points.get(queue, ()))
        return [
            [None if math.isnan(value) else round(value, 1) for value in point]
            for point in found
            if point[0] >= since
        ]
