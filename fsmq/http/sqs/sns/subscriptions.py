"""Actions on subscriptions of queues to topics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from fsmq.spool.errors import InvalidValue, NoSuchQueue, NoSuchTopic
from fsmq.spool.layout.deliveries import Delivery
from fsmq.spool.layout.filters import Filter
from fsmq.spool.layout.policies import SCOPES, Policy, Scope
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.topics import log_of
from fsmq.spool.verbs.subscribing import change_filter, subscribe

from ..ask import Action, Ask, Result
from ..errors import SqsError
from ..names import is_visible, queue_of_arn
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
# Told as they were set; a queue of this server needs neither.
_KEPT = ("RedrivePolicy", "DeliveryPolicy")
_FLAGS = {"true": True, "false": False}


class Subscriptions(OfTopics):
    """Subscriptions."""

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
        protocol = ask.members["Protocol"]
        if protocol != "sqs":
            raise invalid(f"Amazon SNS does not support this protocol string: {protocol[:100]}")
        queue = _endpoint(ask.get("Endpoint", ""))
        ask.require("admin", queue)
        self.topic(topic)
        delivery = _changed(Delivery(), ask.get("Attributes", {}))
        await self._service.in_thread(self._subscribe, topic, queue, delivery)
        return {"SubscriptionArn": subscription_arn(ask.options, topic, queue)}

    def _subscribe(self, topic: str, queue: str, delivery: Delivery) -> None:
        def check(settings: QueueSettings) -> None:
            if settings.fifo != topic.endswith(FIFO):
                raise invalid(_WRONG_KIND[settings.fifo])

        try:
            if subscribe(self._spool.context, topic, queue, delivery, keep=True, check=check):
                return
            now = self._spool.subscriptions(topic)
            if queue in now and _described(now[queue]) != _described(delivery):
                words = "Attributes Reason: Subscription already exists with different attributes"
                raise invalid(words)
        except NoSuchQueue:
            raise invalid("Endpoint Reason: The queue does not exist") from None
        except NoSuchTopic:
            raise no_such_topic() from None

    async def unsubscribe(self, ask: Ask) -> Result:
        topic, tag = subscription_of(ask.members["SubscriptionArn"])
        require(ask, "admin", topic)
        await self._service.in_thread(self._unsubscribe, topic, tag)
        return {}

    def _unsubscribe(self, topic: str, tag: str) -> None:
        try:
            queue, _ = self._find(topic, tag)
            self._spool.unsubscribe(topic, queue)
        except (SnsError, NoSuchTopic):
            return  # it has none: that is what was asked for

    async def describe(self, ask: Ask) -> Result:
        arn = ask.members["SubscriptionArn"]
        topic, tag = subscription_of(arn)
        require(ask, None, topic)
        queue, filter = await self._service.listing(self._find, topic, tag)
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
        await self._service.in_thread(self._change, topic, tag, given)
        return {}

    def _change(self, topic: str, tag: str, given: Mapping[str, str]) -> None:
        def change(now: Filter | None) -> Filter:
            if now is None:
                now = Delivery(raw=True)  # as touch has made it
            if not isinstance(now, Delivery):
                raise invalid("SubscriptionArn Reason: It has a filter of another dialect")
            return _changed(now, given)

        queue, _ = self._find(topic, tag)
        if not change_filter(self._spool.context, topic, queue, change):
            raise no_such_subscription()

    async def list_of_topic(self, ask: Ask) -> Result:
        topic = topic_of(ask.members["TopicArn"])
        require(ask, None, topic)
        self.topic(topic)
        pairs = await self._service.listing(lambda: list(self._pairs([topic])))
        return _listed(ask, pairs)

    async def list_all(self, ask: Ask) -> Result:
        visible = ask.identity.visible_topics
        names = await self._service.names(ask.call, self._spool.topics, visible)
        pairs = await self._service.listing(lambda: list(self._pairs(filter(is_name, names))))
        return _listed(ask, pairs)

    def _pairs(self, topics: Iterator[str] | list[str]) -> Iterator[tuple[str, str]]:
        for topic in topics:
            try:
                found = self._spool.subscriptions(topic)
            except NoSuchTopic:
                continue
            for queue in found:
                if log_of(queue) is None and is_visible(queue):
                    yield topic, queue

    def _find(self, topic: str, tag: str) -> tuple[str, Filter | None]:
        """A queue that is subscribed, and its filter. Raises SnsError."""
        try:
            for queue, filter in self._spool.subscriptions(topic).items():
                if log_of(queue) is None and is_tagged(tag, topic, queue):
                    return queue, filter
        except NoSuchTopic:
            pass
        raise no_such_subscription()


_WRONG_KIND = {
    True: "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard"
    " SNS topics",  # said twice, as there
    False: "Invalid parameter: Endpoint Reason: Please use FIFO SQS queue",
}


def _endpoint(arn: str) -> str:
    try:
        queue = queue_of_arn(arn, "Endpoint")
    except SqsError:
        raise invalid("SQS endpoint ARN") from None
    if not is_visible(queue):
        raise invalid("SQS endpoint ARN")
    return queue


def _changed(now: Delivery, given: Mapping[str, str]) -> Delivery:
    """A subscription with other attributes. Raises SnsError."""
    raw, scope, kept = now.raw, now.scope, dict(now.kept)
    text = None if now.sns is None else now.sns.text
    for name, value in given.items():
        if name == _RAW:
            if value.lower() not in _FLAGS:
                raise invalid(f"Attributes Reason: {_RAW}: Invalid value [{value[:50]}].")
            raw = _FLAGS[value.lower()]
        elif name == _SCOPE:
            scope = _scope(value)
        elif name == _POLICY:
            text = value if value.strip() not in ("", "{}") else None
        elif name in _KEPT:
            kept = _with(kept, name, value)
        else:
            raise invalid("AttributeName")
    try:
        policy = None if text is None else Policy(text, scope)
    except InvalidValue as error:
        raise invalid(f"{_POLICY}: {error.problem}") from None
    return Delivery(policy, scope=scope, raw=raw, kept=kept)


def _scope(value: str) -> Scope:
    for scope in SCOPES:
        if value == scope:
            return scope
    raise invalid(
        f"{_SCOPE}: Invalid value [{value[:50]}]. Please use either {' or '.join(SCOPES)}"
    )


def _with(kept: dict[str, str], name: str, value: str) -> dict[str, str]:
    if not value:
        return {one: text for one, text in kept.items() if one != name}
    try:
        is_object = isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object or len(value) > 4096:
        raise invalid(f"{name}: failed to parse JSON.")
    return {**kept, name: value}


def _described(filter: Filter | None) -> dict[str, str]:
    """The attributes that a subscription has for itself."""
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
    names = [f"{topic} {queue}" for topic, queue in pairs]
    found, token = paged(ask, names)
    told = []
    for one in found:
        topic, _, queue = one.partition(" ")
        told.append(
            {
                "SubscriptionArn": subscription_arn(ask.options, topic, queue),
                "Owner": ask.options.account,
                "Protocol": "sqs",
                "Endpoint": ask.options.arn(queue),
                "TopicArn": ask.options.topic_arn(topic),
            }
        )
    return {"Subscriptions": told, **token}
