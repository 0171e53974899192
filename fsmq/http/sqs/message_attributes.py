"""Attributes of messages: what SQS allows, their MD5, and how a header block stores them.

Attributes that fsmq's rules allow are stored as ordinary ones, which other dialects, topics and
`grep` see. All others are stored together in one line of JSON. Lines that begin with ``sqs.``
belong to this dialect.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fsmq.spool.checks import MAX_HEADER_BYTES, is_attribute_name
from fsmq.spool.on_disk import OWN, is_own

from .errors import SqsError, invalid

MAX_ATTRIBUTES = 10
_OTHERS = "sqs.attributes"
_NAME_CHARACTERS = re.compile(r"[A-Za-z0-9_\-.\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff]{1,256}")
_MAX_NAME = 256
_FIELDS = ("StringValue", "BinaryValue")
_TYPE = re.compile(r"(?:String|Number|Binary)(?:\.[^\x00-\x1f]{1,249})?")
# Digits are not given back: for a long text that is no number that would take quadratic time.
_NUMBER = re.compile(r"\s*+[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,4})?\s*+")
_MAX_DIGITS = 38
# A line of a header block: no control characters but the tab, and no space at its ends.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LEGAL = re.compile(r"[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
_TRACE = "AWSTraceHeader"
_STRING, _BINARY = b"\x01", b"\x02"


class BadAttribute(SqsError):
    """An attribute that is refused. of_sns: the error in SNS, if that differs."""

    def __init__(self, words: str, of_sns: str | None = None) -> None:
        super().__init__("InvalidParameterValueException", words)
        self.of_sns = words if of_sns is None else of_sns


class Attribute(NamedTuple):
    """A type, and a value of text or bytes."""

    kind: str
    value: str | bytes

    @property
    def raw(self) -> bytes:
        return self.value if isinstance(self.value, bytes) else self.value.encode()

    def encoded(self) -> dict[str, str]:
        """Its form in answers."""
        if isinstance(self.value, bytes):
            return {"BinaryValue": base64.b64encode(self.value).decode(), "DataType": self.kind}
        return {"StringValue": self.value, "DataType": self.kind}


def is_legal(text: str) -> bool:
    """Whether SQS allows all characters of a text."""
    return _LEGAL.fullmatch(text) is not None


def checked(
    given: Mapping[str, Mapping[str, Any]], most: int | None = MAX_ATTRIBUTES
) -> dict[str, Attribute]:
    """The attributes of a request; at most ``most``, None: any number. Raises SqsError."""
    if most is not None and len(given) > most:
        words = f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{most}]."
        raise SqsError("InvalidParameterValueException", words)
    return {_checked_name(name): _checked(name, value) for name, value in given.items()}


def checked_system(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Attribute]:
    """The system attributes of a request. Raises SqsError."""
    for name in given:
        if name != _TRACE:
            raise invalid("MessageSystemAttributes", name, "It is not a system attribute to send.")
    return {name: _checked(name, value) for name, value in given.items()}


def md5_of(attributes: Mapping[str, Attribute]) -> str:
    """The MD5 of attributes, as clients compute it."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        one = attributes[name]
        mark = _BINARY if isinstance(one.value, bytes) else _STRING
        for part in (name.encode(), one.kind.encode()):
            digest.update(struct.pack(">I", len(part)) + part)
        digest.update(mark + struct.pack(">I", len(one.raw)) + one.raw)
    return digest.hexdigest()


def size_of(attributes: Mapping[str, Attribute]) -> int:
    """The bytes by which attributes add to the size of a message."""
    return sum(
        len(name.encode()) + len(one.kind.encode()) + len(one.raw)
        for name, one in attributes.items()
    )


def packed(attributes: Mapping[str, Attribute]) -> dict[str, str]:
    """The lines of a header block for attributes. Raises SqsError."""
    lines: dict[str, str] = {}
    others: dict[str, list[str]] = {}
    names = set()
    for name, one in attributes.items():
        if _is_plain(name, one) and name.lower() not in names:
            names.add(name.lower())
            lines[name] = str(one.value)
        else:
            value = one.value
            text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
            others[name] = [one.kind, text]
    if others:
        lines[_OTHERS] = json.dumps(others, separators=(",", ":"))
    size = sum(len(name) + len(value.encode()) + 3 for name, value in lines.items())
    if size > MAX_HEADER_BYTES - 2048:
        words = f"Message attributes may have {MAX_HEADER_BYTES - 2048} bytes in all here."
        raise SqsError("InvalidParameterValueException", words)
    return lines


