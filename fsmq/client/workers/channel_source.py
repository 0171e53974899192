"""A channel of a server as a worker uses it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fsmq.spool.log.delivered import Delivered
from fsmq.spool.worker.removals import Removals
from fsmq.wire import MAX_WAIT_S

from ..verbs.channel_verbs import ChannelVerbs

if TYPE_CHECKING:
    from ..session._async.session import AsyncSession

_FOR_EVER_S = float("inf")
# How often the channel is asked for its order, which may be changed.
_ASK_S = 10.0


class RemoteChannel:
    """What :class:`~fsmq.spool.worker.source.Source` says; the server waits for messages.

    owns_session: whether the session is closed with the source.
    """

    def __init__(
        self, session: AsyncSession, log: str, name: str, *, owns_session: bool = False
    ) -> None:
        self.name = f"{log}/{name}"
        self._session = session
        self._owns_session = owns_session
        self._verbs = ChannelVerbs(session.verbs, log, name)
        self._removals = Removals(self._remove)
        self._order = "strict"
        self._asked_at = float("-inf")

    async def claim(self, count: int, visibility: float) -> list[Delivered]:
        """Claim messages. One that is cancelled hangs up, and the server gives them back."""
        # Several of one key in one claim would be worked on side by side.
        if await self._is_ordered():
            count = 1
        verb = self._verbs.claim(count, visibility, MAX_WAIT_S, retry_for=0.0)
        return [Delivered(None, *claim) for claim in await self._session.run(verb)]

    async def _is_ordered(self) -> bool:
        now = time.monotonic()
        if now >= self._asked_at + _ASK_S:
            state = await self._session.run(self._verbs.state(retry_for=0.0))
            self._order, self._asked_at = state.settings.order, now
        return self._order != "none"

    async def renew(self, message: Delivered, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""
        return await self._session.run(self._verbs.renew([message], visibility, patience))

    async def release(self, message: Delivered, delay: float, patience: float) -> None:
        """Let a message be handed out again after ``delay`` seconds."""
        await self._session.run(self._verbs.release([message], delay, patience))

    async def bury(self, message: Delivered, reason: str | None, patience: float) -> None:
        """Move a message to the dead-letter queue, where it tells the reason."""
        await self._session.run(self._verbs.bury([message], reason, patience))

    async def remove(self, message: Delivered) -> object:
        """Finish a message; tries until the server answers."""
        return await self._removals.remove(message)

    async def close(self) -> None:
        """Close the connections, if they are only for this."""
        await self._removals.close()
        if self._owns_session:
            await self._session.close()

    async def _remove(self, messages: list[Delivered]) -> None:
        await self._session.run(self._verbs.done(messages, _FOR_EVER_S))
