"""Numbers as people say them."""

from __future__ import annotations

from datetime import datetime

_SPANS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(seconds: float | None) -> str:
    """``250 ms``, ``4.2 s``, ``3 min``, ``5.5 h``; a dash for none."""
    if seconds is None:
        return "–"
    for length, unit in _SPANS:
        if seconds >= length * 0.9995:
            return f"{_short(seconds / length)} {unit}"
    milliseconds = seconds * 1000
    return f"{_short(milliseconds)} ms" if milliseconds >= 0.5 else "under 1 ms"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"


def number(count: float) -> str:
    """``12,345``."""
    return f"{count:,.0f}"


def share(part: float) -> str:
    """``0.4 %``, ``12 %``; ``under 0.1 %`` for what is not nothing."""
    percent = part * 100
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.1f} %".replace(".0 %", " %") if percent < 10 else f"{percent:.0f} %"


def moment(time: datetime) -> str:
    """``20 Nov 2026, 14:05`` (UTC is said once, at the top)."""
    return f"{time.day} {time:%b %Y, %H:%M}"
