"""Headers of a request: attributes and content type of its message, and the form of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import hdrs
from multidict import MultiMapping

from fsmq.spool.checks import MAX_HEADER_BYTES, check_claim
from fsmq.spool.errors import InvalidValue

ATTRIBUTE = "X-Message-Attribute-"
# Headers that become attributes under their own names: those of W3C's Trace Context, and those of
# CloudEvents in the binary mode.
TRACE = frozenset(("traceparent", "tracestate"))
EVENT = "ce-"
EVENTS = "application/cloudevents-batch+json"
_event = re.compile(r"ce-[a-z0-9]{1,64}")
_quoted = re.compile(r'"((?:[^"\\]|\\.)*)"')
_escaped = re.compile(r"\\(.)")
_ATTRIBUTE = ATTRIBUTE.lower()
CLAIM = "X-Message-Claim"
KEY = "X-Message-Key"
# The defaults of curl and HTTP libraries, which are not worth keeping.
_NO_TYPE = {"", "application/octet-stream", "application/x-www-form-urlencoded"}


def kept_headers(headers: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """The content type and attributes to store with a message. Raises InvalidValue."""
    content_type = headers.get(hdrs.CONTENT_TYPE, "").strip()
    attributes: dict[str, str] = {}
    seen = set()
    for header, value in headers.items():
        lower = header.lower()
        if lower.startswith(_ATTRIBUTE):
            name = header[len(ATTRIBUTE) :]
        elif lower in TRACE or lower.startswith(EVENT):
            name = _checked(lower)
        else:
            continue
        if name.lower() in seen:
            if lower != "tracestate":
                raise InvalidValue("attributes", f"{name[:200]!r} is given twice")
            value = f"{attributes[name]},{value}"  # a list, which can be split over several headers
        if name.lower().startswith(EVENT):
            _check_event_value(name, value)
        seen.add(name.lower())
        attributes[name] = value
    return (None if content_type.lower() in _NO_TYPE else content_type), attributes


def own_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes that an answer also has as headers of their own names."""
    return {
        name: value
        for name, value in attributes.items()
        if name in TRACE or (name[:3] == EVENT and _event.fullmatch(name) is not None)
    }


def event_value(value: str) -> str:
    """Decode the value of a header of CloudEvents (HTTP binding, section 3.1.3.2).

    Removes quotes around it, and then decodes percent-encoding, each once.

    Raises:
        ValueError: the percent-encoded bytes are not UTF-8.
    """
    quoted = _quoted.fullmatch(value)
    text = value if quoted is None else _escaped.sub(r"\1", quoted[1])
    return unquote(text, errors="strict")


def _check_event_value(name: str, value: str) -> None:
    if len(value) > MAX_HEADER_BYTES:  # decoding it would take long
        raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes in all")
    try:
        event_value(value)
    except ValueError:
        problem = f"what is percent-encoded in {name[:100]!r} is not UTF-8"
        raise InvalidValue("attributes", problem) from None


def _checked(name: str) -> str:
    if name in TRACE or _event.fullmatch(name) is not None:
        return name
    raise InvalidValue(
        "attributes", f"{name[:100]!r} is unknown; expected ce- and 1 to 64 letters and digits"
    )


def named_claim(headers: MultiMapping[str]) -> str | None:
    """The name of the claim that a request is for; None if it names none. Raises InvalidValue."""
    names = headers.getall(CLAIM, ())
    if len(names) > 1:
        raise InvalidValue(CLAIM, "is given twice")
    return check_claim(names[0], CLAIM) if names else None


def wants_events(accept: str | None) -> bool:
    """Whether ``Accept`` asks for messages as a batch of events."""
    return accept is not None and EVENTS in accept.lower()


def prefers_json(accept: str | None) -> bool:
    """Whether ``Accept`` asks for JSON, and does not accept a message as it was posted."""
    if accept is None or accept == "*/*":
        return False
    types = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return "application/json" in types and "*/*" not in types
