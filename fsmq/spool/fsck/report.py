"""The findings of a check, and how they are reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ..index.counting import Counts


class Severity(Enum):
    ERROR = "error"  # a rule of the format is broken, or a message cannot be claimed
    WARNING = "warning"  # leftovers, or a risk; every message can be claimed nevertheless


class Kind(Enum):
    """What can be wrong. Users see the values."""

    MISSING_FOLDER = "missing-folder"
    NOT_A_FOLDER = "not-a-folder"
    OTHER_FILESYSTEM = "other-filesystem"
    OPEN_TO_OTHERS = "open-to-others"
    OTHER_OWNER = "other-owner"
    UNREADABLE = "unreadable"
    COMPLETE = "complete-dot-name"
    TORN = "torn-dot-name"
    RESERVATION = "stale-reservation"
    LEFTOVER = "leftover"
    UNKNOWN_QUEUE = "unknown-queue"
    DUPLICATE = "duplicate"
    TWO_NAMES = "two-names"
    LINKED = "linked"
    STRAY = "stray"
    HIDDEN = "hidden"
    UNCLAIMABLE = "unclaimable"
    FAR_TIMER = "far-timer"
    BAD_BODY = "bad-body"
    BAD_SETTINGS = "bad-settings"
    SETTINGS_WITHOUT_QUEUE = "settings-without-queue"
    NO_DEAD_LETTERS = "no-dead-letters"
    BAD_FILTER = "bad-filter"
    COMMITTED_JOB = "committed-job"
    ABANDONED_JOB = "abandoned-job"
    BAD_JOB = "bad-job"
    SUBSCRIPTION_WITHOUT_QUEUE = "subscription-without-queue"
    BAD_BATCH = "bad-batch"
    NO_LINK = "no-link"
    STALE_LINK = "stale-link"
    LOG_HOLE = "log-hole"
    BAD_SEGMENT = "bad-segment"
    BAD_RECORD = "bad-record"
    BAD_CHANNEL = "bad-channel"
    BAD_SCHEDULE = "bad-schedule"
    NO_PLACE = "no-place"
    SCHEDULE_WITHOUT_QUEUE = "schedule-without-queue"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    path: relative to the root. Findings of one kind in one queue can be joined into one, with the
        path of an example, and their number as ``count``.
    reason: what is wrong, and what a person can do if there is no repair.
    repair: what a repair does; None if a person has to decide.
    """

    kind: Kind
    severity: Severity
    path: str
    reason: str
    repair: str | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "severity": self.severity.value,
            "path": printable(self.path),
            "reason": printable(self.reason),
            "repair": self.repair,
            "count": self.count,
        }


class Fault(NamedTuple):
    """A finding and its repair. mend: whether it is repaired now; can raise OSError."""

    finding: Finding
    mend: Callable[[], bool] | None = None
    group: str = ""  # findings of one kind and group are reported as one


class Progress(NamedTuple):
    """The progress of a check."""

    folder: str  # being read now
    done: int  # folders read
    folders: int  # folders known
    entries: int  # names looked at


@dataclass(slots=True)
class Report:
    """The outcome of a check.

    queues: messages by queue, counted during the walk; exact if none moved meanwhile.
    removed: files in ``remove/``, waiting for the reaper.
    staged: dot-names in ``new/``: running puts, and what crashes left.
    findings: what is wrong and was not repaired. repaired: what was repaired.
    unlisted: the number of suspects by kind beyond `MAX_LISTED`; after a repair, check again.
    """

    root: str
    queues: dict[str, Counts] = field(default_factory=dict)
    removed: int = 0
    staged: int = 0
    findings: list[Finding] = field(default_factory=list)
    repaired: list[Finding] = field(default_factory=list)
    unlisted: dict[Kind, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return sum(counts.total for counts in self.queues.values())

    @property
    def clean(self) -> bool:
        """Whether no error is left."""
        return not any(f.severity is Severity.ERROR for f in self.findings)

    def __str__(self) -> str:
        lines = [
            f"{f.severity.value}: {f.kind.value}: {printable(f.path)}: {printable(f.reason)}"
            for f in self.findings
        ]
        return "\n".join(lines) or "clean"

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {
            "root": printable(self.root),
            "clean": self.clean,
            "messages": self.messages,
            "removed": self.removed,
            "staged": self.staged,
            "queues": {printable(name): c._asdict() for name, c in sorted(self.queues.items())},
            "findings": [f.as_dict() for f in self.findings],
            "repaired": [f.as_dict() for f in self.repaired],
            "unlisted": {kind.value: count for kind, count in self.unlisted.items()},
        }


def printable(text: str) -> str:
    """The text of a file name, with unprintable and unencodable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
