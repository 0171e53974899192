"""Actions that create, list, describe, tag and delete topics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from fsmq.spool.errors import NoSuchTopic
from fsmq.spool.resources import log_of

from ...guard.sight import seen_of
from ..actions.tags import MAX_TAGS, check_tags
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError
from ..flags import in_small_letters
from ..queue_attributes import MAX_MESSAGE_BYTES, object_in
from .arns import FIFO, is_name, require, topic_of
from .faults import SnsError, invalid, no_such_topic

T = TypeVar("T")
PAGE = 100
CONTENT_BASED = "ContentBasedDeduplication"
_FIFO_TOPIC, _MAX_SIZE = "FifoTopic", "MaximumMessageSize"
_DEFAULT_BYTES = 262_144
_FLAGS = ("true", "false")
_OBJECTS = ("DeliveryPolicy", "Policy", "ArchivePolicy")
_TEXTS = (
    "DisplayName",
    "KmsMasterKeyId",
    "TracingConfig",
    "SignatureVersion",
    "DataProtectionPolicy",
    "FifoThroughputScope",
)
_SIZE = re.compile(r"[0-9]{4,7}")
_MAX_TEXT = 4096


class Topic(NamedTuple):
    """What is stored with a topic for clients of SNS."""

    name: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(FIFO)

    @property
    def limit(self) -> int:
        """The most bytes of a message."""
        size = self.attributes.get(_MAX_SIZE, "")
        return min(int(size), MAX_MESSAGE_BYTES) if _SIZE.fullmatch(size) else _DEFAULT_BYTES

    def kept(self) -> dict[str, Any]:
        return {"attributes": dict(self.attributes), "tags": dict(self.tags)}


class OfTopics(Actions):
    """The base class of actions on topics."""

    def topic(self, name: str) -> Topic:
        """An existing topic. Raises SnsError, Unavailable."""
        try:
            return _topic(name, self._spool.context.topics.about(name))
        except NoSuchTopic:
            raise no_such_topic() from None


class Topics(OfTopics):
    """Actions on topics."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "CreateTopic": self.create,
            "DeleteTopic": self.delete,
            "GetTopicAttributes": self.describe,
            "ListTagsForResource": self.list_tags,
            "ListTopics": self.list_topics,
            "SetTopicAttributes": self.configure,
            "TagResource": self.tag,
            "UntagResource": self.untag,
        }

    async def create(self, ask: Ask) -> Result:
        name = ask.members["Name"]
        if not is_name(name):
            raise invalid("Topic Name")
        require(ask, "admin", name)
        given = in_small_letters(ask.get("Attributes", {}))
        if (given.pop(_FIFO_TOPIC, "false") == "true") != name.endswith(FIFO):
            raise invalid("Topic Name")
        for attribute, value in given.items():
            _check(attribute, value, name.endswith(FIFO))
        wanted = Topic(name, given, _checked_tags(ask))
        await self._create(wanted)
        return {"TopicArn": ask.options.topic_arn(name)}

    async def _create(self, wanted: Topic) -> None:
        """Create a topic; an existing one must have the given attributes and tags."""

        def change(about: Mapping[str, Any]) -> Mapping[str, Any]:
            if not about:
                return wanted.kept()
            now = _topic(wanted.name, about)
            for name, value in wanted.attributes.items():
                if now.attributes.get(name, _DEFAULTS.get(name)) != value:
                    words = "Attributes Reason: Topic already exists with different attributes"
                    raise invalid(words)
            if not wanted.tags.items() <= now.tags.items():
                raise invalid("Tags Reason: Topic already exists with different tags")
            return about

        await self._service.resources.describe_topic(wanted.name, change, creates=True)

    async def delete(self, ask: Ask) -> Result:
        name = topic_of(ask.members["TopicArn"])
        require(ask, "admin", name)
        with suppress(NoSuchTopic):
            await self._service.resources.delete_topic(name)
        return {}

    async def list_topics(self, ask: Ask) -> Result:
        visible = ask.identity.visible_topics
        names = await self._service.names(ask.call, self._spool.topics, visible)
        arns = [ask.options.topic_arn(name) for name in names if is_name(name)]
        found, token = paged(ask, arns)
        return {"Topics": [{"TopicArn": arn} for arn in found], **token}

    async def describe(self, ask: Ask) -> Result:
        name = topic_of(ask.members["TopicArn"])
        require(ask, None, name)
        topic = self.topic(name)
        subscribed = await self._service.listing(self._spool.context.topics.filters, name)
        seen = seen_of(ask.identity, subscribed)
        queues = [one for one in seen if log_of(one) is None]
        found = {
            "TopicArn": ask.options.topic_arn(name),
            "Owner": ask.options.account,
            "DisplayName": "",
            "Policy": _policy(ask, name),
            "EffectiveDeliveryPolicy": _DELIVERY,
            "SubscriptionsConfirmed": str(len(queues)),
            "SubscriptionsPending": "0",
            "SubscriptionsDeleted": "0",
        }
        if topic.is_fifo:
            found |= {_FIFO_TOPIC: "true", CONTENT_BASED: "false"}
        return {"Attributes": {**found, **topic.attributes}}

    async def configure(self, ask: Ask) -> Result:
        given = {ask.members["AttributeName"]: ask.get("AttributeValue", "")}
        [(attribute, value)] = in_small_letters(given).items()

        def change(topic: Topic) -> Topic:
            _check(attribute, value, topic.is_fifo)
            left = {k: v for k, v in topic.attributes.items() if k != attribute}
            return topic._replace(attributes={**left, attribute: value} if value else left)

        return await self._change(ask, "TopicArn", change)

    async def list_tags(self, ask: Ask) -> Result:
        name = topic_of(ask.members["ResourceArn"], "ResourceArn")
        require(ask, None, name)
        tags = self.topic(name).tags
        return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    async def tag(self, ask: Ask) -> Result:
        tags = _checked_tags(ask)

        def change(topic: Topic) -> Topic:
            return topic._replace(tags=_checked_number({**topic.tags, **tags}))

        return await self._change(ask, "ResourceArn", change)

    async def untag(self, ask: Ask) -> Result:
        keys = ask.members["TagKeys"]

        def change(topic: Topic) -> Topic:
            return topic._replace(tags={k: v for k, v in topic.tags.items() if k not in keys})

        return await self._change(ask, "ResourceArn", change)

    async def _change(self, ask: Ask, parameter: str, change: Callable[[Topic], Topic]) -> Result:
        name = topic_of(ask.members[parameter], parameter)
        require(ask, "admin", name)

        def changed(about: Mapping[str, Any]) -> Mapping[str, Any]:
            return {**about, **change(_topic(name, about)).kept()}

        try:
            await self._service.resources.describe_topic(name, changed)
        except NoSuchTopic:
            raise no_such_topic() from None
        return {}


