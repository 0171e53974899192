"""CloudEvents in the batched mode: a JSON array of events, each of which is a message.

A message is stored as an event in the binary mode: its attributes ``ce-*`` are those of the event,
percent-encoded as in HTTP headers, its content type is ``datacontenttype``, its body the data.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from aiohttp.web import Response

from fsmq.spool import Message, NewMessage
from fsmq.spool.errors import InvalidValue

from ....wire import moment, quote_id
from ...connection.pieces import PIECE_BYTES
from ...describe import array, record, text
from ...routing import bodies
from ...routing.headers import EVENT, EVENTS, TRACE, event_value
from ...routing.json_reader import LongText, strictly
from ...routing.json_writer import write
from .batch_bodies import made_of

STRUCTURED = "application/cloudevents+json"
_VERSION, _TYPE = "1.0", "fsmq.message"
_REQUIRED = ("id", "source", "specversion", "type")
_OURS = ("fsmqid", "fsmqclaim", "fsmqdeliveries", "fsmqdeadline", "fsmqqueue")
_name = re.compile(r"[a-z0-9]{1,64}")
# Characters that need no encoding in a header: all visible ones except for the quote and "%".
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
EVENT_SCHEMA = record(
    {name: text(minLength=1) for name in _REQUIRED},
    description="an event of CloudEvents 1.0 in its JSON format",
)
SCHEMA = array(EVENT_SCHEMA, minItems=1)


# -- from events to messages -----------------------------------------------------------------------


def new_messages(body: bytes) -> list[NewMessage]:
    """The messages of a batch of events. Raises UnreadableBody, InvalidValue with its index."""
    return made_of(body, "events", _message)


def _message(event: Any) -> NewMessage:
    if not isinstance(event, dict):
        raise InvalidValue("event", "is not a JSON object")
    given = {name: value for name, value in event.items() if value is not None}
    for name in _REQUIRED:
        if not isinstance(given.get(name), str) or not given[name]:
            raise InvalidValue(
                name, "is missing or not a text: an event needs " + ", ".join(_REQUIRED)
            )
    if given["specversion"] != _VERSION:
        raise InvalidValue("specversion", f"is unknown; expected {_VERSION}")
    body, content_type = _data(given)
    attributes = {
        EVENT + name: _written(name, value) for name, value in given.items() if name not in _OURS
    }
    return NewMessage(body, content_type=content_type, attributes=attributes)


def _data(given: dict[str, Any]) -> tuple[bytes, str | None]:
    """Take the data out of an event: the body and its content type."""
    content_type = given.pop("datacontenttype", None)
    if not isinstance(content_type, str | None):
        raise InvalidValue("datacontenttype", "must be text")
    if "data" in given and "data_base64" in given:
        raise InvalidValue("data", "is given twice: as data and as data_base64")
    if "data_base64" in given:
        encoded = given.pop("data_base64")
        try:
            if isinstance(encoded, LongText):
                return encoded.from_base64(), content_type
            return base64.b64decode(encoded, validate=True), content_type
        except (binascii.Error, TypeError, ValueError):
            raise InvalidValue("data_base64", "is not base64") from None
    if "data" not in given:
        return b"", content_type
    data = given.pop("data")
    if isinstance(data, str | LongText) and content_type is not None and not _is_json(content_type):
        return _encoded("data", data), content_type
    # Data without a content type is JSON.
    return _as_json(data), content_type or "application/json"


def _written(name: str, value: Any) -> str:
    """The value of an attribute as in a header."""
    if not _name.fullmatch(name):
        raise InvalidValue(name[:100], "is not an attribute's name: expected 1 to 64 of a-z 0-9")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise InvalidValue(name, "must be text, a whole number, true or false")
    return quote(_encoded(name, value), safe=_SAFE)


def _as_json(data: Any) -> bytes:
    parts: list[str] = []
    write(data, _encoder.encode, parts, (", ", ": "))
    return b"".join([_encoded("data", part) for part in parts])


_encoder = json.JSONEncoder(ensure_ascii=False)


def _encoded(name: str, value: str | LongText) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(name, "contains an unpaired surrogate") from None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


# -- from messages to events -----------------------------------------------------------------------


def in_events(claimed: Sequence[Message], *, with_queue: bool = False) -> Response:
    """The answer with messages as events; with_queue: each has the name of its queue."""
    encode = partial(_encode, with_queue=with_queue)
    return bodies.in_json(claimed, encode, (b"[", b", ", b"]\n"), EVENTS)


def _encode(message: Message, with_queue: bool) -> Iterator[bytes]:
    of = {"fsmqqueue": message.queue} if with_queue else {}
    if len(message.body) <= PIECE_BYTES:
        yield json.dumps({**_event(message), **of}).encode()
        return
    # Parsing a large body would make other requests wait, so it is sent in base64.
    yield json.dumps({**_attributes(message), **of}).encode()[:-1] + b', "data_base64": "'
    yield from bodies.base64_pieces(message.body)
    yield b'"}'


def _event(message: Message) -> dict[str, Any]:
    if (message.content_type or "").partition(";")[0].strip().lower() == STRUCTURED:
        try:
            event = strictly(message.body)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            return {**event, **_ours(message)}
    return {**_attributes(message), **_data_of(message)}


def _attributes(message: Message) -> dict[str, Any]:
    found = {
        name.removeprefix(EVENT): value if name in TRACE else _decoded(value)
        for name, value in message.attributes.items()
        if name in TRACE or name.startswith(EVENT)
    }
    defaults = {
        "specversion": _VERSION,
        "id": quote_id(message.id),
        "source": f"/{message.queue}",
        "type": _TYPE,
    }
    if "id" not in found and message.created_at is not None:
        defaults["time"] = moment(message.created_at)
    if message.content_type is not None:
        found["datacontenttype"] = message.content_type
    return {**defaults, **found, **_ours(message)}


def _decoded(value: str) -> str:
    """The value of an attribute as in JSON."""
    try:
        return event_value(value)
    except ValueError:
        return value  # it was not put by HTTP, where such a value is refused


def _ours(message: Message) -> dict[str, Any]:
    """What a consumer needs in order to acknowledge it."""
    found: dict[str, Any] = {"fsmqid": quote_id(message.id)}
    if message.deliveries is not None:
        found["fsmqdeliveries"] = message.deliveries
    if message.claim is not None:
        found["fsmqclaim"] = message.claim
    if message.deadline is not None:
        found["fsmqdeadline"] = moment(message.deadline)
    return found


def _data_of(message: Message) -> dict[str, Any]:
    body, content_type = message.body, message.content_type
    if not body:
        return {}
    if content_type is not None:
        try:
            return {"data": strictly(body) if _is_json(content_type) else body.decode()}
        except (ValueError, RecursionError):
            pass  # it does not match its content type, and is sent as bytes
    return {"data_base64": base64.b64encode(body).decode()}
