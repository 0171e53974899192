"""Conversion of callers' arguments, such as body and delay, to what verbs take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, TypeAlias

from .errors import InvalidValue
from .layout.messages.message import NewMessage

Body: TypeAlias = bytes | str
Delay: TypeAlias = float | timedelta | datetime
JSON_TYPE = "application/json"
_TEXT, _NUMBER = ("a str", (str, NoneType)), ("a number", (int, float, NoneType))
# What each field of a message may be, in words and as types; True and False are no numbers.
_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "delay": _NUMBER,
    "priority": ("a number", (int, float)),
    "ttl": _NUMBER,
    "id": _TEXT,
    "content_type": _TEXT,
    "attributes": ("a dict", (Mapping,)),
    "group": _TEXT,
    "dedup_id": _TEXT,
}
PART = 250


def new_message(
    body: Body,
    delay: Delay | None,
    priority: int,
    ttl: float | None,
    id: str | None,
    content_type: str | None,
    attributes: Mapping[str, str] | None,
    group: str | None = None,
    dedup_id: str | None = None,
) -> NewMessage:
    """A message made of the arguments of a put. Raises InvalidValue."""
    return _checked(
        NewMessage(
            body if type(body) is bytes else body_of(body),
            None if delay is None else seconds_of(delay),
            priority,
            ttl,
            id,
            content_type,
            {} if attributes is None else attributes,
            group,
            dedup_id,
        )
    )


def as_new_messages(given: Iterable[Body | NewMessage]) -> Iterator[NewMessage]:
    """The messages of a put_many. Raises InvalidValue."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        kind = type(given).__name__
        raise InvalidValue("messages", f"must be a list of bodies or NewMessages, not {kind}")
    return map(_as_new_message, given)


def _as_new_message(given: Body | NewMessage) -> NewMessage:
    if not isinstance(given, NewMessage):
        return NewMessage(body_of(given))
    if type(given.body) is bytes and not isinstance(given.delay, timedelta | datetime):
        return _checked(given)
    delay = None if given.delay is None else seconds_of(given.delay)
    return _checked(replace(given, body=body_of(given.body), delay=delay))


def _checked(message: NewMessage) -> NewMessage:
    """The message, if its fields have their types. Raises InvalidValue.

    On a folder and over HTTP alike: in an address a number and its text are the same.
    """
    for name, (words, types) in _TYPES.items():
        value = getattr(message, name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise InvalidValue(name, f"must be {words}, not {type(value).__name__}")
    for name, value in message.attributes.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidValue("attributes", f"must have texts as names and values: {name!r}")
    return message


def body_of(given: Body) -> bytes:
    """The bytes of a body; text is encoded in UTF-8. Raises InvalidValue."""
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise InvalidValue("body", f"must be bytes or str, not {type(given).__name__}")
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue("body", f"cannot be written in UTF-8: {error.reason}") from None


def json_of(value: Any) -> bytes:
    """The JSON of a value, in UTF-8. Raises InvalidValue."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue("value", f"cannot be written as JSON: {error}") from None


def untold(done: int) -> None:
    """The ``progress`` of a verb when the caller gives none."""


def seconds_of(delay: Delay) -> float:
    """The seconds of a delay, or until a moment (0 if it has passed). Raises InvalidValue."""
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    if isinstance(delay, datetime):
        if delay.tzinfo is None:
            raise InvalidValue("delay", "is a datetime without a time zone: give it one")
        return max(0.0, delay.timestamp() - time.time())
    return delay  # the verb checks its type and range
