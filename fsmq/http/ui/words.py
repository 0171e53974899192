"""Words: numbers, times and names as people read them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fsmq.wire import quote_id

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
# So many characters of an id are shown; its last ones tell it from its neighbours.
_SHORT = 20


def number(value: float | None) -> str:
    """A whole number with thin spaces between thousands; a dash where it is not known."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    """A number a second."""
    if value is None:
        return "–"
    return number(value) if value >= 10 or value == 0 else f"{value:.1f}"


def duration(seconds: float | None) -> str:
    """A length of time with its two largest units: ``2 h 5 min``."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts)


def ago(moment: float | None) -> str:
    """How long ago a moment was, in Unix seconds."""
    return duration(None if moment is None else max(0.0, time.time() - moment))


def ahead(moment: float | None) -> str:
    """How long it is until a moment, in Unix seconds."""
    return duration(None if moment is None else max(0.0, moment - time.time()))


def size(count: float | None) -> str:
    """A number of bytes."""
    if count is None:
        return "–"
    unit = 0
    while count >= 1024 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    digits = 0 if unit == 0 or count >= 10 else 1
    return f"{count:.{digits}f} {_SIZES[unit]}"


def moment(at: float | None) -> str:
    """A moment in RFC 3339, in UTC, to the second."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""


def setting(value: object) -> str:
    """The value of a setting."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float() if not value.is_integer():
            return f"{value:.12g}"
        case int() | float():
            return number(value)
    return str(value)


def short(name: str) -> str:
    """The beginning and the end of a long id."""
    return name if len(name) <= _SHORT + 1 else f"{name[:8]}…{name[-(_SHORT - 8) :]}"


def visible(text: str) -> str:
    """A text that may hold anything, so that it can be written: what is no UTF-8 becomes �."""
    return text.encode("utf-8", "replace").decode("utf-8", "replace")


def first(body: bytes, most: int = 120) -> str:
    """The beginning of a body, on one line."""
    text = body[: most * 4].decode("utf-8", "replace")
    line = " ".join(text.split())
    return line[:most] + ("…" if len(line) > most or len(body) > most * 4 else "")


def pretty(body: bytes) -> tuple[str, str]:
    """A body for reading, and what it was taken for: ``json``, ``text`` or ``hex``."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex(body), "hex"
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False), "json"
        except (ValueError, RecursionError):
            pass
    if any(ord(sign) < 32 and sign not in "\t\n\r" for sign in text):
        return _hex(body), "hex"
    return text, "text"


def _hex(body: bytes) -> str:
    lines = []
    for at in range(0, min(len(body), 16 * 1024), 16):
        row = body[at : at + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(lines)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "ahead": ahead,
    "duration": duration,
    "first": first,
    "moment": moment,
    "number": number,
    "pretty": pretty,
    "quoted": quote_id,
    "rate": rate,
    "setting": setting,
    "short": short,
    "size": size,
    "visible": visible,
}
