"""SendMessage and SendMessageBatch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.names import UUID7
from fsmq.spool.layout.settings import QueueSettings

from . import message_attributes
from .ask import Action, Actions, Ask, Result
from .batches import entries_of, failure, outcome
from .errors import SqsError, invalid, no_such_queue
from .message_attributes import Attribute
from .queue_attributes import MAX_DELAY_S, MAX_MESSAGE_BYTES

QUEUE, SENDER, GROUP, DEDUP, TRACE = (
    *("sqs.queue", "sqs.sender", "sqs.group", "sqs.dedup"),
    "sqs.trace",
)
_ID = re.compile(r"[!-~]{1,128}")
_UUID = re.compile(UUID7)
_TRACE_HEADER = "AWSTraceHeader"


class Checked(NamedTuple):
    """A message that may be stored, and what its sender is told of it."""

    message: NewMessage
    size: int
    answer: Result


class Sending(Actions):
    """Messages come in."""

    def actions(self) -> Mapping[str, Action]:
        return {"SendMessage": self.send, "SendMessageBatch": self.send_batch}

    async def send(self, ask: Ask) -> Result:
        queue = ask.queue("send")
        settings = self._settings(queue)
        checked = self._checked(ask, queue, ask.members, settings, "are invalid")
        [message_id] = await self._service.put(queue, [checked.message], settings)
        return {"MessageId": uuid_of(message_id), **checked.answer}

    async def send_batch(self, ask: Ask) -> Result:
        queue = ask.queue("send")
        settings = self._settings(queue)
        entries = entries_of(ask, "SendMessageBatchRequestEntry")
        checked, failed, total = [], [], 0
        for entry in entries:
            total += _size_of(entry)
            try:
                one = self._checked(ask, queue, entry, settings, "cannot be validated")
            except SqsError as error:
                failed.append(failure(entry, error))
            else:
                checked.append((entry, one))
        if total > MAX_MESSAGE_BYTES:
            words = (
                f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes."
                f" You have sent {total} bytes."
            )
            raise SqsError("BatchRequestTooLong", words)
        successful = []
        if checked:
            messages = [one.message for _, one in checked]
            ids = await self._service.put(queue, messages, settings)
            successful = [
                {"Id": entry["Id"], "MessageId": uuid_of(message_id), **one.answer}
                for (entry, one), message_id in zip(checked, ids, strict=True)
            ]
        return outcome(successful, failed)

    def _settings(self, queue: str) -> QueueSettings:
        try:
            return self._spool.settings(queue)
        except NoSuchQueue:
            raise no_such_queue() from None

    def _checked(
        self, ask: Ask, queue: str, given: Mapping[str, Any], settings: QueueSettings, how: str
    ) -> Checked:
        text: str = given["MessageBody"]
        if not text:
            raise SqsError(
                "MissingRequiredParameterException",
                "The request must contain the parameter MessageBody.",
            )
        if not message_attributes.is_legal(text):
            words = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD |"
            words += " #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
            raise SqsError("InvalidMessageContents", words)
        body = text.encode()
        delay = given.get("DelaySeconds")
        if delay is not None and not 0 <= delay <= MAX_DELAY_S:
            reason = f"DelaySeconds must be >= 0 and <= {MAX_DELAY_S}."
            raise invalid("DelaySeconds", delay, reason)
        attributes = message_attributes.checked(given.get("MessageAttributes", {}))
        system = message_attributes.checked_system(given.get("MessageSystemAttributes", {}))
        size = len(body) + message_attributes.size_of(attributes)
        limit = min(self._service.body_limit(settings), MAX_MESSAGE_BYTES)
        if size > limit:
            reason = f"Reason: Message must be shorter than {limit} bytes."
            words = f"One or more parameters {how}. {reason}"
            raise SqsError("InvalidParameterValueException", words)
        lines = {QUEUE: queue, **_own_lines(ask, given, system)}
        if attributes:
            lines |= message_attributes.packed(attributes)
        message = NewMessage(body, None if delay is None else float(delay), attributes=lines)
        return Checked(message, size, _digests(body, attributes, system))


def _size_of(entry: Mapping[str, Any]) -> int:
    size = len(entry["MessageBody"].encode("utf-8", "replace"))
    for name, one in entry.get("MessageAttributes", {}).items():
        value = one.get("BinaryValue") or one.get("StringValue", "").encode("utf-8", "replace")
        size += len(name.encode()) + len(one["DataType"].encode()) + len(value)
    return size


def _own_lines(
    ask: Ask, given: Mapping[str, Any], system: Mapping[str, Attribute]
) -> dict[str, str]:
    lines = {}
    if not ask.identity.is_anonymous:
        lines[SENDER] = ask.identity.name
    for line, name in ((GROUP, "MessageGroupId"), (DEDUP, "MessageDeduplicationId")):
        if (value := given.get(name)) is not None:
            if not _ID.fullmatch(value):
                reason = f"{name} can only include alphanumeric and punctuation characters. 1 to"
                raise invalid(name, value, f"{reason} 128 in length.")
            lines[line] = value
    trace = system.get(_TRACE_HEADER)
    if trace is not None:
        value = str(trace.value)
        if trace.kind != "String" or not value.isprintable() or value != value.strip():
            raise invalid(_TRACE_HEADER, value, "It must be a String of printable characters.")
        lines[TRACE] = value
    return lines


def _digests(
    body: bytes, attributes: Mapping[str, Attribute], system: Mapping[str, Attribute]
) -> Result:
    told = {"MD5OfMessageBody": hashlib.md5(body, usedforsecurity=False).hexdigest()}
    if attributes:
        told["MD5OfMessageAttributes"] = message_attributes.md5_of(attributes)
    if system:
        told["MD5OfMessageSystemAttributes"] = message_attributes.md5_of(system)
    return told


def uuid_of(message_id: str) -> str:
    """The MessageId of a message: the UUID in its id, or one made of a name that has none."""
    start = 4 if message_id[:1] == "p" and message_id[3:4] == "." else 0
    bare = message_id[start : start + 36]
    if _UUID.fullmatch(bare):
        return bare
    name = hashlib.sha256(message_id.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{name[:8]}-{name[8:12]}-5{name[13:16]}-8{name[17:20]}-{name[20:32]}"
