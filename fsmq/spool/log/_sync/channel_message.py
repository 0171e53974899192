# Made from ../_async/channel_message.py by `make sync`: change that one.
"""Messages that a channel has handed out."""

from __future__ import annotations

from ..._sync.claimed_message import ClaimedVerbs
from ..delivered import Delivered


class ChannelMessage(Delivered, ClaimedVerbs):
    """A message that a channel has handed out."""

    __slots__ = ()

    def done(self) -> bool:
        """`ack`, in the terms of logs: an acknowledged message is done."""
        return self.ack()

    def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; sets and returns its new deadline."""
        self.deadline = super().renew(visibility)
        return self.deadline
