"""Patterns of names, as rights are granted by them: ``*`` for any characters, ``?`` for one."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PATTERN = re.compile(
    r"(topics/|schedules/|logs/([A-Za-z0-9._:@*?-]{1,200}/)?)?[A-Za-z0-9._:@*?-]{1,200}"
)


def is_pattern(text: object) -> bool:
    """Whether it is a valid pattern of names of queues, topics, schedules, logs or channels."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """A regular expression that fully matches exactly the names that fit one of some patterns."""
    # Without patterns: nothing matches.
    return re.compile("|".join(map(_expression, patterns)) or r"(?!)")


def _expression(pattern: str) -> str:
    # No wildcard matches a slash: "*" must not reach from queues to topics.
    first, *rest = [re.escape(part).replace(r"\?", "[^/]") for part in re.split(r"\*+", pattern)]
    if not rest:
        return first
    *middle, last = rest
    # The first match of a part is as good as any later one: without the atomic groups, backtracking
    # could take exponential time.
    return first + "".join(f"(?>[^/]*?{part})" for part in middle) + f"[^/]*{last}"
