"""A queue of a server as a worker uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from fsmq.spool.claimed import with_claims
from fsmq.spool.errors import ClaimEnded
from fsmq.spool.layout.messages.message import Message
from fsmq.spool.verbs.remove_if import Acked
from fsmq.spool.worker.removals import Removals
from fsmq.spool.worker.source import queue_of
from fsmq.wire import MAX_WAIT_S

from ..exchange import Verb

if TYPE_CHECKING:
    from ..session._async.session import AsyncSession

_FOR_EVER_S = float("inf")
# By how many, the visibility, the wait, and how long it is tried again.
ClaimVerb: TypeAlias = "Callable[[int, float | None, float, float | None], Verb[list[Message]]]"


class RemoteSource:
    """What :class:`~fsmq.spool.worker.source.Source` says; the server waits for messages.

    name: of what it claims from. claim: does that; the messages name their queues. owns_session:
    whether the session is closed with the source.
    """

    def __init__(
        self, session: AsyncSession, name: str, claim: ClaimVerb, *, owns_session: bool = False
    ) -> None:
        self.name = name
        self._claim = claim
        self._session = session
        self._owns_session = owns_session
        self._verbs = session.verbs
        self._removals = Removals(self._remove, queue_of)

    async def claim(self, count: int, visibility: float) -> list[Message]:
        """Claim messages. One that is cancelled hangs up, and the server gives them back."""
        return await self._session.run(self._claim(count, visibility, MAX_WAIT_S, 0.0))

    async def renew(self, message: Message, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""
        verb = self._verbs.renew(message.queue, message.id, visibility, message.claim, patience)
        return await self._session.run(verb)

    async def release(self, message: Message, delay: float, patience: float) -> object:
        """Make a message ready again after ``delay`` seconds."""
        verb = self._verbs.release(message.queue, message.id, delay, message.claim, patience)
        return await self._session.run(verb)

    async def bury(self, message: Message, reason: str | None, patience: float) -> object:
        """Move a message to the dead-letter queue."""
        verb = self._verbs.bury(message.queue, message.id, reason, message.claim, patience)
        return await self._session.run(verb)

    async def remove(self, message: Message) -> object:
        """Remove a message; tries until the server answers. Raises ClaimEnded."""
        if await self._removals.remove(message) == "ended":
            raise ClaimEnded(message.queue, message.id)
        return None

    async def close(self) -> None:
        """Close the connections, if they are only for this."""
        await self._removals.close()
        if self._owns_session:
            await self._session.close()

    async def _remove(self, messages: list[Message]) -> list[Acked]:
        ids, claims = with_claims(messages, None)
        queue = messages[0].queue
        return await self._session.run(self._verbs.remove_if(queue, ids, claims, _FOR_EVER_S))
