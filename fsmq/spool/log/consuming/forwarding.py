"""A channel that feeds a queue: each message is put there, and then acknowledged.

It works with logs of the library and of a client. In the queue a message has an id that its log and
offset determine: if it is put again after a crash, it is found there and not stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self, runtime_checkable

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

# The most messages claimed at a time, and put together, all or none.
_AT_A_TIME, _PART = 1000, 250
# Messages that the queue refuses are redelivered after this time.
_REFUSED_S = 1.0


class Source(Protocol):
    """What this needs of a channel."""

    def claim(self, count: int, visibility: float | None, wait: float) -> Sequence[Any]: ...
    def ack(self, *messages: Given) -> int: ...
    def renew(self, *messages: Given) -> float: ...
    def release(self, *messages: Given, delay: float = 0.0) -> None: ...


@runtime_checkable
class OfFolder(Protocol):
    """What a channel can do besides, unless it is a client's."""

    def release_unseen(self, messages: Iterable[Any]) -> None: ...


class Target(Protocol):
    """What this needs of a queue."""

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
    """Copies the messages of a channel to a queue, at least once. log, uuid: those of the log.

    A second copy is stored only if a crash came between put and ack, and the first copy was removed
    from the queue before the retry. Messages that could not be put, since the queue or the disk is
    full, are kept for the next step: handing them out again would be another delivery. Close it.
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
        """Release the messages kept for the next step; where the folder can be used, uncounted."""
        kept, self._kept = self._kept, []
        if kept:
            with suppress(NotInFlight, ClaimVoid):
                if isinstance(self._channel, OfFolder):
                    self._channel.release_unseen(kept)
                else:
                    self._channel.release(*kept)

    def step(self, wait: float = 0.0) -> int:
        """Copy what can be claimed now, at most 1000 messages; how many were copied or refused.

        wait: seconds to wait for a first one. A message that the queue refuses for its content is
        released, which counts as a delivery: the channel's max_deliveries and on_poison apply.

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
        """The kept messages, with their claims renewed; none if the claims have ended."""
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
        """Put messages, and acknowledge them before more are put: consumers may soon remove
        them."""
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
                    pass  # put before a crash
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
    """A message of a log as one for a queue, with attributes that name the original."""
    about["offset"] = str(message.offset)
    if message.key is not None:
        about["key"] = message.key
    return NewMessage(
        message.body,
        id=id,
        content_type=message.content_type,
        attributes={**about, **message.attributes},
    )
