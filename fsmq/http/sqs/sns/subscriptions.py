"""Actions on subscriptions of queues to topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from fsmq.spool import QueueSettings
from fsmq.spool.errors import InvalidValue, NoSuchQueue, NoSuchTopic
from fsmq.spool.resources import REDRIVE, SCOPES, Delivery, Filter, Policy, Scope, log_of

from ...guard.sight import seen_of
from ..ask import Action, Ask, Result
from ..errors import SqsError
from ..names import is_visible, queue_of_arn
from ..queue_attributes import as_object, object_in
from .arns import (
    FIFO,
    is_name,
    is_tagged,
    require,
    subscription_arn,
    subscription_of,
    topic_of,
)
from .faults import SnsError, invalid, no_such_subscription, no_such_topic
from .topics import OfTopics, paged

_RAW, _POLICY, _SCOPE = "RawMessageDelivery", "FilterPolicy", "FilterPolicyScope"
# Stored and shown as they were set; queues of this server need no delivery policy.
_KEPT = (REDRIVE, "DeliveryPolicy")
_FLAGS = {"true": True, "false": False}


class Subscriptions(OfTopics):
    """Actions on subscriptions."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "GetSubscriptionAttributes": self.describe,
            "ListSubscriptions": self.list_all,
            "ListSubscriptionsByTopic": self.list_of_topic,
            "SetSubscriptionAttributes": self.configure,
            "Subscribe": self.subscribe,
            "Unsubscribe": self.unsubscribe,
        }

    async def subscribe(self, ask: Ask) -> Result:
        topic = topic_of(ask.members["TopicArn"])
        require(ask, "admin", topic)
        _check_protocol(ask.members["Protocol"])
        queue = _endpoint(ask.get("Endpoint", ""))
        ask.require("admin", queue)
        self.topic(topic)
        given = ask.get("Attributes", {})
        self._check_redrive(ask, queue, given, _IN_SUBSCRIBE)
        await self._subscribe(topic, queue, given)
        return {"SubscriptionArn": subscription_arn(ask.options, topic, queue)}

    async def _subscribe(self, topic: str, queue: str, given: Mapping[str, str]) -> None:
        """Subscribe a queue; an existing subscription must have the given attributes.

        Raises SnsError, Unavailable.
        """
        delivery = _changed(Delivery(), given, _IN_SUBSCRIBE)

        def check(settings: QueueSettings) -> None:
            if settings.fifo and not topic.endswith(FIFO):
                raise invalid(_FIFO_TO_STANDARD)

        try:
            subscribe = self._service.resources.subscribe
            if await subscribe(topic, queue, delivery, keep=True, check=check):
                return
            now = await self._service.in_thread(self._spool.subscriptions, topic)
            found, wanted = _compared(now.get(queue)), _compared(delivery)
            if queue in now and any(found.get(name) != wanted.get(name) for name in given):
                words = "Attributes Reason: Subscription already exists with different attributes"
                raise invalid(words)
        except NoSuchQueue:
            raise invalid("Endpoint Reason: The queue does not exist") from None
        except NoSuchTopic:
            raise no_such_topic() from None

    async def unsubscribe(self, ask: Ask) -> Result:
        topic, tag = subscription_of(ask.members["SubscriptionArn"])
        require(ask, "admin", topic)
        with suppress(SnsError, NoSuchTopic):  # there is none, as requested
            queue, _ = await self._service.listing(self._find, ask, topic, tag)
            await self._service.resources.unsubscribe(topic, queue)
        return {}

    async def describe(self, ask: Ask) -> Result:
        arn = ask.members["SubscriptionArn"]
        topic, tag = subscription_of(arn)
        require(ask, None, topic)
        queue, filter = await self._service.listing(self._find, ask, topic, tag)
        found = {
            "SubscriptionArn": arn,
            "TopicArn": ask.options.topic_arn(topic),
            "Protocol": "sqs",
            "Endpoint": ask.options.arn(queue),
            "Owner": ask.options.account,
            "ConfirmationWasAuthenticated": "true",
            "PendingConfirmation": "false",
            "SubscriptionPrincipal": f"arn:aws:iam::{ask.options.account}:root",
        }
        return {"Attributes": {**found, **_described(filter)}}

    async def configure(self, ask: Ask) -> Result:
        topic, tag = subscription_of(ask.members["SubscriptionArn"])
        require(ask, "admin", topic)
        given = {ask.members["AttributeName"]: ask.get("AttributeValue", "")}
        queue, _ = await self._service.listing(self._find, ask, topic, tag)
        self._check_redrive(ask, queue, given)

        def change(now: Filter | None) -> Filter:
            if now is None:
                now = Delivery(raw=True)  # a subscription without content, as made with touch
            if not isinstance(now, Delivery):
                raise invalid("SubscriptionArn Reason: It has a filter of another dialect")
            return _changed(now, given)

        if not await self._service.resources.change_filter(topic, queue, change):
            raise no_such_subscription()
        return {}

    def _check_redrive(
        self, ask: Ask, queue: str, given: Mapping[str, str], before: str = ""
    ) -> None:
        """Check that a redrive policy names a queue for messages that cannot be delivered.

        Raises SnsError, SqsError, Unavailable.
        """
        if not given.get(REDRIVE):
            return
        policy = as_object(given[REDRIVE])
        if "deadLetterTargetArn" not in policy:
            raise invalid(f"{before}{REDRIVE}: failed to parse JSON.")
        try:
            target = queue_of_arn(str(policy["deadLetterTargetArn"]), REDRIVE)
        except SqsError:
            raise invalid(f"{before}{REDRIVE}: deadLetterTargetArn is an invalid arn") from None
        # Otherwise an admin of one topic could put messages into any queue.
        ask.require("admin", target)
        if not is_visible(target) or not self._spool.has_queue(target):
            raise invalid(f"{before}{REDRIVE}: the dead-letter queue does not exist")
        is_there = self._spool.has_queue(queue)
        is_fifo = self._spool.settings(queue).fifo if is_there else queue.endswith(FIFO)
        if self._spool.settings(target).fifo != is_fifo:
            raise invalid(f"{before}{REDRIVE}: {_WRONG_DEAD_LETTERS[is_fifo]}")

    async def list_of_topic(self, ask: Ask) -> Result:
        topic = topic_of(ask.members["TopicArn"])
        require(ask, None, topic)
        self.topic(topic)
        pairs = await self._service.listing(lambda: list(self._pairs(ask, [topic])))
        return _listed(ask, pairs)

    async def list_all(self, ask: Ask) -> Result:
        visible = ask.identity.visible_topics
        names = await self._service.names(ask.call, self._spool.topics, visible)
        pairs = await self._service.listing(lambda: list(self._pairs(ask, filter(is_name, names))))
        return _listed(ask, pairs)

    def _pairs(self, ask: Ask, topics: Iterable[str]) -> Iterator[tuple[str, str]]:
        for topic in topics:
            try:
                found = seen_of(ask.identity, self._spool.context.topics.filters(topic))
            except NoSuchTopic:
                continue
            for queue in found:
                if log_of(queue) is None and is_visible(queue):
                    yield topic, queue

    def _find(self, ask: Ask, topic: str, tag: str) -> tuple[str, Filter | None]:
        """A subscribed queue that the sender may see, and its filter. Raises SnsError."""
        try:
            found = seen_of(ask.identity, self._spool.context.topics.filters(topic))
            for queue, filter in found.items():
                if log_of(queue) is None and is_tagged(tag, topic, queue):
                    return queue, filter
        except NoSuchTopic:
            pass
        raise no_such_subscription()


