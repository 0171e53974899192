"""Numbers, times and names as text for people."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fsmq.units import span
from fsmq.wire import quote_id
from fsmq.words import duration, head, moment, number

_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")
# How many characters of an id are shown; the last ones distinguish it from its neighbours.
_SHORT = 20
# The most characters of indented JSON, which is made from the first 64 KiB of a body.
_MOST_INDENTED = 1024 * 1024


def rate(value: float | None) -> str:
    """A number per second."""
    if value is None:
        return "–"
    return number(value) if value >= 10 or value == 0 else f"{value:.1f}"


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
    if count == 1:
        return "1 byte"
    unit = 0
    while count >= 1024 and unit < len(_SIZES) - 1:
        count /= 1024
        unit += 1
    digits = 0 if unit == 0 or count >= 10 else 1
    return f"{count:.{digits}f} {_SIZES[unit]}"


def short(name: str) -> str:
    """The beginning and the end of a long id."""
    return name if len(name) <= _SHORT + 1 else f"{name[:8]}…{name[-(_SHORT - 8) :]}"


def visible(text: str) -> str:
    """Any text, made encodable: what is not UTF-8 becomes �."""
    return text.encode("utf-8", "replace").decode("utf-8", "replace")


def first(body: bytes, most: int = 120) -> str:
    """The beginning of a body, on one line."""
    text = body[: most * 4].decode("utf-8", "replace")
    line = " ".join(text.split())
    return line[:most] + ("…" if len(line) > most or len(body) > most * 4 else "")


def pretty(body: bytes) -> tuple[str, str]:
    """A body for reading, and its kind: ``json``, ``text`` or ``hex``."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex(body), "hex"
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return _indented(json.loads(text)), "json"
    if any(ord(sign) < 32 and sign not in "\t\n\r" for sign in text):
        return _hex(body), "hex"
    return text, "text"


def _indented(value: object) -> str:
    """JSON for reading. Raises ValueError: it is so deep that it is mostly indentation."""
    parts, size = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        parts.append(part)
        size += len(part)
        if size > _MOST_INDENTED:
            raise ValueError("it is too deep")
    return "".join(parts)


def _hex(body: bytes) -> str:
    lines = []
    for at in range(0, min(len(body), 16 * 1024), 16):
        row = body[at : at + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(lines)


# What wrote a step of the journal, where its own name says too little.
_PROGRAMS = {
    "native": "the HTTP API",
    "mq": "the HTTP API",
    "library": "the Python library",
    "spark": "Spark",
    "ui": "the dashboard",
    "mover": "mq-mover",
    "reaper": "mq-reaper",
}


def program(via: str) -> str:
    """What wrote a step of the journal, in words: ``the HTTP API``."""
    return _PROGRAMS.get(via, f"the {via} API")


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "ahead": ahead,
    "duration": duration,
    "first": first,
    "head": head,
    "moment": moment,
    "number": number,
    "pretty": pretty,
    "program": program,
    "quoted": quote_id,
    "rate": rate,
    "short": short,
    "size": size,
    "span": span,
    "visible": visible,
    "zip": zip,
}
