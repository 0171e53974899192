"""What the headers of a request say: what its message keeps, and in which form it wants answers."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import hdrs

from fsmq.spool.errors import InvalidValue

ATTRIBUTE = "X-Message-Attribute-"
# What curl and HTTP libraries send when nobody said anything: no content type worth keeping.
_NO_TYPE = {"", "application/octet-stream", "application/x-www-form-urlencoded"}


def kept_headers(headers: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The content type and the attributes that a message keeps. Raises InvalidValue."""
    content_type = headers.get(hdrs.CONTENT_TYPE, "").strip()
    attributes: dict[str, str] = {}
    seen = set()
    for header, value in headers.items():
        if header[: len(ATTRIBUTE)].lower() == ATTRIBUTE.lower():
            name = header[len(ATTRIBUTE) :]
            if name.lower() in seen:
                raise InvalidValue("attributes", f"{name[:200]!r} is given twice")
            seen.add(name.lower())
            attributes[name] = value
    return (None if content_type.lower() in _NO_TYPE else content_type), attributes


def prefers_json(accept: str | None) -> bool:
    """Whether ``Accept`` asks for JSON, and would not take a message as it was posted."""
    if accept is None or accept == "*/*":
        return False
    types = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return "application/json" in types and "*/*" not in types
