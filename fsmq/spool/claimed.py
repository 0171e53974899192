"""Claimed messages: they know their queue, so they have ack, renew and release.

The server does not use them: its claims give plain :class:`Message` objects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from .arguments import Delay, seconds_of
from .errors import ClaimEnded, FsmqError, InvalidValue
from .layout.claim_names import check_claim
from .layout.messages.message import Message
from .layout.settings import MAX_DELAY_S, check_seconds
from .verbs.remove_if import Acked

if TYPE_CHECKING:
    import asyncio

M = TypeVar("M", bound="Bound")
_new, _set = object.__new__, object.__setattr__
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
    """Raised by a worker's handler or in a ``with``: retries are useless, bury the message now.

    Its text is the reason in the dead letter, shortened to 1024 bytes.
    """


def single(messages: Sequence[Message | str]) -> Sequence[Message | str]:
    """The one message to which a claim belongs. Raises InvalidValue."""
    if len(messages) != 1:
        raise InvalidValue("claim", "belongs to one message; ack_each takes one for each")
    return messages


def acked(queue: str, messages: Sequence[Message | str], outcomes: Sequence[Acked]) -> int:
    """The number removed, 0 or 1, of a single message. Raises ClaimEnded."""
    if outcomes[0] == "ended":
        raise ClaimEnded(queue, id_of(messages[0]))
    return int(outcomes[0] == "removed")


def with_claims(
    messages: Iterable[Message | str], claims: Sequence[str | None] | None
) -> tuple[list[str], list[str | None]]:
    """The ids of messages, and for each the given claim or its own. Raises InvalidValue."""
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


def name_of(message: Any) -> str:
    """The name of a claimed message in its queue or log: its id or its offset."""
    return message.id if isinstance(message, Message) else str(message.offset)


class Bound(Message):
    """A message that knows its queue. Only a claim makes one; copies are plain messages."""

    __slots__ = ("_bound_to", "_settled")
    _bound_to: Any
    _settled: bool

    def __new__(cls, *values: Any, **named: Any) -> Message:  # type: ignore[misc]
        """A plain message, since ``dataclasses.replace`` passes the fields only."""
        return Message(*values, **named)

    @classmethod
    def all(cls: type[M], queue: Any, messages: list[Message]) -> list[M]:
        """The messages of a claim, bound to their queue."""
        return [cls._bind(queue, message) for message in messages]

    @classmethod
    def _bind(cls: type[M], queue: Any, message: Message) -> M:
        made = _new(cls)
        Message.__init__(made, *_values(message))
        _set(made, "_bound_to", queue)
        _set(made, "_settled", False)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and _compared(self) == _compared(other)

    __hash__ = Message.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _values(self)


class Claim:
    """A handler's claim on its message."""

    def __init__(self, visibility: float, stopping: asyncio.Event) -> None:
        self._until = time.monotonic() + visibility
        self._lost = threading.Event()
        self._stopping = stopping

    @property
    def lost(self) -> bool:
        """Whether this message was deleted or its claim has ended.

        Then another consumer may be handling it. A slow handler should check this before it does
        something irreversible.
        """
        return self._lost.is_set()

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping: leave the rest for later if possible (raise Retry)."""
        return self._stopping.is_set()

    def wait_lost(self, seconds: float) -> bool:
        """Sleep up to ``seconds`` until the message is lost; returns whether it is. For threads."""
        return self._lost.wait(seconds)

    @property
    def seconds_left(self) -> float:
        """The seconds until the claim ends, unless it is renewed."""
        return max(0.0, self._until - time.monotonic())

    def renewed(self, at: float, visibility: float) -> None:
        """Note a renewal. at: when it was requested, by the monotonic clock."""
        self._until = at + visibility

    def lose(self) -> None:
        """Set ``lost``, so that the handler can see it."""
        self._lost.set()
