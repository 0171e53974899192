"""The QueueService over the spool: its queue x is the spool's queue x."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from fsmq.spool import Message, NewMessage
from fsmq.spool.checks import MAX_QUEUE_BYTES
from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.inspection import Move, browse
from fsmq.spool.prepare import LARGE_BYTES, Batch, Prepared

from ..routing.call import Call
from ..service.service import Service
from ..service.wanted import Wanted

# How many messages are stored, or removed, on the loop.
AT_ONCE = 256


class PlainQueues:
    """The verbs of EmoDB's plain queues. Queues appear on the first send; none is ever missing.

    All methods raise Unavailable if the disk fails.
    """

    longest_name = MAX_QUEUE_BYTES
    is_dedup = False

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def channel(self, queue: str) -> str:
        """The queue of the spool that ids are bound to."""
        return queue

    async def send(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Store messages in their queues, all of them with one sync.

        A few for one queue join the other requests of this turn.
        """
        for number, queue in enumerate(batches):
            await self._make(queue)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        count = sum(map(len, batches.values()))
        if len(batches) == 1 and count <= AT_ONCE and not self.is_dedup:
            [(queue, bodies)] = batches.items()
            await self._service.queues.put(queue, list(map(NewMessage, bodies)))
            return
        size = sum(map(len, chain.from_iterable(batches.values())))
        puts = [partial(self._put, queue, batch) for queue, batch in batches.items()]
        light = count <= AT_ONCE and size <= LARGE_BYTES
        await self._service.queues.put_all(puts, light=light)

    async def poll(self, call: Call, queue: str, ttl: int, limit: int) -> list[Message]:
        """Claim up to ``limit`` messages; with a ttl of 0 look at what could be claimed."""
        try:
            if ttl:
                return await self._service.queues.claim(call, Wanted((queue,), limit, ttl))
            return await self._service.queues.glance(call, queue, limit)
        except NoSuchQueue:
            return []

    async def peek(self, call: Call, queue: str, limit: int) -> list[Message]:
        """Up to ``limit`` messages in order, claimed ones too; fewer if they are large."""
        context = self._spool.context
        try:
            await self._service.receiver.load(queue)
            call.admit()
            return await self._service.listing(browse.peek_all, context, queue, limit, call)
        except NoSuchQueue:
            return []

    async def size(self, queue: str) -> int:
        try:
            return await self._service.sizes.total(queue)
        except NoSuchQueue:
            return 0

    async def claim_count(self, queue: str) -> int:
        try:
            return await self._service.sizes.claims(queue)
        except NoSuchQueue:
            return 0

    async def renew(self, queue: str, message_ids: Sequence[str], ttl: int) -> None:
        """Hide messages for at least ``ttl`` seconds; with a ttl of 0 release them."""
        try:
            if ttl:
                changes = self._service.changes
                await self._service.queues.do(changes.renew_at_least(queue, message_ids, ttl))
            else:
                await self._release(queue, message_ids)
        except NoSuchQueue:
            return

    async def acknowledge(self, queue: str, message_ids: Sequence[str]) -> None:
        await self._service.queues.ack(queue, message_ids)

    async def unclaim_all(self, queue: str) -> None:
        try:
            await self._release(queue)
        except NoSuchQueue:
            return

    async def purge(self, queue: str) -> None:
        try:
            await self._service.resources.purge(queue)
        except NoSuchQueue:
            return

    async def _release(self, queue: str, message_ids: Sequence[str] | None = None) -> None:
        release = self._service.changes.release_many(queue, message_ids)
        await self._service.queues.do(release)

    async def move(self, call: Call, source: str, target: str) -> Move:
        """Begin a move of all messages, claimed ones too. Raises TooManyRequests, too."""
        who = call.sender.account
        return await self._service.moves.begin(who, source, target, dedup=self.is_dedup)

    async def find_move(self, ref: str) -> Move | None:
        """A move of this service; None if there is no such move."""
        move = await self._service.in_thread(self._spool.find_move, ref)
        return move if move is not None and move.dedup == self.is_dedup else None

    def _put(self, queue: str, bodies: Sequence[bytes], batch: Batch) -> Prepared[list[str]]:
        return self._service.queues.storing(queue, map(NewMessage, bodies), batch)

    async def _make(self, queue: str) -> None:
        if not self._spool.has_queue(queue):
            await self._service.resources.create_queue(queue)
