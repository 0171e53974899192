"""Spans of time and sizes as people type them, ``5m`` or ``64 KiB``, and as people read them."""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]*)", re.IGNORECASE)
# To read a text takes longer the longer it is, and a form may have one of a megabyte.
_LONGEST = 200
# The first two spellings of each are those that people read: of one, and of several.
_SPANS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (604_800, ("week", "weeks", "w")),
    (86_400, ("day", "days", "d")),
    (3600, ("hour", "hours", "h", "hr", "hrs")),
    (60, ("minute", "minutes", "m", "min", "mins")),
    (1, ("second", "seconds", "s", "sec", "secs", "")),
    (0.001, ("millisecond", "milliseconds", "ms")),
)
_SIZES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (2**40, ("TiB", "Ti")),
    (2**30, ("GiB", "Gi")),
    (2**20, ("MiB", "Mi")),
    (2**10, ("KiB", "Ki")),
    (10**12, ("TB",)),
    (10**9, ("GB",)),
    (10**6, ("MB",)),
    (10**3, ("KB",)),
    (1, ("B", "byte", "bytes", "")),
)
_SECONDS = {word: length for length, words in _SPANS for word in words}
_BYTES = {word.lower(): length for length, words in _SIZES for word in words}
# What `span` uses: 14 days are not 2 weeks to everybody.
_SHOWN = _SPANS[1:5]


def seconds(text: str, unit: str = "s") -> float:
    """The seconds of ``30``, ``1.5``, ``500ms``, ``5 minutes``, ``1h 30m`` or ``7d``.

    unit: that of a number alone. Raises ValueError.
    """
    parts = _parts(text)
    if len(parts) > 1 and any(not word for _, word in parts):
        raise ValueError(text)
    try:
        return sum(amount * _SECONDS[word or unit] for amount, word in parts)
    except KeyError:
        raise ValueError(text) from None


def size(text: str) -> int:
    """The bytes of ``5``, ``64 KiB`` or ``1.5 MB``. Raises ValueError."""
    parts = _parts(text)
    if len(parts) != 1 or parts[0][1] not in _BYTES:
        raise ValueError(text)
    found = parts[0][0] * _BYTES[parts[0][1]]
    if not found.is_integer():
        raise ValueError(text)
    return int(found)


def span(value: float) -> str:
    """A span exactly, so that `seconds` reads it back: ``1 hour 30 minutes``."""
    if value == 0:
        return "0 seconds"
    if value < 1:
        return _counted(value * 1000, _SPANS[-1][1])
    words, left = [], value
    for length, names in _SHOWN[:-1]:
        count, left = divmod(left, length)
        if count:
            words.append(_counted(count, names))
    if left:
        words.append(_counted(left, _SHOWN[-1][1]))
    return " ".join(words)


def in_units(value: float) -> str:
    """The same in short, in the largest unit that divides it: ``2m``, ``90s``."""
    unit = next((u for u in "dhm" if value and not value % _SECONDS[u]), "s")
    return f"{value / _SECONDS[unit]:g}{unit}"


def bytes_of(value: int) -> str:
    """A size exactly, so that `size` reads it back: ``64 KiB``."""
    for length, names in _SIZES[:4]:
        if value and value % length == 0:
            return f"{value // length} {names[0]}"
    return f"{value} {'byte' if value == 1 else 'bytes'}"


def _parts(text: str) -> list[tuple[float, str]]:
    """The numbers of a text, each with its unit in lower case. Raises ValueError."""
    if len(text) > _LONGEST:
        raise ValueError(text[:_LONGEST])
    found = [(float(one[1]), one[2].lower()) for one in _PART.finditer(text)]
    if not found or _PART.sub("", text).strip():
        raise ValueError(text)
    return found


def _counted(count: float, names: tuple[str, ...]) -> str:
    return f"{count:.12g} {names[0] if count == 1 else names[1]}"