def unpacked(lines: Mapping[str, str]) -> dict[str, Attribute]:
    """The attributes in a header block; what cannot be read is left out."""
    found = {
        name: Attribute("String", value) for name, value in lines.items() if name[:4] != "sqs."
    }
    if _OTHERS in lines:
        found.update(_others(lines[_OTHERS]))
    return found


def _others(line: str) -> dict[str, Attribute]:
    try:
        given = json.loads(line)
        return {_text(name): _other(*map(_text, one)) for name, one in given.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}  # someone wrote it by hand


def _text(given: object) -> str:
    """A text that can be encoded. Raises ValueError: it has half of a surrogate pair."""
    return str(given).encode().decode()


def _other(kind: str, text: str) -> Attribute:
    is_binary = kind.partition(".")[0] == "Binary"
    return Attribute(kind, base64.b64decode(text) if is_binary else text)


def wanted(attributes: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Those of the attributes that a receive asks for."""
    exact = frozenset(names)
    if not exact or not attributes:
        return {}
    if not exact.isdisjoint(("All", ".*", "*")):
        return dict(attributes)
    starts: list[str] = []
    for start in sorted(name[:-2] for name in exact if name.endswith(".*")):
        if not starts or not start.startswith(starts[-1]):
            starts.append(start)

    def begins(name: str) -> bool:
        # None of them begins with another one, so only the last one before the name can be its.
        place = bisect_right(starts, name)
        return place > 0 and name.startswith(starts[place - 1])

    return {name: one for name, one in attributes.items() if name in exact or begins(name)}


def _is_plain(name: str, one: Attribute) -> bool:
    return (
        one.kind == "String"
        and isinstance(one.value, str)
        and is_attribute_name(name)
        and not name.startswith("sqs.")
        and not _UNPRINTABLE.search(one.value)
        and one.value == one.value.strip()
    )


def _checked_name(name: str) -> str:
    parts = name.split(".")
    if not _NAME_CHARACTERS.fullmatch(name) or "" in parts:
        rule = "can contain letters, digits, _, - and single dots inside, 256 at most"
        raise _bad(name, rule, _of_name(name))
    if name.lower().startswith(("aws.", "amazon.")):
        raise _bad(name, "must not begin with AWS. or Amazon.")
    if is_own(name):
        raise _bad(name, f"must not begin with {OWN}")
    return name


def _of_name(name: str) -> str:
    """The error of SNS for an invalid name."""
    if len(name) > _MAX_NAME:
        return "Length of message attribute name must be less than 256 bytes."
    for character in name:
        if not _NAME_CHARACTERS.fullmatch(character):
            return (
                f"Invalid non-alphanumeric character '#x{ord(character):X}' was found in the"
                " message attribute name. Can only include alphanumeric characters, hyphens,"
                " underscores, or dots."
            )
    for is_there, where in ((name[:1] == ".", "starting"), (name[-1:] == ".", "ending")):
        if is_there:
            return f"Invalid message attribute name {where} with character '.' was found."
    return "Message attribute name can not have successive '.' character."


def _checked(name: str, given: Mapping[str, Any]) -> Attribute:
    kind = given["DataType"]
    if not _TYPE.fullmatch(kind):
        accepted = "the set of supported type prefixes is Binary, Number, and String"
        raise _bad(name, f"has an invalid message attribute type, {accepted}")
    base = kind.partition(".")[0]
    field, other = _FIELDS[base == "Binary"], _FIELDS[base != "Binary"]
    value = given.get(field)
    if not value:
        problem = (
            f"must contain non-empty message attribute value for message attribute type '{base}'"
        )
        if given.get(other):
            problem = f"with type '{base}' must use field '{field.removesuffix('Value')}'"
        words = (
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{base}'."
        )
        raise BadAttribute(words, f"The message attribute '{name}' {problem}.")
    if isinstance(value, str):
        _check_text(name, base, value)
    return Attribute(kind, value)


def _check_text(name: str, base: str, value: str) -> None:
    if not is_legal(value):
        raise _bad(name, "has characters that are not allowed")
    if base == "Number" and (
        not _NUMBER.fullmatch(value)
        or sum(map(str.isdigit, value.lower().partition("e")[0])) > _MAX_DIGITS
    ):
        raise _bad(name, "is not a number of at most 38 digits")


def _bad(name: str, rule: str, of_sns: str | None = None) -> BadAttribute:
    shown = name[:_MAX_NAME].encode("utf-8", "replace").decode()
    return BadAttribute(f"The message attribute '{shown}' {rule}.", of_sns)
