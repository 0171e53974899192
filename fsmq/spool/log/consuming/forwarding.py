"""A channel that feeds a queue: each message is put there, and then it is done.

It works on a log of the library, and on one of a client. A message has an id in the queue that its
log and offset determine: what is put again after a crash is found there, and not stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

from ...errors import (
    ClaimVoid,
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NotInFlight,
)
from ...layout.messages.message import NewMessage
from ...layout.uuids import derived_uuid7
from ..delivered import Given
from ..segment.record import LogMessage

# So many messages are claimed at a time at most, and put together: all or none of these.
_AT_A_TIME, _PART = 1000, 250
# What the queue refuses comes back after this time.
_REFUSED_S = 1.0


class Source(Protocol):
    """A channel, as far as this needs one."""

    def claim(self, count: int, visibility: float | None, wait: float) -> Sequence[Any]: ...
    def ack(self, *messages: Given) -> int: ...
    def renew(self, *messages: Given) -> float: ...
    def release(self, *messages: Given, delay: float = 0.0) -> None: ...


class Target(Protocol):
    """A queue, as far as this needs one."""

    def put(
        self,
        body: bytes,
        *,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str: ...
    def put_many(self, messages: Sequence[NewMessage]) -> list[str]: ...


class Feed:
    """Brings the messages of a channel to a queue, at least once. log, uuid: whose messages.

    A second copy of a message is stored only if it was removed from the queue before a crash
    between the put and the ack was made good. Messages that the queue could not take, since it is
    full or its disk refuses, are kept for the next step: to hand them out again would count as one
    delivery more. Close it.
    """

    def __init__(self, channel: Source, queue: Target, log: str, uuid: str) -> None:
        self._channel = channel
        self._queue = queue
        self._log = log
        self._uuid = uuid
        self._kept: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what is kept for the next step."""
        kept, self._kept = self._kept, []
        if kept:
            with suppress(NotInFlight, ClaimVoid):
                self._channel.release(*kept)

    def step(self, wait: float = 0.0) -> int:
        """Bring what can be claimed now, 1000 messages at most; how many were brought, or refused.

        wait: seconds to wait for a first one. What the queue refuses because of what it is, is
        released, and counts as a delivery: the channel's max_deliveries and on_poison say what
        becomes of it.

        Raises what a claim and a put raise; then the rest is kept for the next step.
        """
        messages = self._renewed() or list(self._channel.claim(_AT_A_TIME, None, wait))
        left = messages
        while left:
            self._kept = left
            part, left = left[:_PART], left[_PART:]
            self._bring(part)
            self._kept = left
        return len(messages)

    def _renewed(self) -> list[Any]:
        """What is kept, for as long as a claim holds; nothing if the claims have ended."""
        kept, self._kept = self._kept, []
        if kept:
            try:
                self._channel.renew(*kept)
            except (NotInFlight, ClaimVoid):
                return []
            except FsmqError:
                self._kept = kept
                raise
        return kept

    def _bring(self, part: list[Any]) -> None:
        """Put messages, and finish them before others are put: who works on the queue may have
        removed them by then."""
        try:
            self._queue.put_many([self._copy(one) for one in part])
        except FsmqError:
            self._one_by_one(part)
        else:
            self._channel.ack(*part)

    def _one_by_one(self, messages: list[Any]) -> None:
        stored: list[Any] = []
        refused: list[Any] = []
        try:
            for one in messages:
                copy = self._copy(one)
                try:
                    self._queue.put(
                        copy.body,
                        id=copy.id,
                        content_type=copy.content_type,
                        attributes=copy.attributes,
                    )
                except DuplicateMessage:
                    pass  # it was put before a crash
                except (InvalidValue, MessageTooLarge):
                    refused.append(one)
                    continue
                stored.append(one)
        finally:
            if stored:
                self._channel.ack(*stored)
            if refused:
                self._channel.release(*refused, delay=_REFUSED_S)
            self._kept = self._kept[len(stored) + len(refused) :]

    def _copy(self, message: LogMessage) -> NewMessage:
        seed = f"{self._uuid} {message.offset}".encode()
        derived = derived_uuid7(message.time_us * 1000, seed, message.offset)
        return copy_of(message, derived, log=self._log)


def copy_of(message: LogMessage, id: str, **about: str) -> NewMessage:
    """A message of a log as one for a queue, whose attributes tell what it is a copy of."""
    about["offset"] = str(message.offset)
    if message.key is not None:
        about["key"] = message.key
    return NewMessage(
        message.body,
        id=id,
        content_type=message.content_type,
        attributes={**about, **message.attributes},
    )
