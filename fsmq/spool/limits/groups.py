"""Claims from queues by the groups of their messages, for all processes of all hosts.

In a fifo queue a group is claimed in its order; in one whose `fetch_order` is fair, groups are
served in turn. In both as many of a group are in flight at a time as the queue says.

Who claims holds the lock of a small file of the queue from the look at what is ready and hidden to
the renames of the claims. What it sees is exact: events of this host report each rename before it
returns, and where another host has claimed since, the folders are listed. What leaves ``delay/``
needs no lock: seen late, it only delays its group.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

from ..durability.locks import lock, patiently
from ..durability.owned import Turnstile
from ..errors import InUse
from ..index import listings
from ..index.events import Event, Kind
from ..index.ready import Ready
from ..index.ready_index import GRACE_S
from ..layout.duty_cycle import DutyCycle
from ..layout.names import claims_name, fair_group, group_hash, is_id, split_entry
from ..layout.of_queues import OfQueues
from ..layout.settings import QueueSettings
from ..layout.transitions import CONFIG, DELAY, QUEUES, State
from ..layout.tree import Tree
from .contention import give_up, patience_s
from .gate import SpoolView
from .group_modes import WHO_BYTES, Mode, holds, kernel, line_of, mode_of
from .group_view import GroupView
from .in_flight import hidden_ids

T = TypeVar("T")
_ANY = 1 << 40
_RETRY_S = 0.0002
# How often a queue is listed although events arrive, if nothing can be claimed.
_DISTRUST = DutyCycle(0.02, least_s=30.0)
_HEAR_AGAIN_S = 60.0


class Groups:
    """The queues from which this process claims by groups. Safe in threads."""

    def __init__(self, spool_view: SpoolView) -> None:
        self._spool_view = spool_view
        self._queues: OfQueues[_Queue] = OfQueues(spool_view.tree)
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
        turn = Turn(self, self._queue(queue, settings), settings, whole and settings.fifo)
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

    def postpone(self, queue: str) -> None:
        """Note that a message could not be claimed as another process acts on it right now."""
        if (one := self._queues.get(queue)) is not None:
            one.busy_until = time.monotonic() + GRACE_S

    def ripens_in(self, queue: str) -> float | None:
        """Seconds until it is worth another try to claim one that was postponed; None for none."""
        until = 0.0 if (one := self._queues.get(queue)) is None else one.busy_until
        return max(0.0, until - time.monotonic()) or None

    def learn(self, queue: str) -> None:
        """List a queue, in a thread that may do so. Raises InUse, OSError."""
        with closing(self._queue(queue, self._spool_view.settings.get(queue)).claiming()) as one:
            next(one)

    def _queue(self, queue: str, settings: QueueSettings) -> _Queue:
        ready, mode, now = self._spool_view.ready, mode_of(settings), time.monotonic()
        with self._lock:
            one = self._queues.get(queue)
            if one is None or (one.ready, one.mode) != (ready, mode) or one.hears_at < now:
                one = self._queues[queue] = _Queue(self._spool_view, queue, self._kernel, mode)
        if not one.polls and not self._hear(one):
            one.poll()
        return one

    def _hear(self, one: _Queue) -> bool:
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


class _Queue:
    """One queue as this process sees it. kernel: whose programs' claims it hears of."""

    def __init__(self, spool_view: SpoolView, queue: str, kernel: str | None, mode: Mode) -> None:
        self.ready = spool_view.ready
        self.mode = mode
        self.queue = queue
        self.is_listed = False
        self.is_new = True
        is_fifo = mode is Mode.FIFO
        self._holds = partial(holds, spool_view, mode, queue)
        self.view = GroupView(group_hash if is_fifo else fair_group, keeps_order=is_fifo)
        self._spool_view = spool_view
        self._tree: Tree = spool_view.tree
        self._path = spool_view.tree.folder(CONFIG, claims_name(queue))
        self._threads = Turnstile()  # one claim of this process at a time
        self._noting = threading.RLock()  # for the view
        self._unsure: set[str] = set()
        # What events told during a listing, to be applied to its result. None: no listing runs.
        self._meanwhile: list[tuple[str, str, bool]] | None = None
        self._polling = DutyCycle(_DISTRUST.share, spool_view.ready.poll_interval)
        self._due = 0.0
        self.busy_until = 0.0  # monotonic seconds
        self.polls = spool_view.ready.polls
        self.hears_at = time.monotonic() + _HEAR_AGAIN_S if self.polls else float("inf")
        # What stands in the lock's file after a claim of those whose claims this hears of.
        self._who = line_of(uuid4().hex if self.polls or kernel is None else kernel)

    def poll(self) -> None:
        """List the folders from now on, as where no events arrive."""
        self.polls, self._who = True, line_of(uuid4().hex)
        self.hears_at = time.monotonic() + _HEAR_AGAIN_S

    # -- claims ----------------------------------------------------------------------------------

    def claiming(self) -> Generator[None, None, None]:
        """Yields once: nobody else claims until it is closed, and all that is there is seen.

        Raises Unlisted, InUse, OSError.
        """
        seconds = patience_s()
        with self._threads.passed(seconds) as is_ours:
            attempt = partial(lock, self._tree, self._path, os.O_CREAT)
            held = patiently(attempt, seconds, _RETRY_S) if is_ours else None
            if held is None:
                give_up(self.queue)
            try:
                self._look(held.fd)
                yield
            finally:
                held.unlock()

    def _look(self, fd: int) -> None:
        is_ours = os.pread(fd, WHO_BYTES, 0) == self._who
        if not self.polls:
            self.ready.refresh()
        if not is_ours or not self.is_listed or (self.polls and self._is_due()):
            listings.check(self.queue)
            self._list()
        if not is_ours:
            # Before the first claim: if we are killed behind it, nobody takes its view for exact.
            os.pwrite(fd, self._who, 0)
        with self._noting:
            self._resolve()

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due

    def doubts(self) -> bool:
        """Whether, since nothing may be claimed, the folders are to be listed again."""
        return self._is_due() and listings.are_allowed()

    def _list(self) -> None:
        """List what is ready and hidden, while nobody claims. Raises OSError."""
        started = time.monotonic()
        try:
            with self._noting:
                self._unsure.clear()
                self._meanwhile, self.is_listed = [], True  # unless events are lost from now on
            self._load()
        except BaseException:
            with self._noting:
                self._meanwhile, self.is_listed = None, False
            raise
        if not self.polls:
            self.ready.refresh()  # since the first listing each change is an event
        duty_cycle = self._polling if self.polls else _DISTRUST
        self._due = time.monotonic() + duty_cycle.pause(time.monotonic() - started)

    def _load(self) -> None:
        """Load the view with what listings find.

        What was hidden can become ready meanwhile, and is seen by one of the two later listings.
        What came during the first of the queue may be behind something that this has missed.
        """
        first = set(self._tree.ready_names(self.queue) or ())
        hidden = away = hidden_ids(self._tree, self.queue)
        if self.mode is not Mode.FIFO:
            hidden = {one for one in hidden if self._holds(one)}
        second = set(self._tree.ready_names(self.queue) or ())
        with self._noting:
            ready, behind = (first & second) - away, second - first
            if self.mode is not Mode.FIFO:
                ready, behind = ready | behind - away, set()
            self.view.load(ready, hidden, behind)
            meanwhile, self._meanwhile = self._meanwhile, None
            for folder, message_id, arrived in meanwhile or ():
                self._note(folder, message_id, arrived)

    # -- what is seen ----------------------------------------------------------------------------

    def look_at(self, message_id: str) -> bool:
        """Note where a message is that could not be claimed; whether it still is ready. OSError."""
        with self._noting:
            self._unsure.add(message_id)
            self._resolve()
            return not self.view.is_hidden(message_id)

    def on_event(self, event: Event | None) -> None:
        """An event of the queue's folder; None if events may be missing."""
        if event is None:
            self.is_listed = False
        elif is_id(event.name):
            with self._noting:
                self._note(QUEUES, event.name, event.kind is Kind.ARRIVED)

    def on_hidden(self, message_id: str, *, arrived: bool) -> None:
        """An event of ``delay/``."""
        opens = 0
        with self._noting, suppress(OSError):  # it is looked at again before the next claim
            self._note(DELAY, message_id, arrived)
            opens = 0 if arrived else self._resolve()
        if opens and self.ready.on_arrival is not None:
            self.ready.on_arrival(self.queue, opens, 0.0)

    def _note(self, folder: str, message_id: str, arrived: bool) -> None:
        if self._meanwhile is not None:
            self._meanwhile.append((folder, message_id, arrived))
        if arrived:
            self._unsure.discard(message_id)
            if folder == QUEUES:
                self.view.add(message_id)
            elif self._holds(message_id):
                self.view.hide(message_id)
            else:
                self.view.discard(message_id)
        elif folder == DELAY or self.view.is_ready(message_id):
            # Perhaps it is on its way to the other folder: its arrival there is an event to come.
            self.view.hide(message_id)
            self._unsure.add(message_id)

    def _resolve(self) -> int:
        """Find out where messages are that left a folder; how many let others be claimed."""
        opens = 0
        while self._unsure:
            message_id = next(iter(self._unsure))
            there = self._where(message_id)
            self._unsure.discard(message_id)
            if there is State.READY:
                self.view.add(message_id)
            elif there is State.DELAY and self._holds(message_id):
                self.view.hide(message_id)
            else:
                opens += self.view.discard(message_id)
        return opens

    def _where(self, message_id: str) -> State | None:
        # What has its name in remove/ may be an older one. A release comes between two looks, and
        # no claim: one sees it.
        for state in (State.READY, State.DELAY, State.READY):
            if self._tree.look(self._tree.path(state, self.queue, message_id)) is not None:
                return state
        return None


