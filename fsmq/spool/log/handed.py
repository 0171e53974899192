"""Messages that a channel has handed out, and how callers name them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from ..errors import ClaimVoid, FsmqError
from ..layout.settings import check_number
from .record import LogMessage


class Handing(Protocol):
    """The channel of a message that was handed out."""

    name: str

    def done(self, *messages: Given) -> int: ...
    def renew(self, *messages: Given, visibility: float | None = None) -> float: ...
    def release(self, *messages: Given, delay: float = 0.0) -> None: ...
    def bury(self, *messages: Given, reason: str | None = None) -> None: ...


class AsyncHanding(Protocol):
    """The same, for coroutines."""

    name: str

    async def done(self, *messages: Given) -> int: ...
    async def renew(self, *messages: Given, visibility: float | None = None) -> float: ...
    async def release(self, *messages: Given, delay: float = 0.0) -> None: ...
    async def bury(self, *messages: Given, reason: str | None = None) -> None: ...


class Handed(LogMessage):
    """A message that a channel has handed out, whatever may be done with it.

    deliveries: how often, this time included. deadline: when the claim ends, Unix seconds.
    channel: settles it; None where something else does. generation: one more with each seek of it,
    and another where a channel is made anew. With its deliveries it names the claim; 0, of either:
    whatever it is now.
    """

    __slots__ = ("_channel", "_settled", "deadline", "deliveries", "generation")
    __eq__, __hash__ = object.__eq__, object.__hash__  # another claim of it is another thing

    def __init__(
        self,
        channel: Handing | AsyncHanding | None,
        message: LogMessage,
        deliveries: int,
        deadline: float,
        generation: int,
    ) -> None:
        super().__init__(message.offset, message.time_us, message.header, message.body)
        self._parsed = message._parsed
        self._channel = channel
        self._settled = False
        self.deliveries = deliveries
        self.deadline = deadline
        self.generation = generation


class ChannelMessage(Handed):
    """A message that a channel has handed out.

    In a ``with`` it is done at the end, and released when the end is an exception.
    """

    __slots__ = ()
    _channel: Handing

    def done(self) -> bool:
        """Finish it, durably; whether it had not been done yet. Raises ClaimVoid."""
        self._settled = True
        return self._channel.done(self) == 1

    def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline. Raises NotInFlight."""
        self.deadline = self._channel.renew(self, visibility=visibility)
        return self.deadline

    def release(self, delay: float = 0.0) -> None:
        """Let it be handed out again, after ``delay`` seconds. Raises NotInFlight."""
        self._settled = True
        self._channel.release(self, delay=delay)

    def bury(self, reason: str | None = None) -> None:
        """Move it to the channel's dead-letter queue, which tells the reason.

        Raises NotInFlight, InvalidValue.
        """
        self._channel.bury(self, reason=reason)
        self._settled = True

    def __enter__(self) -> ChannelMessage:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._settled:
            return
        if error is None:
            self.done()
        else:
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                self.release()


class AsyncChannelMessage(Handed):
    """A message that a channel has handed out, for coroutines; otherwise as ChannelMessage."""

    __slots__ = ()
    _channel: AsyncHanding

    async def done(self) -> bool:
        """Finish it, durably; whether it had not been done yet. Raises ClaimVoid."""
        self._settled = True
        return await self._channel.done(self) == 1

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline. Raises NotInFlight."""
        self.deadline = await self._channel.renew(self, visibility=visibility)
        return self.deadline

    async def release(self, delay: float = 0.0) -> None:
        """Let it be handed out again, after ``delay`` seconds. Raises NotInFlight."""
        self._settled = True
        await self._channel.release(self, delay=delay)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the channel's dead-letter queue, which tells the reason.

        Raises NotInFlight, InvalidValue.
        """
        await self._channel.bury(self, reason=reason)
        self._settled = True

    async def __aenter__(self) -> AsyncChannelMessage:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._settled:
            return
        if error is None:
            await self.done()
        else:
            with suppress(FsmqError):
                await self.release()


Given = int | Handed
"""A message that was handed out, or its offset."""


def offset_of(given: Given) -> int:
    if isinstance(given, Handed):
        return given.offset
    return check_number("offset", given, 0, 10**18)


def generation_of(log: str, channel: str, messages: Iterable[Given]) -> int | None:
    """The generation that messages were handed out in; offsets are of whatever it is now.

    Raises ClaimVoid if they are of more than one: it is over for some of them.
    """
    found = {one.generation for one in messages if isinstance(one, Handed) and one.generation}
    if len(found) > 1:
        raise ClaimVoid(log, channel)
    return next(iter(found), None)


def claims_of(messages: Iterable[Given]) -> dict[int, int]:
    """Offsets, each with the deliveries of its claim; 0: whatever they are now."""
    return {offset_of(one): one.deliveries if isinstance(one, Handed) else 0 for one in messages}
