"""A message of dyno-queues, and how it is stored in a queue of the spool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fsmq.spool import InvalidValue, NewMessage
from fsmq.spool import Message as SpoolMessage

Unit = Literal["ms", "s", "min", "h", "d"]
_MS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_PRIORITY = 99
# Attributes of the message in the spool.
TIMEOUT, NULL = "dyno.timeout", "dyno.null"


def in_ms(time: int, unit: Unit = "ms") -> int:
    """A time in milliseconds. Raises InvalidValue."""
    if isinstance(time, bool) or not isinstance(time, int):
        raise InvalidValue("time", f"must be a whole number of {unit}")
    if unit not in _MS:
        raise InvalidValue(
            "unit", f"unknown unit {unit!r}; expected one of: {', '.join(get_args(Unit))}"
        )
    return time * _MS[unit]


@dataclass(eq=False)
class Message:
    """A message; two are equal when their ids are.

    id: any text of 1 to 1024 bytes, which the producer chooses.
    payload: text; None is different from "".
    timeout: milliseconds until it can be popped.
    priority: 0 to 99; the lower number is popped first (see ``higher_first`` of DynoQueues).
    shard: where it was popped or found; a push ignores it.
    deliveries: how often it was popped, this time included; None for a message to push.
    """

    id: str
    payload: str | None
    timeout: int = 0
    priority: int = 0
    shard: str | None = None
    deliveries: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "priority" and not (type(value) is int and 0 <= value <= MAX_PRIORITY):
            raise InvalidValue("priority", f"must be a whole number from 0 to {MAX_PRIORITY}")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def set_timeout(self, timeout: int, unit: Unit = "ms") -> None:
        """Set the timeout in another unit."""
        self.timeout = in_ms(timeout, unit)


class Form:
    """How messages are written to a queue and read from it. higher_first: priority 99 is first."""

    def __init__(self, *, higher_first: bool = False) -> None:
        self._higher_first = higher_first

    def written(self, message: Message, ttl: float | None = None) -> NewMessage:
        """A message for the spool. Raises InvalidValue."""
        if message.payload is not None and not isinstance(message.payload, str):
            raise InvalidValue("payload", "must be text or None")
        try:
            body = (message.payload or "").encode()
        except UnicodeEncodeError as error:
            raise InvalidValue("payload", f"cannot be written in UTF-8: {error.reason}") from None
        timeout = in_ms(message.timeout)
        attributes = {TIMEOUT: str(timeout)} if timeout else {}
        if message.payload is None:
            attributes[NULL] = "1"
        return NewMessage(
            body,
            max(0, timeout) / 1000,
            self._turned(message.priority),
            ttl,
            message.id,
            attributes=attributes,
        )

    def read(self, found: SpoolMessage, shard: str) -> Message | None:
        """The message of one of the spool; None if no producer gave that an id."""
        attributes: Mapping[str, str] = found.attributes
        own = found.given_id
        if own is None:
            return None
        payload = None if NULL in attributes else found.body.decode("utf-8", "replace")
        timeout = attributes.get(TIMEOUT)
        message = Message.__new__(Message)
        # Skips the checks of `__setattr__`, which cost as much as everything else here.
        message.__dict__.update(
            id=own,
            payload=payload,
            timeout=int(timeout) if timeout and timeout.lstrip("-").isdecimal() else 0,
            priority=self._turned(found.priority),
            shard=shard,
            deliveries=found.deliveries,
        )
        return message

    def _turned(self, priority: int) -> int:
        return MAX_PRIORITY - priority if self._higher_first else priority
