"""ARNs of topics and subscriptions, and the check of rights on topics."""

from __future__ import annotations

import re
import uuid

from fsmq.spool.checks import is_queue

from ...guard import access
from ...guard.keys import Right
from ...problems import Forbidden
from ..ask import Ask
from ..names import SqsOptions
from .faults import SnsError, invalid, no_such_subscription, no_such_topic

FIFO = ".fifo"
MAX_NAME = 180
_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.fifo)?")
_TOPIC_PARTS = 6


def is_name(topic: str) -> bool:
    """Whether the name of a topic is valid in SNS."""
    return len(topic) <= MAX_NAME and _NAME.fullmatch(topic) is not None and is_queue(topic)


def topic_of(arn: str, parameter: str = "TopicArn") -> str:
    """The topic in an ARN. Raises SnsError."""
    parts = _parts(arn, parameter)
    if parts[:3] != ["arn", "aws", "sns"]:
        raise invalid(f"{parameter} Reason: It is not the ARN of a topic")
    if not is_name(parts[5]):
        raise no_such_topic()
    return parts[5]


def _parts(arn: str, parameter: str) -> list[str]:
    parts = arn.split(":")
    if len(parts) < _TOPIC_PARTS:
        count = len(parts)
        raise invalid(f"{parameter} Reason: An ARN must have at least 6 elements, not {count}")
    return parts


def subscription_arn(options: SqsOptions, topic: str, queue: str) -> str:
    """The ARN of a subscription: always the same for a topic and a queue."""
    return f"{options.topic_arn(topic)}:{_tag(topic, queue)}"


def subscription_of(arn: str) -> tuple[str, str]:
    """The topic in a subscription's ARN, and the tag of the subscription. Raises SnsError."""
    parts = _parts(arn, "SubscriptionArn")
    if len(parts) != _TOPIC_PARTS + 1 or parts[:3] != ["arn", "aws", "sns"]:
        raise invalid("SubscriptionId")
    if not is_name(parts[5]):
        raise no_such_subscription()
    return parts[5], parts[6]


def is_tagged(tag: str, topic: str, queue: str) -> bool:
    """Whether a tag is that of a queue's subscription."""
    return tag == _tag(topic, queue)


def require(ask: Ask, right: Right | None, topic: str) -> None:
    """Check a right on a topic; None: any. Raises SnsError, Unauthorized."""
    try:
        if right is None:
            ask.identity.require_sight(access.topic(topic))
        else:
            ask.identity.require(right, access.topic(topic))
    except Forbidden:
        words = (
            f"User: {ask.identity.name} is not authorized to perform: SNS:{ask.action} on"
            f" resource: {ask.options.topic_arn(topic)}"
        )
        raise SnsError("AuthorizationError", words) from None


def _tag(topic: str, queue: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{topic}/{queue}"))
