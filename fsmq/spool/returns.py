"""Returns: the mover's work on ``delay/``. delay → queues, or → the dead letters, in its time."""

from __future__ import annotations

import os
import time

from .context import Context
from .deadlines import Deadline, Deadlines
from .hold import hold
from .names import facts
from .pace import MAX_STEP, RETRY_S, RIPE_AFTER_S, Pace
from .release import bury, is_used_up
from .stuck import Stuck
from .timers import Timers
from .transitions import DELAY, REDELIVER, REMOVE_DELAY

_BUSY_MS = 2


class Returns:
    """Serves ``delay/``. The steps take the time in monotonic seconds and raise OSError.

    delay: seconds that an entry stays at least.
    """

    def __init__(self, context: Context, pace: Pace, stuck: Stuck, delay: float) -> None:
        self.timers = Timers()
        self.moved = 0  # messages, until who asks sets it back
        self._context = context
        self._tree = context.tree
        self._pace = pace
        self._stuck = stuck
        self._deadlines = Deadlines(context.tree, context.stamps, round(delay * 1000))
        self._due = self._full_due = 0.0

    def rescan(self) -> None:
        """Let the next step list the folder."""
        self._due = self._full_due = 0.0

    def timeout(self) -> float:
        """Seconds until the next listing is due, or the next timer."""
        listing = self._due - time.monotonic()
        next_ms = self.timers.next_ms()
        if next_ms is None:
            return listing
        return min(listing, next_ms / 1000 - self._context.clock())

    def lag(self, now: float) -> float:
        """How many seconds the next timer is over; ``now`` is in Unix seconds."""
        due_ms = self.timers.next_ms()
        return 0.0 if due_ms is None else max(0.0, now - due_ms / 1000)

    def scan(self, now: float) -> None:
        """Step: list the folder when it is time.

        It looks at all entries, or in between only at those not known yet.
        """
        if now < self._due:
            return
        full = now >= self._full_due
        names = [n for n in self._tree.names(self._tree.folder(DELAY)) if n[0] != "."]
        if self.timers:
            self.timers.keep(set(names))
        self._schedule_all(names if full else [n for n in names if n not in self.timers])
        cost = time.monotonic() - now
        self._due = now + cost + self._pace.pause(cost)
        if full:
            # Without events a renewal that shortens a timer is seen by full looks only.
            self._full_due = now + cost + 4 * self._pace.pause(cost)

    def _schedule_all(self, names: list[str]) -> None:
        due = []
        for name, due_ms in zip(names, self._deadlines.due_ms(names), strict=True):
            if due_ms is None:
                self.schedule(name)  # reports what is no message
            else:
                due.append((due_ms, name))
        self.timers.start_all(due)

    def schedule(self, name: str) -> None:
        """Take an entry's timer over as it stands now."""
        try:
            timer = self._look(name)
        except OSError:
            # No event will tell again, and it must not hold up the others.
            self.timers.start(name, self._context.now_ms() + round(RETRY_S * 1000))
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

    def run_due(self, now: float) -> None:
        """Step: serve those whose time has come, or a good part of them."""
        first: OSError | None = None
        for _ in range(MAX_STEP):
            now_ms = self._context.now_ms()
            name = self.timers.pop_due(now_ms)
            if name is None:
                break
            try:
                self.moved += self._end_timer(name, now_ms)
            except BlockingIOError:
                self.timers.start(name, now_ms + _BUSY_MS)  # someone acts on it right now
            except OSError as error:
                self.timers.start(name, now_ms + round(RETRY_S * 1000))
                first = first or error
        if first is not None:
            raise first

    def _end_timer(self, name: str, now_ms: int) -> bool:
        """Look at an entry again, since a renewal may have moved it, and act if it is due."""
        try:
            held = hold(self._context, self._tree.folder(DELAY, name))
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
        context, tree = self._context, self._tree
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
        if self._stuck.keep_if_here(DELAY, name, queue):
            self._due = time.monotonic() + RIPE_AFTER_S
        return False
