"""Delivery: what the mover does, in any process that does it.

new → queues for every message, new → delay for those whose timer lies ahead, and delay → queues
(or the dead letters) when a timer ends. Events wake it, the folders are the truth: a scan at any
time puts right whatever events missed. Any number of deliveries on one tree do no harm, since each
step is a rename that one of them wins.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from .context import Context
from .deadlines import Deadline, Deadlines
from .events import Event, Events, Kind
from .expiry import Sweeper
from .hold import hold
from .names import entry, facts, split_entry
from .recovery import recover
from .release import bury, is_used_up
from .stuck import Stuck
from .timers import Timers
from .transitions import DEFER, DELAY, DELIVER, NEW, QUEUES, REDELIVER, REMOVE_DELAY, REMOVE_NEW

# A file with a shell user's name that a listing finds may still be written to; an event tells when
# it is finished, a listing waits until it has been left alone for so long.
RIPE_AFTER_S = 1.0
_RECOVER_EVERY_S = 30.0
# Where no events arrive, listings may take this share of the time.
_POLL_SHARE = 0.05
# Where they do, the folders are listed all the same, rarely.
_DISTRUST_S = 60.0
_DISTRUST_SHARE = 0.005
# What failed is tried again after so long; the fault may be that entry's own.
_RETRY_S = 5.0
_BUSY_MS = 2
_MAX_STEP = 2000
_MAX_WAIT_S = 1.0


class Delivery:
    """Delivers on one tree; call :meth:`step` when ``fileno()`` is readable or ``timeout()`` over.

    delay: seconds that an entry stays in ``delay/`` at least.
    new, timers: whether ``new/`` and ``delay/`` are served; one mover may serve one of them.
    sweep_interval: seconds between two looks for expired messages in the queues.
    on_problem: told once about each entry that cannot be delivered (name, reason).

    Methods raise OSError when the disk refuses; a later step goes on where this one stopped.
    """

    def __init__(
        self,
        context: Context,
        *,
        delay: float = 0.0,
        new: bool = True,
        timers: bool = True,
        events: bool = True,
        poll_interval: float = 0.25,
        sweep_interval: float = 30.0,
        on_problem: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        self.context = context
        self.timers = Timers()
        self._tree = context.tree
        self._deadlines = Deadlines(context.tree, context.stamps, round(delay * 1000))
        self._serves_new = new
        self._serves_timers = timers
        self._poll_interval = poll_interval
        self._sweeper = Sweeper(context, sweep_interval)
        self._stuck = Stuck(on_problem)
        self._backlog: deque[str] = deque()  # entries of new/ that are known and not served yet
        self._new_due = self._delay_due = self._full_due = self._recover_due = 0.0
        self._started = False
        self._moved = 0  # in this step
        of_new = (self._recover, self._scan_new, self._serve_backlog) if new else ()
        timed = (self._scan_delay, self._run_due) if timers else ()
        self._works: tuple[Callable[[float], object], ...] = (*of_new, *timed, self._sweeper.step)
        self._retries: dict[str, float] = {}  # entries of new/; monotonic seconds, the least first
        self._events = Events(context.tree) if events else None
        if self._events is not None:
            self._watch(self._events)

    def fileno(self) -> int | None:
        """Readable when something happened; None where there are no events."""
        return None if self._events is None else self._events.fileno()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def timeout(self) -> float:
        """Seconds until the next step is due, at most one: the clock may be set meanwhile."""
        if self._backlog or self._sweeper.is_behind:
            return 0.0
        due = [_MAX_WAIT_S]
        if self._serves_new:
            due.append(self._new_due - time.monotonic())
        if self._events is not None and not self._events.is_complete:
            due.append(self._poll_interval)
        if self._serves_timers:
            due.append(self._delay_due - time.monotonic())
        next_ms = self.timers.next_ms()
        if next_ms is not None:
            due.append(next_ms / 1000 - self.context.clock())
        return max(0.0, min(due))

    @property
    def is_behind(self) -> bool:
        """Whether messages wait that the last step had no time for."""
        return bool(self._backlog)

    def measure_lag(self) -> None:
        """Note how late the waiting work is, in seconds, for each kind that is served."""
        metrics, now = self.context.metrics, self.context.clock()
        if self._serves_new:
            first = self._backlog[0] if self._backlog else ""
            created_ms = facts(first.rpartition(":")[2]).created_ms
            lag = 0.0 if created_ms is None else max(0.0, now - created_ms / 1000)
            metrics.set(("lag", "new"), round(lag, 3))
        if self._serves_timers:
            due_ms = self.timers.next_ms()
            lag = 0.0 if due_ms is None else max(0.0, now - due_ms / 1000)
            metrics.set(("lag", "timers"), round(lag, 3))

    def rescan(self) -> None:
        """Let the next step list the folders."""
        self._new_due = self._delay_due = self._full_due = self._recover_due = 0.0

    def step(self) -> int:
        """Deliver what can be delivered now, or a good part of it; returns how many moved.

        A fault of one kind of work, or of one entry, does not keep the others from being done: the
        first OSError is raised at the end.
        """
        for event in self._events.read() if self._events is not None else ():
            self._apply(event)
        first: OSError | None = None
        now = time.monotonic()
        for work in self._works:
            try:
                work(now)
            except OSError as error:
                first = first or error
        moved, self._moved = self._moved, 0
        if first is not None:
            raise first
        return moved

    # -- waking ----------------------------------------------------------------------------------

    def _watch(self, events: Events) -> None:
        tree = self._tree
        if self._serves_new:
            events.watch(tree.folder(NEW), lasting=True)
        if self._serves_timers:
            events.watch(tree.folder(DELAY), departures=True, changes=True, lasting=True)
        events.watch(tree.folder(QUEUES), files=False, lasting=True)

    def _apply(self, event: Event) -> None:
        tree = self._tree
        if event.kind is Kind.LOST:
            self.rescan()
        elif event.folder == tree.folder(NEW):
            if event.name[0] != ".":
                self._backlog.append(event.name)
        elif event.folder == tree.folder(DELAY):
            if event.kind is Kind.LEFT:
                self.timers.cancel(event.name)
            elif event.name[0] != ".":
                self._schedule(event.name)
        elif event.name in self._stuck:
            self._retry(event.name)

    def _retry(self, queue: str) -> None:
        """The queue appeared: its messages that had no place to go are served now."""
        for folder, name in self._stuck.take(queue):
            if folder == NEW:
                self._backlog.append(name)
            else:
                self._schedule(name)

    def _recover(self, now: float) -> None:
        if now < self._recover_due:
            return
        self._recover_due = now + _RETRY_S  # if it fails
        done = recover(self._tree, self.context.clock(), at_start=not self._started)
        self._recover_due = now + _RECOVER_EVERY_S
        self._started = True
        self.context.metrics.count(("promote",), done.promoted)
        self.context.metrics.count(("torn",), done.removed)
        if done.promoted:
            self._new_due = 0.0

    # -- new -------------------------------------------------------------------------------------

    def _scan_new(self, now: float) -> None:
        if now < self._new_due:
            return
        unripe = False
        names = [n for n in self._tree.names(self._tree.folder(NEW)) if n[0] != "."]
        for name in sorted(names, key=lambda n: n.rpartition(":")[2]):
            if name in self._retries:
                continue  # in its time
            if self._is_ripe(name):
                self._backlog.append(name)
            else:
                unripe = True
        cost = time.monotonic() - now
        self._new_due = now + cost + (RIPE_AFTER_S if unripe else self._pause(cost))

    def _is_ripe(self, name: str) -> bool:
        parts = split_entry(name)
        if parts is None or facts(parts[1]).created_ms is not None:
            return True
        try:
            found = self._tree.stat(self._tree.folder(NEW, name))
        except OSError:
            return True  # whoever serves it meets the error, and tries it again
        return found is None or abs(self.context.clock() - found.st_ctime) >= RIPE_AFTER_S

    def _serve_backlog(self, now: float) -> None:
        for name in [*takewhile(lambda n: self._retries[n] <= now, self._retries)]:
            del self._retries[name]
            self._backlog.append(name)
        first: OSError | None = None
        for _ in range(min(len(self._backlog), _MAX_STEP)):
            name = self._backlog.popleft()
            try:
                self._moved += self._deliver(name)
            except OSError as error:
                self._retries.setdefault(name, now + _RETRY_S)
                first = first or error
        if first is not None:
            raise first

    def _deliver(self, name: str) -> bool:
        """new → queues, or new → delay, or new → remove if it has expired."""
        parts = split_entry(name)
        path = self._tree.folder(NEW, name)
        found = self._tree.stat(path)
        if found is None:
            return False
        if parts is None or not stat.S_ISREG(found.st_mode):
            self._stuck.tell(name, "is no message: neither a file nor named <queue>:<id>")
            return False
        queue, message_id = parts
        known = facts(message_id)
        if known.expires_s is not None and known.expires_s <= self.context.clock():
            if self._tree.move(REMOVE_NEW, queue, message_id):
                self.context.metrics.count(("expire", queue))
                self.context.journal.note("expired", queue, message_id, size=found.st_size)
            return False
        if self._runs_ahead(path, message_id, found.st_mtime_ns):
            return self._defer(queue, message_id)
        try:
            if self._tree.move(DELIVER, queue, message_id):
                self.context.metrics.count(("deliver", queue))
                if known.created_ms is not None:
                    age_s = self.context.clock() - known.created_ms / 1000
                    self.context.metrics.observe(("delivery",), max(0.0, age_s))
                self.context.journal.note("delivered", queue, message_id, size=found.st_size)
                self.context.ready.add(queue, message_id)
                return True
        except FileExistsError:
            self._stuck.tell(name, "has the id of a message that is ready in its queue")
            return False
        self._keep_if_stuck(NEW, name, queue)
        return False

    def _runs_ahead(self, path: str, message_id: str, mtime_ns: int) -> bool:
        """Whether a delay was asked for that is not over."""
        stamp = self.context.stamps.decode(message_id, mtime_ns)
        if stamp is None:
            return False
        if stamp.deliveries:
            # Nothing in new/ has been delivered: a foreign mtime that verifies by chance. Its
            # count must not bring the message to the dead letters.
            now_ms = self.context.now_ms()
            self._tree.stamp(path, self.context.stamps.encode(message_id, now_ms, 0))
            return False
        return stamp.deadline_ms > self.context.now_ms()

    def _defer(self, queue: str, message_id: str) -> bool:
        try:
            if not self._tree.move(DEFER, queue, message_id):
                return False
        except FileExistsError:
            self._stuck.tell(entry(queue, message_id), "has the id of a message that is in delay")
            return False
        self.context.metrics.count(("defer", queue))
        self.context.journal.note("deferred", queue, message_id)
        if self._serves_timers:
            self._schedule(entry(queue, message_id))
        return True

    # -- delay -----------------------------------------------------------------------------------

    def _scan_delay(self, now: float) -> None:
        """List ``delay/``; look at all entries, or in between only at those not known yet."""
        if now < self._delay_due:
            return
        full = now >= self._full_due
        names = [n for n in self._tree.names(self._tree.folder(DELAY)) if n[0] != "."]
        if self.timers:
            self.timers.keep(set(names))
        self._schedule_all(names if full else [n for n in names if n not in self.timers])
        cost = time.monotonic() - now
        self._delay_due = now + cost + self._pause(cost)
        if full:
            # Without events a renewal that shortens a timer is seen by full looks only.
            self._full_due = now + cost + 4 * self._pause(cost)

    def _pause(self, cost: float) -> float:
        """Seconds until the next listing, after one that took ``cost`` seconds."""
        if self._events is None:
            return max(self._poll_interval, cost / _POLL_SHARE)
        return max(_DISTRUST_S, cost / _DISTRUST_SHARE)

    def _schedule_all(self, names: list[str]) -> None:
        due = []
        for name, due_ms in zip(names, self._deadlines.due_ms(names), strict=True):
            if due_ms is None:
                self._schedule(name)  # reports what is no message
            else:
                due.append((due_ms, name))
        self.timers.start_all(due)

    def _schedule(self, name: str) -> None:
        try:
            timer = self._look(name)
        except OSError:
            # No event will tell again, and it must not hold up the others.
            self.timers.start(name, self.context.now_ms() + round(_RETRY_S * 1000))
            return
        if timer is None:
            self.timers.cancel(name)
        else:
            self.timers.start(name, timer.due_ms)

    def _look(self, name: str) -> Deadline | None:
        """The timer of an entry; None for what is not there or is no message."""
        found = self._tree.stat(self._tree.folder(DELAY, name))
        return None if found is None else self._timer(name, found)

    def _timer(self, name: str, found: os.stat_result) -> Deadline | None:
        timer = self._deadlines.read(name, found)
        if timer is None:
            self._stuck.tell(name, "is no message: neither a file nor named <queue>:<id>")
        return timer

    def _run_due(self, now: float) -> None:
        first: OSError | None = None
        for _ in range(_MAX_STEP):
            now_ms = self.context.now_ms()
            name = self.timers.pop_due(now_ms)
            if name is None:
                break
            try:
                self._moved += self._end_timer(name, now_ms)
            except BlockingIOError:
                self.timers.start(name, now_ms + _BUSY_MS)  # someone acts on it right now
            except OSError as error:
                self.timers.start(name, now_ms + round(_RETRY_S * 1000))
                first = first or error
        if first is not None:
            raise first

    def _end_timer(self, name: str, now_ms: int) -> bool:
        """Look at an entry again, since a renewal may have moved it, and act if it is due."""
        try:
            held = hold(self.context, self._tree.folder(DELAY, name))
        except PermissionError:
            # Another user's file: it can be renamed, and no one can claim or renew it.
            timer = self._look(name)
            return timer is not None and timer.due_ms <= now_ms and self._redeliver(name, timer)
        if held is None:
            self._look(name)  # reports what is no message
            return False
        try:
            timer = self._timer(name, held.found)
            if timer is None:
                return False
            if timer.due_ms > now_ms:
                self.timers.start(name, timer.due_ms)
                return False
            return self._redeliver(name, timer)
        finally:
            os.close(held.fd)

    def _redeliver(self, name: str, timer: Deadline) -> bool:
        """delay → queues, or → the dead letters, or → remove if it has expired."""
        context, tree = self.context, self._tree
        queue, _, message_id = name.rpartition(":")
        settings = context.settings.get(queue)
        try:
            if context.is_expired(facts(message_id), settings):
                expired = tree.move(REMOVE_DELAY, queue, message_id)
                if expired:
                    context.metrics.count(("expire", queue))
                    context.journal.note("expired", queue, message_id, deliveries=timer.deliveries)
                return expired
            dead_letters = settings.dead_letter_queue
            if dead_letters is not None and is_used_up(settings, timer.deliveries):
                try:
                    return bury(context, queue, message_id, dead_letters)
                except FileExistsError:
                    self._stuck.tell(name, f"has the id of a dead letter in {dead_letters!r}")
            if tree.move(REDELIVER, queue, message_id):
                again = timer.deliveries > 0
                context.metrics.count(("redeliver" if again else "deliver", queue))
                context.journal.note(
                    "redelivered" if again else "delivered",
                    queue,
                    message_id,
                    deliveries=timer.deliveries,
                )
                context.ready.add(queue, message_id)
                return True
        except FileExistsError:
            self._stuck.tell(name, "has the id of a message that is ready")
            return False
        self._keep_if_stuck(DELAY, name, queue)
        return False

    # -- problems --------------------------------------------------------------------------------

    def _keep_if_stuck(self, folder: str, name: str, queue: str) -> None:
        """A rename found nothing: the message went elsewhere, or its queue is not there."""
        tree = self._tree
        if tree.stat(tree.folder(folder, name)) is None:
            return
        if tree.has_queue(queue):
            # Both are there: the queue was made just now.
            self._new_due = self._delay_due = time.monotonic() + RIPE_AFTER_S
            return
        self._stuck.keep(queue, folder, name)
