"""Bodies that carry many messages or ids: JSON, checked field by field."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.verbs.put import MAX_BATCH

from ..problems import UnreadableBody
from ..routing.json_reader import LongText, Reader

_FIELDS = (
    "body",
    "body_base64",
    "delay",
    "priority",
    "ttl",
    "id",
    "content_type",
    "attributes",
)

_decoder = JSONDecoder()


def new_messages(body: bytes) -> list[NewMessage]:
    """The messages of a ``POST /{queue}/batch``; their values are checked when they are put.

    Raises:
        UnreadableBody: it is no JSON array of objects.
        InvalidValue: with the index of the message.
    """
    messages = []
    for index, described in enumerate(_array(body, "messages")):
        try:
            messages.append(_new_message(described))
        except InvalidValue as error:
            error.index = index
            raise
    return messages


def some_ids(body: bytes) -> list[str]:
    """The ids of a body ``{"ids": [...]}``.

    Raises:
        UnreadableBody, InvalidValue
    """
    ids = []
    for index, message_id in enumerate(_array(body, "ids", within="ids")):
        if not isinstance(message_id, str):
            error = InvalidValue("ids", "has an element that is not a string")
            error.index = index
            raise error
        ids.append(message_id)
    return ids


def _array(body: bytes, name: str, within: str | None = None) -> Iterator[Any]:
    """The elements of an array, which is all of a body, or the one member of an object.

    Raises:
        UnreadableBody, InvalidValue
    """
    reader = Reader(body, _decoder)
    number = 0
    try:
        for element in _elements(reader, name, within):
            number += 1
            if number > MAX_BATCH:
                break
            yield element
        else:
            reader.end()
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"the body is not JSON: {error}") from None
    if not 1 <= number <= MAX_BATCH:
        many = "more" if number else "none"
        raise InvalidValue(name, f"{many} are given; one batch takes 1 to {MAX_BATCH}")


def _elements(reader: Reader, name: str, within: str | None) -> Iterator[Any]:
    if reader.first() != ("[" if within is None else "{"):
        # It may be no JSON at all. Not skipped: that reads on however many values there are.
        reader.value()
        what = f"the {name} are not a JSON array" if within is None else _not_alone(within)
        raise UnreadableBody(what)
    if within is None:
        yield from reader.elements()
        return
    number = 0
    for member in reader.members():
        number += 1
        if member != within or number > 1:
            raise UnreadableBody(_not_alone(within))
        yield from _elements(reader, name, None)
    if not number:
        raise UnreadableBody(_not_alone(within))


def _not_alone(member: str) -> str:
    return f'the body is not a JSON object with the one member "{member}"'


def _new_message(described: Any) -> NewMessage:
    if not isinstance(described, dict):
        raise InvalidValue("message", "is not a JSON object")
    unknown = sorted(set(described) - set(_FIELDS))
    if unknown:
        known = ", ".join(_FIELDS)
        raise InvalidValue(unknown[0][:100], f"unknown field; expected one of: {known}")
    # null is what many libraries write for "not set".
    given = {name: value for name, value in described.items() if value is not None}
    for name in ("id", "content_type"):
        if not isinstance(given.get(name, ""), str):
            raise InvalidValue(name, "must be a string")
    attributes = given.get("attributes", {})
    if not isinstance(attributes, dict) or not _are_strings(attributes):
        raise InvalidValue("attributes", "must be an object of strings")
    return NewMessage(
        body=_body(given),
        delay=given.get("delay"),
        priority=given.get("priority", 0),
        ttl=given.get("ttl"),
        id=given.get("id"),
        content_type=given.get("content_type"),
        attributes=attributes,
    )


def _body(given: dict[str, Any]) -> bytes:
    text, encoded = given.get("body"), given.get("body_base64")
    if (text is None) == (encoded is None):
        raise InvalidValue("body", "is missing: give either body or body_base64")
    if encoded is None:
        if not isinstance(text, str | LongText):
            raise InvalidValue("body", "must be a string (JSON must be encoded as a string)")
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidValue("body", "contains an unpaired surrogate") from None
    try:
        if isinstance(encoded, LongText):
            return encoded.from_base64()
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidValue("body_base64", f"is not base64: {error}") from None


def _are_strings(attributes: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in attributes.values())
