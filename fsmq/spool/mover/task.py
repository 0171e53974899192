"""Tasks: the kinds of work of a mover, each due at its own time and failing for itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..index.apart import FIRST_S, LONGEST_S


class Task:
    """Work that is due now and then. When it fails it waits apart from the others.

    work: given monotonic seconds, returns in how many seconds it is due again.
    due: monotonic seconds; whoever knows that there is something to do sets it back.
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
        except Exception as error:  # a slip in one kind of work must not end the others either
            self.fault = error
            pause = self._pause = min(2 * self._pause, LONGEST_S) or FIRST_S
        self.due = time.monotonic() + pause
        return self.fault
