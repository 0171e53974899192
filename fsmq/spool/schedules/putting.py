"""Puts what is due: one message for each moment, however many movers try, or die.

The id of a message follows from its moment, but that alone would not do: the message can be claimed
and removed before the next mover comes. So the marker notes which moments are done, and the
marker's rename decides:

1. Lock the schedule. Finish what the marker owes (step 4), as its writer may have died.
2. Write each message that is due as ``schedules/.<name>:<moment>``, where no program shows it, and
   sync it. After a crash before step 3 the next mover removes it.
3. Replace the marker. **From here on the moments are done**, and their messages are owed.
4. Rename each message into ``new/``, under its dot-name, and sync both folders: now it is only in
   ``new/``, durably. Then publish it as a put does. A crash in between leaves it in one of three
   places, from each of which it continues, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from ..context import Context
from ..durability.drafts import Draft
from ..durability.unfinished import found_as
from ..errors import InUse, NoSuchQueue
from ..layout.names import siblings, split_staged
from ..layout.transitions import ACCEPTED, NEW, State
from ..records.journal import Details
from ..verbs.draft import draft
from .schedule_files import Marker, ScheduleFiles
from .schedule_settings import ScheduleSettings

# A moment that is late by no more than this was not missed: a mover was restarted, or is busy.
GRACE_S = 60
_MOST = 100


class Due(NamedTuple):
    """The moments that get a message now, and up to which moment the schedule is done then."""

    moments: list[int]
    until: int


class Done(NamedTuple):
    """The result of a look at a schedule. next: Unix seconds of the next moment; None if none."""

    put: int
    next: float | None


def due(schedule: ScheduleSettings, done: int, now: float) -> Due:
    """What is due for a schedule that is done up to a moment."""
    crontab, until = schedule.crontab, int(now // 1)
    if schedule.catch_up == "all" and not schedule.paused:
        later = takewhile(lambda moment: moment <= until, crontab.after(done))
        moments = [moment for moment, _ in zip(later, range(_MOST), strict=False)]
        return Due(moments, moments[-1] if moments else done)
    last = crontab.last(done, until)
    if last is None or schedule.paused:
        return Due([], done if last is None else last)
    fresh = crontab.after(max(done, until - GRACE_S - 1))
    moments = list(takewhile(lambda moment: moment <= until, fresh))
    if not moments and schedule.catch_up == "last":
        moments = [last]
    return Due(moments, last)


class Putter:
    """Puts the messages of schedules."""

    def __init__(self, context: Context, files: ScheduleFiles) -> None:
        self._context = context
        self._tree = context.tree
        self._files = files

    def put_due(self, name: str) -> Done | None:
        """Put what is due for one schedule; None while another process works on it.

        Raises:
            NoSuchSchedule, NoSuchQueue, InvalidValue, MessageTooLarge, QueueFull, OSError
        """
        try:
            with self._files.held(name, 0.0):
                schedule = self._files.read(name)
                self.finish(name)
                found = self._put_next(name, schedule)
        except InUse:
            return None
        upcoming = schedule.crontab.next(found.until)
        return Done(len(found.moments), None if upcoming is None else float(upcoming))

    def put_all_due(self, name: str, schedule: ScheduleSettings) -> None:
        """Put all that is due for one schedule; the caller has the lock, and nothing is owed.

        Raises as `put_due`.
        """
        while self._put_next(name, schedule).moments:
            self.finish(name)

    def _put_next(self, name: str, schedule: ScheduleSettings) -> Due:
        done = self._files.done_until(name, schedule)
        found = due(schedule, done, self._context.clock())
        return self._put(name, schedule, found) if found.until > done else found

    def finish(self, name: str) -> None:
        """Publish what the marker owes; the caller has the lock. Raises OSError."""
        marker = self._files.marker(name)
        left = set(self._files.drafts(name))
        owed = {
            moment: staged
            for moment, staged in (marker.owed.items() if marker is not None else ())
            if self._files.draft(name, moment) in left
            or self._tree.stat(self._tree.folder(NEW, staged)) is not None
        }
        if owed:
            self._tree.sync_folder(self._files.folder)  # the writer of the marker may not have
            self._publish(name, owed)
        for path in left:
            self._tree.unlink(path)  # those that were owed have been renamed

    def _put(self, name: str, schedule: ScheduleSettings, found: Due) -> Due:
        """Put what there is room for, the oldest first; what remains is due at the next look.

        All or none would put nothing ever again once more is due than the queue takes.
        """
        context, queue = self._context, schedule.queue
        settings = context.settings_of(queue)
        made = {
            moment: draft(context, schedule.message(name, moment), settings)
            for moment in found.moments
        }
        room = context.depths.admit(queue, settings.max_depth, len(made), least=min(1, len(made)))
        if room < len(made):
            found = Due(found.moments[:room], found.moments[room - 1])
        made = {m: made[m] for m in found.moments if not self._is_there(queue, made[m])}
        for moment, one in made.items():
            self._write(self._files.draft(name, moment), one, moment)
        if made:
            self._tree.sync_folder(self._files.folder)
        owed = {moment: one.dot_name(queue) for moment, one in made.items()}
        before = self._files.marker(name)
        last = max(found.moments, default=None if before is None else before.last)
        self._files.mark(name, Marker(schedule.cron, schedule.timezone, found.until, last, owed))
        self._publish(name, owed)
        accepted: list[tuple[str, Details]] = [
            (one.message_id, {"size": one.size}) for one in made.values()
        ]
        context.record_all(ACCEPTED, queue, accepted)
        context.metrics.count(("schedule", name), len(made))
        return found

    def _is_there(self, queue: str, one: Draft) -> bool:
        """Whether the message is in the spool, as after the restore of an older marker."""
        return found_as(self._tree, queue, siblings(one.message_id)) is not None

    def _write(self, path: str, one: Draft, moment: int) -> None:
        fd = self._tree.create(path)
        try:
            one.write(fd, one.timer_ns(self._context.stamps, moment * 1000))
            os.fsync(fd)
        finally:
            os.close(fd)

    def _publish(self, name: str, owed: Mapping[int, str]) -> None:
        tree = self._tree
        entries = {moment: split_staged(staged) for moment, staged in owed.items()}
        parts = [
            (self._files.draft(name, moment), owed[moment], *e[0].rpartition(":")[::2])
            for moment, e in entries.items()
            if e is not None
        ]
        # Not even under a dot-name if the queue is fifo now: a sender would show it.
        self._into_new(
            (draft, tree.folder(NEW, staged))
            for draft, staged, queue, _ in parts
            if self._takes(queue)
        )
        for folder in (tree.folder(NEW), self._files.folder):
            tree.sync_folder(folder)
        for _, staged, queue, message_id in parts:
            path = tree.folder(NEW, staged)
            # As for a put: a deletion of the queue from now on finds it in new/, and removes it.
            if self._takes(queue):
                self._into_new([(path, tree.path(State.NEW, queue, message_id))])
            else:
                tree.unlink(path)

    def _takes(self, queue: str) -> bool:
        """Whether a queue exists, and was not recreated as a fifo queue. Raises OSError."""
        try:
            return not self._context.settings_of(queue).fifo
        except NoSuchQueue:
            return False

    def _into_new(self, renames: Iterable[tuple[str, str]]) -> None:
        for source, target in renames:
            try:
                self._tree.rename(source, target)  # or it has moved on already
            except FileExistsError:
                self._tree.unlink(source)
