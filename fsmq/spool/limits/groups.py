"""Claims from queues by the groups of their messages, for all processes of all hosts.

In a fifo queue a group is claimed in its order; in one whose `fetch_order` is fair, groups are
served in turn. In both as many of a group are in flight at a time as the queue says.

Who claims holds the lock of a small file of the queue from the look at what is ready and hidden to
the renames of the claims. What it sees is exact: events of this host report each rename before it
returns, and where another host has claimed since, the folders are listed. What leaves ``delay/``
needs no lock: seen late, it only delays its group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TypeVar

from ..errors import InUse
from ..index import listings
from ..index.events import Event, Kind
from ..index.ready import Ready
from ..layout.names import split_entry
from ..layout.of_queues import OfQueues
from ..layout.settings import QueueSettings
from ..layout.transitions import DELAY
from .gate import SpoolView
from .group_modes import Mode, kernel, mode_of
from .group_queue import GroupQueue

T = TypeVar("T")
_ANY = 1 << 40


class Groups:
    """The queues from which this process claims by groups. Safe in threads."""

    def __init__(self, spool_view: SpoolView) -> None:
        self._spool_view = spool_view
        self._queues: OfQueues[GroupQueue] = OfQueues(spool_view.tree)
        self._lock = threading.Lock()
        self._watching: Ready | None = None
        self._hears = 0  # 2: also of times that are set
        self._folder = spool_view.tree.folder(DELAY)
        self._kernel = kernel()

    def claims(
        self,
        queue: str,
        settings: QueueSettings,
        make: Callable[[Iterator[str]], Generator[T | None, None, None]],
        id_of: Callable[[T], str],
        whole: bool = False,
    ) -> Generator[T | None, None, None]:
        """The claims of what may be claimed; None is a rest.

        make: makes them of ids. whole: a claim takes as many of a group as it can, and the others
        wait until all of these are done. Raises Unlisted, and what ``make`` raises.
        """
        turn = Turn(self._queue(queue, settings), settings, whole and settings.fifo)
        with closing(turn), closing(make(turn.ids())) as found:
            for claim in found:
                if claim is None:
                    turn.pause()
                else:
                    turn.claimed(id_of(claim))
                yield claim

    def polls(self, queue: str) -> bool:
        """Whether a queue's folders are listed now and then, as no events of them arrive."""
        one = self._queues.get(queue)
        return one is not None and one.polls

    def ripens_in(self, queue: str) -> float | None:
        """Seconds until the next try of a message that was set aside; None if there is none."""
        one = self._queues.get(queue)
        return None if one is None else one.ripens_in()

    def learn(self, queue: str) -> None:
        """List a queue, in a thread that may do so. Raises InUse, OSError."""
        with closing(self._queue(queue, self._spool_view.settings.get(queue)).claiming()) as one:
            next(one)

    def _queue(self, queue: str, settings: QueueSettings) -> GroupQueue:
        ready, mode, now = self._spool_view.ready, mode_of(settings), time.monotonic()
        with self._lock:
            one = self._queues.get(queue)
            if one is None or (one.ready, one.mode) != (ready, mode) or one.hears_at < now:
                one = self._queues[queue] = GroupQueue(self._spool_view, queue, self._kernel, mode)
        if not one.polls and not self._hear(one):
            one.poll()
        return one

    def _hear(self, one: GroupQueue) -> bool:
        """Whether all events of the queue arrive."""
        ready = one.ready
        # Not under our lock: events are handed over under another. What is older lists nothing.
        if one.is_new:
            one.is_new = False
            ready.refresh()
        follows = ready.follow(one.queue, one.on_event)
        needs = 2 if one.mode is Mode.LIMITED else 1
        if self._watching is not ready or self._hears < needs:
            if not ready.listen(
                self._folder, self._on_event, self._on_loss, changes=needs > 1, of=self
            ):
                return False
            self._watching, self._hears = ready, needs
        return follows

    def _on_event(self, event: Event) -> None:
        parts = split_entry(event.name)
        one = self._queues.get(parts[0]) if parts is not None else None
        if parts is not None and one is not None:
            one.on_hidden(parts[1], arrived=event.kind is not Kind.LEFT)

    def _on_loss(self) -> None:
        self._watching = None  # perhaps the folder cannot be watched any more
        for one in list(self._queues.values()):
            one.is_listed = False


class Turn:
    """The claims of one call. The lock is held from the first id to the end, or to a rest."""

    def __init__(self, queue: GroupQueue, settings: QueueSettings, whole: bool) -> None:
        self._queue = queue
        self._most = settings.max_in_flight_per_group or (1 if settings.fifo else _ANY)
        self._whole = whole
        self._claiming: Generator[None, None, None] | None = None
        self._tried: str | None = None
        self._last: str | None = None  # of those that were claimed
        self._mine: set[str] = set()
        self._has_failed = False  # one that still is ready

    def ids(self) -> Iterator[str]:
        """Messages that may be claimed, each when the one before was. Raises Unlisted, OSError."""
        while True:
            if self._claiming is None and not self._enter():
                return
            tried, self._tried = self._tried, None
            if tried is not None and self._queue.set_aside(tried):
                self._has_failed, self._last = True, None  # nor is what is behind it claimed now
            self._tried = self._next()
            if self._tried is None:
                self.pause()
                return
            yield self._tried

    def claimed(self, message_id: str) -> None:
        """It was claimed."""
        self._tried, self._last = None, message_id
        self._mine.add(message_id)
        with self._queue.noting:
            self._queue.view.served(message_id)

    def pause(self) -> None:
        """Let others claim."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            with closing(claiming):
                if self._tried is not None:  # who claims gave up, and no fault of it may be known
                    self._queue.doubt(self._tried)
                    self._tried = None

    close = pause

    def _enter(self) -> bool:
        try:
            claiming = self._queue.claiming()
            next(claiming)
        except (listings.Unlisted, InUse):
            if self._mine:
                return False
            raise
        self._claiming = claiming
        return True

    def _next(self) -> str | None:
        found = self._seen()
        if found is None and not self._mine and not self._has_failed:
            self._queue.look_harder()
            found = self._seen()
        return found

    def _seen(self) -> str | None:
        view = self._queue.view
        with self._queue.noting:
            if self._whole and self._last is not None:
                found = view.next_with(self._last, self._mine)
                if found is not None:
                    return found
            return view.next(1 if self._whole else self._most, set())
