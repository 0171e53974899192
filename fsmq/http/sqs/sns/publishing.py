"""Publish and PublishBatch: a copy for each subscribed queue, in the form it wants; all or none."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from fsmq.spool import NewMessage
from fsmq.spool.errors import NoSuchTopic, as_unavailable
from fsmq.spool.on_disk import uuid7
from fsmq.spool.prepare import Copy, copy_of
from fsmq.spool.resources import (
    Candidates,
    Delivery,
    Filter,
    Subscription,
    as_number,
    listed,
    log_of,
    work_of,
)

from ...service.service import hold_looks
from .. import message_attributes
from ..actions.sending import check_id, own_lines
from ..ask import Action, Ask, Result
from ..fifo import sequence_number
from ..message_attributes import Attribute, BadAttribute
from ..queue_attributes import object_in
from .arns import require, subscription_arn, topic_of
from .faults import SnsError, invalid, no_such_topic
from .topics import CONTENT_BASED, OfTopics, Topic

_MAX_ENTRIES = 10
_MAX_ENTRY_NAME = 80
_ENTRY = re.compile("[A-Za-z0-9_-]+")
_MAX_SUBJECT = 100
# With raw delivery, a message with more attributes is not delivered but becomes a dead letter.
_MAX_RAW_ATTRIBUTES = 10
# Checking one attribute takes as long as checking this many bytes of text.
_ATTRIBUTE_WORK = 1024


class _Publication(NamedTuple):
    """A message as it was published.

    body: the one for queues; other protocols can have another. size: in bytes, as limited.
    """

    message_id: str
    body: str
    subject: str | None
    attributes: Mapping[str, Attribute]
    group: str | None
    dedup_id: str | None
    sequence: str | None

    @property
    def size(self) -> int:
        return len(self.body.encode()) + message_attributes.size_of(self.attributes)

    @property
    def candidates(self) -> dict[str, Candidates]:
        """The values that filter policies are matched with."""
        return {name: _values(one) for name, one in self.attributes.items()}

    def describe(self) -> Result:
        result: Result = {"MessageId": self.message_id}
        if self.sequence is not None:
            result["SequenceNumber"] = self.sequence
        return result


class Publishing(OfTopics):
    """Actions that publish messages."""

    def actions(self) -> Mapping[str, Action]:
        return {"Publish": self.publish, "PublishBatch": self.publish_batch}

    async def publish(self, ask: Ask) -> Result:
        if ask.get("PhoneNumber") is not None:
            raise invalid("PhoneNumber Reason: No messages are sent to phones here")
        arn = ask.get("TopicArn", ask.get("TargetArn"))
        if arn is None:
            raise invalid("TopicArn or TargetArn Reason: no value for required parameter")
        topic = self._topic(ask, arn)
        [publication] = await self._checked(topic, [("", ask.members)])
        if publication.size > topic.limit:
            raise invalid("Message too long")
        await self._publish(ask, topic, [publication])
        return publication.describe()

    async def publish_batch(self, ask: Ask) -> Result:
        """Publish all messages or none: an error of one entry is an error of the request."""
        topic = self._topic(ask, ask.members["TopicArn"])
        entries = ask.get("PublishBatchRequestEntries", [])
        _check_entries(entries)
        named = [
            (f"publishBatchRequestEntries.{number}.member.", entry)
            for number, entry in enumerate(entries, 1)
        ]
        publications = await self._checked(topic, named)
        if sum(one.size for one in publications) > topic.limit:
            words = "The length of all the messages put together is more than the limit."
            raise SnsError("BatchRequestTooLong", words)
        await self._publish(ask, topic, publications)
        results = [
            {"Id": entry["Id"], **one.describe()}
            for entry, one in zip(entries, publications, strict=True)
        ]
        return {"Successful": results, "Failed": []}

    def _topic(self, ask: Ask, arn: str) -> Topic:
        name = topic_of(arn)
        require(ask, "send", name)
        return self.topic(name)

    async def _checked(
        self, topic: Topic, given: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[_Publication]:
        """Check what is to be published, off the loop if it has thousands of attributes."""
        number = sum(len(one.get("MessageAttributes", ())) for _, one in given)

        def check() -> list[_Publication]:
            return [_checked(topic, one, where) for where, one in given]

        return await self._service.beside(number * _ATTRIBUTE_WORK, check)

    async def _publish(self, ask: Ask, topic: Topic, publications: Sequence[_Publication]) -> None:
        topics = self._spool.context.topics
        try:
            to = topics.known(topic.name, _MAX_ENTRIES)
            if to is None:
                to = await self._service.listing(topics.subscribed, topic.name)
        except NoSuchTopic:
            raise no_such_topic() from None
        filters = (one.filter for one in to)
        hold_looks(ask.call, filters, [one.body.encode() for one in publications])
        bodies = sum(len(one.body.encode()) for one in publications)
        attributes = sum(one.size for one in publications) - bodies
        size = work_of(to, bodies, attributes, len(publications))
        copies = await self._service.beside(size, self._copies, ask, topic, publications, to)
        await self._service.publish_copies(ask.identity, topic.name, copies)

    def _copies(
        self,
        ask: Ask,
        topic: Topic,
        publications: Sequence[_Publication],
        to: Sequence[Subscription],
    ) -> list[list[Copy]]:
        """For each publication, the copies for the subscriptions that take it."""
        return [list(self._copies_of(ask, topic, one, to)) for one in publications]

    def _copies_of(
        self, ask: Ask, topic: Topic, publication: _Publication, to: Sequence[Subscription]
    ) -> Iterator[Copy]:
        topics = self._spool.context.topics
        plain = _plain(publication)
        passes = partial(_passes, plain, publication.candidates)
        for one in to:
            target = self._target(publication, one)
            if target is None or not passes(one.filter):
                continue
            message = plain
            if log_of(target) is None:
                message = _copy(ask, topic, publication, one, target, plain)
                if message.dedup_id is not None and not self._is_fifo(target):
                    message = replace(message, dedup_id=None)
            yield copy_of(topics, topic.name, passes, one, target, message)

    def _target(self, publication: _Publication, one: Subscription) -> str | None:
        """The queue that gets a subscription's copy of a message; None: no queue does."""
        delivery = one.filter
        if not isinstance(delivery, Delivery) or not delivery.raw:
            return one.target
        if len(publication.attributes) <= _MAX_RAW_ATTRIBUTES:
            return one.target
        with as_unavailable(f"cannot look for the dead-letter queue of {one.subscriber!r}"):
            return self._spool.context.topics.for_dead_letters(delivery)

    def _is_fifo(self, queue: str) -> bool:
        with as_unavailable(f"cannot read the settings of {queue!r}"):
            return self._spool.context.settings.get(queue).fifo


