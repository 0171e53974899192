"""What `fsmq top` shows: counts of all queues, and how many messages come and go."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmq.cli.place.place import Place, Root, survey_all
from fsmq.spool.index.events import Events, Kind
from fsmq.spool.layout.duty_cycle import DutyCycle
from fsmq.spool.layout.names import split_entry, split_staged
from fsmq.spool.layout.transitions import NEW, REMOVE
from fsmq.spool.views.counts import Overview

if TYPE_CHECKING:
    from fsmq.cli.place.server import ServerTraffic

# The largest share of the time that counting takes: millions of messages take seconds.
_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Row:
    """One queue. Rates are messages a second since the last sample; None where none is known."""

    queue: str
    overview: Overview
    in_rate: float | None
    out_rate: float | None

    @property
    def age(self) -> float | None:
        """Seconds that the oldest message has waited."""
        oldest = self.overview.oldest
        return None if oldest is None else max(0.0, time.time() - oldest)


class TreeTraffic:
    """Counts messages that come and go, by file events in ``new/`` and ``remove/``.

    A put ends with its dot-name leaving ``new/``; a shell's ends with a file arriving there. A
    purge or the deletion of a queue, which moves a whole folder, counts as one message.
    """

    def __init__(self, root: Root) -> None:
        tree = root.tree
        self._new, self._remove = tree.folder(NEW), tree.folder(REMOVE)
        self._events = None if root.polls else Events(tree)
        self._came: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._whole = True
        if self._events is not None:
            self._events.watch(self._new, hidden=True)
            self._events.watch(self._remove)

    def take_in(self) -> None:
        """Count the events so far; to be called often."""
        renamed = ""  # the last dot-name's entry: its arrival in ``new/`` is not counted again
        for event in self._events.read() if self._events is not None else ():
            if event.kind is Kind.LOST:
                self._whole = False
            staged = split_staged(event.name) if event.folder == self._new else None
            entry = event.name if staged is None else staged[0]
            parts = split_entry(entry)
            if staged is None:
                is_one_more = event.kind is Kind.ARRIVED and entry != renamed
            else:
                is_one_more = event.kind is Kind.LEFT
                renamed = entry
            if parts is not None and is_one_more:
                (self._came if event.folder == self._new else self._left)[parts[0]] += 1

    def totals(self) -> tuple[Counter[str], Counter[str]] | None:
        """How many came and left since the last call; None without events, or if some were lost."""
        self.take_in()
        came, left, whole = self._came, self._left, self._whole
        self._came, self._left, self._whole = Counter(), Counter(), True
        hears = self._events is not None and not self._events.unwatched
        return (came, left) if whole and hears else None


class Sampler:
    """Takes samples of a place. traffic: counts what enters and leaves each queue. unread: the
    queues of the last sample that cannot be read."""

    def __init__(self, place: Place, interval: float) -> None:
        self._place = place
        self._interval = interval
        self.traffic = _traffic(place)
        self.unread: list[str] = []
        self._last: float | None = None

    def sample(self) -> tuple[list[Row], float]:
        """All queues, sorted by name, and the seconds until the next sample is due."""
        started = time.monotonic()
        totals = self.traffic.totals()
        elapsed = None if self._last is None else started - self._last
        self._last = started
        rows = []
        overviews, self.unread = survey_all(self._place)
        for name, overview in overviews.items():
            rates: list[float | None] = [None, None]
            if totals is not None and elapsed:
                rates = [counted[name] / elapsed for counted in totals]
            rows.append(Row(name, overview, *rates))
        cost = time.monotonic() - started
        return rows, DutyCycle(_SHARE, self._interval).pause(cost) - cost


def _traffic(place: Place) -> TreeTraffic | ServerTraffic:
    if isinstance(place, Root):
        return TreeTraffic(place)
    # Imported here, because it loads an HTTP library.
    from fsmq.cli.place.server import ServerTraffic

    return ServerTraffic(place)
