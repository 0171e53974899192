"""Numbers as people say them, for the command line, the probe and the reports."""

from __future__ import annotations

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def many(count: int, what: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: int) -> str:
    """A number of bytes: ``100 B``, ``1.5 KiB``, ``20 GiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(seconds: float | None) -> str:
    """A time span as people say it; ``-`` for none."""
    if seconds is None:
        return "-"
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def limits(at_a_time: int | None, a_second: float | None) -> str:
    """How many messages may be claimed: ``2 at a time, 10/s``; empty where any number may."""
    parts = (
        "" if at_a_time is None else f"{at_a_time:,} at a time",
        "" if a_second is None else f"{a_second:g}/s",
    )
    return ", ".join(filter(None, parts))
