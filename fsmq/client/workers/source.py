"""A queue or a channel of a server as the source of a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fsmq.spool.claimed import name_of
from fsmq.spool.verbs.remove_if import Acked
from fsmq.wire import MAX_WAIT_S

from ..exchange import Verb
from ..verbs.channel_verbs import ChannelVerbs
from ..verbs.queue_verbs import Verbs

if TYPE_CHECKING:
    from ..session._async.session import AsyncSession

_FOR_EVER_S = float("inf")
# Takes verbs, a count, the visibility and the wait.
ClaimVerb: TypeAlias = "Callable[[Verbs, int, float | None, float], Verb[Sequence[Any]]]"


class RemoteSource:
    """A :class:`~fsmq.spool.worker.source.Source` on a server, which waits for messages.

    name: of the queue, queues or channel. claim: claims messages, which name their queue or
    channel. owns_session: whether the session is closed with the source.
    """

    def __init__(
        self, session: AsyncSession, name: str, claim: ClaimVerb, *, owns_session: bool = False
    ) -> None:
        self.name = name
        self._claim = claim
        self._session = session
        self._owns_session = owns_session

    async def claim(self, count: int, visibility: float) -> Sequence[Any]:
        """Claim messages. Cancelling it closes the connection, and the server releases them."""
        verb = self._claim(self._trying(0.0), count, visibility, MAX_WAIT_S)
        return await self._session.run(verb)

    async def renew(self, message: Any, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""
        renew = self._trying(patience).renew
        return await self._session.run(renew(*_names(message), visibility, message.claim))

    async def release(
        self, message: Any, delay: float, patience: float, reason: str | None = None
    ) -> object:
        """Make a message ready again after ``delay`` seconds. reason: why its handler failed."""
        release = self._trying(patience).release
        return await self._session.run(release(*_names(message), delay, message.claim, reason))

    async def give_back(self, message: Any, patience: float) -> object:
        """Make a message ready again that no handler has seen; it counts as a delivery."""
        return await self.release(message, 0.0, patience)

    async def bury(self, message: Any, reason: str | None, patience: float) -> object:
        """Move a message to the dead-letter queue."""
        bury = self._trying(patience).bury
        return await self._session.run(bury(*_names(message), reason, message.claim))

    async def ack_each(self, messages: list[Any]) -> Sequence[Acked]:
        """Acknowledge messages of one queue; retried until the server answers."""
        verbs, queue = self._trying(_FOR_EVER_S), messages[0].queue
        log, slash, channel = queue.partition("/")
        if slash:
            return await self._session.run(ChannelVerbs(verbs, log, channel).ack_each(messages))
        ids, claims = [one.id for one in messages], [one.claim for one in messages]
        return await self._session.run(verbs.remove_if(queue, ids, claims))

    async def close(self) -> None:
        """Close the connections, if they belong to this source."""
        if self._owns_session:
            await self._session.close()

    def _trying(self, patience: float) -> Verbs:
        return self._session.verbs.trying(patience)


def _names(message: Any) -> tuple[str, str]:
    return message.queue, name_of(message)
