"""Parses bodies of requests for many messages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterator, Set
from typing import Any, TypeVar

from fsmq.spool.errors import InvalidValue
from fsmq.spool.prepare import MAX_BATCH

from ...problems import UnreadableBody
from ...routing.json_reader import LongText, Reader, strict_decoder

T = TypeVar("T")
_TEXTS = (str, LongText)


def made_of(body: bytes, name: str, make: Callable[[Any], T], within: str | None = None) -> list[T]:
    """Make something of each element of an array: the body, or the only member of an object.

    Raises:
        UnreadableBody: it is not JSON, or not of this form.
        InvalidValue: with the index of the element that ``make`` refuses.
    """
    made = []
    for index, element in enumerate(_elements_in(body, name, within)):
        try:
            made.append(make(element))
        except InvalidValue as error:
            error.index = index
            raise
    return made


def _elements_in(body: bytes, name: str, within: str | None) -> Iterator[Any]:
    reader = Reader(body, strict_decoder)
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
        # Parsed to find out whether it is JSON at all; skipping would read any number of values.
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


def body_in(given: dict[str, Any]) -> bytes:
    text, encoded = given.get("body"), given.get("body_base64")
    if (text is None) == (encoded is None):
        raise InvalidValue("body", "is missing: give either body or body_base64")
    if encoded is None:
        if not isinstance(text, _TEXTS):
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


def members_of(described: Any, fields: Set[str], strings: Collection[str]) -> dict[str, Any]:
    """The members of a message that are set, and always ``attributes``.

    fields: those that are allowed. strings: those of them that are strings.

    Raises InvalidValue.
    """
    if not isinstance(described, dict):
        raise InvalidValue("message", "is not a JSON object")
    if not described.keys() <= fields:
        unknown = sorted(described.keys() - fields)
        known = ", ".join(fields)
        raise InvalidValue(unknown[0][:100], f"unknown field; expected one of: {known}")
    # Many libraries write null for "not set".
    given = {name: value for name, value in described.items() if value is not None}
    for name in strings:
        if not isinstance(given.get(name, ""), str):
            raise InvalidValue(name, "must be a string")
    attributes = given.setdefault("attributes", {})
    values = attributes.values() if isinstance(attributes, dict) else (None,)
    if not all(isinstance(value, str) for value in values):
        raise InvalidValue("attributes", "must be an object of strings")
    return given
