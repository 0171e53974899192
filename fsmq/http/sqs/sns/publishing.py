"""Publish and PublishBatch: a copy for each subscribed queue, as it wants it; all or none."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fsmq.spool.errors import InvalidValue, NoSuchTopic
from fsmq.spool.layout.deliveries import Delivery
from fsmq.spool.layout.filters import Filter
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.policies import Candidates, as_number, listed
from fsmq.spool.layout.topics import log_of
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.verbs.publish import Copies

from .. import fifo, message_attributes
from ..ask import Action, Ask, Result
from ..errors import SqsError
from ..message_attributes import Attribute
from ..sending import QUEUE, SENDER, check_id
from .arns import require, subscription_arn, topic_of
from .faults import SnsError, as_sns, invalid, no_such_topic
from .topics import CONTENT_BASED, OfTopics, Topic

_MAX_ENTRIES = 10
_MAX_SUBJECT = 100
# A subscription that takes messages as they are gets none with more.
_MAX_RAW_ATTRIBUTES = 10


class _Publication(NamedTuple):
    """A message as it was published.

    body: for queues, which can be another one than for who asks in another protocol.
    """

    message_id: str
    body: str
    subject: str | None
    attributes: Mapping[str, Attribute]
    group: str | None
    dedup_id: str | None
    sequence: str | None

    @property
    def candidates(self) -> dict[str, Candidates]:
        """What filter policies look at."""
        return {name: _values(one) for name, one in self.attributes.items()}

    def describe(self) -> Result:
        told: Result = {"MessageId": self.message_id}
        if self.sequence is not None:
            told["SequenceNumber"] = self.sequence
        return told


class Publishing(OfTopics):
    """Messages come in."""

    def actions(self) -> Mapping[str, Action]:
        return {"Publish": self.publish, "PublishBatch": self.publish_batch}

    async def publish(self, ask: Ask) -> Result:
        if ask.get("PhoneNumber") is not None:
            raise invalid("PhoneNumber Reason: No messages are sent to phones here")
        arn = ask.get("TopicArn") or ask.get("TargetArn")
        if not arn:
            raise invalid("TopicArn or TargetArn Reason: no value for required parameter")
        topic = self._topic(ask, arn)
        publication = _checked(topic, ask.members)
        await self._publish(ask, topic, [publication])
        return publication.describe()

    async def publish_batch(self, ask: Ask) -> Result:
        topic = self._topic(ask, ask.members["TopicArn"])
        entries = ask.get("PublishBatchRequestEntries", [])
        _check_entries(entries)
        successful: list[Result] = []
        failed: list[Result] = []
        publications: list[_Publication] = []
        for entry in entries:
            try:
                one = _checked(topic, entry)
            except (SnsError, SqsError, InvalidValue) as error:
                failed.append(_failure(entry, as_sns(error)))
            else:
                publications.append(one)
                successful.append({"Id": entry["Id"], **one.describe()})
        if sum(len(one.body.encode()) for one in publications) > topic.limit:
            raise SnsError("BatchRequestTooLong", "The length of all the messages is too long.")
        await self._publish(ask, topic, publications)
        return {"Successful": successful, "Failed": failed}

    def _topic(self, ask: Ask, arn: str) -> Topic:
        name = topic_of(arn)
        require(ask, "send", name)
        return self.topic(name)

    async def _publish(self, ask: Ask, topic: Topic, publications: Iterable[_Publication]) -> None:
        try:
            to = self._spool.context.topics.known(topic.name, _MAX_ENTRIES)
            if to is None:
                to = await self._service.listing(self._spool.subscriptions, topic.name)
        except NoSuchTopic:
            raise no_such_topic() from None
        copies = [self._copies(ask, topic, one, to) for one in publications]
        await self._service.publish_copies(topic.name, copies)

    def _copies(
        self,
        ask: Ask,
        topic: Topic,
        publication: _Publication,
        to: Mapping[str, Filter | None],
    ) -> Copies:
        """What each subscriber gets that takes a message."""
        plain = _plain(publication)
        candidates, body = publication.candidates, plain.body
        takers: dict[str, None] = {}
        forms: dict[str, NewMessage] = {}

        def passes(filter: Filter | None) -> bool:
            if isinstance(filter, Delivery):
                return filter.takes(candidates, body)
            return filter is None or filter.matches(plain.attributes, body)

        for queue, filter in to.items():
            if not passes(filter):
                continue
            is_raw = not isinstance(filter, Delivery) or filter.raw
            if log_of(queue) is None:
                if is_raw and len(publication.attributes) > _MAX_RAW_ATTRIBUTES:
                    continue
                forms[queue] = _copy(ask, topic, publication, queue, is_raw, plain)
            takers[queue] = None
        return Copies(plain, takers, forms, passes)


def _plain(publication: _Publication) -> NewMessage:
    """A message as it was published."""
    lines = message_attributes.packed(publication.attributes)
    return NewMessage(publication.body.encode(), attributes=lines)


def _copy(
    ask: Ask,
    topic: Topic,
    publication: _Publication,
    queue: str,
    is_raw: bool,
    plain: NewMessage,
) -> NewMessage:
    """What a queue gets."""
    lines = {QUEUE: queue}
    if not ask.identity.is_anonymous:
        lines[SENDER] = ask.identity.name
    if is_raw:
        body = plain.body
        lines |= plain.attributes
    else:
        body = _envelope(ask, topic, publication, queue).encode()
    group, dedup_id = publication.group, publication.dedup_id
    return NewMessage(body, attributes=lines, group=group, dedup_id=dedup_id)


def _envelope(ask: Ask, topic: Topic, publication: _Publication, queue: str) -> str:
    """A message with what is known of it, as clients of SNS find it in the body."""
    arn = subscription_arn(ask.options, topic.name, queue)
    said: dict[str, Any] = {"Type": "Notification", "MessageId": publication.message_id}
    if publication.sequence is not None:
        said["SequenceNumber"] = publication.sequence
    said["TopicArn"] = ask.options.topic_arn(topic.name)
    if publication.subject is not None:
        said["Subject"] = publication.subject
    said["Message"] = publication.body
    now = datetime.fromtimestamp(time.time(), UTC)
    said["Timestamp"] = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03}Z"
    if not topic.is_fifo:
        said |= {"SignatureVersion": "1", "Signature": "", "SigningCertURL": ""}
    query = urlencode({"Action": "Unsubscribe", "SubscriptionArn": arn})
    said["UnsubscribeURL"] = f"{ask.origin}/?{query}"
    if publication.attributes:
        said["MessageAttributes"] = {
            name: {"Type": one.kind, "Value": _shown(one)}
            for name, one in publication.attributes.items()
        }
    return json.dumps(said, ensure_ascii=False)


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


# -- what is published -----------------------------------------------------------------------------


def _checked(topic: Topic, given: Mapping[str, Any]) -> _Publication:
    """A message that may be published. Raises SnsError, SqsError."""
    message: str = given.get("Message", "")
    if not message:
        raise invalid("Empty message")
    subject = given.get("Subject")
    if subject is not None:
        _check_subject(subject)
    structure = given.get("MessageStructure")
    body = _of_structure(message) if structure == "json" else message
    if not message_attributes.is_legal(body):
        raise invalid("Message Reason: Invalid characters found")
    attributes = _attributes(given.get("MessageAttributes", {}))
    size = len(body.encode()) + message_attributes.size_of(attributes)
    if size > topic.limit:
        raise invalid("Message too long")
    group, dedup_id = _order(topic, given, body)
    sequence = _new_sequence() if topic.is_fifo else None
    message_id = str(uuid.uuid4())
    return _Publication(message_id, body, subject, attributes, group, dedup_id, sequence)


def _check_subject(subject: str) -> None:
    is_good = 0 < len(subject) <= _MAX_SUBJECT and subject.isprintable() and subject.isascii()
    if not is_good or subject[0] == " ":
        raise invalid("Subject")


def _of_structure(message: str) -> str:
    """What a message that has a text for each protocol says to queues. Raises SnsError."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise invalid("Message Structure - JSON message body failed to parse")
    if not isinstance(found.get("default"), str):
        raise invalid("Message Structure - No default entry in JSON message body")
    text = found.get("sqs", found["default"])
    if not isinstance(text, str):
        raise invalid("Message Structure - JSON message body failed to parse")
    return text


