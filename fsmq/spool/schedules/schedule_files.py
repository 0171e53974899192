"""The files of ``schedules/``: what each schedule is, and up to which moment it is done.

<name>.json             the schedule; any editor may replace it
<name>.done             the marker: the newest moment that is done
.<name>:<moment>        a message that is being written for a moment
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple

from ..context import Context
from ..durability.settings_lock import SCHEDULE, settings_held
from ..errors import FsmqError, InvalidValue, NoSuchSchedule, as_unavailable
from ..layout import documents
from ..layout.names import UUID7, split_staged
from ..layout.transitions import SCHEDULES
from .schedule_settings import (
    MAX_NAME_BYTES,
    MAX_SCHEDULE_BYTES,
    ScheduleSettings,
    ScheduleState,
    check_schedule,
)

OPEN, DONE = ".json", ".done"
_MAX_MARKER_BYTES = 64 * 1024
_draft = re.compile(rf"\.(?P<name>.{{1,{MAX_NAME_BYTES}}}):[0-9]{{1,11}}")
_scratch = re.compile(rf"\.{UUID7}\.tmp")
# A marker further ahead of the clock was written with a wrong clock.
_AHEAD_S = 60.0


class Marker(NamedTuple):
    """Up to which moment a schedule is done.

    cron, timezone: the line to which it belongs: a changed line begins anew.
    last: the moment of the newest message; None if there was none.
    owed: the messages of the last step, by moment: their dot-names in ``new/``.
    """

    cron: str
    timezone: str
    done: int
    last: int | None = None
    owed: Mapping[int, str] = MappingProxyType({})

    def fits(self, schedule: ScheduleSettings | str) -> bool:
        """Whether it belongs to the schedule's current line; False if that is unreadable."""
        return not isinstance(schedule, str) and (self.cron, self.timezone) == (
            schedule.cron,
            schedule.timezone,
        )

    def encode(self) -> bytes:
        found: dict[str, Any] = {"cron": self.cron, "timezone": self.timezone, "done": self.done}
        found["last"] = self.last
        owed = {str(moment): staged for moment, staged in self.owed.items()}
        return documents.encode({**found, "owed": owed})

    @classmethod
    def parse(cls, found: dict[str, Any]) -> Marker:
        """Raises ValueError."""
        cron, zone, owed = found.get("cron"), found.get("timezone"), found.get("owed", {})
        if not isinstance(cron, str) or not isinstance(zone, str) or not isinstance(owed, dict):
            raise ValueError("cron, timezone or owed is missing")
        if not all(isinstance(s, str) and split_staged(s) for s in owed.values()):
            raise ValueError("owed has a value that is no dot-name of a message")
        owed = {int(moment): staged for moment, staged in owed.items()}
        last = documents.whole(found, "last") if found.get("last") is not None else None
        return cls(cron, zone, documents.whole(found, "done"), last, owed)


