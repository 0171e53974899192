"""The QueueService over the spool: its queue x is the spool's queue x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsmq.spool import browse
from fsmq.spool.counts import Counts
from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.message import Message, NewMessage
from fsmq.spool.names import MAX_QUEUE_BYTES

from ..request import Call
from ..service import Service

# A message on its way to its queue gets there within milliseconds: a poll that finds nothing looks
# again so long.
_LOOK_AGAIN_S = 0.05
# Long enough that a claim which is given back at once cannot end before.
_GLANCE_S = 5.0


class PlainQueues:
    """The verbs of EmoDB's plain queues. Queues appear on the first send; none is ever missing.

    All methods raise Unavailable where the disk refuses.
    """

    longest_name = MAX_QUEUE_BYTES

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def channel(self, queue: str) -> str:
        """The queue of the spool that ids are bound to."""
        return queue

    async def send(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Store messages in their queues, all of them with one sync."""
        given = {q: [NewMessage(body) for body in bodies] for q, bodies in batches.items()}
        for queue in given:
            await self._make(queue)
        await self._service.put_all(given)

    async def poll(self, call: Call, queue: str, ttl: int, limit: int) -> list[Message]:
        """Claim up to ``limit`` messages; with a ttl of 0 look at what could be claimed."""
        try:
            if ttl:
                return await self._service.fetch(call, queue, limit, ttl, _LOOK_AGAIN_S)
            return await self._service.in_thread(self._glance, queue, limit)
        except NoSuchQueue:
            return []

    async def peek(self, queue: str, limit: int) -> list[Message]:
        """Up to ``limit`` messages in order, claimed ones too."""
        try:
            return await self._service.in_thread(browse.peek_all, self._spool.context, queue, limit)
        except NoSuchQueue:
            return []

    async def size(self, queue: str) -> int:
        return (await self._counts(queue)).total

    async def claim_count(self, queue: str) -> int:
        return (await self._counts(queue)).in_flight

    async def renew(self, queue: str, message_ids: Sequence[str], ttl: int) -> None:
        """Hold messages for ``ttl`` seconds at least; with a ttl of 0 release them."""
        try:
            if ttl:
                await self._service.complete(self._spool.extend(queue, message_ids, ttl))
            else:
                await self._release(queue, message_ids)
        except NoSuchQueue:
            return

    async def acknowledge(self, queue: str, message_ids: Sequence[str]) -> None:
        await self._service.complete(self._spool.remove(queue, message_ids))

    async def unclaim_all(self, queue: str) -> None:
        try:
            await self._release(queue, None)
        except NoSuchQueue:
            return

    async def purge(self, queue: str) -> None:
        def purge() -> None:
            self._spool.queue(queue, create=False).purge()

        try:
            await self._service.in_thread(purge)
        except NoSuchQueue:
            return

    async def _release(self, queue: str, message_ids: Sequence[str] | None) -> None:
        pending = await self._service.in_thread(self._spool.release_many, queue, message_ids)
        await self._service.complete(pending)

    async def _make(self, queue: str) -> None:
        if not self._spool.has_queue(queue):
            await self._service.in_thread(self._spool.create_queue, queue)

    async def _counts(self, queue: str) -> Counts:
        try:
            return await self._service.counts(queue)
        except NoSuchQueue:
            return Counts()

    def _glance(self, queue: str, limit: int) -> list[Message]:
        """Claim, and give back at once: the next poll may get the same messages."""
        pending = self._spool.claim(queue, limit, _GLANCE_S)
        pending.work.close()
        messages = pending.finish()
        pending.abandon()
        return messages
