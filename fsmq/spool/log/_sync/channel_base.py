# Made from ../_async/channel_base.py by `make sync`: change that one.
"""Verbs of channels that are made of their other verbs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..delivered import Given, generation_of, in_claims, offset_of
from ..ranges import Range, ranges_of


class ChannelProtocol(Protocol):
    """What the verbs here need of a channel."""

    log: Any
    name: str

    def configure(self, **changes: Any) -> Any: ...
    def state(self) -> Any: ...
    def ack(self, *messages: Given, claim: str | None = None) -> int: ...
    def done_ranges(self, ranges: Iterable[Range], generation: int | None = None) -> int: ...


class ChannelBase:
    """Verbs of the library's channels and of the client's, made of their other verbs.

    To who claims and acknowledges, a channel is a queue: its messages are called by their offsets.
    """

    def ack(self: ChannelProtocol, *messages: Given, claim: str | None = None) -> int:
        """Acknowledge messages that were handed out, durably; how many had not been done yet.

        claim: the ``claim`` of a single message.

        Raises NotInFlight for one that was not handed out; ClaimVoid for one that was, before a
        seek or by a channel that was deleted.
        """
        given = in_claims(messages, claim)
        ranges = ranges_of(sorted({offset_of(one) for one in given}))
        return self.done_ranges(ranges, generation_of(self.log.name, self.name, given))

    def done(self: ChannelProtocol, *messages: Given) -> int:
        """`ack`, by the word that a log has for it: what is acknowledged is done."""
        return self.ack(*messages)

    def pause(self: ChannelProtocol) -> None:
        """Hand out nothing from now on. What is in flight can still be settled."""
        self.configure(paused=True)

    def resume(self: ChannelProtocol) -> None:
        """End a pause."""
        self.configure(paused=False)

    def lag(self: ChannelProtocol) -> int:
        """How many messages are unfinished."""
        return int(self.state().lag)
