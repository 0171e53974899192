"""A channel of a log as the verbs for queues take it: a message's id is its offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from fsmq.cli.place.place import Place, Queue
from fsmq.spool import ClaimVoid, InvalidValue, Message, NoSuchMessage, NotInFlight
from fsmq.spool.log.delivered import Delivered, Given
from fsmq.spool.log.log_settings import ChannelSettings
from fsmq.spool.verbs.remove_if import Acked

if TYPE_CHECKING:
    from fsmq.client._sync.log import ClientChannel
    from fsmq.spool import Channel

_MOST = 1000


@dataclass(frozen=True)
class ChannelItem(Message):
    """A message that a channel has handed out. key: what its order keeps in order. handed: names
    its claim."""

    key: str | None = None
    handed: Delivered | None = field(default=None, repr=False, compare=False)


class ChannelQueue:
    """What ``get``, ``ack``, ``renew``, ``release`` and ``bury`` need, of a channel."""

    def __init__(self, channel: Channel | ClientChannel) -> None:
        self.name = f"{channel.log.name}/{channel.name}"
        self._channel = channel

    def settings(self) -> ChannelSettings:
        return self._channel.settings()

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[ChannelItem]:
        """Claim messages."""
        messages = self._channel.claim(min(count, _MOST), visibility, wait)
        return [self._item(message) for message in messages]

    def _item(self, message: Delivered) -> ChannelItem:
        return ChannelItem(
            queue=self.name,
            id=str(message.offset),
            body=message.body,
            deliveries=message.deliveries,
            content_type=message.content_type,
            attributes=dict(message.attributes),
            priority=0,
            state="in_flight",
            deadline=message.deadline,
            created_at=message.published_at,
            expires_at=None,
            key=message.key,
            handed=message,
        )

    def remove(self, *ids: str | Message) -> int:
        """Finish messages; how many were handed out."""
        return sum(self.remove_each(ids))

    def remove_each(self, messages: Sequence[str | Message]) -> list[bool]:
        """Finish messages; for each whether it was handed out."""
        given = list(map(_given, messages))
        try:
            self._channel.done(*given)
        except (NotInFlight, ClaimVoid):
            if len(messages) == 1:
                return [False]
            return [self.remove_each([one])[0] for one in messages]
        return [True] * len(messages)

    def ack_each(
        self, messages: Sequence[str | Message], claims: Sequence[str | None] | None = None
    ) -> list[Acked]:
        """Finish messages; for each what became of it."""
        _check_none(*(claims or ()))
        return ["removed" if found else "missing" for found in self.remove_each(messages)]

    def renew(
        self, message: str | Message, visibility: float | None = None, *, claim: str | None = None
    ) -> float:
        """Hold a message from now on; the new deadline."""
        _check_none(claim)
        with self._known(message) as given:
            return self._channel.renew(given, visibility=visibility)

    def release(
        self, message: str | Message, delay: float = 0.0, *, claim: str | None = None
    ) -> None:
        """Let a message be handed out again."""
        _check_none(claim)
        with self._known(message) as given:
            self._channel.release(given, delay=delay)

    def bury(
        self, message: str | Message, reason: str | None = None, *, claim: str | None = None
    ) -> None:
        """Move a message to the dead-letter queue, where it tells the reason."""
        _check_none(claim)
        with self._known(message) as given:
            self._channel.bury(given, reason=reason)

    @contextmanager
    def _known(self, message: str | Message) -> Iterator[Given]:
        name = message if isinstance(message, str) else message.id
        try:
            yield _given(message)
        except (NotInFlight, ClaimVoid):
            raise NoSuchMessage(self.name, name, "in flight") from None


def _given(message: str | Message) -> Given:
    """The claim of a message; of an offset alone whichever there is."""
    if isinstance(message, ChannelItem) and message.handed is not None:
        return message.handed
    name = message if isinstance(message, str) else message.id
    if not name.isascii() or not name.isdecimal():
        raise InvalidValue("offset", f"{name[:50]!r} is not an offset")
    return int(name)


def _check_none(*claims: str | None) -> None:
    if any(claims):
        raise InvalidValue("claim", "is of a message of a queue; a channel knows its own by offset")


Claimable: TypeAlias = "Queue | ChannelQueue"


def open_claimable(place: Place, name: str) -> Any:
    """The queue of a name; of ``LOG/CHANNEL`` the channel; of several queues, as ``high,low``, what
    one claims from together. Raises NoSuchQueue, InvalidValue.
    """
    if is_several(name):
        return place.select(name)
    log, slash, channel = name.partition("/")
    return ChannelQueue(place.log(log).channel(channel)) if slash else place.queue(name)


def is_several(name: str) -> bool:
    """Whether it stands for several queues: by a comma or a pattern, which no name has in it."""
    return not set(name).isdisjoint(",*?")
