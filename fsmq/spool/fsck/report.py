"""The findings of a check, and how they are reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ..index.counting import Counts


class Severity(Enum):
    ERROR = "error"  # a rule of the format is broken, or a message cannot be claimed
    WARNING = "warning"  # rubbish, or a risk; every message can be claimed all the same


class Kind(Enum):
    """What can be wrong; the value is what users see."""

    MISSING_FOLDER = "missing-folder"
    NOT_A_FOLDER = "not-a-folder"
    OTHER_FILESYSTEM = "other-filesystem"
    OPEN_TO_OTHERS = "open-to-others"
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

    path: relative to the root. Findings of one kind that concern one queue may be one finding with
        the path of an example; ``count`` is how many they are.
    reason: what is wrong, and what a person can do if nothing repairs it.
    repair: what a repair does; None where a person has to decide.
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
    """A finding, and what repairs it: True when it is repaired; may raise OSError."""

    finding: Finding
    mend: Callable[[], bool] | None = None
    group: str = ""  # findings of one kind and one group are reported as one


class Progress(NamedTuple):
    """How far a check has come."""

    folder: str  # being read now
    done: int  # folders read
    folders: int  # folders known
    entries: int  # names looked at


@dataclass(slots=True)
class Report:
    """The outcome of a check.

    queues: messages by queue, counted while walking; exact if nothing moved during that.
    removed: files in ``remove/``, waiting for the reaper.
    staged: dot-names in ``new/``: puts under way, and what crashes left.
    findings: what is wrong and was not repaired. repaired: what was repaired.
    unlisted: suspects by kind beyond the limit of a list; run the check again after a repair.
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
    """Text of a file name with everything escaped that a terminal or an encoder cannot take."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
