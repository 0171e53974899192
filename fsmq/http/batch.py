"""Bodies that carry many messages or ids: JSON, checked field by field."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fsmq.spool.errors import InvalidValue
from fsmq.spool.message import NewMessage
from fsmq.spool.put import MAX_BATCH

from .problems import UnreadableBody

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


def new_messages(body: bytes) -> list[NewMessage]:
    """The messages of a ``POST /{queue}/batch``; their values are checked when they are put.

    Raises:
        UnreadableBody: it is no JSON array of objects.
        InvalidValue: with the index of the message.
    """
    found = _array(_parse(body), "messages")
    messages = []
    for index, described in enumerate(found):
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
    found = _parse(body)
    if not isinstance(found, dict) or list(found) != ["ids"]:
        raise UnreadableBody('the body is not a JSON object with the one member "ids"')
    ids = _array(found["ids"], "ids")
    for index, message_id in enumerate(ids):
        if not isinstance(message_id, str):
            error = InvalidValue("ids", "has something that is no string")
            error.index = index
            raise error
    return ids


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"the body is not JSON: {error}") from None


def _array(found: Any, name: str) -> list[Any]:
    if not isinstance(found, list):
        raise UnreadableBody(f"the {name} are not a JSON array")
    if not 1 <= len(found) <= MAX_BATCH:
        raise InvalidValue(name, f"are {len(found)}; one batch takes 1 to {MAX_BATCH}")
    return found


def _new_message(described: Any) -> NewMessage:
    if not isinstance(described, dict):
        raise InvalidValue("message", "is not a JSON object")
    unknown = sorted(set(described) - set(_FIELDS))
    if unknown:
        known = ", ".join(_FIELDS)
        raise InvalidValue(unknown[0][:100], f"is no field of a message; there are: {known}")
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
        if not isinstance(text, str):
            raise InvalidValue("body", "must be a string (for JSON: the text of it)")
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidValue("body", "has half of a surrogate pair: not text") from None
    try:
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidValue("body_base64", f"is not base64: {error}") from None


def _are_strings(attributes: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in attributes.values())
