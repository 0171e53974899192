# Made from ../_async/claimed_message.py by `make sync`: change that one.
"""Claimed messages: the verbs on a message of a queue or a channel."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..arguments import Delay
from ..claimed import Bound, Bury, Retry, name_of
from ..errors import CLAIM_OVER, FsmqError, InvalidValue
from ..layout.messages.dead_letter import failure_of, reason_of

log = logging.getLogger(__name__)
_BURIED = "message %s goes to the dead-letter queue: %s"


class ClaimedVerbs:
    """The verbs on a claimed message.

    A ``with`` acknowledges it at the end, and releases it on an exception, unless one of its
    methods has been called before. :class:`Retry` releases it with a delay and :class:`Bury` buries
    it; the ``with`` suppresses these two.

    They raise NoSuchMessage or ClaimEnded if the claim is over; for a channel NotInFlight or
    ClaimVoid.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        _bound_to: Any
        _settled: bool

        @property
        def claim(self) -> str | None: ...

    def ack(self) -> bool:
        """Acknowledge it: the work is done. Returns whether it was there, or not done before.

        For a channel this works even after the end of the claim.
        """
        self._settle()
        return bool(self._bound_to.ack(self, claim=self.claim))

    def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; returns the new deadline."""
        deadline: float = self._bound_to.renew(self, visibility=visibility, claim=self.claim)
        return deadline

    def release(self, delay: Delay = 0.0, reason: str | None = None) -> None:
        """Make it ready again, at once or after ``delay``.

        reason: why this try failed; kept in its ``dead_letter`` if it was the last one.
        """
        self._settle()
        self._bound_to.release(self, delay=delay, claim=self.claim, reason=reason)

    def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue; InvalidValue if there is none.

        reason: kept in its ``dead_letter``; at most 1024 bytes in UTF-8.
        """
        self._bound_to.bury(self, reason=reason, claim=self.claim)
        self._settle()

    def _settle(self) -> None:
        """Note that it was settled, so that the end of a ``with`` does nothing."""
        object.__setattr__(self, "_settled", True)  # a Message is frozen; not part of its value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            self.ack()
        elif isinstance(error, Retry):
            with suppress(*CLAIM_OVER):  # another consumer tries again
                self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, name_of(self), error)
            try:
                with suppress(*CLAIM_OVER):
                    self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline; the first error must be seen
                self.release(reason=failure_of(error))
        return False


class Claimed(Bound, ClaimedVerbs):
    """A message of a queue that was claimed."""

    __slots__ = ()