class ScheduleFiles:
    """Reads and replaces them. Methods raise OSError unless they say otherwise."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tree = context.tree
        self.folder = context.tree.folder(SCHEDULES)

    def path(self, name: str, suffix: str = OPEN) -> str:
        """A file of a schedule."""
        return self._tree.folder(SCHEDULES, name + suffix)

    def draft(self, name: str, moment: int) -> str:
        """The path of the message that is being written for a moment."""
        return self._tree.folder(SCHEDULES, f".{name}:{moment}")

    def names(self) -> list[str]:
        """The names of all schedules, sorted."""
        return self.names_and_orphans()[0]

    def names_and_orphans(self) -> tuple[list[str], list[str]]:
        """The names of all schedules, sorted; and those of markers without a schedule."""
        found = self._tree.names(self.folder)
        names = {n.removesuffix(OPEN) for n in found if n.endswith(OPEN)}
        markers = {n.removesuffix(DONE) for n in found if n.endswith(DONE)}
        return sorted(filter(is_schedule, names)), sorted(filter(is_schedule, markers - names))

    def held(self, name: str, patience_s: float | None = None) -> AbstractContextManager[None]:
        """Lock a schedule, to read and move its marker. Raises InUse, too.

        Not without a lock: of two movers at once, one would remove what the other has written.
        """
        return settings_held(self._tree, SCHEDULE + name, patience_s, needs_lock=True)

    def read(self, name: str) -> ScheduleSettings:
        """The settings in a schedule's file. Raises NoSuchSchedule, InvalidValue, too."""
        try:
            return ScheduleSettings.parse(
                documents.read(self._tree, self.path(name), MAX_SCHEDULE_BYTES)
            )
        except FileNotFoundError:
            raise NoSuchSchedule(name) from None
        except InvalidValue:
            raise
        except ValueError as error:
            raise InvalidValue("schedule", f"{name!r} cannot be parsed: {error}") from None

    def write(self, name: str, content: ScheduleSettings) -> None:
        """Replace a schedule's file, durably."""
        text = _encoded(content.as_json())
        if len(text) > MAX_SCHEDULE_BYTES:  # a control character takes six bytes
            body = {"body_base64": base64.b64encode(content.body).decode()}
            text = _encoded({**content.as_json(), "body": None, **body})
        self._tree.replace(self.path(name), text)

    def begins(self, name: str) -> int:
        """When the file was written: without a marker, earlier moments are ignored."""
        found = self._tree.look(self.path(name))
        if found is None:
            raise NoSuchSchedule(name)
        return int(found.st_mtime)

    def marker(self, name: str) -> Marker | None:
        """A schedule's marker; None if there is none, or it cannot be parsed."""
        self._tree.refresh(self.folder)
        try:
            found = documents.read(self._tree, self.path(name, DONE), _MAX_MARKER_BYTES)
            return Marker.parse(found)
        except (FileNotFoundError, ValueError):
            return None

    def mark(self, name: str, marker: Marker) -> None:
        """Move the marker, durably."""
        self._tree.replace(self.path(name, DONE), marker.encode())

    def drafts(self, name: str) -> list[str]:
        """Paths of messages that are being written, or that a crash has left."""
        return [
            f"{self.folder}/{found}"
            for found in self._tree.names(self.folder)
            if (match := _draft.fullmatch(found)) is not None and match["name"] == name
        ]

    def done_until(self, name: str, schedule: ScheduleSettings | str) -> int:
        """The moment after which a schedule continues. Raises NoSuchSchedule, too.

        A marker of another line says what that line has done: the ids of both are the same.
        """
        marker = self.marker(name)
        if marker is None:
            return self.begins(name)
        return marker.done if marker.fits(schedule) else max(marker.done, self.begins(name))

    def state(self, name: str) -> ScheduleState:
        """The state of a schedule. Raises NoSuchSchedule, Unavailable."""
        with as_unavailable(f"cannot read the schedule {name!r}"):
            now = self._context.clock()
            try:
                schedule = self.read(name)
                marker = self.marker(name)
                done = self.done_until(name, schedule)
            except (InvalidValue, PermissionError) as error:  # another user's
                return ScheduleState(name, None, problem=str(error))
            last = None if marker is None else marker.last
            problem = self._problem(schedule, done, now)
            upcoming = None if schedule.paused else schedule.crontab.next(max(done, now))
        return ScheduleState(name, schedule, last, upcoming, problem)

    def _problem(self, schedule: ScheduleSettings, done: int, now: float) -> str | None:
        if not self._context.tree.has_queue(schedule.queue):
            return f"there is no queue named {schedule.queue!r}: create it"
        if done > now + _AHEAD_S:
            return (
                f"it is done up to {int(done - now)} s ahead of this clock: the clock of a mover"
                " was, or is, wrong; delete and create it to begin now"
            )
        return None


def is_schedule(name: str) -> bool:
    """Whether a schedule can have this name."""
    try:
        return check_schedule(name) == name
    except FsmqError:
        return False


def is_draft(name: str) -> bool:
    """Whether a name of the folder is a message that is being written."""
    return _draft.fullmatch(name) is not None


def is_scratch(name: str) -> bool:
    """Whether a name of the folder is the draft of a file."""
    return _scratch.fullmatch(name) is not None


def _encoded(schedule: Mapping[str, Any]) -> bytes:
    return (json.dumps(schedule, indent=2, ensure_ascii=False) + "\n").encode()
