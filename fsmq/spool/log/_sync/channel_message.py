# Made from ../_async/channel_message.py by `make sync`: change that one.
"""Messages that a channel has handed out."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from ...errors import FsmqError
from ..delivered import Delivered, Given


class Delivering(Protocol):
    """The channel of a message that was handed out."""

    name: str

    def done(self, *messages: Given) -> int: ...
    def renew(self, *messages: Given, visibility: float | None = None) -> float: ...
    def release(self, *messages: Given, delay: float = 0.0) -> None: ...
    def bury(self, *messages: Given, reason: str | None = None) -> None: ...


class ChannelMessage(Delivered):
    """A message that a channel has handed out.

    In a ``with`` it is done at the end, and released when the end is an exception.
    """

    __slots__ = ()
    _channel: Delivering

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
