"""The delivery of new messages: new → queues, or new → delay if they were put with a delay."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from ..consumers.batches import finish_abandoned
from ..context import Context
from ..durability.dedup_records import KEPT_MS, remove_old_records
from ..durability.dotnames import RECOVER_EVERY_S, recover
from ..durability.left_files import EVERY_S as LEFT_EVERY_S
from ..durability.left_files import remove_left_files
from ..durability.send_lines import Recovery
from ..durability.unfinished import Recovered
from ..index.quarantine import Quarantine
from ..layout.names import entry, facts, is_made, split_entry
from ..layout.transitions import DEFER, DELIVER, EXPIRE_NEW, FILE_MODE, NEW
from ..layout.unclaimed import is_delayed
from ..records.journal import Details
from ..records.peers import forget_zones
from ..staging.abandoned import Abandoned
from ..verbs.latch import move_back
from ..verbs.queues.creation import finish_for_dead
from .task import MAX_AGAIN, MAX_STEP, RIPE_AFTER_S, Listings, Task
from .undeliverable import Undeliverable


class FromNew:
    """Delivers the messages of ``new/``, by its tasks.

    on_defer: called with each entry that went to ``delay/``. on_fault: called with what failed and
    waits for its next try (name, error). rest: seconds that files of shell users stay.
    """

    def __init__(
        self,
        context: Context,
        listings: Listings,
        undeliverable: Undeliverable,
        on_defer: Callable[[str], None],
        on_fault: Callable[[str, Exception], None],
        rest: float = 0.0,
    ) -> None:
        self.backlog: deque[str] = deque()  # known entries that are not delivered yet
        self.moved = 0  # messages, until the caller resets it
        self._context = context
        self._tree = context.tree
        self._listings = listings
        self._undeliverable = undeliverable
        self._on_defer = on_defer
        self._on_fault = on_fault
        self._quarantined = Quarantine()
        self._rest = rest
        self._resting: deque[tuple[float, str]] = deque()  # until when, in that order
        self._there: set[str] = set()  # queues that this step has seen to exist
        self._delivered: dict[str, list[tuple[str, Details]]] = {}  # in this step, by the queue
        self._ages: list[float] = []  # of them, in seconds
        self._has_started = False
        self._abandoned = Abandoned(context, on_fault)
        self._has_more_jobs = False
        self.listing = Task("list new/", self._list)
        self._recovering_jobs = Task("recover staging/", self._recover_jobs)
        self._delivering = Task("deliver", self._deliver_due)
        self.tasks = (
            Task("recover new/", self._recover),
            Task("finish batches", self._finish),
            Task("forget deduplication ids", self._forget_ids),
            Task("remove small files", self._remove_left),
            self._recovering_jobs,
            self.listing,
            self._delivering,
        )

    def add(self, name: str) -> None:
        """Deliver a new entry in the next step.

        A shell user's file rests first: `mv` of several files looks at each again after its rename,
        and fails if it has moved on by then.
        """
        if self._rest and self._is_of_a_shell(name):
            self._resting.append((time.monotonic() + self._rest, name))
        else:
            self.backlog.append(name)

    def _is_of_a_shell(self, name: str) -> bool:
        """Whether it was not made by a put: those are private, unlike most files of shells."""
        if is_made(name.rpartition(":")[2]) or split_entry(name) is None:
            return False
        try:
            found = self._tree.stat(self._tree.folder(NEW, name))
        except OSError:
            return False  # its delivery gets the error
        return found is not None and stat.S_IMODE(found.st_mode) != FILE_MODE

    def rescan(self) -> None:
        """Let the next step list everything."""
        for task in self.tasks:
            task.due = 0.0

    def close(self) -> None:
        """Leave unfinished jobs to the next mover."""
        self._abandoned.close()

    def timeout(self) -> float:
        """Seconds until the next listing or retry is due."""
        again = self._quarantined.next_s()
        due = min(self.listing.due, self._recovering_jobs.due)
        if self._resting:
            due = min(due, self._resting[0][0])
        return (due if again is None else min(due, again)) - time.monotonic()

    @property
    def is_behind(self) -> bool:
        """Whether work is left that the last step had no time for."""
        has_more_jobs = self._has_more_jobs and self._recovering_jobs.fault is None
        return (bool(self.backlog) and self._delivering.fault is None) or has_more_jobs

    def lag(self, now: float) -> float:
        """The age in seconds of the next message to deliver; ``now`` is in Unix seconds."""
        first = self.backlog[0] if self.backlog else ""
        created_ms = facts(first.rpartition(":")[2]).created_ms
        return 0.0 if created_ms is None else max(0.0, now - created_ms / 1000)

    def _recover(self, now: float) -> float:
        """Recover complete files of writers that died."""
        at_start = not self._has_started
        report = self._undeliverable.report
        done = recover(
            self._tree,
            self._context.clock(),
            at_start=at_start,
            on_fault=report,
            recover_sends=self._recover_sends,
        )
        self._has_started = True
        self._context.metrics.count(("promote",), done.promoted)
        self._context.metrics.count(("torn",), done.removed)
        if done.promoted:
            self.listing.due = 0.0
        return RECOVER_EVERY_S

    def _recover_sends(self, queue: str) -> Recovered | None:
        context = self._context
        if not self._tree.has_queue(queue) or not context.settings.get(queue).fifo:
            return None
        report = self._undeliverable.report
        return Recovery(self._tree, context.stamps, queue, context.clock(), report).try_it()

    def _forget_ids(self, now: float) -> float:
        """Remove expired deduplication ids of fifo queues."""
        remove_old_records(self._tree)
        return KEPT_MS / 1000

    def _remove_left(self, now: float) -> float:
        """Remove small files that dead programs have left."""
        remove_left_files(self._tree, partial(finish_for_dead, self._context))
        forget_zones(self._tree)
        return LEFT_EVERY_S

    def _finish(self, now: float) -> float:
        """Remove messages that dead consumers have committed."""
        finish_abandoned(self._context, self._undeliverable.report)
        return RECOVER_EVERY_S

    def _recover_jobs(self, now: float) -> float:
        """Forward or remove jobs in ``staging/`` whose drivers died."""
        self._has_more_jobs = False  # if it fails
        done = self._abandoned.step(self._context.clock())
        self._has_more_jobs = done.is_behind
        if done.forwarded:
            self.moved += done.forwarded
            self.listing.due = 0.0
        return 0.0 if done.is_behind else min(RECOVER_EVERY_S, done.again_s)

    def _list(self, now: float) -> float:
        """List the folder, except entries that failed or have no queue: those wait for a retry."""
        unripe = False
        names = [n for n in self._tree.names(self._tree.folder(NEW)) if n[0] != "."]
        for name in sorted(
            self._undeliverable.without(NEW, names), key=lambda n: n.rpartition(":")[2]
        ):
            if name in self._quarantined:
                continue
            if self._is_ripe(name):
                self.backlog.append(name)
            else:
                unripe = True
        return RIPE_AFTER_S if unripe else self._listings.pause(time.monotonic() - now)

    def _is_ripe(self, name: str) -> bool:
        if is_made(name.rpartition(":")[2]) or split_entry(name) is None:
            return True
        try:
            found = self._tree.stat(self._tree.folder(NEW, name))
        except OSError:
            return True  # its delivery gets the error, and is tried again
        return found is None or abs(self._context.clock() - found.st_ctime) >= RIPE_AFTER_S

    def _deliver_due(self, now: float) -> float:
        """Deliver known entries, up to a limit, and retry some that failed."""
        while self._resting and self._resting[0][0] <= now:
            self.backlog.append(self._resting.popleft()[1])
        self._there.clear()
        try:
            for _ in range(min(len(self.backlog), MAX_STEP)):
                self._try(self.backlog.popleft(), now)
            for _ in range(MAX_AGAIN):
                name = self._quarantined.pop_due(now)
                if name is None:
                    break
                self._try(name, now)
        finally:
            self._record()
        if (news := self._quarantined.news(now)) is not None:
            self._on_fault(*news)
        return 0.0

    def _try(self, name: str, now: float) -> None:
        try:
            if not self._undeliverable.waits(NEW, name):
                self.moved += self._deliver(name)
        except FileExistsError:
            self._undeliverable.report(name, "waits for another message of its id")
            self._quarantined.add(name, now)
        except Exception as error:  # a fault of one must not stop the others
            self._quarantined.add(name, now, error)
        else:
            self._quarantined.forget(name)

    def _deliver(self, name: str) -> bool:
        """new → queues, or new → delay, or new → remove if it has expired.

        Raises FileExistsError if its queue has another message of its id, OSError.
        """
        parts = split_entry(name)
        path = self._tree.folder(NEW, name)
        found = self._tree.stat(path)
        if found is None:
            return False
        if parts is None or not stat.S_ISREG(found.st_mode):
            self._undeliverable.report(name, "is not a message: expected a file named <queue>:<id>")
            return False
        queue, message_id = parts
        known, now = facts(message_id), self._context.clock()
        if known.expires_s is not None and known.expires_s <= now:
            self._context.make(EXPIRE_NEW, queue, message_id, size=found.st_size)
            return False
        stamps, now_ms = self._context.stamps, int(now * 1000)
        if is_delayed(self._tree, stamps, path, message_id, found.st_mtime_ns, now_ms):
            return self._defer(queue, message_id)
        if self._move(path, found, queue, message_id):
            self._delivered.setdefault(queue, []).append((message_id, {"size": found.st_size}))
            if known.created_ms is not None:
                self._ages.append(max(0.0, now - known.created_ms / 1000))
            return True
        if self._undeliverable.keep_if_here(NEW, name, queue):
            self.listing.due = time.monotonic() + RIPE_AFTER_S
        return False

    def _move(self, path: str, found: os.stat_result, queue: str, message_id: str) -> bool:
        """Rename it to its queue; False if the message or its queue is missing. Raises OSError.

        If the id was used again since the look, the other message goes back: it may have a delay.

        The queue is looked up once in a step, and deliveries are recorded at its end: doing so for
        each message would cost as much as the rename.
        """
        tree = self._tree
        if queue not in self._there:
            if not tree.has_queue(queue):
                return False
            self._there.add(queue)
        target = tree.path(DELIVER.target, queue, message_id)
        if not tree.rename(path, target):
            return False
        here = tree.stat(target)
        if here is None or here.st_ino == found.st_ino:
            return True
        move_back(self._context, path, target, here)
        self.listing.due = 0.0
        return False

    def _record(self) -> None:
        """Record what this step has delivered."""
        delivered, self._delivered = self._delivered, {}
        for queue, messages in delivered.items():
            self._context.ready.add(queue, *[message_id for message_id, _ in messages])
            self._context.record_all(DELIVER.step, queue, messages)
        ages, self._ages = self._ages, []
        for age in ages:
            self._context.metrics.observe(("delivery",), age)

    def _defer(self, queue: str, message_id: str) -> bool:
        if not self._context.make(DEFER, queue, message_id):
            return False
        self._on_defer(entry(queue, message_id))
        return True
