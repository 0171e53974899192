"""The DedupQueueService over the spool; see `fsmq.spool.verbs.dedup` for the deduplication."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from fsmq.spool import Message, prepare
from fsmq.spool.errors import NoSuchQueue, Reserved, Unavailable
from fsmq.spool.prepare import Batch, Prepared, Room, Steps, dedup, in_order, read_side, write_side

from ..routing.call import Call
from ..service.wanted import GLANCE_S, Wanted
from .plain import PlainQueues

# Storing an equal message takes milliseconds; after this time the sender gets an error.
_RESERVED_PATIENCE_S = 10.0
_RETRY_S = 0.004
_LONGEST_RETRY_S = 0.05
# Sorting a queue's name among others takes about as long as copying this many bytes.
_WORK_OF_QUEUE = 256


class DedupQueues(PlainQueues):
    """The same verbs for queues in which equal messages become one until they are delivered."""

    longest_name = dedup.MAX_NAME_BYTES
    is_dedup = True

    def channel(self, queue: str) -> str:
        return read_side(queue)

    async def send(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        end = asyncio.get_running_loop().time() + _RESERVED_PATIENCE_S
        pause = _RETRY_S
        # Sorted, as the spool does within a queue.
        in_turn = await self._service.beside(len(batches) * _WORK_OF_QUEUE, _sorted, batches)
        while True:
            try:
                await super().send(in_turn)
                return
            except Reserved as error:
                if asyncio.get_running_loop().time() >= end:
                    raise Unavailable(str(error)) from error
            await asyncio.sleep(pause * random.uniform(0.25, 1.0))
            pause = min(2 * pause, _LONGEST_RETRY_S)

    async def poll(self, call: Call, queue: str, ttl: int, limit: int) -> list[Message]:
        taken: Prepared[list[Message]] | None = None

        def begin(room: Room) -> Steps[Prepared[list[Message]]]:
            nonlocal taken
            context = self._spool.context
            taken = yield from dedup.poll_in(context, queue, limit, ttl or GLANCE_S, room)
            return taken

        sides = (write_side(queue), read_side(queue))
        try:
            wanted = Wanted(sides, limit, begin=begin)
            messages = await self._service.queues.claim(call, wanted)
            if not ttl and taken is not None:
                await self._service.in_thread(taken.abort)  # with a ttl of 0 they are only shown
        except NoSuchQueue:
            return []
        return messages

    async def peek(self, call: Call, queue: str, limit: int) -> list[Message]:
        context = self._spool.context
        try:
            for side in (read_side(queue), write_side(queue)):
                await self._service.receiver.load(side)
            call.admit()
            prepared = await self._service.listing(dedup.peek, context, queue, limit, call)
        except NoSuchQueue:
            return []
        return await self._service.complete(prepared)

    async def size(self, queue: str) -> int:
        return await super().size(read_side(queue)) + await super().size(write_side(queue))

    async def claim_count(self, queue: str) -> int:
        return await super().claim_count(read_side(queue))

    async def renew(self, queue: str, message_ids: Sequence[str], ttl: int) -> None:
        await super().renew(read_side(queue), message_ids, ttl)

    async def acknowledge(self, queue: str, message_ids: Sequence[str]) -> None:
        await super().acknowledge(read_side(queue), message_ids)

    async def unclaim_all(self, queue: str) -> None:
        await super().unclaim_all(read_side(queue))

    async def purge(self, queue: str) -> None:
        await super().purge(write_side(queue))
        await super().purge(read_side(queue))

    def _put(self, queue: str, bodies: Sequence[bytes], batch: Batch) -> Prepared[list[str]]:
        return prepare.dedup_send(self._spool.context, queue, bodies, batch)

    async def _make(self, queue: str) -> None:
        for side in (read_side(queue), write_side(queue)):
            await super()._make(side)


def _sorted(batches: Mapping[str, Sequence[bytes]]) -> Mapping[str, Sequence[bytes]]:
    return {queue: batches[queue] for queue in in_order(batches)}
