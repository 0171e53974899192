"""ReceiveMessage: claims messages, and describes them."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fsmq.spool import Message
from fsmq.spool.errors import ClaimEnded, FsmqError, NoSuchMessage, as_unavailable
from fsmq.spool.prepare import LARGE_BYTES

from ...guard.access import Identity
from ...service.service import Service
from ...service.wanted import Wanted as Claim
from .. import message_attributes
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError
from ..fifo import sequence_number
from ..message_attributes import Attribute
from ..names import Receipt, SqsOptions, is_visible, pack_receipt
from ..protocol.large import Large, LongBody
from ..queue_attributes import MAX_VISIBILITY_S, MEMBER, check_number, check_wait, wait_of
from .attempts import Attempt, Attempts, Given
from .sending import QUEUE, SENDER, TRACE, check_id, uuid_of

_MOST = 10
# The SenderId if the sender is unknown.
_NOBODY = "AIDAIENQZJOLO23YVJ4VO"
# A receive that hides nothing holds its messages only until it releases them.
_MOMENT_S = 30.0
_ENCODING = "fsmq.encoding"
# Describing one attribute takes as long as describing this many bytes of a body.
_ATTRIBUTE_WORK = 1024
# In the order in which answers have them.
_SYSTEM = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)


class Wanted(NamedTuple):
    """What a receive asks for. attempt: its name, if it has one and the queue is FIFO.

    system: the names of system attributes. names: those of others. identity: the sender's.
    """

    queue: str
    most: int
    hides: float
    wait: float
    fifo: bool
    attempt: str | None
    system: list[str]
    names: list[str]
    identity: Identity

    @property
    def claim(self) -> Claim:
        """The claim for its messages."""
        hides = self.hides or _MOMENT_S
        return Claim((self.queue,), self.most, hides, self.wait, whole_groups=self.fifo)


class Receiving(Actions):
    """The action that receives messages."""

    def __init__(self, service: Service, options: SqsOptions) -> None:
        super().__init__(service, options)
        self._attempts = Attempts()

    def actions(self) -> Mapping[str, Action]:
        return {"ReceiveMessage": self.receive}

    async def receive(self, ask: Ask) -> Result:
        wanted = self.read(ask)
        queue, attempt = wanted.queue, wanted.attempt
        now_ms = int(time.time() * 1000)
        messages = None
        if attempt is not None and (known := self._attempts.find(queue, attempt)) is not None:
            messages = await self._again(ask, wanted, known)
            now_ms = known.at_ms
        if not messages:
            messages = await self._service.queues.claim(ask.call, wanted.claim)
            now_ms = int(time.time() * 1000)
        if attempt is not None and wanted.hides:
            given = [Given(m.id, m.claim, m.deliveries, m.deadline or 0.0) for m in messages]
            self._attempts.note(queue, attempt, given, now_ms)
        result = await self.large_result(wanted, messages, now_ms)
        if not wanted.hides:
            await self._release(messages)
        return result

    async def large_result(
        self, wanted: Wanted, messages: Sequence[Message], now_ms: int
    ) -> Result:
        """The same as :meth:`result`; off the loop, if it is large."""
        work = work_of(messages)
        result = await self._service.beside(work, self.result, wanted, messages, now_ms)
        return Large(result) if work > LARGE_BYTES else result

    def result(self, wanted: Wanted, messages: Sequence[Message], now_ms: int) -> Result:
        """The result with messages that were claimed at this moment."""
        described = [self._described(wanted, message, now_ms) for message in messages]
        return {"Messages": described} if described else {}

    def read(self, ask: Ask) -> Wanted:
        """Read a ReceiveMessage. Raises SqsError, and the errors of reading settings."""
        queue = ask.queue("receive")
        system = _system_names(ask)
        count = check_number("MaxNumberOfMessages", ask.get("MaxNumberOfMessages", 1), 1, _MOST)
        visibility = ask.get("VisibilityTimeout")
        if visibility is not None:
            check_number("VisibilityTimeout", visibility, 0, MAX_VISIBILITY_S)
        wait = ask.get("WaitTimeSeconds")
        if wait is not None:
            check_wait(wait)
        settings = self.settings(ask, queue)
        hides = settings.visibility_timeout if visibility is None else float(visibility)
        if wait is None:
            wait = wait_of(self._spool.context.settings.member(queue, MEMBER))
        attempt = ask.get("ReceiveRequestAttemptId") if settings.fifo else None
        if attempt is not None:
            check_id("ReceiveRequestAttemptId", attempt)
        names = ask.get("MessageAttributeNames", [])
        rest = settings.fifo, attempt, system, names, ask.identity
        return Wanted(queue, count, hides, float(wait), *rest)

    async def _again(self, ask: Ask, wanted: Wanted, known: Attempt) -> list[Message]:
        """The messages of a repeated receive, renewed; none if one of them has changed."""
        service, queue = self._service, wanted.queue
        found: list[Message] = []
        for given in known.given:
            message = await service.receiver.find(ask.call, queue, given.message_id)
            if message is None or not given.is_untouched(message):
                return []
            found.append(message)
        renewed = []
        for message, given in zip(found, known.given, strict=True):
            try:
                renew = service.changes.renew(queue, message.id, wanted.hides, given.claim)
                renewal = await service.queues.do(renew)
            except (NoSuchMessage, ClaimEnded):
                continue  # its claim has just ended
            renewed.append(replace(message, claim=given.claim, deadline=renewal.deadline))
        return renewed

    async def _release(self, messages: Sequence[Message]) -> None:
        """Make messages visible again at once; the receive counts as a delivery."""
        for message in messages:
            try:
                service = self._service
                release = service.changes.release(message.queue, message.id, 0.0, message.claim)
                await service.queues.do(release)
            except FsmqError:
                continue  # it is redelivered when its timer ends

    # -- results ---------------------------------------------------------------------------------

    def _described(self, wanted: Wanted, message: Message, now_ms: int) -> Result:
        queue, lines = wanted.queue, message.attributes
        attributes = message_attributes.unpacked(lines) if lines else {}
        body, digest, is_coded = _shown(message.body)
        if is_coded:
            attributes[_ENCODING] = Attribute("String", "base64")
        receipt = Receipt(message.id, message.claim, now_ms)
        answer: Result = {
            "MessageId": uuid_of(message.id),
            "ReceiptHandle": pack_receipt(queue, receipt),
            "MD5OfBody": digest,
            "Body": body,
        }
        if wanted.system and (system := self._system(wanted, message, now_ms)):
            answer["Attributes"] = system
        if chosen := message_attributes.wanted(attributes, wanted.names):
            answer["MD5OfMessageAttributes"] = message_attributes.md5_of(chosen)
            answer["MessageAttributes"] = {name: one.encoded() for name, one in chosen.items()}
        return answer

    def _system(self, wanted: Wanted, message: Message, now_ms: int) -> dict[str, str]:
        """The system attributes that are requested, and that the message has."""
        origin, lines = _origin(wanted, message), message.attributes
        sent_ms = now_ms if message.created_at is None else round(message.created_at * 1000)
        found = {
            "SenderId": lines.get(SENDER, _NOBODY),
            "SentTimestamp": str(sent_ms),
            "ApproximateFirstReceiveTimestamp": str(now_ms if message.deliveries == 1 else sent_ms),
            "ApproximateReceiveCount": str(self._receives(wanted.queue, origin, message)),
            "SequenceNumber": sequence_number(message.id) if wanted.fifo else "",
            "MessageDeduplicationId": _dedup_id(wanted.queue, message),
            "MessageGroupId": message.group or "",
            "AWSTraceHeader": lines.get(TRACE, ""),
            "DeadLetterQueueSourceArn": "" if origin is None else self._options.arn(origin),
        }
        return {name: found[name] for name in wanted.system if found[name]}

    def _receives(self, queue: str, origin: str | None, message: Message) -> int:
        """How often it was received; for dead letters, including receives before the burial."""
        own = max(1, message.deliveries or 1)
        if origin is None:
            return own
        with as_unavailable(f"cannot read the settings of {origin!r}"):
            source = self._spool.context.settings.get(origin)
        before = source.max_deliveries if source.dead_letter_queue == queue else None
        return own + (before or 0)


def _system_names(ask: Ask) -> list[str]:
    """The names of the system attributes that a receive requests. Raises SqsError."""
    names = [*ask.get("AttributeNames", []), *ask.get("MessageSystemAttributeNames", [])]
    if any(name.lower() == "all" for name in names):
        return list(_SYSTEM)
    for name in names:
        if name not in _SYSTEM:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name[:256]}.")
    return list(dict.fromkeys(names))


def _dedup_id(queue: str, message: Message) -> str:
    """The deduplication id of a message; for a dead letter its message id, as in SQS."""
    if message.dedup_id is None:
        return ""
    is_moved = message.attributes.get(QUEUE, queue) != queue
    return uuid_of(message.id) if is_moved else message.dedup_id


def _origin(wanted: Wanted, message: Message) -> str | None:
    """The other queue to which a message was sent, if the receiver may see that queue."""
    origin = message.attributes.get(QUEUE, wanted.queue)
    # Native clients can set the attribute to anything.
    is_told = origin != wanted.queue and is_visible(origin) and wanted.identity.may_see(origin)
    return origin if is_told else None


def work_of(messages: Sequence[Message]) -> int:
    """How long it takes to describe messages, as the number of bytes that take as long."""
    return sum(len(one.body) + _ATTRIBUTE_WORK * len(one.attributes) for one in messages)


def _shown(raw: bytes) -> tuple[str | LongBody, str, bool]:
    """A body as it is answered, the MD5 of that, and whether it is in base64."""
    if len(raw) > LARGE_BYTES:
        body = LongBody(raw, message_attributes.is_legal)
        return body, body.md5, not body.is_text
    text = _text(raw)
    is_coded = text is None
    if text is None:
        raw = base64.b64encode(raw)
        text = raw.decode()
    return text, hashlib.md5(raw, usedforsecurity=False).hexdigest(), is_coded


def _text(body: bytes) -> str | None:
    """A body as text; None if it is not valid in SQS."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text and message_attributes.is_legal(text) else None
