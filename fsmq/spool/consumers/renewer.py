"""The thread of a consumer that does in time what has to be done again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from ..errors import FsmqError, Unavailable, unavailable

# After a failure, unless the claims end sooner.
RETRY_S = 1.0
_LEAST_PAUSE_S = 0.05
NOTHING_S = 3600.0


class Renewer(threading.Thread):
    """Does what is due, whatever fails, until it is closed.

    work: gives what there is to do, each to be done by itself. What is to be done again says so by
    `be_due`. on_problem: told of each that failed; it is tried again.
    """

    def __init__(
        self,
        consumer: str,
        work: Callable[[], Iterable[Callable[[], object]]],
        on_problem: Callable[[FsmqError], None],
    ) -> None:
        super().__init__(name=f"fsmq-{consumer}", daemon=True)
        self._consumer = consumer
        self._work = work
        self._on_problem = on_problem
        self._changed = threading.Condition()
        self._is_over = False
        self._due = time.monotonic() + NOTHING_S

    def be_due(self, seconds: float) -> None:
        """Do it all so much later, at the latest."""
        with self._changed:
            self._due = min(self._due, time.monotonic() + max(_LEAST_PAUSE_S, seconds))
            self._changed.notify_all()

    def close(self) -> None:
        """End; what is being done is done first."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while self._wait():
            for task in self._work():
                self._do(task)

    def _wait(self) -> bool:
        """Until something is due; False at the end."""
        with self._changed:
            while not self._is_over and (pause := self._due - time.monotonic()) > 0.0:
                self._changed.wait(pause)
            self._due = time.monotonic() + NOTHING_S
            return not self._is_over

    def _do(self, task: Callable[[], object]) -> None:
        try:
            task()
        except Exception as error:  # else the claims end, and nobody is told
            self.be_due(RETRY_S)
            self._report(error)

    def _report(self, error: Exception) -> None:
        doing = f"cannot renew the batches of consumer {self._consumer!r}"
        if isinstance(error, OSError):
            error = unavailable(error, doing)
        elif not isinstance(error, FsmqError):
            error = Unavailable(f"{doing}: {error!r}")
        try:
            self._on_problem(error)
        except Exception:
            return  # whom nobody can be told of
