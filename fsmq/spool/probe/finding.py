"""What the probe finds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    OK = "ok"
    WARNING = "warning"  # it works, with the limits that the text tells
    FATAL = "fatal"  # messages could be lost, or nothing could be stored: do not start


class Finding(NamedTuple):
    """One thing that was tried. ``text``: what was found and, if not ok, what to do.

    passing: the disk refused the trial, which may go well later.
    """

    name: str
    level: Level
    text: str
    passing: bool = False


def fatal(findings: list[Finding]) -> str | None:
    """The text for a program that must not start; None if nothing stands against it."""
    texts = [f"{f.name}: {f.text}" for f in findings if f.level is Level.FATAL]
    return "; ".join(texts) or None


class Stop(Exception):
    """What was found; raised where a check ends early."""

    def __init__(self, level: Level, text: str) -> None:
        super().__init__(text)
        self.level = level