class Turn:
    """The claims of one call. The lock is held from the first id to the end, or to a rest."""

    def __init__(self, groups: Groups, queue: _Queue, settings: QueueSettings, whole: bool) -> None:
        self._groups = groups
        self._queue = queue
        self._most = settings.max_in_flight_per_group or (1 if settings.fifo else _ANY)
        self._whole = whole
        self._claiming: Generator[None, None, None] | None = None
        self._tried: str | None = None
        self._last: str | None = None  # of those that were claimed
        self._mine: set[str] = set()
        self._failed: list[str] = []

    def ids(self) -> Iterator[str]:
        """Messages that may be claimed, each when the one before was. Raises Unlisted, OSError."""
        while True:
            if self._claiming is None and not self._enter():
                return
            self._settle()
            self._tried = self._next()
            if self._tried is None:
                self.pause()
                return
            yield self._tried

    def claimed(self, message_id: str) -> None:
        """It was claimed."""
        self._tried, self._last = None, message_id
        self._mine.add(message_id)
        with self._queue._noting:
            self._queue.view.served(message_id)

    def pause(self) -> None:
        """Let others claim."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            with closing(claiming):
                self._end()

    def _end(self) -> None:
        try:
            self._settle()
        finally:
            with self._queue._noting:
                for message_id in self._failed:
                    self._queue.view.again(message_id)
            self._failed.clear()

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
        queue = self._queue
        with queue._noting:
            if self._whole and self._last is not None:
                found = queue.view.next_with(self._last, self._mine)
                if found is not None:
                    return found
            found = queue.view.next(1 if self._whole else self._most, set())
        if found is None and not self._mine and not self._failed and queue.doubts():
            queue._list()
            with queue._noting:
                found = queue.view.next(1 if self._whole else self._most, set())
        return found

    def _settle(self) -> None:
        """Look what has become of a message that could not be claimed."""
        tried, self._tried = self._tried, None
        if tried is not None:
            self._failed.append(tried)  # also if it cannot be looked at: its group has its turn
            if not self._queue.look_at(tried):
                self._failed.pop()