_IN_SUBSCRIBE = "Attributes Reason: "
_FIFO_TO_STANDARD = (
    "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS"
    " topics"  # "Invalid parameter: " appears twice, as in SNS
)
_WRONG_DEAD_LETTERS = {
    True: "must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic.",
    False: "must use a standard queue as DLQ for a standard subscription.",
}
# The other protocols of SNS.
_OTHERS = ("application", "email", "email-json", "firehose", "http", "https", "lambda", "sms")


def _check_protocol(protocol: str) -> None:
    """Raises SnsError for any protocol but that of queues."""
    if protocol in _OTHERS:
        raise invalid(f"fsmq does not support the protocol {protocol}: it delivers to queues (sqs)")
    if protocol != "sqs":
        raise invalid(f"Amazon SNS does not support this protocol string: {protocol[:100]}")


def _endpoint(arn: str) -> str:
    try:
        queue = queue_of_arn(arn, "Endpoint")
    except SqsError:
        raise invalid("SQS endpoint ARN") from None
    if not is_visible(queue):
        raise invalid("SQS endpoint ARN")
    return queue


def _compared(filter: Filter | None) -> dict[str, Any]:
    """The attributes of a subscription, parsed, so that equal JSON compares as equal."""
    if not isinstance(filter, Delivery):
        policy = None if filter is None else filter.policy
        return {_RAW: True, _SCOPE: SCOPES[0], _POLICY: policy}
    kept = {name: as_object(text) for name, text in filter.kept.items()}
    return {_RAW: filter.raw, _SCOPE: filter.scope, _POLICY: filter.policy, **kept}


