"""A queue of a server as a worker uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsmq.spool.claimed import with_claims
from fsmq.spool.errors import ClaimEnded
from fsmq.spool.layout.message import Message
from fsmq.spool.verbs.remove_if import Acked
from fsmq.spool.worker.removals import Removals
from fsmq.wire import MAX_WAIT_S

if TYPE_CHECKING:
    from ._async.client import AsyncClient

_FOR_EVER_S = float("inf")


class RemoteSource:
    """What :class:`~fsmq.spool.worker.source.Source` says; the server waits for messages.

    owns_client: whether the client is closed with the source.
    """

    def __init__(self, client: AsyncClient, name: str, *, owns_client: bool = False) -> None:
        self.name = name
        self._client = client
        self._owns_client = owns_client
        self._verbs = client.verbs
        self._removals = Removals(self._remove)

    async def claim(self, count: int, visibility: float) -> list[Message]:
        """Claim messages. One that is cancelled hangs up, and the server gives them back."""
        verb = self._verbs.claim(self.name, count, visibility, MAX_WAIT_S, retry_for=0.0)
        return await self._client.run(verb)

    async def renew(self, message: Message, visibility: float, patience: float) -> object:
        """Hold a message for ``visibility`` seconds from now."""
        verb = self._verbs.renew(self.name, message.id, visibility, message.claim, patience)
        return await self._client.run(verb)

    async def release(self, message: Message, delay: float, patience: float) -> object:
        """Make a message ready again after ``delay`` seconds."""
        verb = self._verbs.release(self.name, message.id, delay, message.claim, patience)
        return await self._client.run(verb)

    async def bury(self, message: Message, reason: str | None, patience: float) -> object:
        """Move a message to the dead-letter queue."""
        verb = self._verbs.bury(self.name, message.id, reason, message.claim, patience)
        return await self._client.run(verb)

    async def remove(self, message: Message) -> object:
        """Remove a message; tries until the server answers. Raises ClaimEnded."""
        if await self._removals.remove(message) == "ended":
            raise ClaimEnded(self.name, message.id)
        return None

    async def close(self) -> None:
        """Close the connections, if they are only for this."""
        await self._removals.close()
        if self._owns_client:
            await self._client.close()

    async def _remove(self, messages: list[Message]) -> list[Acked]:
        ids, claims = with_claims(messages, None)
        return await self._client.run(self._verbs.remove_if(self.name, ids, claims, _FOR_EVER_S))
