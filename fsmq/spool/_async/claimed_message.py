"""Claimed messages, for coroutines: the verbs on a message of a queue or a channel."""

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


class AsyncClaimedVerbs:
    """The verbs on a claimed message, for coroutines.

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

    async def ack(self) -> bool:
        """Acknowledge it: the work is done. Returns whether it was there, or not done before.

        For a channel this works even after the end of the claim.
        """
        self._settle()
        return bool(await self._bound_to.ack(self, claim=self.claim))

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; returns the new deadline."""
        deadline: float = await self._bound_to.renew(self, visibility=visibility, claim=self.claim)
        return deadline

    async def release(self, delay: Delay = 0.0, reason: str | None = None) -> None:
        """Make it ready again, at once or after ``delay``.

        reason: why this try failed; kept in its ``dead_letter`` if it was the last one.
        """
        self._settle()
        await self._bound_to.release(self, delay=delay, claim=self.claim, reason=reason)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue; InvalidValue if there is none.

        reason: kept in its ``dead_letter``; at most 1024 bytes in UTF-8.
        """
        await self._bound_to.bury(self, reason=reason, claim=self.claim)
        self._settle()

    def _settle(self) -> None:
        """Note that it was settled, so that the end of a ``with`` does nothing."""
        object.__setattr__(self, "_settled", True)  # a Message is frozen; not part of its value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Retry):
            with suppress(*CLAIM_OVER):  # another consumer tries again
                await self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, name_of(self), error)
            try:
                with suppress(*CLAIM_OVER):
                    await self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                await self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline; the first error must be seen
                await self.release(reason=failure_of(error))
        return False


class AsyncClaimed(Bound, AsyncClaimedVerbs):
    """A message of a queue that was claimed, for coroutines."""

    __slots__ = ()
