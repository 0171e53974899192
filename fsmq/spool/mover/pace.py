"""How often the mover lists a folder: events may be missing, or may be missed."""

from __future__ import annotations

# A file with a shell user's name that a listing finds may still be written to; an event tells when
# it is finished, a listing waits until it has been left alone for so long.
RIPE_AFTER_S = 1.0
# At most so many entries in one step, so that each kind of work gets its turn.
MAX_STEP = 2000
# And of those that failed: they must not hold up the others.
MAX_AGAIN = 100
# Where no events arrive, listings may take this share of the time.
_POLL_SHARE = 0.05
# Where they do, the folders are listed all the same, rarely.
_DISTRUST_S = 60.0
_DISTRUST_SHARE = 0.005


class Pace:
    """``poll_interval``: seconds between two listings where ``events`` do not arrive."""

    def __init__(self, events: bool, poll_interval: float) -> None:
        self._events = events
        self._poll_interval = poll_interval

    def pause(self, cost: float) -> float:
        """Seconds until the next listing, after one that took ``cost`` seconds."""
        if self._events:
            return max(_DISTRUST_S, cost / _DISTRUST_SHARE)
        return max(self._poll_interval, cost / _POLL_SHARE)
