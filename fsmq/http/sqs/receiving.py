"""ReceiveMessage: claims, and what they tell of messages."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

from fsmq.spool.errors import FsmqError, NoSuchQueue, as_unavailable
from fsmq.spool.layout.message import Message

from . import message_attributes
from .ask import Action, Actions, Ask, Result
from .errors import SqsError, no_such_queue
from .message_attributes import Attribute
from .names import Receipt, pack_receipt
from .queue_attributes import (
    MAX_VISIBILITY_S,
    MAX_WAIT_S,
    MEMBER,
    check_number,
    wait_of,
)
from .sending import DEDUP, GROUP, QUEUE, SENDER, TRACE, uuid_of

_MOST = 10
# Nobody has said who sent it.
_NOBODY = "AIDAIENQZJOLO23YVJ4VO"
# A receive that hides nothing holds its messages only until they are given back.
_MOMENT_S = 30.0
_ENCODING = "fsmq.encoding"


class Receiving(Actions):
    """Messages go out."""

    def actions(self) -> Mapping[str, Action]:
        return {"ReceiveMessage": self.receive}

    async def receive(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        count = check_number("MaxNumberOfMessages", ask.get("MaxNumberOfMessages", 1), 1, _MOST)
        visibility = ask.get("VisibilityTimeout")
        if visibility is not None:
            check_number("VisibilityTimeout", visibility, 0, MAX_VISIBILITY_S)
        wait = ask.get("WaitTimeSeconds")
        if wait is not None:
            check_number("WaitTimeSeconds", wait, 0, MAX_WAIT_S)
        try:
            hides = self._hides(queue, visibility)
            if wait is None:
                wait = wait_of(self._spool.context.settings.member(queue, MEMBER))
            messages = await self._service.receiver.claim(
                ask.call, queue, count, hides or _MOMENT_S, float(wait)
            )
        except NoSuchQueue:
            raise no_such_queue() from None
        told = [self._described(ask, queue, message) for message in messages]
        if not hides:
            await self._release(messages)
        return {"Messages": told} if told else {}

    def _hides(self, queue: str, visibility: int | None) -> float:
        settings = self._spool.settings(queue)
        return settings.visibility_timeout if visibility is None else float(visibility)

    async def _release(self, messages: Sequence[Message]) -> None:
        """Let messages be visible again at once; their receives count."""
        for message in messages:
            try:
                released = self._spool.unsynced.release(
                    message.queue, message.id, 0.0, message.claim
                )
                await self._service.complete(released)
            except FsmqError:
                continue  # its timer brings it back

    # -- what is told ----------------------------------------------------------------------------

    def _described(self, ask: Ask, queue: str, message: Message) -> Result:
        lines = message.attributes
        attributes = message_attributes.unpacked(lines) if lines else {}
        body = _text(message.body)
        if body is None:
            body = base64.b64encode(message.body).decode()
            attributes[_ENCODING] = Attribute("String", "base64")
        now_ms = int(time.time() * 1000)
        receipt = Receipt(message.id, message.claim, now_ms)
        answer: Result = {
            "MessageId": uuid_of(message.id),
            "ReceiptHandle": pack_receipt(queue, receipt),
            "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest(),
            "Body": body,
        }
        if system := self._system(ask, queue, message, now_ms):
            answer["Attributes"] = system
        names = ask.get("MessageAttributeNames", [])
        if chosen := message_attributes.wanted(attributes, names):
            answer["MD5OfMessageAttributes"] = message_attributes.md5_of(chosen)
            answer["MessageAttributes"] = {name: one.encoded() for name, one in chosen.items()}
        return answer

    def _system(self, ask: Ask, queue: str, message: Message, now_ms: int) -> dict[str, str]:
        names = [*ask.get("AttributeNames", []), *ask.get("MessageSystemAttributeNames", [])]
        if not names:
            return {}
        if any(name.lower() == "all" for name in names):
            names = list(_SYSTEM)
        sent_ms = now_ms if message.created_at is None else round(message.created_at * 1000)
        first_ms = now_ms if message.deliveries == 1 else sent_ms
        found: dict[str, str] = {}
        for name in dict.fromkeys(names):
            if name not in _SYSTEM:
                words = f"Unknown Attribute {name[:256]}."
                raise SqsError("InvalidAttributeName", words)
            if name == "SentTimestamp":
                found[name] = str(sent_ms)
            elif name == "ApproximateFirstReceiveTimestamp":
                found[name] = str(first_ms)
            elif name == "ApproximateReceiveCount":
                found[name] = str(self._receives(queue, message))
            elif value := _SYSTEM[name](ask, queue, message.attributes):
                found[name] = value
        return found

    def _receives(self, queue: str, message: Message) -> int:
        """How often it was received; dead letters count on from what they came with."""
        own = max(1, message.deliveries or 1)
        origin = message.attributes.get(QUEUE, queue)
        if origin == queue:
            return own
        with as_unavailable(f"cannot read the settings of {origin!r}"):
            source = self._spool.context.settings.get(origin)
        before = source.max_deliveries if source.dead_letter_queue == queue else None
        return own + (before or 0)


def _line(name: str, default: str = "") -> Callable[[Ask, str, Mapping[str, str]], str]:
    return lambda ask, queue, lines: lines.get(name, default)


def _origin(ask: Ask, queue: str, lines: Mapping[str, str]) -> str:
    origin = lines.get(QUEUE, queue)
    return "" if origin == queue else ask.options.arn(origin)


_SYSTEM: Mapping[str, Callable[[Ask, str, Mapping[str, str]], str]] = {
    "SenderId": _line(SENDER, _NOBODY),
    "SentTimestamp": _line(""),
    "ApproximateReceiveCount": _line(""),
    "ApproximateFirstReceiveTimestamp": _line(""),
    "SequenceNumber": _line(""),
    "MessageDeduplicationId": _line(DEDUP),
    "MessageGroupId": _line(GROUP),
    "AWSTraceHeader": _line(TRACE),
    "DeadLetterQueueSourceArn": _origin,
}


def _text(body: bytes) -> str | None:
    """A body as text; None if clients of SQS could not have sent it."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text and message_attributes.is_legal(text) else None
