"""Messages that a channel has handed out, for coroutines."""

from __future__ import annotations

from ..._async.claimed_message import AsyncClaimedVerbs
from ..delivered import Delivered


class AsyncChannelMessage(Delivered, AsyncClaimedVerbs):
    """A message that a channel has handed out, for coroutines."""

    __slots__ = ()

    async def done(self) -> bool:
        """`ack`, in the terms of logs: an acknowledged message is done."""
        return await self.ack()

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; sets and returns its new deadline."""
        self.deadline = await super().renew(visibility)
        return self.deadline
