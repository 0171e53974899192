"""One queue that is claimed by groups, as this process sees it.

A ready message that could not be claimed is set aside until its next try, after a growing time:
another process acts on it, only another user may read it, or the disk fails. It is tried earlier
only if nothing else can be claimed. Except in a fifo queue its group continues with later messages.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from uuid import uuid4

from ..durability.locks import lock, patiently
from ..durability.owned import Turnstile
from ..durability.shared_names import claims_name
from ..index import listings
from ..index.events import Event, Kind
from ..index.quarantine import Quarantine
from ..index.ready_index import GRACE_S
from ..layout.duty_cycle import DutyCycle
from ..layout.names import fair_group, group_hash, is_id
from ..layout.steps import FEW
from ..layout.transitions import CONFIG, DELAY, QUEUES, State
from ..layout.tree import Tree
from .contention import give_up, patience_s
from .gate import SpoolView
from .group_modes import WHO_BYTES, Mode, holds, line_of
from .group_view import GroupView
from .in_flight import hidden_ids

_RETRY_S = 0.0002
# How often a queue is listed although events arrive, if nothing can be claimed.
_DISTRUST = DutyCycle(0.02, least_s=30.0)
_HEAR_AGAIN_S = 60.0


class GroupQueue:
    """One queue as this process sees it. kernel: events report claims by its programs."""

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
        self.noting = threading.RLock()  # for the view
        self._unsure: set[str] = set()
        # The message about to be claimed. None: it was, or events show that its claim is over.
        self._given: str | None = None
        self._aside = Quarantine(sys.maxsize, GRACE_S)
        # Events during a listing, to be applied to its result. None: no listing runs.
        self._meanwhile: list[tuple[str, str, bool]] | None = None
        self._polling = DutyCycle(_DISTRUST.share, spool_view.ready.poll_interval)
        self._due = 0.0
        self.polls = spool_view.ready.polls
        self.hears_at = time.monotonic() + _HEAR_AGAIN_S if self.polls else float("inf")
        # The content of the lock's file if the last claim was one that events report to us.
        self._who = line_of(uuid4().hex if self.polls or kernel is None else kernel)

    def poll(self) -> None:
        """List the folders from now on, as no events arrive."""
        self.polls, self._who = True, line_of(uuid4().hex)
        self.hears_at = time.monotonic() + _HEAR_AGAIN_S

    # -- claims ----------------------------------------------------------------------------------

    def claiming(self) -> Generator[None, None, None]:
        """Yields once: nobody else claims until it is closed, and the view is up to date.

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
            self.list_folders()
        if not is_ours:
            # Before the first claim: if we are killed after it, no other trusts a stale view.
            os.pwrite(fd, self._who, 0)
        with self.noting:
            self._ripen()
            self._resolve()

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due

    def ripens_in(self) -> float | None:
        """Seconds until the next try of a message that was set aside; None if there is none."""
        with self.noting:
            again = self._aside.next_s()
        return None if again is None else max(0.0, again - time.monotonic())

    def _ripen(self) -> None:
        """Let some messages that are due be tried again."""
        if self._aside:
            now = time.monotonic()
            while len(self._unsure) < FEW and (due := self._aside.pop_due(now)) is not None:
                self._unsure.add(due)

    def look_harder(self) -> None:
        """Since nothing can be claimed, list again if that is due, and try one before its time.

        Otherwise a disk that fails would look like an empty queue. Raises OSError.
        """
        if self._is_due() and listings.are_allowed():
            self.list_folders()
        with self.noting:
            if (first := self._aside.pop_first()) is not None:
                self._unsure.add(first)
                self._resolve()

    def list_folders(self) -> None:
        """List ready and hidden messages, while nobody claims. Raises OSError."""
        started = time.monotonic()
        try:
            with self.noting:
                self._unsure.clear()
                self._meanwhile, self.is_listed = [], True  # unless events are lost from now on
            self._load()
        except BaseException:
            with self.noting:
                self._meanwhile, self.is_listed = None, False
            raise
        if not self.polls:
            self.ready.refresh()  # each change since the first listing is an event
        duty_cycle = self._polling if self.polls else _DISTRUST
        self._due = time.monotonic() + duty_cycle.pause(time.monotonic() - started)

    def _load(self) -> None:
        """Load the view from listings.

        A hidden message can become ready meanwhile: one of the two later listings shows it. A
        message that arrived during the first listing may be behind one that this missed.
        """
        first = set(self._tree.ready_names(self.queue) or ())
        hidden = away = hidden_ids(self._tree, self.queue)
        if self.mode is not Mode.FIFO:
            hidden = {one for one in hidden if self._holds(one)}
        second = set(self._tree.ready_names(self.queue) or ())
        with self.noting:
            self._aside.keep(second)
            ready, behind = second - away, set[str]()
            if self.mode is Mode.FIFO:
                behind = second - first
                ready -= behind
            else:
                ready.difference_update(self._aside)
            self.view.load(ready, hidden, behind)
            meanwhile, self._meanwhile = self._meanwhile, None
            for folder, message_id, arrived in meanwhile or ():
                self._note(folder, message_id, arrived)

    # -- what is seen ----------------------------------------------------------------------------

    def give(self, message_id: str) -> None:
        """Note that a message is about to be claimed."""
        self._given = message_id

    def claimed(self, message_id: str) -> None:
        """Note that a message was claimed, unless its claim is over.

        Since the rename another thread may have taken in the event of its end.
        """
        with self.noting:
            if self._given == message_id:
                self.view.hide(message_id)
            self._given = None
            self.view.served(message_id)

    def set_aside(self, message_id: str) -> bool:
        """Note that a message could not be claimed; whether it is still ready. Raises OSError."""
        with self.noting:
            self._aside.add(message_id, time.monotonic())
            self._unsure.add(message_id)
            self._resolve()
            return message_id in self._aside

    def doubt(self, message_id: str) -> None:
        """Look where a message is before the next claim."""
        with self.noting:
            self._unsure.add(message_id)

    def on_event(self, event: Event | None) -> None:
        """An event of the queue's folder; None if events may be missing."""
        if event is None:
            self.is_listed = False
        elif is_id(event.name):
            with self.noting:
                self._note(QUEUES, event.name, event.kind is Kind.ARRIVED)

    def on_hidden(self, message_id: str, *, arrived: bool) -> None:
        """An event of ``delay/``."""
        opens = 0
        with self.noting, suppress(OSError):  # it is looked up again before the next claim
            self._note(DELAY, message_id, arrived)
            opens = 0 if arrived else self._resolve()
        if opens and self.ready.on_arrival is not None:
            self.ready.on_arrival(self.queue, opens, 0.0)

    def _note(self, folder: str, message_id: str, arrived: bool) -> None:
        if self._meanwhile is not None:
            self._meanwhile.append((folder, message_id, arrived))
        is_held = arrived and folder == DELAY and self._holds(message_id)
        if message_id == self._given and not is_held and (arrived or folder == DELAY):
            self._given = None
        if arrived:
            self._unsure.discard(message_id)
            self._aside.forget(message_id)
            if folder == QUEUES:
                self.view.add(message_id)
            elif is_held:
                self.view.hide(message_id)
            else:
                self.view.discard(message_id)
        elif folder == DELAY or self.view.is_ready(message_id) or message_id in self._aside:
            # It may be on its way to the other folder, whose event is yet to come.
            self._aside.forget(message_id)
            self.view.hide(message_id)
            self._unsure.add(message_id)

    def _resolve(self) -> int:
        """Look up messages whose place is unsure; how many now let others be claimed."""
        opens = 0
        while self._unsure:
            message_id = next(iter(self._unsure))
            there = self._where(message_id)
            self._unsure.discard(message_id)
            if there is State.READY:
                self._see_ready(message_id)
                continue
            self._aside.forget(message_id)
            if there is State.DELAY and self._holds(message_id):
                self.view.hide(message_id)
            else:
                opens += self.view.discard(message_id)
        return opens

    def _see_ready(self, message_id: str) -> None:
        if message_id not in self._aside:
            self.view.offer(message_id)
        elif self.mode is not Mode.FIFO:
            self.view.discard(message_id)  # otherwise its group would have to wait for its next try

    def _where(self, message_id: str) -> State | None:
        # Not in remove/, which may have an older message of the name. Only a release can come
        # between the looks, no claim: so one of them finds it.
        for state in (State.READY, State.DELAY, State.READY):
            if self._tree.look(self._tree.path(state, self.queue, message_id)) is not None:
                return state
        return None
