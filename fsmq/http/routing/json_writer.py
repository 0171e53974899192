"""Writes large JSON part by part, as `json_reader` reads it.

``json.dumps`` writes a whole value in one call, during which no other thread can run: 0.2 s for a
few hundred thousand numbers. Here no single call takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .json_reader import LongText

# This many members are written in one call, if all of them are small.
_RUN = 16
_SMALL = frozenset((str, int, float, bool, type(None)))


def write(
    value: Any, encode: Callable[[Any], str], parts: list[str], signs: tuple[str, str] = (",", ":")
) -> None:
    """Append the parts of a value's JSON to ``parts``.

    encode: writes a small value. signs: the separators of members and after a name, which must be
    those of ``encode``.

    Raises RecursionError if the value is nested too deeply.
    """
    if isinstance(value, LongText):
        parts.append('"')
        parts.extend([encode(part)[1:-1] for part in value.parts])
        parts.append('"')
    elif isinstance(value, dict) and value:
        _members(value, encode, parts, signs)
    elif isinstance(value, list) and value:
        before = "["
        for at in range(0, len(value), _RUN):
            run = value[at : at + _RUN]
            if _SMALL.issuperset(map(type, run)):
                parts.append(before + encode(run)[1:-1])
                before = signs[0]
                continue
            for member in run:
                parts.append(before)
                write(member, encode, parts, signs)
                before = signs[0]
        parts.append("]")
    else:
        parts.append(encode(value))


def _members(
    value: dict[Any, Any], encode: Callable[[Any], str], parts: list[str], signs: tuple[str, str]
) -> None:
    before, items = "{", list(value.items())
    for at in range(0, len(items), _RUN):
        run = dict(items[at : at + _RUN])
        if _SMALL.issuperset(map(type, [*run, *run.values()])):
            parts.append(before + encode(run)[1:-1])
            before = signs[0]
            continue
        for name, member in run.items():
            parts.append(before)
            write(name, encode, parts, signs)
            parts.append(signs[1])
            write(member, encode, parts, signs)
            before = signs[0]
    parts.append("}")
