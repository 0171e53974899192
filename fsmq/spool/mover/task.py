"""Tasks: the kinds of work of a mover, each with its own schedule and failures.

And how often folders are listed, as events can be unsupported or lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..index.quarantine import FIRST_S, LONGEST_S
from ..layout.duty_cycle import DutyCycle

# A listed file with a shell user's name may still be being written. An event tells when it is
# finished; a listing waits until it was unchanged for this time.
RIPE_AFTER_S = 1.0
# The most entries of one step, so that each kind of work gets its turn.
MAX_STEP = 2000
# The same for entries that failed: they must not hold up the others.
MAX_AGAIN = 100
# How often folders are listed although events arrive.
_DISTRUST = DutyCycle(0.005, least_s=60.0)
# The share of the time for listings if none arrive.
_POLL_SHARE = 0.05


class Task:
    """Work that is due now and then. Failures of one task do not affect others.

    work: given monotonic seconds, returns in how many seconds it is due again.
    due: monotonic seconds; code that knows of work sets it to an earlier time.
    fault: the error of the last run; None if it succeeded.
    """

    def __init__(self, name: str, work: Callable[[float], float], *, due: float = 0.0) -> None:
        self.name = name
        self.due = due
        self.fault: Exception | None = None
        self._work = work
        self._pause = 0.0

    def run(self, now: float) -> Exception | None:
        """Do the work if it is due; the error of this run, or None."""
        if now < self.due:
            return None
        try:
            pause, self.fault, self._pause = self._work(now), None, 0.0
        except Exception as error:  # an error in one kind of work must not end the others
            self.fault = error
            pause = self._pause = min(2 * self._pause, LONGEST_S) or FIRST_S
        self.due = time.monotonic() + pause
        return self.fault


class Listings:
    """How often folders are listed.

    hears: whether their events arrive. poll_interval: seconds, if they do not.
    """

    def __init__(self, hears: Callable[[], bool], poll_interval: float) -> None:
        self._hears = hears
        self._polling = DutyCycle(_POLL_SHARE, poll_interval)

    def pause(self, cost_s: float) -> float:
        """Seconds until the next listing, after one that took ``cost_s`` seconds."""
        return (_DISTRUST if self._hears() else self._polling).pause(cost_s)