def _passes(
    message: NewMessage, candidates: Mapping[str, Candidates], filter: Filter | None
) -> bool:
    """Whether a message with these values passes the filter of a subscription."""
    if isinstance(filter, Delivery):
        return filter.takes(candidates, message.body)
    return filter is None or filter.matches(message.attributes, message.body)


def _plain(publication: _Publication) -> NewMessage:
    """A message as it was published."""
    lines = message_attributes.packed(publication.attributes)
    return NewMessage(publication.body.encode(), attributes=lines)


def _copy(
    ask: Ask,
    topic: Topic,
    publication: _Publication,
    one: Subscription,
    target: str,
    plain: NewMessage,
) -> NewMessage:
    """The copy for the queue of a subscription, or for its dead-letter queue."""
    lines = own_lines(ask, target)
    if not isinstance(one.filter, Delivery) or one.filter.raw:
        body = plain.body
        lines |= plain.attributes
    else:
        body = _envelope(ask, topic, publication, one.subscriber).encode()
        ask.call.hold_made(len(body))  # before the next one is made
    group, dedup_id = publication.group, publication.dedup_id
    return NewMessage(body, attributes=lines, group=group, dedup_id=dedup_id)


def _envelope(ask: Ask, topic: Topic, publication: _Publication, queue: str) -> str:
    """The body of a copy without raw delivery: the message and its metadata in JSON."""
    arn = subscription_arn(ask.options, topic.name, queue)
    envelope: dict[str, Any] = {"Type": "Notification", "MessageId": publication.message_id}
    if publication.sequence is not None:
        envelope["SequenceNumber"] = publication.sequence
    envelope["TopicArn"] = ask.options.topic_arn(topic.name)
    if publication.subject is not None:
        envelope["Subject"] = publication.subject
    envelope["Message"] = publication.body
    now = datetime.fromtimestamp(time.time(), UTC)
    envelope["Timestamp"] = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03}Z"
    if not topic.is_fifo:
        envelope |= {"SignatureVersion": "1", "Signature": "", "SigningCertURL": ""}
    envelope["UnsubscribeURL"] = f"{ask.origin}/?Action=Unsubscribe&SubscriptionArn={arn}"
    if publication.attributes:
        envelope["MessageAttributes"] = {
            name: {"Type": one.kind, "Value": _shown(one)}
            for name, one in publication.attributes.items()
        }
    return json.dumps(envelope, ensure_ascii=False)


