"""Rates: what happened to messages per second, over the last seconds."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")
Counts: TypeAlias = Mapping[tuple[Any, ...], int]
"""Counters by their kind, and what they count."""

_OVER_S = 10.0


class Rate(NamedTuple):
    """What happened to messages of a queue, per second."""

    sent: float = 0.0
    received: float = 0.0
    removed: float = 0.0
    redelivered: float = 0.0
    buried: float = 0.0


class LogRate(NamedTuple):
    """What happened to messages of a log, per second; done: by all of its channels together."""

    published: float = 0.0
    claimed: float = 0.0
    done: float = 0.0


class ClaimRate(NamedTuple):
    """How many messages one program claims from a queue or a log, and acknowledges, per second."""

    claimed: float = 0.0
    done: float = 0.0


class _Sample(NamedTuple):
    at: float  # monotonic seconds
    counts: Counts


class Rates(Generic[R]):
    """Samples counters; a rate is their growth over the last ten seconds.

    make: makes the rates of one name from those of each of the ``counters``, in this order.
    """

    def __init__(self, make: Callable[..., R], *counters: str) -> None:
        self._make = make
        self._counters = counters
        self._samples: deque[_Sample] = deque()

    def sample(self, counted: Iterable[Counts]) -> dict[Any, R] | None:
        """Record the counters as they are now; the rates by name, None before the second look."""
        now = time.monotonic()
        counts: Counter[tuple[str, Any]] = Counter()
        for one in counted:
            for key, number in one.items():
                if key[0] in self._counters and len(key) == 2:
                    counts[key[0], key[1]] += number
        while len(self._samples) > 1 and self._samples[1].at <= now - _OVER_S:
            self._samples.popleft()
        self._samples.append(_Sample(now, counts))
        first = self._samples[0]
        seconds = now - first.at
        if seconds < 0.5:
            return None

        def rate(what: str, name: Any) -> float:
            # The counts of a process disappear when it ends.
            return max(0, counts[what, name] - first.counts.get((what, name), 0)) / seconds

        names = {name for _, name in counts}
        return {name: self._make(*(rate(what, name) for what in self._counters)) for name in names}
