"""Patterns of names, as rights are granted by them: ``*`` for any characters, ``?`` for one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PATTERN = re.compile(
    r"(topics/|schedules/|logs/([A-Za-z0-9._:@*?-]{1,200}/)?)?[A-Za-z0-9._:@*?-]{1,200}"
)


def is_pattern(text: object) -> bool:
    """Whether it is a pattern of names of queues, topics, schedules, logs or channels."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """What matches the whole of each name that fits one of some patterns, and no other name."""
    # Of none: what nothing matches.
    return re.compile("|".join(map(_expression, patterns)) or r"(?!)")


def _expression(pattern: str) -> str:
    # No sign of a pattern stands for a slash: "*" must not reach from queues to topics.
    first, *rest = [re.escape(part).replace(r"\?", "[^/]") for part in re.split(r"\*+", pattern)]
    if not rest:
        return first
    *middle, last = rest
    # Where a part is found first is as good as any later place: without the atomic groups, one
    # name could be tried in more ways than there is time for.
    return first + "".join(f"(?>[^/]*?{part})" for part in middle) + f"[^/]*{last}"
