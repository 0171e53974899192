"""Claimed messages, for coroutines."""

from __future__ import annotations

import logging
from contextlib import suppress

from ..arguments import Delay
from ..claimed import Bound, Bury, Retry
from ..errors import ClaimEnded, FsmqError, InvalidValue, NoSuchMessage
from ..layout.messages.dead_letter import reason_of

log = logging.getLogger(__name__)
# The claim is over.
_OVER = (NoSuchMessage, ClaimEnded)
_BURIED = "message %s goes to the dead-letter queue: %s"


class AsyncClaimed(Bound):
    """A message that was claimed, for coroutines.

    In a ``with`` it is acknowledged at the end, and released when the end is an exception; unless
    one of its methods has settled before what is to become of it. :class:`Retry` releases it with a
    delay and :class:`Bury` buries it; these two end with the ``with``.
    """

    __slots__ = ()

    async def ack(self) -> bool:
        """Acknowledge it: the work is done. Whether it was there. Raises ClaimEnded."""
        self._settle()
        return bool(await self._bound_to.ack(self.id, claim=self.claim))

    async def renew(self, visibility: float | None = None) -> float:
        """Hold it for ``visibility`` seconds from now; the new deadline.

        Raises NoSuchMessage, ClaimEnded.
        """
        deadline: float = await self._bound_to.renew(self.id, visibility, claim=self.claim)
        return deadline

    async def release(self, delay: Delay = 0.0) -> None:
        """Make it ready again, at once or after ``delay``. Raises NoSuchMessage, ClaimEnded."""
        self._settle()
        await self._bound_to.release(self.id, delay, claim=self.claim)

    async def bury(self, reason: str | None = None) -> None:
        """Move it to the dead-letter queue. Raises NoSuchMessage, ClaimEnded, InvalidValue.

        reason: what its ``dead_letter`` tells from then on, at most 1024 bytes in UTF-8.
        """
        await self._bound_to.bury(self.id, reason, claim=self.claim)
        self._settle()

    async def __aenter__(self) -> AsyncClaimed:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if self._settled:
            return False
        if error is None:
            await self.ack()
        elif isinstance(error, Retry):
            with suppress(*_OVER):  # another consumer tries again
                await self.release(error.delay)
            return True
        elif isinstance(error, Bury):
            log.info(_BURIED, self.id, error)
            try:
                with suppress(*_OVER):
                    await self.bury(reason_of(error))
            except InvalidValue:  # without a dead-letter queue it must not be lost
                await self.release()
                raise
            return True
        else:
            with suppress(FsmqError):  # it comes back at its deadline, and the error is to be seen
                await self.release()
        return False
