# Made from ../_async/channel_base.py by `make sync`: change that one.
"""Verbs of channels that are built on their other verbs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..delivered import Given, generation_of, in_claims, offset_of
from ..ranges import Range, ranges_of


class ChannelProtocol(Protocol):
    """What these verbs need from a channel."""

    log: Any
    name: str

    def configure(self, **changes: Any) -> Any: ...
    def state(self) -> Any: ...
    def ack(self, *messages: Given, claim: str | None = None) -> int: ...
    def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int: ...


class ChannelBase:
    """Verbs of the channels of library and client, built on their other verbs.

    To its consumers a channel is a queue whose messages have offsets for ids.
    """

    def ack(self: ChannelProtocol, *messages: Given, claim: str | None = None) -> int:
        """Acknowledge messages that were handed out, durably; how many were not done before.

        claim: the ``claim`` of a single message.

        Raises NotInFlight for a message that was not handed out; ClaimVoid for one that was handed
        out before a seek, or by a deleted channel.
        """
        given = in_claims(messages, claim)
        ranges = ranges_of(sorted({offset_of(one) for one in given}))
        return self.done_ranges(ranges, generation_of(self.log.name, self.name, given))

    def done(self: ChannelProtocol, *messages: Given) -> int:
        """`ack`, in the terms of logs: an acknowledged message is done."""
        return self.ack(*messages)

    def pause(self: ChannelProtocol) -> None:
        """Hand out nothing from now on. Claims in flight can still be acknowledged."""
        self.configure(paused=True)

    def resume(self: ChannelProtocol) -> None:
        """End a pause."""
        self.configure(paused=False)

    def lag(self: ChannelProtocol) -> int:
        """How many messages are unfinished."""
        return int(self.state().lag)
