"""The throttle of work that is repeated for ever and grows with the tree: listings and counts."""

from __future__ import annotations

from typing import NamedTuple


class Throttle(NamedTuple):
    """Limits a listing, a count or a survey to a share of the time.

    share: the part of the time that the work may take, from 0 to 1.
    least_s: seconds until it is repeated, however little it took.
    """

    share: float
    least_s: float = 0.0

    def pause(self, cost_s: float) -> float:
        """Seconds until the work is repeated, after it took ``cost_s`` seconds."""
        return max(self.least_s, cost_s / self.share)
