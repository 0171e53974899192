"""Claimed messages, for coroutines: what may be done with one of a queue, or of a channel."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ..arguments import Delay
from ..claimed import Bound, Bury, Retry, name_of
from ..errors import CLAIM_OVER, FsmqError, InvalidValue
from ..layout.messages.dead_letter import reason_of

log = logging.getLogger(__name__)
_BURIED = "message %s goes to the dead-letter queue: %s"


class AsyncClaimedVerbs:
    """What may be done with a message that was claimed, for coroutines.

    In a ``with`` it is acknowledged at the end, and released when the end is an exception; unless
    one of its methods has settled before what is to become of it. :class:`Retry` releases it with a
    delay and :class:`Bury` buries it; these two end with the ``with``.

    They raise NoSuchMessage or ClaimEnded if the claim is over; of a channel NotInFlight or
    ClaimVoid.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        _bound_to: Any
        _settled: bool

        @property
        def claim(self) -> str | None: ...

    async def ack(self) -> bool:
        """Acknowledge it: the work is done. Whether it was there, or had not been done yet.

        Of a channel this is possible though the claim has ended.
        """
        self._settle()
        return bool(await self._bound_to.ack(self, claim=self.claim))

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline."""
        deadline: float = await self._bound_to.renew(self, visibility=visibility, claim=self.claim)
        return deadline

    async def release(self, delay: Delay = 0.0) -> None:
        """Make it ready again, at once or after ``delay``."""
        self._settle()
        await self._bound_to.release(self, delay=delay, claim=self.claim)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue; InvalidValue if there is none.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        """
        await self._bound_to.bury(self, reason=reason, claim=self.claim)
        self._settle()

    def _settle(self) -> None:
        """Note that it was settled, so that the end of a ``with`` does nothing."""
        object.__setattr__(self, "_settled", True)  # a Message is frozen; this is none of its value

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
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                await self.release()
        return False


class AsyncClaimed(Bound, AsyncClaimedVerbs):
    """A message of a queue that was claimed, for coroutines."""

    __slots__ = ()
