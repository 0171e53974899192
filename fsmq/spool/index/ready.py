"""The ready index: for each queue in use, the ids that can be claimed, in order.

It is built by one listing and updated by file events, so a claim costs the same whether a thousand
or a million messages wait. The index is a hint and the folder is the truth: an id that another
process has claimed costs one failed rename, and a later listing finds an id that the index misses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence

from ..errors import NoSuchQueue
from ..layout.duty_cycle import DutyCycle
from ..layout.names import is_id
from ..layout.settings import QueueSettings
from ..layout.steps import FEW
from ..layout.transitions import QUEUES
from ..layout.tree import Tree
from . import listings
from .events import Event, Events, Kind
from .intake import Intake
from .listeners import Listeners
from .ready_index import Entry, ReadyIndex
from .share import USUAL, WHOLE, Partitions, Share
from .waits import Waits

# Announced when a queue was deleted or replaced: all who wait for it must look.
EVERYONE = 1 << 30
# How often an empty index is checked against the folder although events arrive.
_DISTRUST = DutyCycle(0.02, least_s=30.0)


class Ready:
    """The indexes of all queues in use by this process. Safe in threads.

    ``on_arrival(queue, count, seconds)``: ``count`` more messages can be claimed in ``seconds``
    seconds, or the queue was deleted. Called in the thread that notices it.

    ``on_lost`` is called when events were lost, and must make :meth:`rescan` run. By default it
    runs at once, which takes seconds if millions of messages wait.

    For a thread that may not list folders (:mod:`fsmq.spool.index.listings`), another one has to
    :meth:`load` a queue that :meth:`is_due` before an id can be popped.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        share: Share = WHOLE,
        events: Events | None = None,
        poll_interval: float = 0.25,
    ) -> None:
        self.on_arrival: Callable[[str, int, float], None] | None = None
        self.on_lost: Callable[[], None] = self.rescan
        self._tree = tree
        self.share = share  # what this process prefers
        self._events = events
        self.poll_interval = poll_interval
        self._polling = DutyCycle(_DISTRUST.share, poll_interval)
        self._entries: dict[str, Entry] = {}
        self._partitions: dict[str, Partitions] = {}  # of queues with other than the usual ones
        self._listeners = Listeners()
        self._followers: dict[str, Callable[[Event | None], None]] = {}
        self._lock = threading.RLock()
        self.waits = Waits()
        self._intake = None if events is None else Intake(events, self._lock, self.waits)
        self._idle_checked = time.monotonic()
        if events is not None:
            events.watch(QUEUES, files=False, departures=True, lasting=True)

    @property
    def polls(self) -> bool:
        """Whether arrivals are found by listings instead of events."""
        return self._events is None or QUEUES in self._events.unwatched

    @property
    def hears_all(self) -> bool:
        """Whether events of all folders in use arrive."""
        return self._events is not None and not self._events.unwatched

    def is_loaded(self, queue: str) -> bool:
        return (entry := self._entries.get(queue)) is not None and entry.scanned > 0.0

    def is_due(self, queue: str) -> bool:
        """Whether finding an id needs a listing, as none is left of the last one."""
        if (entry := self._entries.get(queue)) is None or not entry.scanned:
            return True
        entry.used = time.monotonic()
        if not entry.is_stale():
            return False
        self.refresh()
        with self._lock:
            return not entry.index.has_next()

    def load(self, queue: str) -> None:
        """List a queue if that is due, which can take seconds. Raises NoSuchQueue, OSError."""
        if self.is_due(queue):
            with self._lock:
                entry = self._entries.setdefault(queue, Entry(self._share_of(queue)))
            self._scan(queue, entry)

    def popped(self, queue: str, wanted: int = 1) -> Generator[str, None, None]:
        """The ids of a queue, each taken out of its index; close it when done.

        At most one of them is from the quarantine: one that is due or, after all others, the next
        one. Otherwise a disk that fails would look like an empty queue.

        wanted: how many the caller will most likely take.

        Raises NoSuchQueue.
        """
        failed = self._pop_failed(queue)
        if failed is not None:
            yield failed
        self._refresh_for(queue)
        is_fresh = True
        while ids := self._pop_some(queue, min(wanted, FEW), is_fresh):
            is_fresh = False
            ids.reverse()
            try:
                while ids:
                    yield ids.pop()
            finally:
                with self._lock:
                    self._note(queue, ids, arrived=True)
            wanted = max(1, wanted - FEW)
        if failed is None and (failed := self._pop_failed(queue, early=True)) is not None:
            yield failed

    def first(self, queue: str, limit: int) -> list[str] | None:
        """The first ids of a queue; None if only a listing could tell.

        Some may be gone already, and ids that are being claimed right now are left out.
        """
        self.refresh()
        with self._lock:
            if (entry := self._entries.get(queue)) is None or not entry.is_exact:
                return None
            entry.used = time.monotonic()
            return entry.index.first(limit)

    def add(self, queue: str, *ids: str) -> None:
        """Note that messages became ready, if the queue is in use here and no events report it."""
        if (entry := self._entries.get(queue)) is not None and not entry.watched:
            with self._lock:
                self._note(queue, ids, arrived=True)

    def postpone(self, queue: str, message_id: str) -> None:
        """Put back an id that cannot be claimed right now."""
        with self._lock:
            if (entry := self._entries.get(queue)) is not None:
                entry.index.postpone(message_id)

    def quarantine(self, queue: str, message_id: str) -> None:
        """Put back an id that could not be claimed: it waits in quarantine."""
        with self._lock:
            if (entry := self._entries.get(queue)) is not None:
                entry.index.quarantine(message_id)

    def ripens_in(self, queue: str) -> float | None:
        """Seconds until another id can be popped; None if none waits."""
        with self._lock:
            entry = self._entries.get(queue)
            return None if entry is None else entry.index.ripens_in()

    def forget(self, queue: str) -> None:
        """Drop a queue's index: it was deleted, purged or not used for long."""
        with self._lock:
            self._entries.pop(queue, None)
            if (follower := self._followers.pop(queue, None)) is not None:
                follower(None)
            if self._events is not None:
                self._events.unwatch(f"{QUEUES}/{queue}")

    def set_share(self, share: Share) -> None:
        """Prefer other ids from now on."""
        with self._lock:
            self.share = share
            for queue in self._entries:
                self._apply_partitions(queue)

    def set_partitions(self, queue: str, settings: QueueSettings) -> None:
        """Use the partitions of these settings; costs a microsecond if they have not changed."""
        partitions = Partitions.of(settings)
        if self._partitions.get(queue, USUAL) == partitions:
            return
        with self._lock:
            self._partitions[queue] = partitions
            self._apply_partitions(queue)

    def partitions(self, settings: QueueSettings) -> int:
        """The number of partitions for the ids of a queue with these settings."""
        return self.share.within(settings.min_partitions, settings.max_partitions).partitions or 1

    def count(self, queue: str) -> int:
        """How many ids are in a queue's index, as far as events have been taken in."""
        entry = self._entries.get(queue)
        return 0 if entry is None else len(entry.index)

    def counts(self, queues: Iterable[str]) -> dict[str, int]:
        """The same for those of several queues that have any."""
        return {queue: number for queue in queues if (number := self.count(queue))}

    def listen(
        self,
        folder: str,
        on_event: Callable[[Event], None] | None,
        on_loss: Callable[[], None] = lambda: None,
        *,
        changes: bool = False,
        of: object = None,
    ) -> bool:
        """Call ``on_event`` for events of another folder, in order with all others; None ends that.

        on_loss: called when events were lost. changes: report times that were set, too. of: the
        listener, if there are several. False: no events arrive until ``on_loss`` is called.
        """
        if self._events is None:
            return False
        with self._lock:
            if not self._listeners.set(folder, of, on_event, on_loss, changes):
                self._events.unwatch(folder)
            elif on_event is not None:
                changes = self._listeners.hears_changes(folder)
                self._events.watch(folder, departures=True, changes=changes, lasting=True)
            return folder not in self._events.unwatched

    def follow(self, queue: str, on_event: Callable[[Event | None], None]) -> bool:
        """Call ``on_event`` for each event of a queue's folder; with None if some may be missing.

        Call this again after None, and at any time at no cost. False: no events will arrive.
        """
        if (entry := self._entries.get(queue)) is not None:
            entry.used = time.monotonic()
        if self._events is None or self._followers.get(queue) == on_event:
            return self._events is not None
        with self._lock:
            on_event(None)
            if self._watch(queue):
                self._followers[queue] = on_event
            return not self.polls and f"{QUEUES}/{queue}" not in self._events.unwatched

    def refresh(self) -> int:
        """Apply the file events so far; how many. Costs a microsecond when there are none."""
        count = 0
        if self._intake is not None:
            count = self._intake.take_in(self._apply, self._on_loss)
        self._forget_idle()
        return count

    def poll(self, queues: Iterable[str]) -> None:
        """List those of ``queues`` for which it is due: often if no events arrive."""
        for queue in queues:
            if (entry := self._entries.get(queue)) is None:
                # It was forgotten, perhaps deleted: waiting clients look again.
                self._announce(queue, EVERYONE)
            elif entry.is_stale():
                self._list_again(queue, entry)

    def rescan(self) -> None:
        """List every queue in use again; one that cannot be listed stays due."""
        for queue, entry in list(self._entries.items()):
            self._list_again(queue, entry)

    def _list_again(self, queue: str, entry: Entry) -> None:
        try:
            self._scan(queue, entry)
        except NoSuchQueue:
            self._announce(queue, EVERYONE)
        except OSError:
            entry.scanned = 0.0  # the next claim lists it first, and reports the error

    def _on_loss(self) -> None:
        with self._lock:
            for entry in self._entries.values():
                entry.stale_at, entry.meanwhile = 0.0, None
        self._listeners.report_loss()
        for follower in list(self._followers.values()):
            follower(None)
        self.on_lost()

    def _pop_some(self, queue: str, limit: int, is_fresh: bool) -> list[str]:
        """Up to ``limit`` ids. is_fresh: events are taken in; if not, do so if there is none."""
        with self._lock:
            entry = self._entries.get(queue)
            ids = [] if entry is None else entry.index.pop_some(limit)
            if entry is not None:
                entry.used = time.monotonic()
        if ids or is_fresh:
            return ids
        self._refresh_for(queue)
        return self._pop_some(queue, limit, is_fresh=True)

    def _pop_failed(self, queue: str, *, early: bool = False) -> str | None:
        with self._lock:
            entry = self._entries.get(queue)
            return None if entry is None else entry.index.pop_failed(early=early)

    def _refresh_for(self, queue: str) -> None:
        self.refresh()
        while listings.are_allowed():
            self.load(queue)
            if queue in self._entries:
                return
            # An event has dropped the result: the folder was just created, or replaced.
            self.refresh()

    def _scan(self, queue: str, entry: Entry) -> None:
        asked = time.monotonic()
        with entry.scanning:
            if entry.scanned > asked:
                return  # another thread has listed it while we waited
            began = time.monotonic()
            with self._lock:
                entry.meanwhile = []
                # Watch first, list afterwards: arrivals in between are seen twice, never missed.
                entry.watched = self._watch(queue)
            try:
                names = self._tree.ready_names(queue)
            except BaseException:
                with self._lock:
                    entry.meanwhile = None
                raise
            # Built while other threads use the old one: a million names take a tenth of a second.
            index = None if names is None else entry.index.successor(names)
            self._install(queue, entry, index, began)

    def _watch(self, queue: str) -> bool:
        events = None if self.polls else self._events
        return events is not None and events.watch(f"{QUEUES}/{queue}", departures=True)

    def _install(self, queue: str, entry: Entry, index: ReadyIndex | None, began: float) -> None:
        with self._lock:
            meanwhile, entry.meanwhile = entry.meanwhile, None
            if index is None:
                self.forget(queue)
                raise NoSuchQueue(queue)
            before, share = len(entry.index), entry.index.share
            entry.index = index
            index.take_place(share)
            for arrived, message_id in meanwhile or ():
                entry.note([message_id], arrived=arrived)
            entry.scanned = began
            duty_cycle, now = _DISTRUST if entry.watched else self._polling, time.monotonic()
            if meanwhile is not None:  # otherwise events were lost during the listing
                entry.stale_at = now + duty_cycle.pause(now - began)
            if len(entry.index) > before:
                self._announce(queue, len(entry.index) - before)

    def _apply(self, kind: Kind, folder: str, events: list[Event]) -> None:
        """Apply events of one kind and one folder; the lock is held."""
        if self._listeners.report(kind, folder, events):
            return
        if folder == QUEUES:
            for event in events:
                # A folder of this name came or went: the index of the old one is void.
                self.forget(event.name)
                self._announce(event.name, EVERYONE)
            return
        if kind is Kind.ARRIVED:
            events = [event for event in events if is_id(event.name)]
        queue = folder.removeprefix(QUEUES + "/")
        if self._followers and (follower := self._followers.get(queue)) is not None:
            for event in events:
                follower(event)
        self._note(queue, [event.name for event in events], arrived=kind is Kind.ARRIVED)

    def _note(self, queue: str, ids: Sequence[str], *, arrived: bool) -> None:
        if (entry := self._entries.get(queue)) is not None:
            for seconds in entry.note(ids, arrived=arrived):
                self._announce(queue, 1, seconds)

    def _announce(self, queue: str, count: int, seconds: float = 0.0) -> None:
        if self.on_arrival is not None:
            self.on_arrival(queue, count, seconds)

    def _forget_idle(self) -> None:
        now = time.monotonic()
        if now - self._idle_checked < 60.0:
            return
        with self._lock:
            self._idle_checked = now
            for queue, entry in list(self._entries.items()):
                if now - entry.used > self._partitions.get(queue, USUAL).idle_s:
                    self.forget(queue)
            for queue in self._partitions.keys() - self._entries.keys():
                del self._partitions[queue]

    def _share_of(self, queue: str) -> Share:
        partitions = self._partitions.get(queue, USUAL)
        return self.share.within(partitions.min_partitions, partitions.max_partitions)

    def _apply_partitions(self, queue: str) -> None:
        entry, share = self._entries.get(queue), self._share_of(queue)
        if entry is not None and entry.index.share != share:
            entry.index.share = share
            entry.index.load(entry.index.present)
