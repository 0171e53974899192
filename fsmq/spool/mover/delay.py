"""The end of a claim's or a delay's timer: delay → queues, or → the dead-letter queue."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from typing import NamedTuple

from ..context import Context
from ..index.quarantine import Quarantine
from ..index.timers import Timers
from ..layout.messages.dead_letter import USED_UP
from ..layout.names import split_entry
from ..layout.settings import QueueSettings
from ..layout.stamps import Stamps
from ..layout.transitions import BURIED, DEFERRED, DELAY, EXPIRE_DELAY, REDELIVER, RIPEN
from ..layout.tree import Tree
from ..verbs.backoff import back_off, end_in_place
from ..verbs.expire import expire
from ..verbs.latch import Latched, latch, pin
from ..verbs.release import bury, is_used_up
from .task import MAX_AGAIN, MAX_STEP, RIPE_AFTER_S, Listings, Task
from .undeliverable import Undeliverable

_BUSY_MS = 2
_PART = 10_000
# A cold folder mostly costs the kernel time, to read inodes: it can use every core, but more
# threads than these would only contend for the GIL.
_LOOKERS = min(4, os.cpu_count() or 1)


class FromDelay:
    """Redelivers messages of ``delay/`` whose deadline is over, by its tasks.

    delay: seconds that an entry stays at least. first_look: seconds after which a new entry is
    read: most claims have ended by then, and need no look. on_fault: called with what failed and
    waits for its next try (name, error).
    """

    def __init__(
        self,
        context: Context,
        listings: Listings,
        undeliverable: Undeliverable,
        delay: float,
        first_look: float,
        on_fault: Callable[[str, Exception], None],
    ) -> None:
        self.timers = Timers()
        self.moved = 0  # messages, until the caller resets it
        self._context = context
        self._tree = context.tree
        self._listings = listings
        self._undeliverable = undeliverable
        self._deadlines = Deadlines(context.tree, context.stamps, round(delay * 1000))
        self._first_look = first_look
        self._on_fault = on_fault
        # When each new entry is read first (monotonic seconds), in that order.
        self._unread: dict[str, float] = {}
        self._quarantined = Quarantine()  # by the clock, as timers are
        self._full_due = 0.0
        self.listing = Task("list delay/", self._list)
        self.tasks = (self.listing, Task("redeliver", self._run_due))

    def rescan(self) -> None:
        """Let the next step look at everything."""
        self._full_due = 0.0
        for task in self.tasks:
            task.due = 0.0

    def timeout(self) -> float:
        """Seconds until the next listing, timer, or retry is due."""
        next_ms, again = self.timers.next_ms(), self._quarantined.next_s()
        look_s = next(iter(self._unread.values()), math.inf)
        times = [min(self.listing.due, look_s) - time.monotonic()]
        if next_ms is not None:
            times.append(next_ms / 1000 - self._context.clock())
        if again is not None:
            times.append(again - self._context.clock())
        return min(times)

    def lag(self, now: float) -> float:
        """How many seconds overdue the next timer is; ``now`` is in Unix seconds."""
        due_ms = self.timers.next_ms()
        return 0.0 if due_ms is None else max(0.0, now - due_ms / 1000)

    def _list(self, now: float) -> float:
        """List the folder, except entries that failed or have no queue: those wait for a retry.

        Every few times it looks at all entries, otherwise only at unknown ones.
        """
        full = now >= self._full_due
        names = [n for n in self._tree.names(self._tree.folder(DELAY)) if n[0] != "."]
        if self.timers or self._quarantined:
            known = set(names)
            self.timers.keep(known)
            self._quarantined.keep(known)
        names = self._undeliverable.without(DELAY, names)
        if self._quarantined:
            names = [n for n in names if n not in self._quarantined]
        self._schedule_all(names if full else [n for n in names if n not in self.timers])
        pause = self._listings.pause(time.monotonic() - now)
        if full:
            # Without events only full looks notice a renewal that shortens a timer.
            self._full_due = time.monotonic() + 4 * pause
        return pause

    def _schedule_all(self, names: list[str]) -> None:
        due = []
        for name, due_ms in zip(names, self._deadlines.due_ms(names), strict=True):
            if due_ms is None:
                self.schedule(name)  # reports what is no message
            else:
                due.append((due_ms, name))
        self._unread.clear()
        self.timers.start_all(due)

    def arrived(self, name: str) -> None:
        """Note a new entry: it is read a moment later, if it is still there."""
        if self._first_look and name not in self.timers and name not in self._quarantined:
            self._unread.setdefault(name, time.monotonic() + self._first_look)
        else:
            self.changed(name)

    def changed(self, name: str) -> None:
        """Read an entry's timer again, unless that is due anyway."""
        if name not in self._unread:
            self.schedule(name)

    def schedule(self, name: str) -> None:
        """Read the timer of an entry that is new or has changed."""
        if name in self._quarantined:
            return  # our own try may have changed it; the next one reads it again
        self._unread.pop(name, None)
        try:
            timer = self._look(name)
        except OSError as error:
            self._quarantined.add(name, self._context.clock(), error)  # no event will come again
            return
        if timer is None:
            self.timers.cancel(name)
        else:
            self.timers.start(name, timer.due_ms)

    def cancel(self, name: str) -> None:
        """Forget the timer of an entry that has left."""
        self.timers.cancel(name)
        self._unread.pop(name, None)
        self._quarantined.forget(name)

    def _look(self, name: str) -> Deadline | None:
        """The timer of an entry; None if it is gone or not a message."""
        found = self._tree.stat(self._tree.folder(DELAY, name))
        return None if found is None else self._timer(name, found)

    def _timer(self, name: str, found: os.stat_result) -> Deadline | None:
        timer = self._deadlines.read(name, found)
        if timer is None:
            self._undeliverable.report(name, "is not a message: expected a file named <queue>:<id>")
        return timer

    def _run_due(self, now: float) -> float:
        """End timers that are due, up to a limit, and retry some that failed."""
        unread = takewhile(lambda item: item[1] <= now, islice(self._unread.items(), MAX_STEP))
        for unread_name, _ in list(unread):
            self.schedule(unread_name)
        for _ in range(MAX_STEP):
            now_ms = self._context.now_ms()
            name = self.timers.pop_due(now_ms)
            if name is None:
                break
            self._try(name, now_ms)
        for _ in range(MAX_AGAIN):
            name = self._quarantined.pop_due(self._context.clock())
            if name is None:
                break
            self._try(name, self._context.now_ms())
        if (news := self._quarantined.news(self._context.clock())) is not None:
            self._on_fault(*news)
        return 0.0

    def _try(self, name: str, now_ms: int) -> None:
        try:
            if not self._undeliverable.waits(DELAY, name):
                self.moved += self._end_timer(name, now_ms)
        except BlockingIOError:
            self.timers.start(name, now_ms + _BUSY_MS)  # another process is acting on it
        except FileExistsError:
            # A claim of the ready message takes this one first; or the ready one leaves.
            self._undeliverable.report(name, "waits for another message of its id")
            self._quarantined.add(name, now_ms / 1000)
        except Exception as error:  # an error of one must not stop the others
            self._quarantined.add(name, now_ms / 1000, error)
        else:
            self._quarantined.forget(name)

    def _end_timer(self, name: str, now_ms: int) -> bool:
        """Read an entry again, since a renewal may have postponed it, and act if it is due."""
        path = self._tree.folder(DELAY, name)
        try:
            latched = latch(self._context, path)
        except PermissionError:
            # Another user's file: it can be renamed, but nobody can claim or renew it.
            latched = pin(self._context, path)
        if latched is None:
            self._look(name)  # reports what is no message
            return False
        try:
            timer = self._timer(name, latched.found)
            if timer is None:
                return False
            if timer.due_ms > now_ms:
                self.timers.start(name, timer.due_ms)
                return False
            return self._redeliver(name, timer, latched)
        finally:
            latched.close()

    def _redeliver(self, name: str, timer: Deadline, latched: Latched) -> bool:
        """delay → queues, or → the dead-letter queue, or → remove if it has expired.

        Raises FileExistsError if another message of its id is ready; its own claim has ended.
        """
        context = self._context
        queue, _, message_id = name.rpartition(":")
        settings = context.settings.get(queue)
        retention, counted = settings.retention, timer.deliveries
        if expire(context, EXPIRE_DELAY, queue, message_id, retention, latched, deliveries=counted):
            return True
        dead_letters = settings.dead_letter_queue
        if dead_letters is not None and is_used_up(settings, timer.deliveries):
            details = bury(context, latched, queue, message_id, dead_letters, USED_UP)
            if details is not None:
                context.record(BURIED, queue, message_id, **details)
            return details is not None
        if self._back_off(name, timer, settings, latched):
            return False
        if self._bring_out(queue, message_id, timer, latched):
            return True
        if self._undeliverable.keep_if_here(DELAY, name, queue):
            self.listing.due = time.monotonic() + RIPE_AFTER_S
        return False

    def _bring_out(self, queue: str, message_id: str, timer: Deadline, latched: Latched) -> bool:
        """delay → queues. If its id is ready, ends the claim in place and raises
        FileExistsError."""
        how = REDELIVER if timer.deliveries else RIPEN
        try:
            if not latched.move(self._context, how, queue, message_id):
                return False
        except FileExistsError:
            if timer.is_claim:
                end_in_place(self._context, latched, queue, message_id)
            raise
        self._context.record(how.step, queue, message_id, deliveries=timer.deliveries)
        return True

    def _back_off(
        self, name: str, timer: Deadline, settings: QueueSettings, latched: Latched
    ) -> bool:
        """Let a message wait whose claim has ended; False if it has to be redelivered now."""
        if settings.retry_backoff is None or not timer.is_claim:
            return False
        queue, _, message_id = name.rpartition(":")
        try:
            until_ms = back_off(self._context, settings, latched, queue, message_id)
        except PermissionError:
            return False  # another user's file, which can be renamed but not stamped
        if until_ms is None:
            return False
        self.timers.start(name, until_ms)
        self._context.record(DEFERRED, queue, message_id, deliveries=timer.deliveries)
        return True


