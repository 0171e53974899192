"""How a process takes in file events: in order, each of them once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from .events import Event, Events, Kind
from .waits import Waits


class Intake:
    """Reads events and hands them on, under a lock. Safe in threads.

    If an exception, say of a signal handler, interrupts that, the events read are lost. The loss is
    reported again until the report succeeds; until then no call returns normally.
    """

    def __init__(self, events: Events, lock: threading.RLock, waits: Waits) -> None:
        self._events = events
        self._lock = lock
        self._waits = waits
        self._losses = 0
        self._reported = 0  # of these
        self._inside: set[int] = set()  # threads

    def take_in(
        self, apply: Callable[[Kind, str, list[Event]], None], on_loss: Callable[[], None]
    ) -> int:
        """Apply all events so far, by kind and folder; returns how many.

        on_loss: called, without the lock, if some were lost.
        """
        here = threading.get_ident()
        if here in self._inside:
            return 0  # called while handling an event: later events come after it
        try:
            self._inside.add(here)
            count, losses = self._hand_on(apply)
            self._waits.tell(count)
            if losses > self._reported:
                on_loss()
                with self._lock:
                    self._reported = max(self._reported, losses)
        finally:
            self._inside.discard(here)
        return count

    def _hand_on(self, apply: Callable[[Kind, str, list[Event]], None]) -> tuple[int, int]:
        with self._lock:
            self._losses += 1  # until all events are applied
            has_lost = False
            events = self._events.read()
            # A batch that is delivered or claimed makes many events of one folder in a row.
            for (kind, folder), batch in groupby(events, itemgetter(0, 1)):
                has_lost |= kind is Kind.LOST
                apply(kind, folder, list(batch))
            self._losses -= not has_lost
            return len(events), self._losses
