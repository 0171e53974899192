"""What people read, on every surface: numbers, times, and what a misspelt name may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

# What the dashboard and the report call each figure of a queue.
HEADS = {
    "new": "New",
    "ready": "Ready",
    "in_flight": "In flight",
    "delayed": "Delayed",
    "oldest": "Oldest",
    "sent": "Sent",
    "received": "Claimed",
    "deleted": "Removed",
    "redelivered": "Redelivered",
    "buried": "Buried",
    "expired": "Expired",
    "purged": "Purged",
    "wait_s": "Wait",
    "processing_s": "Processing",
}
# To compare takes longer the longer a name is, and anybody may send one of 100 KB.
_LONGEST_MISTAKE = 200
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def similar(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are much like this one, the most similar one first."""
    from difflib import get_close_matches  # only after a mistake

    return [] if len(name) > _LONGEST_MISTAKE else get_close_matches(name, list(known), most)


def asked(near: Sequence[str]) -> str:
    """``did you mean mail or jobs?``; empty if there is nothing to ask for."""
    return f"did you mean {' or '.join(near)}?" if near else ""


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean mail?`` for a name that is much like a known one; empty if none is."""
    return asked(similar(name, known))


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
    for unit, length in _UNITS[:-1]:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def limits(at_a_time: int | None, a_second: float | None) -> str:
    """How many messages may be claimed: ``2 at a time, 10/s``; empty if there is no limit."""
    parts = (
        "" if at_a_time is None else f"{at_a_time:,} at a time",
        "" if a_second is None else f"{a_second:g}/s",
    )
    return ", ".join(filter(None, parts))


def head(figure: str) -> str:
    """The name of a figure on pages and in reports: ``In flight`` for ``in_flight``."""
    return HEADS[figure]


def number(value: float | None) -> str:
    """A whole number with thin spaces between thousands; a dash where it is not known."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def duration(seconds: float | None) -> str:
    """A length of time with its two largest units: ``2 h 5 min``."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        if left >= length and len(parts) < 2:
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
    return " ".join(parts)


def moment(at: float | None) -> str:
    """A moment in RFC 3339, in UTC, to the second."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def share(part: float) -> str:
    """A part of 1 in percent: ``0.4 %``, ``12 %``; ``under 0.1 %`` if it is less but not zero."""
    percent = part * 100
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.1f} %".replace(".0 %", " %") if percent < 10 else f"{percent:.0f} %"