class Deadline(NamedTuple):
    """When an entry is due (Unix milliseconds), its count, and whether a claim ends then."""

    due_ms: int
    deliveries: int
    is_claim: bool = False


class Deadlines:
    """Reads deadlines. ``delay_ms`` is how long an entry stays in the folder at least."""

    def __init__(self, tree: Tree, stamps: Stamps, delay_ms: int) -> None:
        self._tree = tree
        self._stamps = stamps
        self._delay_ms = delay_ms

    def read(self, name: str, found: os.stat_result) -> Deadline | None:
        """The deadline in an entry's stat; None if the entry is not a message."""
        parts = split_entry(name)
        if parts is None or not stat.S_ISREG(found.st_mode):
            return None
        stamp = self._stamps.decode(parts[1], found.st_mtime_ns)
        floor_ms = found.st_ctime_ns // 1_000_000 + self._delay_ms if self._delay_ms else 0
        if stamp is None:
            return Deadline(floor_ms, 0)
        deliveries = stamp.deliveries or 0
        is_claim = deliveries > 0 and not stamp.backs_off
        return Deadline(max(stamp.deadline_ms, floor_ms), deliveries, is_claim)

    def due_ms(self, names: list[str]) -> list[int | None]:
        """When each entry is due, in their order; None if it is gone or not a message."""
        if not names:
            return []
        folder = os.open(
            self._tree.folder(DELAY),
            os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
            dir_fd=self._tree.fd,
        )
        try:
            if len(names) <= _PART:
                return self._due_ms(folder, names)
            parts = [names[i : i + _PART] for i in range(0, len(names), _PART)]
            with ThreadPoolExecutor(_LOOKERS, "fsmq-look") as threads:
                found = threads.map(lambda part: self._due_ms(folder, part), parts)
                return [due_ms for part in found for due_ms in part]
        finally:
            os.close(folder)

    def _due_ms(self, folder: int, names: list[str]) -> list[int | None]:
        dues: list[int | None] = []
        for name in names:
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:
                dues.append(None)
                continue
            deadline = self.read(name, found)
            dues.append(None if deadline is None else deadline.due_ms)
        return dues
