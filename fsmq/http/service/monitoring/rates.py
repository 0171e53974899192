"""Rates: what happened to messages a second, over the last seconds, of all hosts."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fsmq.spool.records.metrics import Snapshot

_OVER_S = 10.0


class Rate(NamedTuple):
    """What happened to messages of a queue, a second."""

    sent: float = 0.0
    received: float = 0.0
    removed: float = 0.0
    redelivered: float = 0.0
    buried: float = 0.0


# What each is counted by.
_COUNTERS = ("put", "claim", "remove", "redeliver", "bury")


class _Sample(NamedTuple):
    at: float  # monotonic seconds
    counts: Mapping[tuple[str, str], int]


class Rates:
    """Looks at counters now and then; a rate is what they grew by over the last ten seconds."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def sample(self, snapshots: Iterable[Snapshot]) -> dict[str, Rate] | None:
        """Take the counters as they are now; rates by queue, None before the second look."""
        now = time.monotonic()
        counts: Counter[tuple[str, str]] = Counter()
        for snapshot in snapshots:
            for key, number in snapshot.counts.items():
                if key[0] in _COUNTERS and len(key) == 2:
                    counts[key[0], key[1]] += number
        while len(self._samples) > 1 and self._samples[1].at <= now - _OVER_S:
            self._samples.popleft()
        self._samples.append(_Sample(now, counts))
        first = self._samples[0]
        seconds = now - first.at
        if seconds < 0.5:
            return None

        def rate(what: str, queue: str) -> float:
            # A process that ended takes its counts with it.
            return max(0, counts[what, queue] - first.counts.get((what, queue), 0)) / seconds

        queues = {queue for _, queue in counts}
        return {queue: Rate(*(rate(what, queue) for what in _COUNTERS)) for queue in queues}