def _changed(now: Delivery, given: Mapping[str, str], before: str = "") -> Delivery:
    """A subscription with other attributes; ``before``: how errors begin. Raises SnsError."""
    raw, scope, kept = now.raw, now.scope, dict(now.kept)
    text = None if now.sns is None else now.sns.text
    for name, value in given.items():
        if name == _RAW:
            if value.lower() not in _FLAGS:
                words = f"{_RAW}: Invalid value [{value[:50]}]. Must be true or false."
                raise invalid(before + words)
            raw = _FLAGS[value.lower()]
        elif name == _SCOPE:
            scope = _scope(value, before)
        elif name == _POLICY:
            text = value if value.strip() not in ("", "{}") else None
        elif name in _KEPT:
            kept = _with(kept, name, value, before)
        else:
            raise invalid("AttributeName")
    try:
        # An existing policy stays valid as it is; only a new one is checked by all rules.
        policy = None if text is None else Policy(text, scope, is_new=_POLICY in given)
    except InvalidValue as error:
        named = "" if error.field == _SCOPE else f"{_POLICY}: "
        raise invalid(f"{before}{named}{error.problem}") from None
    return Delivery(policy, scope=scope, raw=raw, kept=kept)


def _scope(value: str, before: str) -> Scope:
    for scope in SCOPES:
        if value == scope:
            return scope
    accepted = " or ".join(reversed(SCOPES))
    raise invalid(f"{before}{_SCOPE}: Invalid value [{value[:50]}]. Please use either {accepted}")


def _with(kept: dict[str, str], name: str, value: str, before: str) -> dict[str, str]:
    if not value:
        return {one: text for one, text in kept.items() if one != name}
    if object_in(value, 4096) is None:
        raise invalid(f"{before}{name}: failed to parse JSON.")
    return {**kept, name: value}


def _described(filter: Filter | None) -> dict[str, str]:
    """The attributes that depend on the filter of a subscription."""
    if not isinstance(filter, Delivery):
        found = {_RAW: "true"}
        if filter is not None:
            found |= {_POLICY: json.dumps(filter.policy), _SCOPE: SCOPES[0]}
        return found
    found = {_RAW: str(filter.raw).lower(), **filter.kept}
    if filter.sns is not None:
        found |= {_POLICY: filter.sns.text, _SCOPE: filter.scope}
    return found


def _listed(ask: Ask, pairs: list[tuple[str, str]]) -> Result:
    found, token = paged(ask, pairs)
    listed = [
        {
            "SubscriptionArn": subscription_arn(ask.options, topic, queue),
            "Owner": ask.options.account,
            "Protocol": "sqs",
            "Endpoint": ask.options.arn(queue),
            "TopicArn": ask.options.topic_arn(topic),
        }
        for topic, queue in found
    ]
    return {"Subscriptions": listed, **token}
