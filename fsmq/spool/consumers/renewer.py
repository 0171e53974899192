"""The thread of a consumer that does recurring work in time."""

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
    """Does the work that is due, whatever fails, until it is closed.

    work: returns independent tasks; they call `be_due` to be run again. on_problem: called with the
    error of each task that failed and is tried again.
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
        """Run all tasks in ``seconds`` seconds at the latest."""
        with self._changed:
            self._due = min(self._due, time.monotonic() + max(_LEAST_PAUSE_S, seconds))
            self._changed.notify_all()

    def close(self) -> None:
        """End, after the current task."""
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
        """Wait until something is due; False at the end."""
        with self._changed:
            while not self._is_over and (pause := self._due - time.monotonic()) > 0.0:
                self._changed.wait(pause)
            self._due = time.monotonic() + NOTHING_S
            return not self._is_over

    def _do(self, task: Callable[[], object]) -> None:
        try:
            task()
        except Exception as error:  # else claims would end unnoticed
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
            return  # nobody is left to be told
