"""The sizes of queues, for many requests at once."""

from __future__ import annotations

import asyncio

from fsmq.spool import Counts, Spool
from fsmq.spool.checks import DutyCycle

from ...running.threads import Threads

_THROTTLE = DutyCycle(0.05, least_s=0.2)


class Sizes:
    """Counts of one spool. Methods raise what :meth:`fsmq.spool.spool.Spool.counts` raises."""

    def __init__(self, spool: Spool, threads: Threads) -> None:
        self._spool = spool
        self._threads = threads
        self._counts: dict[str, tuple[float, asyncio.Future[Counts]]] = {}

    async def counts(self, queue: str) -> Counts:
        """A queue's counts, at most a fraction of a second old; requests share one listing."""
        loop = asyncio.get_running_loop()
        until, running = self._counts.get(queue, (0.0, None))
        if running is None or (running.done() and loop.time() >= until):
            started = loop.time()
            running = asyncio.ensure_future(self._threads.run(self._spool.counts, queue))
            self._counts[queue] = (0.0, running)

            def done(outcome: asyncio.Future[Counts]) -> None:
                if outcome.cancelled() or outcome.exception() is not None:
                    self._counts.pop(queue, None)
                    return
                pause = _THROTTLE.pause(loop.time() - started)
                self._counts[queue] = (loop.time() + pause, outcome)
                loop.call_later(pause, self._forget, queue, outcome)

            running.add_done_callback(done)
        return await asyncio.shield(running)

    def _forget(self, queue: str, counts: asyncio.Future[Counts]) -> None:
        """Drop the counts of a queue when they are too old."""
        if self._counts.get(queue, (0.0, None))[1] is counts:
            del self._counts[queue]

    async def total(self, queue: str) -> int:
        """How many messages a queue has in all states: exact, except on NFS, where it is listed."""
        census = self._spool.census
        if not census.works:
            return (await self.counts(queue)).total
        if census.is_ready(queue):
            return census.size(queue)
        return await self._threads.run(census.size, queue)

    async def claims(self, queue: str) -> int:
        """How many messages of a queue are claimed; exact as `total` is."""
        if not self._spool.census.works:
            return (await self.counts(queue)).in_flight
        return await self._threads.run(self._spool.census.claims, queue)