def paged(ask: Ask, things: Sequence[T]) -> tuple[Sequence[T], dict[str, str]]:
    """The requested page of a list, and the token of the next one. Raises SnsError."""
    token = ask.get("NextToken") or "0"
    if not token.isascii() or not token.isdigit() or len(token) > 9:
        raise invalid("NextToken")
    start = int(token)
    more = {"NextToken": str(start + PAGE)} if start + PAGE < len(things) else {}
    return things[start : start + PAGE], more


def _check(name: str, value: str, is_fifo: bool) -> None:
    """Check the value of an attribute. Raises SnsError."""
    if name == CONTENT_BASED and is_fifo:
        is_good = value in _FLAGS
    elif name == _MAX_SIZE:
        is_good = _SIZE.fullmatch(value) is not None and 1024 <= int(value) <= MAX_MESSAGE_BYTES
    elif name in _OBJECTS:
        is_good = not value or object_in(value) is not None
    elif name in _TEXTS or "FeedbackRoleArn" in name or "FeedbackSampleRate" in name:
        is_good = len(value) <= _MAX_TEXT
    else:
        raise invalid("AttributeName")
    if not is_good:
        raise invalid(f"Attributes Reason: {name}: Invalid value")


def _checked_tags(ask: Ask) -> dict[str, str]:
    tags = ask.get("Tags", [])
    given = {one["Key"]: one["Value"] for one in tags}
    if len(given) < len(tags):
        raise invalid("Duplicated keys are not allowed.")
    try:
        return _checked_number(dict(check_tags(given)))
    except SqsError as error:
        raise invalid(error.words) from None


def _checked_number(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        words = "Could not complete request: tag quota of per resource exceeded"
        raise SnsError("TagLimitExceeded", words)
    return tags


def _topic(name: str, about: Mapping[str, Any]) -> Topic:
    return Topic(name, _texts(about.get("attributes")), _texts(about.get("tags")))


def _texts(given: Any) -> dict[str, str]:
    """A map of texts; other types, which someone wrote by hand, are left out."""
    if not isinstance(given, dict):
        return {}
    return {name: value for name, value in given.items() if isinstance(value, str)}


# The actions that the default policy of a topic allows.
_BY_DEFAULT = (
    "GetTopicAttributes",
    "SetTopicAttributes",
    "AddPermission",
    "RemovePermission",
    "DeleteTopic",
    "Subscribe",
    "ListSubscriptionsByTopic",
    "Publish",
)
_DEFAULTS: Mapping[str, str] = {CONTENT_BASED: "false", "DisplayName": ""}
_DELIVERY = json.dumps(
    {
        "http": {
            "defaultHealthyRetryPolicy": {
                "minDelayTarget": 20,
                "maxDelayTarget": 20,
                "numRetries": 3,
                "numMaxDelayRetries": 0,
                "numNoDelayRetries": 0,
                "numMinDelayRetries": 0,
                "backoffFunction": "linear",
            },
            "disableSubscriptionOverrides": False,
            "defaultRequestPolicy": {"headerContentType": "text/plain; charset=UTF-8"},
        }
    }
)


def _policy(ask: Ask, topic: str) -> str:
    arn = ask.options.topic_arn(topic)
    statement = {
        "Effect": "Allow",
        "Sid": "__default_statement_ID",
        "Principal": {"AWS": "*"},
        "Action": [f"SNS:{action}" for action in _BY_DEFAULT],
        "Resource": arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": ask.options.account}},
    }
    policy = {"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": [statement]}
    return json.dumps(policy)
