"""Threads that wait for something to happen in one tree.

A thread that looks takes in all events, including those for which others wait. The kernel wakes the
others, too, but they sleep on if nothing is left to read by the time they run. So the thread that
takes events in notifies all that wait.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# How long a thread sleeps at most if there is no descriptor to notify it.
_UNTOLD_S = 0.25


class Waits:
    """The threads that wait. Safe in threads.

    taken: how many events were taken in so far.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._told: set[int] = set()
        self._lock = threading.Lock()

    def tell(self, count: int) -> None:
        """Note that ``count`` events were taken in, and their effects can be seen."""
        if not count:
            return
        with self._lock:
            self.taken += count
            for told in self._told:
                os.eventfd_write(told, 1)

    def sleep(
        self,
        seconds: float,
        since: int | None,
        files: list[int],
        events: int | None,
        look: Callable[[], int],
    ) -> None:
        """Sleep for ``seconds``, or until something happens.

        since: ``taken`` before the caller looked for what it waits for. files: readable when
        something happens. events: readable when events can be taken in, which ``look`` does.
        """
        poller = select.poll()
        for file in (*files, *(() if events is None else (events,))):
            poller.register(file, select.POLLIN)
        with self._listening() as told:
            if told is not None:
                poller.register(told, select.POLLIN)
            elif events is not None:
                seconds = min(seconds, _UNTOLD_S)
            if since is not None and since != self.taken:
                return
            end = time.monotonic() + seconds
            while found := poller.poll(max(0.0, end - time.monotonic()) * 1000):
                # Not every event counts: a claim, which closes a lock's file, would wake itself.
                if any(file != events for file, _ in found) or look():
                    return
                if time.monotonic() >= end:
                    return

    @contextmanager
    def _listening(self) -> Iterator[int | None]:
        """A file that is readable when events were taken in; None if there are no descriptors."""
        try:
            told = os.eventfd(0)
        except (OSError, AttributeError):  # only Linux has it
            yield None
            return
        try:
            with self._lock:
                self._told.add(told)
            yield told
        finally:
            with self._lock:
                self._told.discard(told)
            os.close(told)
