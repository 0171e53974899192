"""Long polling: requests that wait for a message, first come first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from fsmq.spool.errors import Unavailable


class Waiters:
    """Futures of waiting requests, by queue. Thousands cost nothing while nothing arrives."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._queues: dict[str, OrderedDict[asyncio.Future[None], None]] = {}

    def __len__(self) -> int:
        return self._count

    def queues(self) -> Iterable[str]:
        """The queues that someone waits for."""
        return list(self._queues)

    def has(self, queue: str) -> bool:
        """Whether someone waits for a queue."""
        return queue in self._queues

    async def wait(self, queue: str, seconds: float, *, again: bool = False) -> None:
        """Return when something may have arrived, or after ``seconds``.

        ``again`` is for a request that was woken in vain: it goes to the front.

        Raises:
            Unavailable: too many requests wait already.
        """
        if self._count >= self._limit:
            raise Unavailable(f"{self._limit} requests wait for messages already", 5)
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        line = self._queues.setdefault(queue, OrderedDict())
        line[woken] = None
        if again:
            line.move_to_end(woken, last=False)
        self._count += 1
        timer = loop.call_later(seconds, _set, woken)
        try:
            await woken
        finally:
            timer.cancel()
            self._count -= 1
            line.pop(woken, None)
            if not line and self._queues.get(queue) is line:
                del self._queues[queue]

    def wake(self, queue: str, count: int) -> None:
        """Wake the first ``count`` requests that wait for a queue."""
        line = self._queues.get(queue)
        while line and count > 0:
            woken, _ = line.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Wake everyone: the server stops."""
        for queue in self.queues():
            self.wake(queue, self._count)


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
