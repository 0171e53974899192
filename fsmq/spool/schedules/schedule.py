"""One schedule of a spool, as programs use it; and what a spool has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
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
from .schedule_settings import CatchUp, ScheduleSettings, ScheduleState, check_schedule
from .scheduler import Scheduler

MAX_NEXT = 100


class Schedule:
    """One schedule of a spool; every verb is durable when it returns."""

    def __init__(
        self, context: Context, complete: Callable[[Prepared[list[str]]], list[str]], name: str
    ) -> None:
        self.name = name
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
        """Create the schedule, or replace it; False if it was there.

        It begins now; if it was there with the same line and zone, it goes on where it was. See
        :class:`~fsmq.spool.ScheduleSettings` for the arguments.

        Raises InvalidValue.
        """
        content = schedule_of(
            cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
            content_type, attributes,
        )  # fmt: skip
        with self._changing() as was:
            self._replace(was, content)
        return was is None

    def state(self) -> ScheduleState:
        """The schedule as it stands. Raises NoSuchSchedule."""
        return self._files.state(self.name)

    def configure(self, **changes: Any) -> ScheduleSettings:
        """Change some of it, such as ``configure(paused=True)``; all of it then.

        Raises InvalidValue, NoSuchSchedule.
        """
        return self.change(lambda _: changes)

    def change(self, change: Callable[[ScheduleSettings], Mapping[str, Any]]) -> ScheduleSettings:
        """The same, where ``change`` gives the changes, called with what stands, or raises."""
        with self._changing() as was:
            if was is None:
                raise NoSuchSchedule(self.name)
            now = self._files.read(self.name)
            content = changed(now, change(now))
            self._replace(was, content)
        return content

    def next(self, count: int = 5) -> list[float]:
        """The next moments, in Unix seconds, as if it were not paused. Raises NoSuchSchedule."""
        check_number("count", count, 1, MAX_NEXT)
        with as_unavailable(f"cannot read the schedule {self.name!r}"):
            schedule = self._files.read(self.name)
            begin = max(self._context.clock(), self._files.done_until(self.name, schedule))
        return [float(moment) for moment in islice(schedule.crontab.after(begin), count)]

    def put_now(self) -> str:
        """Put its message now, beside those of its moments; the message's id.

        Raises NoSuchSchedule, NoSuchQueue, QueueFull; InvalidValue if the queue takes no such body.
        """
        with as_unavailable(f"cannot read the schedule {self.name!r}"):
            schedule = self._files.read(self.name)
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
            # Also where it was gone: who deleted it may not have synced that yet.
            tree.sync_folder(files.folder)
            tree.unlink(files.path(self.name, DONE))
            if not was_there:
                raise NoSuchSchedule(self.name)

    @contextmanager
    def _changing(self) -> Iterator[ScheduleSettings | str | None]:
        """Lock it, and finish what it owes: what it was; a text if that could not be read."""
        was: ScheduleSettings | str | None
        with as_unavailable(f"cannot change the schedule {self.name!r}"):
            held = self._files.lock_patiently(self.name)
            try:
                Putter(self._context, self._files).finish(self.name)
                try:
                    was = self._files.read(self.name)
                except NoSuchSchedule:
                    was = None
                except InvalidValue as error:
                    was = str(error)
                yield was
            finally:
                held.free()

    def _replace(self, was: ScheduleSettings | str | None, content: ScheduleSettings) -> None:
        files = self._files
        if was is None:
            # The marker of an earlier one, that was removed by hand.
            self._context.tree.unlink(files.path(self.name, DONE))
        marker = files.marker(self.name)
        last = None if marker is None else marker.last
        begun = Marker(content.cron, content.timezone, int(self._context.clock()), last)
        goes_on = resumes = False
        # It does not if the marker is of another line: then who changed that one died at once.
        if isinstance(was, ScheduleSettings) and marker is not None and marker.fits(was):
            goes_on = marker.fits(content)
            resumes = goes_on and was.paused and not content.paused
            if goes_on and content.paused and not was.paused:
                with suppress(NoSuchQueue, QueueFull, InvalidValue, MessageTooLarge):
                    # It skips what passes from now on, and not what it has yet to make up for.
                    Putter(self._context, files).put_all_due(self.name, was)
        if resumes:
            # Before the file: a mover that finds that resumed would make up for the pause.
            files.mark(self.name, begun)
        files.write(self.name, content)
        if not goes_on:
            files.mark(self.name, begun)


class SchedulesOfSpool:
    """The methods of a spool about its schedules."""

    context: Context
    complete: Any

    def schedule(self, name: str) -> Schedule:
        """A schedule to work with. To name it creates nothing.

        Its verbs raise NoSuchSchedule if there is none of this name.
        """
        return Schedule(self.context, self.complete, check_schedule(name))

    def schedules(self) -> list[ScheduleState]:
        """All schedules as they stand, sorted by name."""
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
        """Put what schedules say and is due, for programs that run alone; a mover does so, too.

        Raises the first error of one that cannot be put; the others are put all the same.
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


def schedule_of(
    cron: str,
    queue: str,
    body: bytes | str,
    timezone: str,
    catch_up: CatchUp,
    paused: bool,
    delay: float | None,
    priority: int,
    ttl: float | None,
    content_type: str | None,
    attributes: Mapping[str, str] | None,
) -> ScheduleSettings:
    """A schedule of the arguments of ``define``. Raises InvalidValue."""
    if isinstance(body, str):
        try:
            body = body.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue("body", f"cannot be written in UTF-8: {error.reason}") from None
    return ScheduleSettings(
        cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
        content_type, attributes or {},
    ).checked()  # fmt: skip


def changed(schedule: ScheduleSettings, changes: Mapping[str, Any]) -> ScheduleSettings:
    """A schedule with some of it changed; null restores a default. Raises InvalidValue."""
    members = schedule.as_json()
    if {"body", "body_base64"} & changes.keys():
        members.pop("body", None)
        members.pop("body_base64", None)
    given = dict(changes)
    if isinstance(given.get("body"), bytes):
        content = given.pop("body")
        return replace(ScheduleSettings.parse({**members, **given}), body=content).checked()
    return ScheduleSettings.parse({**members, **given})
