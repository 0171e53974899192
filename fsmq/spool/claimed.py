"""Claimed messages: they know their queue, so that one can acknowledge, renew or release them.

The server has no use for them: it makes a plain :class:`Message` of each claim.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import fields
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from .errors import ClaimEnded, FsmqError, InvalidValue, NoSuchMessage
from .given import JSON_TYPE, Body, Delay, json_of, seconds_of
from .layout.claim_names import check_claim
from .layout.dead_letter import reason_of
from .layout.message import Message
from .layout.settings import MAX_DELAY_S, check_seconds
from .verbs.remove_if import Acked

log = logging.getLogger(__name__)
M = TypeVar("M", bound="Of")
# The claim is over.
_OVER = (NoSuchMessage, ClaimEnded)
_BURIED = "message %s goes to the dead-letter queue: %s"
_new, _set = object.__new__, object.__setattr__
# All that a message says, in the order in which it is made.
_values: Callable[[Message], tuple[Any, ...]] = attrgetter(*(f.name for f in fields(Message)))
_compared: Callable[[Message], tuple[Any, ...]] = attrgetter(
    *(f.name for f in fields(Message) if f.compare)
)


class Retry(FsmqError):
    """Raised by a worker's handler or in a ``with``: release the message, after ``delay``."""

    def __init__(self, delay: Delay = 0.0) -> None:
        self.delay = check_seconds("delay", seconds_of(delay), MAX_DELAY_S)
        super().__init__(f"try again in {self.delay:g} seconds")


class Bury(FsmqError):
    """Raised by a worker's handler or in a ``with``: no try will help, bury the message now.

    Its text is the reason that the dead letter tells, shortened to 1024 bytes.
    """


def single(messages: Sequence[Message | str]) -> Sequence[Message | str]:
    """The one message to which a claim belongs. Raises InvalidValue."""
    if len(messages) != 1:
        raise InvalidValue("claim", "belongs to one message; ack_each takes one for each")
    return messages


def acked(queue: str, messages: Sequence[Message | str], outcomes: Sequence[Acked]) -> int:
    """How many were there of a single one. Raises ClaimEnded."""
    if outcomes[0] == "ended":
        raise ClaimEnded(queue, id_of(messages[0]))
    return int(outcomes[0] == "removed")


def with_claims(
    messages: Iterable[Message | str], claims: Sequence[str | None] | None
) -> tuple[list[str], list[str | None]]:
    """The ids of messages, and for each its claim: the one given, or its own. InvalidValue."""
    given = list(messages)
    ids = [id_of(message) for message in given]
    if claims is None:
        return ids, [message.claim if isinstance(message, Message) else None for message in given]
    if len(claims) != len(ids):
        raise InvalidValue("claims", "must be as many as the messages")
    return ids, [None if claim is None else check_claim(claim) for claim in claims]


def id_of(message: Message | str) -> str:
    """The id of a message, or what was given as an id."""
    return message.id if isinstance(message, Message) else message


class Keeper(Protocol):
    """The queue of a claimed message."""

    name: str

    def put(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> str: ...
    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]: ...
    def remove(self, *messages: Message | str) -> int: ...
    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]: ...
    def ack_each(
        self, messages: Iterable[Message | str], claims: Sequence[str | None] | None = None
    ) -> list[Acked]: ...


class AsyncKeeper(Protocol):
    """The queue of a claimed message, for coroutines."""

    async def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[AsyncClaimed]: ...


class Of(Message):
    """A message that knows its queue. Only a claim makes one; each copy is a plain Message."""

    __slots__ = ("_keeper", "_settled")
    _keeper: Any
    _settled: bool

    def __new__(cls, *values: Any, **named: Any) -> Message:  # type: ignore[misc]
        """A plain message: ``dataclasses.replace`` knows the values, and no queue."""
        return Message(*values, **named)

    @classmethod
    def all(cls: type[M], keeper: Any, messages: list[Message]) -> list[M]:
        """The messages of a claim, of the queue ``keeper``."""
        return [cls._of(keeper, message) for message in messages]

    @classmethod
    def _of(cls: type[M], keeper: Any, message: Message) -> M:
        made = _new(cls)
        Message.__init__(made, *_values(message))
        # A message is frozen, and these are not part of its value.
        _set(made, "_keeper", keeper)
        _set(made, "_settled", False)
        return made

    def _settle(self) -> None:
        """Note that it was released, so that the end of a ``with`` does not acknowledge it."""
        _set(self, "_settled", True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and _compared(self) == _compared(other)

    __hash__ = Message.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _values(self)


class Claimed(Of):
    """A message that was claimed.

    In a ``with`` it is acknowledged at the end, and released when the end is an exception; unless
    one of its methods has settled before what is to become of it. :class:`Retry` releases it with a
    delay and :class:`Bury` buries it; these two end with the ``with``.
    """

    __slots__ = ()

    def ack(self) -> bool:
        """Acknowledge it: the work is done. Whether it was there. Raises ClaimEnded."""
        self._settle()
        return bool(self._keeper.ack(self.id, claim=self.claim))

    def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline.

        Raises NoSuchMessage, ClaimEnded.
        """
        deadline: float = self._keeper.renew(self.id, visibility, claim=self.claim)
        return deadline

    def release(self, delay: Delay = 0.0) -> None:
        """Make it ready again, at once or after ``delay``. Raises NoSuchMessage, ClaimEnded."""
        self._settle()
        self._keeper.release(self.id, delay, claim=self.claim)

    def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue. Raises NoSuchMessage, ClaimEnded, InvalidValue.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        """
        self._keeper.bury(self.id, reason, claim=self.claim)
        self._settle()

    def __enter__(self) -> Claimed:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            self.ack()
        elif isinstance(error, Retry):
            with suppress(*_OVER):  # another consumer tries again
                self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, self.id, error)
            try:
                with suppress(*_OVER):
                    self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                self.release()
        return False


