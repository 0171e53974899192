"""The file events of a process as they are taken in: in order, each of them once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from .events import Event, Events, Kind


class Intake:
    """Reads events and hands them on, under a lock. Safe in threads.

    Whatever ends that early, an exception of a signal's handler say, loses what was read. A loss is
    reported again until that has ended well; no thread sees nothing new before it has.
    """

    def __init__(self, events: Events, lock: threading.RLock) -> None:
        self._events = events
        self._lock = lock
        self._losses = 0
        self._reported = 0  # of these
        self._inside: set[int] = set()  # threads

    def take_in(
        self, apply: Callable[[Kind, str, list[Event]], None], on_loss: Callable[[], None]
    ) -> int:
        """Apply all events so far, by kind and folder; how many.

        on_loss: called, without the lock, if some were lost.
        """
        here = threading.get_ident()
        if here in self._inside:
            return 0  # what an event is handed to asks: the next ones come in order, behind it
        try:
            self._inside.add(here)
            count, losses = self._hand_on(apply)
            if losses > self._reported:
                on_loss()
                with self._lock:
                    self._reported = max(self._reported, losses)
        finally:
            self._inside.discard(here)
        return count

    def _hand_on(self, apply: Callable[[Kind, str, list[Event]], None]) -> tuple[int, int]:
        with self._lock:
            self._losses += 1  # until all is handed on
            has_lost = False
            events = self._events.read()
            # Many come in a row from one folder, where a batch is delivered, or claimed.
            for (kind, folder), batch in groupby(events, itemgetter(0, 1)):
                has_lost |= kind is Kind.LOST
                apply(kind, folder, list(batch))
            self._losses -= not has_lost
            return len(events), self._losses
