"""Bodies of requests for logs: messages to be published, offsets of an ack."""

from __future__ import annotations

from typing import Any, NamedTuple

from fsmq.spool import LogEntry
from fsmq.spool.errors import InvalidValue
from fsmq.spool.prepare import MAX_BATCH
from fsmq.spool.resources import MAX_ID_BYTES, MAX_KEY_BYTES, Range, ranges_of

from ...describe import array, integer, or_null, record, text
from ...routing.body_reader import object_in
from ..messages.batch_bodies import body_in, made_of, members_of
from .log_forms import MAX_OFFSET

NEW_MESSAGE = record(
    {
        "body": or_null(text(description="a text, stored as UTF-8")),
        "body_base64": or_null(text(contentEncoding="base64", description="or bytes")),
        "key": or_null(text(minLength=1, maxLength=MAX_KEY_BYTES)),
        "id": or_null(text(minLength=1, maxLength=MAX_ID_BYTES)),
        "content_type": or_null(text()),
        "attributes": or_null({"type": "object", "additionalProperties": text()}),
    },
    required=[],
    additionalProperties=False,
    anyOf=[{"required": ["body"]}, {"required": ["body_base64"]}],
)
_FIELDS = NEW_MESSAGE["properties"].keys()
_OFFSET = integer(0, MAX_OFFSET)
_GENERATION = integer(1, description="that of the claims; default: whatever it is now")


def _done(**what: Any) -> dict[str, Any]:
    return record(
        {**what, "generation": or_null(_GENERATION)},
        required=list(what),
        additionalProperties=False,
    )


ACKED = {
    "oneOf": [
        _done(offsets=array(_OFFSET, minItems=1, maxItems=MAX_BATCH)),
        _done(
            ranges=array(
                array(_OFFSET, minItems=2, maxItems=2),
                minItems=1,
                maxItems=MAX_BATCH,
                description="each from an offset to before another",
            )
        ),
        _done(through={**_OFFSET, "description": "all that were handed out up to this one"}),
    ]
}


class Finished(NamedTuple):
    """What a request finishes: ranges, or all that were handed out through an offset."""

    ranges: list[Range]
    through: int | None
    generation: int | None


def new_messages(body: bytes) -> list[LogEntry]:
    """The messages of a batch; their values are checked when they are published.

    Raises:
        UnreadableBody: it is not a JSON array of objects.
        InvalidValue: with the index of the message.
    """
    return made_of(body, "messages", _new_message)


def _new_message(described: Any) -> LogEntry:
    given = members_of(described, _FIELDS, ("key", "id", "content_type"))
    return LogEntry(
        body_in(given),
        given.get("key"),
        given.get("id"),
        given.get("content_type"),
        given["attributes"],
    )


def acked(body: bytes) -> Finished:
    """What a ``POST …/done`` acknowledges. Raises UnreadableBody, InvalidValue."""
    found = object_in(body)
    generation = found.pop("generation", None)
    if generation is not None and not (_is_offset(generation) and generation):
        raise InvalidValue("generation", "must be a whole number from 1 on")
    if len(found) != 1 or not found.keys() <= {"offsets", "ranges", "through"}:
        raise InvalidValue("offsets", "give one of: offsets, ranges, through")
    [(name, value)] = found.items()
    return _finished(name, value, generation)


def _finished(name: str, value: Any, generation: int | None) -> Finished:
    if name == "through":
        if not _is_offset(value):
            raise InvalidValue(name, "must be an offset")
        return Finished([], value, generation)
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_BATCH:
        raise InvalidValue(name, f"must be a list of 1 to {MAX_BATCH}")
    if name == "offsets":
        if not all(map(_is_offset, value)):
            raise InvalidValue(name, "has an element that is not an offset")
        return Finished(ranges_of(sorted(set(value))), None, generation)
    if not all(map(_is_range, value)):
        raise InvalidValue(name, "has an element that is not two offsets, the first the lower")
    return Finished([(start, end) for start, end in value], None, generation)


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_OFFSET


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(map(_is_offset, value))
        and value[0] < value[1]
    )
