"""Tasks: the kinds of work of a mover, each due at its own time and failing for itself.

And how often a folder is listed, since events may not be supported, or may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..index.quarantine import FIRST_S, LONGEST_S
from ..layout.duty_cycle import DutyCycle

# A file with a shell user's name that a listing finds may still be written to; an event tells when
# it is finished, a listing waits until it has been left alone for so long.
RIPE_AFTER_S = 1.0
# The most entries of one step, so that each kind of work gets its turn.
MAX_STEP = 2000
# And of those that failed: they must not hold up the others.
MAX_AGAIN = 100
# Where events arrive, the folders are listed all the same, rarely.
_DISTRUST = DutyCycle(0.005, least_s=60.0)
# The share of the time for listings where none arrive.
_POLL_SHARE = 0.05


class Task:
    """Work that is due now and then. When it fails it waits apart from the others.

    work: given monotonic seconds, returns in how many seconds it is due again.
    due: monotonic seconds; code that knows of something to do sets it back.
    fault: why it failed the last time; None if it did not.
    """

    def __init__(self, name: str, work: Callable[[float], float], *, due: float = 0.0) -> None:
        self.name = name
        self.due = due
        self.fault: Exception | None = None
        self._work = work
        self._pause = 0.0

    def run(self, now: float) -> Exception | None:
        """Do it if it is time; why it failed just now, or None."""
        if now < self.due:
            return None
        try:
            pause, self.fault, self._pause = self._work(now), None, 0.0
        except Exception as error:  # a slip in one kind of work must not end the others
            self.fault = error
            pause = self._pause = min(2 * self._pause, LONGEST_S) or FIRST_S
        self.due = time.monotonic() + pause
        return self.fault


class Listings:
    """How often folders are listed.

    hears: whether events of them arrive. poll_interval: seconds, where they do not.
    """

    def __init__(self, hears: Callable[[], bool], poll_interval: float) -> None:
        self._hears = hears
        self._polling = DutyCycle(_POLL_SHARE, poll_interval)

    def pause(self, cost_s: float) -> float:
        """Seconds until the next listing, after one that took ``cost_s`` seconds."""
        return (_DISTRUST if self._hears() else self._polling).pause(cost_s)
