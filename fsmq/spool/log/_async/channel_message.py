"""Messages that a channel has handed out, for coroutines."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from ...errors import FsmqError
from ..delivered import Delivered, Given


class AsyncDelivering(Protocol):
    """The channel of a message that was handed out, for coroutines."""

    name: str

    async def done(self, *messages: Given) -> int: ...
    async def renew(self, *messages: Given, visibility: float | None = None) -> float: ...
    async def release(self, *messages: Given, delay: float = 0.0) -> None: ...
    async def bury(self, *messages: Given, reason: str | None = None) -> None: ...


class AsyncChannelMessage(Delivered):
    """A message that a channel has handed out, for coroutines.

    In a ``with`` it is done at the end, and released when the end is an exception.
    """

    __slots__ = ()
    _channel: AsyncDelivering

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
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                await self.release()
