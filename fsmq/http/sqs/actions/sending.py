"""SendMessage and SendMessageBatch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsmq.spool import NewMessage, QueueSettings
from fsmq.spool.on_disk import SENT_TO, UUID7

from .. import fifo, message_attributes
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError, invalid, missing
from ..message_attributes import Attribute
from ..queue_attributes import MAX_DELAY_S, MAX_MESSAGE_BYTES
from .batches import entries_of, failure, outcome

QUEUE, SENDER, TRACE = SENT_TO, "sqs.sender", "sqs.trace"
_ID = re.compile(r"[!-~]{1,128}")
_UUID = re.compile(UUID7)
_NONE: Mapping[str, Attribute] = {}
_TRACE_HEADER = "AWSTraceHeader"


class Checked(NamedTuple):
    """A message that has been checked, and the part of its result that is known."""

    message: NewMessage
    size: int
    answer: Result


class Sending(Actions):
    """Actions that send messages."""

    def actions(self) -> Mapping[str, Action]:
        return {"SendMessage": self.send, "SendMessageBatch": self.send_batch}

    async def send(self, ask: Ask) -> Result:
        return await self._send(self.read_one(ask))

    async def send_batch(self, ask: Ask) -> Result:
        return await self._send(self.read_batch(ask))

    async def _send(self, sends: Sends) -> Result:
        messages = sends.messages
        ids = await self._service.queues.put(sends.queue, messages) if messages else []
        return sends.result(ids)

    def read_one(self, ask: Ask) -> Sends:
        """Read a SendMessage. Raises SqsError, and the errors of reading settings."""
        place = self._place(ask)
        return Sends(place, [self._checked(ask, place, ask.members)])

    def read_batch(self, ask: Ask) -> Sends:
        """Read a SendMessageBatch. Raises the same for errors of the whole batch."""
        place = self._place(ask, in_batch=True)
        entries = entries_of(ask, "SendMessageBatchRequestEntry")
        names, checked, failed, total = [], [], [], 0
        for entry in entries:
            place.check_order(entry)
            try:
                one = self._checked(ask, place, entry)
            except SqsError as error:
                failed.append(failure(entry, error))
                total += _size_of(entry)
            else:
                total += one.size
                names.append(entry["Id"])
                checked.append(one)
        if total > MAX_MESSAGE_BYTES:
            words = (
                f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes."
                f" You have sent {total} bytes."
            )
            raise SqsError("BatchRequestTooLong", words)
        return Sends(place, checked, names, failed)

    def _place(self, ask: Ask, *, in_batch: bool = False) -> _Place:
        queue = ask.queue("send")
        what = ("batch" if in_batch else "message"), queue
        found: _Place | None = ask.shared.get(what)
        if found is None:
            settings = self.settings(ask, queue)
            limit = min(self._service.body_limit(settings), MAX_MESSAGE_BYTES)
            found = ask.shared[what] = _Place(queue, settings, limit, in_batch)
        return found

    def _checked(self, ask: Ask, place: _Place, given: Mapping[str, Any]) -> Checked:
        body = _checked_body(given)
        delay = _checked_delay(given)
        group = given.get("MessageGroupId")
        dedup_id = given.get("MessageDeduplicationId")
        if group is not None:
            check_id("MessageGroupId", group)
        if dedup_id is not None:
            check_id("MessageDeduplicationId", dedup_id)
        if place.settings.fifo:
            place.check_order(given)
            fifo.check_delay(given)
            delay = None
        else:
            fifo.check_standard(given)
        attributes, system, size = _NONE, _NONE, len(body)
        if named := given.get("MessageAttributes"):
            attributes = message_attributes.checked(named)
            size += message_attributes.size_of(attributes)
        if named := given.get("MessageSystemAttributes"):
            system = message_attributes.checked_system(named)
        if size > place.limit:
            how = "cannot be validated" if place.in_batch else "are invalid"
            reason = f"Reason: Message must be shorter than {place.limit} bytes."
            words = f"One or more parameters {how}. {reason}"
            raise SqsError("InvalidParameterValueException", words)
        lines = own_lines(ask, place.queue)
        if system:
            lines |= _system_lines(system)
        if attributes:
            lines |= message_attributes.packed(attributes)
        message = NewMessage(body, delay, attributes=lines, group=group, dedup_id=dedup_id)
        return Checked(message, size, _digests(body, attributes, system))


class _Place(NamedTuple):
    """The queue to which messages are sent.

    limit: the most bytes of a message. in_batch: whether they are entries of a batch.
    """

    queue: str
    settings: QueueSettings
    limit: int
    in_batch: bool

    def check_order(self, given: Mapping[str, Any]) -> None:
        """Check that a message has what a FIFO queue needs. Raises SqsError."""
        if self.settings.fifo:
            fifo.check_order(given, self.settings, in_batch=self.in_batch)

    def describe(self, message_id: str, answer: Result) -> Result:
        """The result for a stored message."""
        result = {"MessageId": uuid_of(message_id), **answer}
        if self.settings.fifo:
            result["SequenceNumber"] = fifo.sequence_number(message_id)
        return result


class Sends(NamedTuple):
    """The messages of one request.

    names: of entries; None: it is not a batch. failed: the results of entries with errors.
    """

    place: _Place
    checked: list[Checked]
    names: list[str] | None = None
    failed: Sequence[Result] = ()

    @property
    def queue(self) -> str:
        return self.place.queue

    @property
    def messages(self) -> list[NewMessage]:
        return [one.message for one in self.checked]

    def result(self, ids: Sequence[str]) -> Result:
        """The result once they are stored under these ids."""
        results = [
            self.place.describe(message_id, one.answer)
            for one, message_id in zip(self.checked, ids, strict=True)
        ]
        if self.names is None:
            return results[0]
        successful = [{"Id": name, **one} for name, one in zip(self.names, results, strict=True)]
        return outcome(successful, self.failed)


def own_lines(ask: Ask, queue: str) -> dict[str, str]:
    """The lines that we add to a message: the queue it was sent to, the sender, the trace."""
    lines = {QUEUE: queue}
    if not ask.identity.is_anonymous:
        lines[SENDER] = ask.identity.name
    if ask.trace is not None:
        lines[TRACE] = ask.trace
    return lines


def check_id(name: str, value: str) -> None:
    """Check the id of a group, a deduplication or an attempt. Raises SqsError."""
    if not _ID.fullmatch(value):
        reason = f"{name} can only include alphanumeric and punctuation characters. 1 to"
        raise invalid(name, value, f"{reason} 128 in length.")


def _checked_body(given: Mapping[str, Any]) -> bytes:
    text: str = given["MessageBody"]
    if not text:
        raise missing("MessageBody")
    if not message_attributes.is_legal(text):
        words = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD |"
        words += " #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
        raise SqsError("InvalidMessageContents", words)
    return text.encode()


def _checked_delay(given: Mapping[str, Any]) -> float | None:
    delay = given.get("DelaySeconds")
    if delay is None:
        return None
    if not 0 <= delay <= MAX_DELAY_S:
        reason = f"DelaySeconds must be >= 0 and <= {MAX_DELAY_S}."
        raise invalid("DelaySeconds", delay, reason)
    return float(delay)


def _size_of(entry: Mapping[str, Any]) -> int:
    size = len(entry["MessageBody"].encode("utf-8", "replace"))
    for name, one in entry.get("MessageAttributes", {}).items():
        value = one.get("BinaryValue") or one.get("StringValue", "").encode("utf-8", "replace")
        size += len(name.encode()) + len(one["DataType"].encode()) + len(value)
    return size


def _system_lines(system: Mapping[str, Attribute]) -> dict[str, str]:
    trace = system.get(_TRACE_HEADER)
    if trace is None:
        return {}
    value = str(trace.value)
    if trace.kind != "String" or not value.isprintable() or value != value.strip():
        raise invalid(_TRACE_HEADER, value, "It must be a String of printable characters.")
    return {TRACE: value}


def _digests(
    body: bytes, attributes: Mapping[str, Attribute], system: Mapping[str, Attribute]
) -> Result:
    digests = {"MD5OfMessageBody": hashlib.md5(body, usedforsecurity=False).hexdigest()}
    if attributes:
        digests["MD5OfMessageAttributes"] = message_attributes.md5_of(attributes)
    if system:
        digests["MD5OfMessageSystemAttributes"] = message_attributes.md5_of(system)
    return digests


def uuid_of(message_id: str) -> str:
    """The MessageId of a message: the UUID in its id, or else one made from the id."""
    start = 4 if message_id[:1] == "p" and message_id[3:4] == "." else 0
    bare = message_id[start : start + 36]
    if _UUID.fullmatch(bare):
        return bare
    name = hashlib.sha256(message_id.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{name[:8]}-{name[8:12]}-5{name[13:16]}-8{name[17:20]}-{name[20:32]}"
