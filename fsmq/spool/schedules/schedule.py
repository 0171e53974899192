"""One schedule of a spool, as programs use it; and the methods of a spool about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from ..context import Context, Prepared
from ..errors import (
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    NoSuchSchedule,
    QueueFull,
    as_unavailable,
)
from ..layout.settings import check_number
from ..verbs.put import put
from .putting import Putter
from .schedule_files import DONE, Marker, ScheduleFiles
from .schedule_settings import (
    CatchUp,
    ScheduleSettings,
    ScheduleState,
    check_schedule,
    schedule_of,
)
from .scheduler import Scheduler

MAX_NEXT = 100


class Schedule:
    """One schedule of a spool; every verb is durable when it returns.

    check: called with what stands (None: nothing) before that is changed or put, and nobody changes
        it in between; it may raise.
    """

    def __init__(
        self,
        context: Context,
        complete: Callable[[Prepared[list[str]]], list[str]],
        name: str,
        check: Callable[[ScheduleState | None], object] | None = None,
    ) -> None:
        self.name = name
        self._check = check
        self._context = context
        self._complete = complete
        self._files = ScheduleFiles(context)

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r} of {self._context.tree.root}>"

    def define(
        self,
        cron: str,
        queue: str,
        body: bytes | str = b"",
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        paused: bool = False,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> bool:
        """Create the schedule, or replace it; False if it existed.

        It begins now; if it existed with the same line and zone, it continues where it was. See
        :class:`~fsmq.spool.ScheduleSettings` for the arguments.

        Raises InvalidValue.
        """
        content = schedule_of(
            cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
            content_type, attributes,
        )  # fmt: skip
        return self.replace(content)[0]

    def replace(self, content: ScheduleSettings) -> tuple[bool, ScheduleState]:
        """The same from whole settings; returns whether it is new, and the state afterwards."""
        with self._changing() as was:
            self._replace(was, content)
            return was is None, self._files.state(self.name)

    def state(self) -> ScheduleState:
        """The current state of the schedule. Raises NoSuchSchedule."""
        return self._files.state(self.name)

    def configure(self, **changes: Any) -> ScheduleSettings:
        """Change settings, such as ``configure(paused=True)``; returns all of them.

        Raises InvalidValue, NoSuchSchedule.
        """
        return self.change(lambda _: changes)[0]

    def change(
        self, change: Callable[[ScheduleSettings], Mapping[str, Any]]
    ) -> tuple[ScheduleSettings, ScheduleState]:
        """The same; ``change``, called with the current settings, returns the changes or raises.

        Returns the settings, and the state, afterwards.
        """
        with self._changing() as was:
            if was is None:
                raise NoSuchSchedule(self.name)
            now = self._files.read(self.name)
            content = now.changed(change(now))
            self._replace(was, content)
            return content, self._files.state(self.name)

    def next(self, count: int = 5) -> list[float]:
        """The next moments, in Unix seconds, as if it were not paused. Raises NoSuchSchedule."""
        check_number("count", count, 1, MAX_NEXT)
        with as_unavailable(f"cannot read the schedule {self.name!r}"):
            schedule = self._files.read(self.name)
            begin = max(self._context.clock(), self._files.done_until(self.name, schedule))
        return [float(moment) for moment in islice(schedule.crontab.after(begin), count)]

    def put_now(self) -> str:
        """Put an extra message now; returns its id.

        Raises NoSuchSchedule, NoSuchQueue, QueueFull; InvalidValue if the queue refuses the body.
        """
        with as_unavailable(f"cannot read the schedule {self.name!r}"):
            schedule = self._files.read(self.name)
        if self._check is not None:
            self._check(ScheduleState(self.name, schedule))
        message = schedule.message_now()
        try:
            prepared = put(self._context, schedule.queue, [message])
        except MessageTooLarge as error:
            raise InvalidValue("body", str(error)) from error
        [message_id] = self._complete(prepared)
        return message_id

    def delete(self) -> None:
        """Delete the schedule; messages that it has put stay. Raises NoSuchSchedule."""
        tree, files = self._context.tree, self._files
        with self._changing():
            was_there = tree.unlink(files.path(self.name))
            # Even if it was gone: its deletion may not be synced yet.
            tree.sync_folder(files.folder)
            tree.unlink(files.path(self.name, DONE))
            if not was_there:
                raise NoSuchSchedule(self.name)

    @contextmanager
    def _changing(self) -> Iterator[ScheduleSettings | str | None]:
        """Lock it, finish what it owes, and yield its settings, or a text if unreadable."""
        was: ScheduleSettings | str | None
        doing = f"cannot change the schedule {self.name!r}"
        with as_unavailable(doing), self._files.held(self.name):
            Putter(self._context, self._files).finish(self.name)
            try:
                was = self._files.read(self.name)
            except NoSuchSchedule:
                was = None
            except InvalidValue as error:
                was = str(error)
            if self._check is not None:
                self._check(None if was is None else self._files.state(self.name))
            yield was

    def _replace(self, was: ScheduleSettings | str | None, content: ScheduleSettings) -> None:
        files = self._files
        if was is None:
            # The marker of an earlier schedule that was removed by hand.
            self._context.tree.unlink(files.path(self.name, DONE))
        marker = files.marker(self.name)
        # Never back, even if this clock is behind: what was put since may be acknowledged.
        before = 0 if was is None else files.done_until(self.name, was)
        done = max(int(self._context.clock()), before)
        last = None if marker is None else marker.last
        begun = Marker(content.cron, content.timezone, done, last)
        goes_on = resumes = False
        # If the marker is of another line, a process died between changing the line and the marker.
        if isinstance(was, ScheduleSettings) and marker is not None and marker.fits(was):
            goes_on = marker.fits(content)
            resumes = goes_on and was.paused and not content.paused
            if goes_on and content.paused and not was.paused:
                with suppress(NoSuchQueue, QueueFull, InvalidValue, MessageTooLarge):
                    # A pause skips only moments from now on, not those that are due already.
                    Putter(self._context, files).put_all_due(self.name, was)
        if resumes:
            # Before the file: a mover that sees the schedule resumed would catch up on the pause.
            files.mark(self.name, begun)
        files.write(self.name, content)
        if not goes_on:
            files.mark(self.name, begun)


class SchedulesOfSpool:
    """The methods of a spool about its schedules."""

    context: Context
    complete: Any

    def schedule(self, name: str) -> Schedule:
        """A schedule to work with. This creates nothing.

        Its verbs raise NoSuchSchedule if there is none of this name.
        """
        return Schedule(self.context, self.complete, check_schedule(name))

    def schedules(self) -> list[ScheduleState]:
        """The states of all schedules, sorted by name."""
        files = ScheduleFiles(self.context)
        with as_unavailable("cannot list the schedules"):
            names = files.names()
        found = []
        for name in names:
            try:
                found.append(files.state(name))
            except NoSuchSchedule:
                continue  # deleted meanwhile
        return found

    def run_schedules(self) -> None:
        """Put messages of schedules that are due, for programs that run without a mover.

        Raises the first error of a schedule, after putting for all others.
        """
        errors: list[Exception] = []
        scheduler = Scheduler(
            self.context,
            on_problem=lambda name, reason: errors.append(InvalidValue(name, reason)),
            on_fault=lambda name, error: errors.append(error),
        )
        with as_unavailable("cannot put what schedules say"):
            while scheduler.step() == 0.0:
                pass
            for error in errors:
                raise error