def _attributes(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Attribute]:
    try:
        return message_attributes.checked(given, most=None)
    except SqsError as error:
        raise SnsError("ParameterValueInvalid", error.words) from None


def _order(topic: Topic, given: Mapping[str, Any], body: str) -> tuple[str | None, str | None]:
    """The group of a message, and by what it is known when it comes again. Raises SnsError."""
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
        dedup_id = fifo.content_id(body.encode())
    return group, dedup_id


def _new_sequence() -> str:
    """A number that rises with the time, within this process in any case."""
    return fifo.sequence_number(uuid7())


def _check_entries(entries: list[Mapping[str, Any]]) -> None:
    if not entries:
        raise SnsError("EmptyBatchRequest", "The batch request doesn't contain any entries.")
    if len(entries) > _MAX_ENTRIES:
        words = "The batch request contains more entries than permissible."
        raise SnsError("TooManyEntriesInBatchRequest", words)
    ids = [entry["Id"] for entry in entries]
    if len(set(ids)) < len(ids):
        words = "Two or more batch entries in the request have the same Id."
        raise SnsError("BatchEntryIdsNotDistinct", words)


def _failure(entry: Mapping[str, Any], error: SnsError) -> Result:
    return {
        "Id": entry["Id"],
        "Code": error.code,
        "Message": error.words,
        "SenderFault": not error.is_ours,
    }