class AsyncClaimed(Of):
    """A message that was claimed, for coroutines; otherwise as :class:`Claimed`."""

    __slots__ = ()

    async def ack(self) -> bool:
        """Acknowledge it: the work is done. Whether it was there. Raises ClaimEnded."""
        self._settle()
        return bool(await self._keeper.ack(self.id, claim=self.claim))

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline.

        Raises NoSuchMessage, ClaimEnded.
        """
        deadline: float = await self._keeper.renew(self.id, visibility, claim=self.claim)
        return deadline

    async def release(self, delay: Delay = 0.0) -> None:
        """Make it ready again, at once or after ``delay``. Raises NoSuchMessage, ClaimEnded."""
        self._settle()
        await self._keeper.release(self.id, delay, claim=self.claim)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue. Raises NoSuchMessage, ClaimEnded, InvalidValue.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        """
        await self._keeper.bury(self.id, reason, claim=self.claim)
        self._settle()

    async def __aenter__(self) -> AsyncClaimed:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Retry):
            with suppress(*_OVER):  # another consumer tries again
                await self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, self.id, error)
            try:
                with suppress(*_OVER):
                    await self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                await self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                await self.release()
        return False


class QueueVerbs:
    """Verbs of the library's queues and of the client's, made of their other verbs."""

    def put_json(
        self: Keeper,
        value: Any,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> str:
        """Put one message whose body is the JSON of ``value``; its id.

        Its content type is ``application/json``. Otherwise as ``put``.
        """
        return self.put(
            json_of(value),
            delay=delay,
            priority=priority,
            ttl=ttl,
            id=id,
            content_type=JSON_TYPE,
            attributes=attributes,
            group=group,
            dedup_id=dedup_id,
        )

    def ack(self: Keeper, *messages: Message | str, claim: str | None = None) -> int:
        """Acknowledge claimed messages, or ids of them: the work is done; how many were there.

        claim: the ``claim`` of a single message. Raises ClaimEnded if that is over; without it a
        message is removed whoever has claimed it.
        """
        if claim is None:
            return self.remove(*messages)
        return acked(self.name, messages, self.ack_each(single(messages), [claim]))

    def remove(self: Keeper, *messages: Message | str) -> int:
        """Remove messages, or ids of them, in whatever state they are; how many were there."""
        return sum(self.remove_each(messages))

    def claim_one(
        self: Keeper, visibility: float | None = None, wait: float = 0.0
    ) -> AbstractContextManager[Claimed | None]:
        """Claim one message for the length of a ``with``; it gives None if there is none.

        The message is acknowledged at the end, and released when the end is an exception.
        """
        return _one(self, visibility, wait)


class AsyncClaimsOne:
    """``claim_one`` for queues, for coroutines."""

    def claim_one(
        self: AsyncKeeper, visibility: float | None = None, wait: float = 0.0
    ) -> AbstractAsyncContextManager[AsyncClaimed | None]:
        """Claim one message for the length of a ``with``; it gives None if there is none.

        The message is acknowledged at the end, and released when the end is an exception.
        """
        return _one_awaited(self, visibility, wait)


@contextmanager
def _one(queue: Keeper, visibility: float | None, wait: float) -> Iterator[Claimed | None]:
    messages = queue.claim(1, visibility, wait)
    if not messages:
        yield None
        return
    with messages[0] as message:
        yield message


@asynccontextmanager
async def _one_awaited(
    queue: AsyncKeeper, visibility: float | None, wait: float
) -> AsyncIterator[AsyncClaimed | None]:
    messages = await queue.claim(1, visibility, wait)
    if not messages:
        yield None
        return
    async with messages[0] as message:
        yield message
