"""Parameters of requests for logs, and headers of their answers, in the native dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from aiohttp import hdrs

from fsmq.spool import ChannelMessage, LogEntry, LogMessage
from fsmq.spool.errors import InvalidValue
from fsmq.spool.inspection import ChannelState
from fsmq.spool.prepare import MAX_CLAIMS
from fsmq.spool.resources import (
    CHANNEL_SETTINGS,
    LOG_SETTINGS,
    MAX_ID_BYTES,
    MAX_KEY_BYTES,
    From,
    place_in,
)

from ....wire import exact_moment, log_facts, moment
from ...describe import (
    JSON,
    QUEUE_NAME,
    Component,
    Header,
    Kind,
    Parameter,
    QueryParameter,
    Values,
    integer,
    or_null,
    query,
    record,
    text,
    utf8,
    whole,
)
from ...routing import bodies
from ...routing.headers import ATTRIBUTE, KEY, own_headers
from .. import forms
from ..forms import MOMENT, one_line
from ..queues import settings_schema

MAX_OFFSET = 10**18 - 1
LOG = Parameter("log", "the log's name; the rules are those of a queue's name", QUEUE_NAME, "path")
CHANNEL = Parameter(
    "channel", "the channel's name; the rules are those of a queue's name", QUEUE_NAME, "path"
)
OFFSET = Parameter("offset", "the offset of a message", integer(0, MAX_OFFSET), "path")


def offset_of(value: str) -> int:
    """The offset that a path names. Raises InvalidValue."""
    if not value.isascii() or not value.isdecimal() or len(value) > 18:
        raise InvalidValue("offset", f"{value[:50]!r} is not an offset")
    return int(value)


_PLACES = "an offset, a moment (RFC 3339, with a time zone), `2h ago`, `first` or `last`"
_PLACE = Kind(text(minLength=1), place_in, _PLACES)
FROM: QueryParameter[From] = query("from", "where to begin", _PLACE, "first")
BEGIN: QueryParameter[From] = query("from", "where it begins", _PLACE, "last")
TO = query("to", "the new position", _PLACE, otherwise="required")
COUNT = query(
    "count",
    "up to this many messages, answered as JSON",
    whole(1, MAX_CLAIMS),
    otherwise="one, as it was published",
)
OWN_ID = query(
    "id",
    "an id chosen by the publisher: a second message with it within the log's `dedupe_window` is"
    " not stored, and the answer has the first offset",
    utf8(MAX_ID_BYTES),
    otherwise="none",
)
MESSAGE_KEY = Parameter(
    KEY,
    "messages of one key stay in order in channels whose `order` is key",
    text(minLength=1, maxLength=MAX_KEY_BYTES),
    "header",
)
_VISIBILITY_TIMEOUT = "the channel's `visibility_timeout`"
VISIBILITY = replace(forms.VISIBILITY, otherwise=_VISIBILITY_TIMEOUT)
RENEWAL = replace(forms.RENEWAL, otherwise=_VISIBILITY_TIMEOUT)
RELEASE = replace(
    forms.RELEASE, description="**release**: the message can be claimed again after this time"
)
BURY = replace(forms.BURY, description="**bury**: move it to the channel's dead-letter queue now")
GENERATION = query(
    "generation",
    "that of the claim, from its answer",
    whole(1, MAX_OFFSET),
    otherwise="whatever it is now",
)
DELIVERIES = query(
    "deliveries",
    "those of the claim, from its answer",
    whole(1, MAX_OFFSET),
    otherwise="whatever they are now",
)

SETTINGS_OF_LOG = settings_schema(LOG_SETTINGS)
SETTINGS_OF_CHANNEL = settings_schema(CHANNEL_SETTINGS)
_FACTS = {
    "offset": integer(0),
    "key": or_null(text()),
    "id": or_null(text()),
    "content_type": or_null(text()),
    "attributes": {"type": "object", "additionalProperties": text()},
    "published_at": text(format="date-time", description="RFC 3339 in UTC, with microseconds"),
}
_OF_CLAIM = {
    "deliveries": integer(1),
    "deadline": MOMENT,
    "generation": integer(1, description="of the channel: one more with each seek"),
}


def _message(name: str, facts: Mapping[str, Any]) -> Component:
    body = {
        "body": text(description="the body, if it is UTF-8"),
        "body_base64": text(contentEncoding="base64", description="the body, if it is not UTF-8"),
    }
    either = [{"required": ["body"]}, {"required": ["body_base64"]}]
    return Component(name, record({**facts, **body}, required=list(facts), oneOf=either))


LOG_MESSAGE = _message("LogMessage", _FACTS)
CHANNEL_MESSAGE = _message("ChannelMessage", {**_FACTS, **_OF_CLAIM})
HEADERS = {
    "X-Message-Offset": Header("its offset", integer(0)),
    KEY: Header("its key, if it has one", text()),
    "X-Message-Id": Header("its publisher's id, if it has one", text()),
    "X-Message-Published-At": Header("when it was published", _FACTS["published_at"]),
}
CLAIM_HEADERS = {
    **HEADERS,
    "X-Message-Deliveries": Header("claims so far", integer(1)),
    "X-Message-Deadline": Header("when the claim ends", MOMENT),
    "X-Message-Generation": Header("that of the claim", integer(1)),
}


def new_entry(
    body: bytes, key: str | None, values: Values, kept: tuple[str | None, dict[str, str]]
) -> LogEntry:
    """The message of a publish. Raises InvalidValue."""
    content_type, attributes = kept
    return LogEntry(body, key, values[OWN_ID], content_type, attributes)


def published(offset: int) -> tuple[dict[str, str], bytes]:
    """The answer to a publish of one message: headers and body."""
    headers = {"Content-Type": JSON, "X-Message-Offset": str(offset)}
    return headers, f'{{"offset": {offset}}}\n'.encode()


def encode(message: LogMessage) -> Iterator[bytes]:
    """A message of a log, in JSON."""
    return bodies.encode_facts(log_facts(message), message.body)


def encode_claimed(message: ChannelMessage) -> Iterator[bytes]:
    """A claimed message, in JSON."""
    facts = {
        **log_facts(message),
        "deliveries": message.deliveries,
        "deadline": moment(message.deadline),
        "generation": message.generation,
    }
    return bodies.encode_facts(facts, message.body)


def headers_of(message: LogMessage) -> dict[str, str]:
    """The headers that describe a message."""
    headers = {
        "X-Message-Offset": str(message.offset),
        "X-Message-Published-At": exact_moment(message.published_at),
    }
    for name, value in ((KEY, message.key), ("X-Message-Id", message.id)):
        if value is not None:
            headers[name] = one_line(value)
    for name, value in message.attributes.items():
        headers[ATTRIBUTE + name] = one_line(value)
    if message.attributes:
        for name, value in own_headers(message.attributes).items():
            headers[name] = one_line(value)
    headers[hdrs.CONTENT_TYPE] = one_line(message.content_type or "application/octet-stream")
    return headers


def headers_of_claimed(message: ChannelMessage) -> dict[str, str]:
    """The headers that describe a claimed message."""
    return {
        **headers_of(message),
        "X-Message-Deliveries": str(message.deliveries),
        "X-Message-Deadline": moment(message.deadline),
        "X-Message-Generation": str(message.generation),
    }


def reason_of(state: ChannelState) -> str:
    """Why no message of a channel can be claimed; empty if there is none."""
    if state.paused:
        return "paused"
    if state.blocked_at is not None or state.unburied_at is not None:
        return "blocked"
    return "stalled" if state.stalled is not None else ""
