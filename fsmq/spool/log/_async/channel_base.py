"""Verbs of channels that are built on their other verbs, for coroutines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..delivered import Given, generation_of, in_claims, offset_of
from ..ranges import Range, ranges_of


class AsyncChannelProtocol(Protocol):
    """What these verbs need from a channel, for coroutines."""

    log: Any
    name: str

    async def configure(self, **changes: Any) -> Any: ...
    async def state(self) -> Any: ...
    async def ack(self, *messages: Given, claim: str | None = None) -> int: ...
    async def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int: ...


class AsyncChannelBase:
    """Verbs of the channels of library and client, built on their other verbs.

    To its consumers a channel is a queue whose messages have offsets for ids.
    """

    async def ack(self: AsyncChannelProtocol, *messages: Given, claim: str | None = None) -> int:
        """Acknowledge messages that were handed out, durably; how many were not done before.

        claim: the ``claim`` of a single message.

        Raises NotInFlight for a message that was not handed out; ClaimVoid for one that was handed
        out before a seek, or by a deleted channel.
        """
        given = in_claims(messages, claim)
        ranges = ranges_of(sorted({offset_of(one) for one in given}))
        return await self.done_ranges(ranges, generation_of(self.log.name, self.name, given))

    async def done(self: AsyncChannelProtocol, *messages: Given) -> int:
        """`ack`, in the terms of logs: an acknowledged message is done."""
        return await self.ack(*messages)

    async def pause(self: AsyncChannelProtocol) -> None:
        """Hand out nothing from now on. Claims in flight can still be acknowledged."""
        await self.configure(paused=True)

    async def resume(self: AsyncChannelProtocol) -> None:
        """End a pause."""
        await self.configure(paused=False)

    async def lag(self: AsyncChannelProtocol) -> int:
        """How many messages are unfinished."""
        return int((await self.state()).lag)
