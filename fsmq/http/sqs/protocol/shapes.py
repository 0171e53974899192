"""The members of each action, their types, and how the Query protocol flattens their lists.

A request of either protocol becomes a mapping in the form of JSON, with values of these types.
Other members are ignored, as by Amazon.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sized
from typing import Any

from ..errors import SqsError, invalid, missing

# The limit for parameters of a Query request, and for entries of a list or map in JSON. No
# action takes more, and some would read them all before they refuse them.
MAX_ENTRIES = 10_000
_MAX_PARTS = 8
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_INDEX = re.compile(r"[0-9]{1,9}")


class Shape(ABC):
    """A type. ``flat``: the name of a list's or a map's entries in the Query protocol."""

    flat: str | None = None

    @abstractmethod
    def of_json(self, name: str, value: Any) -> Any:
        """The value of a member in JSON. Raises SqsError."""

    @abstractmethod
    def of_query(self, name: str, node: Any) -> Any:
        """The same for the parameters below a name in the Query protocol. Raises SqsError."""


class Text(Shape):
    """A string."""

    def of_json(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong_type(name, "a string")
        return _encodable(name, value)

    def of_query(self, name: str, node: Any) -> str:
        return self.of_json(name, node)


class Contents(Text):
    """A string whose characters are checked later, by other rules."""

    def of_json(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong_type(name, "a string")
        return value


class Integer(Shape):
    """A whole number; as text in the Query protocol, and from some clients."""

    def of_json(self, name: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)
        raise _wrong_type(name, "an integer")

    def of_query(self, name: str, node: Any) -> int:
        if isinstance(node, str) and not _INTEGER.fullmatch(node):
            raise invalid(name, _shown(node), "Must be an integer.")
        return self.of_json(name, node)


class Blob(Shape):
    """Bytes, in base64."""

    def of_json(self, name: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise _wrong_type(name, "a string in base64")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise _wrong_type(name, "a string in base64") from None

    def of_query(self, name: str, node: Any) -> bytes:
        return self.of_json(name, node)


class Items(Shape):
    """A list."""

    def __init__(self, of: Shape, flat: str) -> None:
        self.of = of
        self.flat = flat

    def of_json(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong_type(name, "a list")
        _check_number(name, value)
        return [self.of.of_json(f"{name}.{n}", one) for n, one in enumerate(value, 1)]

    def of_query(self, name: str, node: Any) -> list[Any]:
        if isinstance(node, str):  # an empty list, or one item without a number
            return [self.of.of_query(name, node)] if node else []
        return [self.of.of_query(f"{name}.{at}", one) for at, one in _numbered(node)]


class Pairs(Shape):
    """A map; ``key`` and ``value``: the names of its entries' parts in the Query protocol."""

    def __init__(self, of: Shape, flat: str, key: str = "Name", value: str = "Value") -> None:
        self.of = of
        self.flat = flat
        self._key = key
        self._value = value

    def of_json(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong_type(name, "a map")
        _check_number(name, value)
        return {
            _encodable(name, key): self.of.of_json(f"{name}.{_shown(key)}", one)
            for key, one in value.items()
            if one is not None
        }

    def of_query(self, name: str, node: Any) -> dict[str, Any]:
        found = {}
        for at, one in _numbered(node):
            where = f"{name}.{at}"
            key = one.get(self._key) if isinstance(one, dict) else None
            if not isinstance(key, str):
                raise missing(f"{where}.{self._key}")
            if self._value not in one:
                raise missing(f"{where}.{self._value}")
            found[_encodable(where, key)] = self.of.of_query(where, one[self._value])
        return found


class Members(Shape):
    """A structure: the members of an action, or of an entry of a batch."""

    def __init__(self, members: Mapping[str, Shape], required: Iterable[str] = ()) -> None:
        self.members = members
        self.required = tuple(required)

    def of_json(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong_type(name or "the request", "an object")
        found, members = {}, self.members
        for member, one in value.items():
            if one is not None and (shape := members.get(member)) is not None:
                found[member] = shape.of_json(f"{name}.{member}" if name else member, one)
        return self._checked(name, found)

    def of_query(self, name: str, node: Any) -> dict[str, Any]:
        if not isinstance(node, dict):
            raise _wrong_type(name or "the request", "a structure")
        found = {}
        for member, shape in self.members.items():
            flat = shape.flat or member
            given = node.get(flat)
            if given is None and shape.flat is not None:
                given = node.get(f"{flat}s")
            if given is not None:
                found[member] = shape.of_query(_within(name, flat), given)
        return self._checked(name, found)

    def _checked(self, name: str, found: dict[str, Any]) -> dict[str, Any]:
        for member in self.required:
            if member not in found:
                raise missing(_within(name, member))
        return found


def tree(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Parameters as a tree, by the dots in their names; the first one of each name counts."""
    root: dict[str, Any] = {}
    for name, value in pairs:
        *path, last = name.split(".", _MAX_PARTS)
        node = root
        for part in path:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                break
            node = below
        else:
            node.setdefault(last, value)
    return root


def _numbered(node: Any) -> list[tuple[str, Any]]:
    """The entries of a list or a map, sorted by number; one without a number is the first."""
    if not isinstance(node, dict):
        return []
    entries = {at: one for at, one in node.items() if _INDEX.fullmatch(at)}
    if len(entries) < len(node):
        entries.setdefault("1", {name: one for name, one in node.items() if name not in entries})
    return sorted(entries.items(), key=lambda one: int(one[0]))


def _within(name: str, member: str) -> str:
    return f"{name}.{member}" if name else member


def _encodable(name: str, value: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(name, _shown(value), "It is not valid text.") from None
    return value


def _shown(value: str) -> str:
    return value[:256].encode("utf-8", "replace").decode()


def _check_number(name: str, value: Sized) -> None:
    if len(value) > MAX_ENTRIES:
        words = f"{name[:256]} has {len(value)} entries, more than {MAX_ENTRIES}."
        raise SqsError("SerializationException", words)


def _wrong_type(name: str, expected: str) -> SqsError:
    return SqsError("SerializationException", f"{name[:256]} is not {expected}.")


_TEXT, _NUMBER = Text(), Integer()
_URL = {"QueueUrl": _TEXT}
VALUE = Members(
    {"StringValue": Contents(), "BinaryValue": Blob(), "DataType": _TEXT},
    ["DataType"],
)
_ATTRIBUTES = Pairs(_TEXT, "Attribute")
_TAGS = Pairs(_TEXT, "Tag", "Key", "Value")
_MESSAGE: Mapping[str, Shape] = {
    "MessageBody": Contents(),
    "DelaySeconds": _NUMBER,
    "MessageAttributes": Pairs(VALUE, "MessageAttribute"),
    "MessageSystemAttributes": Pairs(VALUE, "MessageSystemAttribute"),
    "MessageDeduplicationId": _TEXT,
    "MessageGroupId": _TEXT,
}
_RECEIPT = {"ReceiptHandle": _TEXT}
_VISIBILITY = {"VisibilityTimeout": _NUMBER}
_PAGE = {"MaxResults": _NUMBER, "NextToken": _TEXT}


def _entries(action: str, members: Mapping[str, Shape], required: Iterable[str]) -> Items:
    entry = Members({"Id": _TEXT, **members}, ["Id", *required])
    return Items(entry, f"{action}RequestEntry")


def _queue(members: Mapping[str, Shape] | None = None, *required: str) -> Members:
    return Members({**_URL, **(members or {})}, ["QueueUrl", *required])


def _batch(action: str, members: Mapping[str, Shape], *required: str) -> Members:
    return _queue({"Entries": _entries(action, members, required)})


ACTIONS: Mapping[str, Members] = {
    "AddPermission": _queue(
        {
            "Label": _TEXT,
            "AWSAccountIds": Items(_TEXT, "AWSAccountId"),
            "Actions": Items(_TEXT, "ActionName"),
        },
        "Label",
        "AWSAccountIds",
        "Actions",
    ),
    "CancelMessageMoveTask": Members({"TaskHandle": _TEXT}, ["TaskHandle"]),
    "ChangeMessageVisibility": _queue(
        {**_RECEIPT, **_VISIBILITY}, "ReceiptHandle", "VisibilityTimeout"
    ),
    "ChangeMessageVisibilityBatch": _batch(
        "ChangeMessageVisibilityBatch", {**_RECEIPT, **_VISIBILITY}, "ReceiptHandle"
    ),
    "CreateQueue": Members(
        {"QueueName": _TEXT, "Attributes": _ATTRIBUTES, "tags": _TAGS}, ["QueueName"]
    ),
    "DeleteMessage": _queue(_RECEIPT, "ReceiptHandle"),
    "DeleteMessageBatch": _batch("DeleteMessageBatch", _RECEIPT, "ReceiptHandle"),
    "DeleteQueue": _queue(),
    "GetQueueAttributes": _queue({"AttributeNames": Items(_TEXT, "AttributeName")}),
    "GetQueueUrl": Members({"QueueName": _TEXT, "QueueOwnerAWSAccountId": _TEXT}, ["QueueName"]),
    "ListDeadLetterSourceQueues": _queue(_PAGE),
    "ListMessageMoveTasks": Members({"SourceArn": _TEXT, "MaxResults": _NUMBER}, ["SourceArn"]),
    "ListQueueTags": _queue(),
    "ListQueues": Members({"QueueNamePrefix": _TEXT, **_PAGE}),
    "PurgeQueue": _queue(),
    "ReceiveMessage": _queue(
        {
            "AttributeNames": Items(_TEXT, "AttributeName"),
            "MessageSystemAttributeNames": Items(_TEXT, "MessageSystemAttributeName"),
            "MessageAttributeNames": Items(_TEXT, "MessageAttributeName"),
            "MaxNumberOfMessages": _NUMBER,
            **_VISIBILITY,
            "WaitTimeSeconds": _NUMBER,
            "ReceiveRequestAttemptId": _TEXT,
        }
    ),
    "RemovePermission": _queue({"Label": _TEXT}, "Label"),
    "SendMessage": _queue(_MESSAGE, "MessageBody"),
    "SendMessageBatch": _batch("SendMessageBatch", _MESSAGE, "MessageBody"),
    "SetQueueAttributes": _queue({"Attributes": _ATTRIBUTES}, "Attributes"),
    "StartMessageMoveTask": Members(
        {
            "SourceArn": _TEXT,
            "DestinationArn": _TEXT,
            "MaxNumberOfMessagesPerSecond": _NUMBER,
        },
        ["SourceArn"],
    ),
    "TagQueue": _queue({"Tags": _TAGS}, "Tags"),
    "UntagQueue": _queue({"TagKeys": Items(_TEXT, "TagKey")}, "TagKeys"),
}
