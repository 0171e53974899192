"""Claims by the groups of messages, coordinated among all processes of all hosts.

In a fifo queue each group is claimed in order; with the `fetch_order` fair, groups are served in
turn. Both limit how many messages of a group are in flight.

A claim holds the lock of a small file of the queue from the look at ready and hidden messages to
its renames. Its view is exact: events of this host report each rename before it returns, and if
another host has claimed since, the folders are listed. Leaving ``delay/`` needs no lock: a
departure that is seen late only delays its group.
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
        self._hears = 0  # 2: including times that are set
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
        """Claim messages that may be claimed; yields None for a pause.

        make: claims ids. whole: a claim takes as many of a group as it can, and the rest of the
        group waits until all of these are done. Raises Unlisted, and what ``make`` raises.
        """
        turn = Turn(self._queue(queue, settings), settings, whole and settings.fifo)
        with closing(turn), closing(make(turn.ids())) as found:
            # Before ``make`` asks the gate of the queue, whose lock is the inner one.
            while turn.enter():
                try:
                    claim = next(found)
                except StopIteration:
                    return
                if claim is None:
                    turn.pause()
                else:
                    turn.claimed(id_of(claim))
                yield claim

    def polls(self, queue: str) -> bool:
        """Whether a queue's folders are listed now and then, as their events do not arrive."""
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
        # Not under our lock: events arrive under another one. Older events need no listing.
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
        self._watching = None  # the folder may have to be watched again
        for one in list(self._queues.values()):
            one.is_listed = False


class Turn:
    """The claims of one call. The lock is held from the first id to the end, or to a pause."""

    def __init__(self, queue: GroupQueue, settings: QueueSettings, whole: bool) -> None:
        self._queue = queue
        self._most = settings.max_in_flight_per_group or (1 if settings.fifo else _ANY)
        self._whole = whole
        self._claiming: Generator[None, None, None] | None = None
        self._tried: str | None = None
        self._last: str | None = None  # the last one claimed
        self._mine: set[str] = set()
        self._has_failed = False  # a message that is still ready

    def ids(self) -> Iterator[str]:
        """Messages that may be claimed, one after the other; call `enter` before each.

        Raises OSError.
        """
        while True:
            tried, self._tried = self._tried, None
            if tried is not None and self._queue.set_aside(tried):
                self._has_failed, self._last = True, None  # later ones must not be claimed now
            self._tried = self._next()
            if self._tried is None:
                self.pause()
                return
            yield self._tried

    def claimed(self, message_id: str) -> None:
        """Note that a message was claimed."""
        self._tried, self._last = None, message_id
        self._mine.add(message_id)
        self._queue.claimed(message_id)

    def pause(self) -> None:
        """Let others claim."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            with closing(claiming):
                if self._tried is not None:  # the claimer gave up on it, without a result
                    self._queue.doubt(self._tried)
                    self._tried = None

    close = pause

    def enter(self) -> bool:
        """Keep others from claiming; False if that takes too long and some were claimed.

        Raises Unlisted, InUse, OSError.
        """
        if self._claiming is not None:
            return True
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
            found = None
            if self._whole and self._last is not None:
                found = view.next_with(self._last, self._mine)
            if found is None:
                found = view.next(1 if self._whole else self._most, set())
            if found is not None:
                self._queue.give(found)
            return found