def _shown(one: Attribute) -> str:
    value = one.value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _values(one: Attribute) -> Candidates:
    value = one.value
    if isinstance(value, bytes):
        return ()
    if one.kind == "String.Array":
        return listed(value)
    number = as_number(value.strip()) if one.kind.partition(".")[0] == "Number" else None
    return (value,) if number is None else (number,)


# -- checks ----------------------------------------------------------------------------------------


def _checked(topic: Topic, given: Mapping[str, Any], where: str = "") -> _Publication:
    """Check a message to be published. where: its place in a batch, for errors.

    Raises SnsError, SqsError.
    """
    message: str = given.get("Message", "")
    if not message:
        raise invalid("Empty message")
    subject = given.get("Subject")
    if subject is not None:
        _check_subject(subject)
    structure = given.get("MessageStructure")
    body = _of_structure(topic, message) if structure == "json" else message
    if not message_attributes.is_legal(body):
        raise invalid("Message Reason: Invalid characters found")
    attributes = _attributes(given.get("MessageAttributes", {}), where)
    group, dedup_id = _order(topic, given, body)
    # Increases with time, and always within this process.
    sequence = sequence_number(uuid7()) if topic.is_fifo else None
    message_id = str(uuid.uuid4())
    return _Publication(message_id, body, subject, attributes, group, dedup_id, sequence)


def _check_subject(subject: str) -> None:
    is_good = 0 < len(subject) <= _MAX_SUBJECT and subject.isprintable() and subject.isascii()
    if not is_good or subject[0] == " ":
        raise invalid("Subject")


def _of_structure(topic: Topic, message: str) -> str:
    """The text for queues of a message that has one for each protocol. Raises SnsError."""
    if len(message) > topic.limit:
        raise invalid("Message too long")
    found = object_in(message, topic.limit)
    if found is None:
        raise invalid("Message Structure - JSON message body failed to parse")
    if not isinstance(found.get("default"), str):
        raise invalid("Message Structure - No default entry in JSON message body")
    text = found.get("sqs")
    # Other types are ignored, as in SNS.
    chosen: str = text if isinstance(text, str) else found["default"]
    if not chosen:
        raise invalid("Empty message")
    return chosen


def _attributes(given: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Attribute]:
    for name, one in given.items():
        if "DataType" not in one:
            raise SnsError(
                "ValidationError",
                f"1 validation error detected: Value null at '{where}messageAttributes.{name}"
                ".member.dataType' failed to satisfy constraint: Member must not be null",
            )
    try:
        return message_attributes.checked(given, most=None)
    except BadAttribute as error:
        raise SnsError("ParameterValueInvalid", error.of_sns) from None


def _order(topic: Topic, given: Mapping[str, Any], body: str) -> tuple[str | None, str | None]:
    """The group and the deduplication id of a message. Raises SnsError."""
    group, dedup_id = given.get("MessageGroupId"), given.get("MessageDeduplicationId")
    for name, value in (("MessageGroupId", group), ("MessageDeduplicationId", dedup_id)):
        if value is not None:
            check_id(name, value)
    if not topic.is_fifo:
        if dedup_id is not None:
            raise invalid(
                "MessageDeduplicationId Reason: The request includes MessageDeduplicationId"
                " parameter that is not valid for this topic type"
            )
        return group, None
    if group is None:
        raise invalid("The MessageGroupId parameter is required for FIFO topics")
    if dedup_id is None:
        if topic.attributes.get(CONTENT_BASED) != "true":
            raise invalid(
                "The topic should either have ContentBasedDeduplication enabled or"
                " MessageDeduplicationId provided explicitly"
            )
        dedup_id = hashlib.sha256(body.encode()).hexdigest()
    return group, dedup_id


def _check_entries(entries: list[Mapping[str, Any]]) -> None:
    if not entries:
        raise SnsError("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > _MAX_ENTRIES:
        words = "The batch request contains more entries than permissible."
        raise SnsError("TooManyEntriesInBatchRequest", words)
    ids = [entry["Id"] for entry in entries]
    for name in ids:
        _check_name(name)
    if len(set(ids)) < len(ids):
        words = "Two or more batch entries in the request have the same Id."
        raise SnsError("BatchEntryIdsNotDistinct", words)


def _check_name(name: str) -> None:
    """Check the id of an entry of a batch. Raises SnsError."""
    if not _ENTRY.fullmatch(name):
        problem = "contains an impermissible character"
    elif len(name) > _MAX_ENTRY_NAME:
        problem = "is too long"
    else:
        return
    words = f"The Id of a batch entry in the batch request {problem}: {name[:200]}"
    raise SnsError("InvalidBatchEntryId", words)
