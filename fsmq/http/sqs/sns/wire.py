"""Requests and answers of SNS: the Query protocol, with ``member`` in lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp.web import Response

from ..protocol.protocol import Asked, leaf, xml_answer, xml_refusal
from ..protocol.shapes import VALUE, Contents, Items, Members, Pairs, Shape, Text
from .faults import SnsError

_VERSION = "2010-03-31"
_SPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
# Actions of both SQS and SNS; those of SNS have a topic.
_SHARED = ("AddPermission", "RemovePermission")
# Actions whose answers have no result at all.
_VOID = ("DeleteTopic", "SetSubscriptionAttributes", "SetTopicAttributes", "Unsubscribe")


class _Listed(Items):
    """A list, whose entries are below ``member``."""

    def __init__(self, of: Shape) -> None:
        super().__init__(of, "member")
        self.flat = None

    def of_query(self, name: str, node: Any) -> list[Any]:
        below = node.get("member", {}) if isinstance(node, dict) else node
        return super().of_query(name, below)


class _Entries(Pairs):
    """A map, whose entries are below ``entry``."""

    def __init__(self, of: Shape, key: str = "key", value: str = "value") -> None:
        super().__init__(of, "entry", key, value)
        self.flat = None

    def of_query(self, name: str, node: Any) -> dict[str, Any]:
        return super().of_query(name, node.get("entry") if isinstance(node, dict) else node)


_TEXT = Text()
_VALUE = Members(VALUE.members)  # a missing type has an error of its own
_TAG = Members({"Key": _TEXT, "Value": _TEXT}, ["Key", "Value"])
_TAGS = {"Tags": _Listed(_TAG)}
_ATTRIBUTES = {"Attributes": _Entries(_TEXT)}
_ATTRIBUTE = {"AttributeName": _TEXT, "AttributeValue": _TEXT}
_TOPIC, _RESOURCE = {"TopicArn": _TEXT}, {"ResourceArn": _TEXT}
_SUBSCRIPTION = {"SubscriptionArn": _TEXT}
_TOKEN = {"NextToken": _TEXT}
_MESSAGE: Mapping[str, Shape] = {
    "Message": Contents(),
    "Subject": _TEXT,
    "MessageStructure": _TEXT,
    "MessageAttributes": _Entries(_VALUE, "Name", "Value"),
    "MessageDeduplicationId": _TEXT,
    "MessageGroupId": _TEXT,
}

ACTIONS: Mapping[str, Members] = {
    "CreateTopic": Members({"Name": _TEXT, **_ATTRIBUTES, **_TAGS}, ["Name"]),
    "DeleteTopic": Members(_TOPIC, ["TopicArn"]),
    "GetSubscriptionAttributes": Members(_SUBSCRIPTION, ["SubscriptionArn"]),
    "GetTopicAttributes": Members(_TOPIC, ["TopicArn"]),
    "ListSubscriptions": Members(_TOKEN),
    "ListSubscriptionsByTopic": Members({**_TOPIC, **_TOKEN}, ["TopicArn"]),
    "ListTagsForResource": Members(_RESOURCE, ["ResourceArn"]),
    "ListTopics": Members(_TOKEN),
    "Publish": Members({**_TOPIC, "TargetArn": _TEXT, "PhoneNumber": _TEXT, **_MESSAGE}),
    "PublishBatch": Members(
        {
            **_TOPIC,
            "PublishBatchRequestEntries": _Listed(Members({"Id": _TEXT, **_MESSAGE}, ["Id"])),
        },
        ["TopicArn"],
    ),
    "SetSubscriptionAttributes": Members(
        {**_SUBSCRIPTION, **_ATTRIBUTE}, ["SubscriptionArn", "AttributeName"]
    ),
    "SetTopicAttributes": Members({**_TOPIC, **_ATTRIBUTE}, ["TopicArn", "AttributeName"]),
    "Subscribe": Members(
        {**_TOPIC, "Protocol": _TEXT, "Endpoint": _TEXT, **_ATTRIBUTES}, ["TopicArn", "Protocol"]
    ),
    "TagResource": Members({**_RESOURCE, **_TAGS}, ["ResourceArn", "Tags"]),
    "Unsubscribe": Members(_SUBSCRIPTION, ["SubscriptionArn"]),
    "UntagResource": Members({**_RESOURCE, "TagKeys": _Listed(_TEXT)}, ["ResourceArn", "TagKeys"]),
}


def is_asked(given: Mapping[str, Any]) -> bool:
    """Whether a request of the Query protocol is one of SNS."""
    action = given.get("Action")
    if "Version" in given:
        return bool(given["Version"] == _VERSION)
    return action in ACTIONS or (action in _SHARED and "TopicArn" in given)


def read(given: Mapping[str, Any]) -> Asked:
    """Read a request of SNS. Raises SnsError, SqsError."""
    action = given.get("Action")
    if not isinstance(action, str) or action not in ACTIONS:
        words = f"The action {str(action)[:100]} is not valid for this web service."
        raise SnsError("InvalidAction", words)
    return Asked(action, ACTIONS[action].of_query("", given))


def answer(action: str, result: Mapping[str, Any], request_id: str) -> Response:
    """The answer with the result of an action."""
    inner = "".join(_members(result))
    named = "" if action in _VOID else f"<{action}Result>{inner}</{action}Result>"
    return xml_answer(_SPACE, action, named, request_id)


def refuse(error: SnsError, request_id: str) -> Response:
    """The answer with an error."""
    told = error.code, error.words, ""
    return xml_refusal(_SPACE, error.status, told, request_id, error.retry_after)


def _members(result: Mapping[str, Any]) -> Iterator[str]:
    for name, value in result.items():
        if isinstance(value, list):
            yield f"<{name}>"
            for one in value:
                yield f"<member>{''.join(_members(one))}</member>"
            yield f"</{name}>"
        elif isinstance(value, dict):
            yield f"<{name}>"
            for key, one in value.items():
                yield f"<entry>{''.join((*leaf('key', key), *leaf('value', one)))}</entry>"
            yield f"</{name}>"
        elif isinstance(value, bool):
            yield from leaf(name, str(value).lower())
        else:
            yield from leaf(name, value)
