"""The rules for ``schedules/``."""

from __future__ import annotations

import os
import stat

from ..errors import InvalidValue, NoSuchSchedule
from ..layout.transitions import SCHEDULES
from ..schedules.schedule_files import (
    DONE,
    OPEN,
    ScheduleFiles,
    is_draft,
    is_schedule,
    is_scratch,
)
from .layout import left_draft
from .messages import Inspection, hidden, stray
from .report import Fault, Finding, Kind, Severity


class ScheduleRules:
    """The rules for schedules and their markers."""

    def __init__(self, inspection: Inspection) -> None:
        tree = inspection.tree
        self._inspection = inspection
        self._tree = tree
        self._files = ScheduleFiles(inspection.context())

    def entry(self, name: str, found: os.stat_result) -> Fault | None:
        """An entry of ``schedules/``."""
        path = self._tree.folder(SCHEDULES, name)
        if name[0] == ".":
            return self._hidden(path, name, found)
        schedule = name.removesuffix(OPEN)
        is_named = schedule != name and is_schedule(schedule)
        marker = name.removesuffix(DONE)
        is_marker = marker != name and is_schedule(marker)
        if not stat.S_ISREG(found.st_mode) or not (is_named or is_marker):
            return stray(path, "is not a file <schedule>.json: rename it or move it away")
        return self._schedule(path, schedule) if is_named else self._marker(path, marker)

    def _hidden(self, path: str, name: str, found: os.stat_result) -> Fault | None:
        if is_scratch(name):
            return left_draft(self._inspection, path, found)
        if is_draft(name):
            return None  # the next message of the schedule finishes or removes it
        return hidden(self._inspection, path, name, found)

    def _schedule(self, path: str, name: str) -> Fault | None:
        try:
            schedule = self._files.read(name)
        except NoSuchSchedule:
            return None  # deleted just now
        except InvalidValue as error:
            reason = f"is not a schedule, so nothing is put: {error}"
            return Fault(Finding(Kind.BAD_SCHEDULE, Severity.ERROR, path, reason))
        if self._tree.has_queue(schedule.queue):
            return None
        reason = f"puts into queue {schedule.queue!r}, which does not exist"
        return Fault(Finding(Kind.SCHEDULE_WITHOUT_QUEUE, Severity.WARNING, path, reason))

    def _marker(self, path: str, name: str) -> Fault | None:
        if self._files.marker(name) is not None or self._tree.stat(path) is None:
            return None
        reason = "cannot be parsed: its schedule counts from when its own file was written"
        return Fault(Finding(Kind.BAD_SCHEDULE, Severity.ERROR, path, reason))
