"""Limits of background work: a share of the time if it is repeated, a rate if it is long."""

from __future__ import annotations

import time
from typing import NamedTuple

from ..errors import InvalidValue

MIN_RATE, MAX_RATE = 0.01, 1_000_000.0


class DutyCycle(NamedTuple):
    """Limits a listing, a count or a survey to a share of the time.

    share: the part of the time that the work may take, from 0 to 1.
    least_s: seconds until it is repeated, however little it took.
    """

    share: float
    least_s: float = 0.0

    def pause(self, cost_s: float) -> float:
        """Seconds until the work is repeated, after it took ``cost_s`` seconds."""
        return max(self.least_s, cost_s / self.share)


class Rate:
    """Lets at most ``per_s`` messages through each second, evenly; None: no limit."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._begun = time.monotonic()
        self._gone = 0

    def part(self, most: int) -> int:
        """How many may be handled together: those of a tenth of a second."""
        return most if self._per_s is None else max(1, min(most, int(self._per_s / 10)))

    def pause(self, gone: int) -> float:
        """Seconds until the next one, after ``gone`` more were let through."""
        if self._per_s is None:
            return 0.0
        self._gone += gone
        return max(0.0, self._begun + self._gone / self._per_s - time.monotonic())


def check_rate(rate: float | None) -> float | None:
    """A rate, or none. Raises InvalidValue."""
    if rate is None:
        return None
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not is_number or not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidValue("rate", f"must be from {MIN_RATE:g} to {MAX_RATE:.0f} messages a second")
    return float(rate)
