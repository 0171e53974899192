"""What the probe finds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    OK = "ok"
    WARNING = "warning"  # it works, with the limits in the text
    FATAL = "fatal"  # messages could be lost, or nothing could be stored: do not start


class Finding(NamedTuple):
    """One thing that was tried. ``text``: what was found and, if not ok, what to do.

    passing: the disk failed in the trial, or is full, which may pass.
    """

    name: str
    level: Level
    text: str
    passing: bool = False


def fatal(findings: list[Finding]) -> str | None:
    """The text for a program that must not start; None if nothing prevents it."""
    texts = [f"{f.name}: {f.text}" for f in findings if f.level is Level.FATAL]
    return "; ".join(texts) or None


class Stop(Exception):
    """A finding, raised to end a trial early."""

    def __init__(self, level: Level, text: str, *, passing: bool = False) -> None:
        super().__init__(text)
        self.level = level
        self.passing = passing
