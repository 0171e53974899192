"""Long polling: requests that wait for a message, first come first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from fsmq.spool.errors import Unavailable

# Takes what to do when the client hangs up; None takes that back.
OnHangUp: TypeAlias = Callable[[Callable[[], None] | None], None]


class Waiters:
    """Futures of waiting requests, by queue. Thousands cost nothing while nothing arrives."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._queues: dict[str, OrderedDict[asyncio.Future[bool], None]] = {}

    def __len__(self) -> int:
        return self._count

    def queues(self) -> Iterable[str]:
        """The queues that someone waits for."""
        return list(self._queues)

    def has(self, queue: str) -> bool:
        """Whether someone waits for a queue."""
        return queue in self._queues

    async def wait(
        self, queue: str, seconds: float, on_hang_up: OnHangUp, *, again: bool = False
    ) -> bool:
        """Return True when something may have arrived; False after ``seconds``, or a hang-up.

        ``again`` is for a request that was woken in vain: it goes to the front.

        Raises:
            Unavailable: too many requests wait already.
        """
        if self._count >= self._limit and not again:
            raise Unavailable(f"{self._limit} requests wait for messages already", 5)
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        line = self._queues.setdefault(queue, OrderedDict())
        line[woken] = None
        if again:
            line.move_to_end(woken, last=False)
        self._count += 1
        timer = loop.call_later(seconds, _give_up, woken)
        # The dead must not stand in line: an arrival would have to wake them one by one.
        on_hang_up(lambda: _give_up(woken))
        try:
            return await woken
        finally:
            on_hang_up(None)
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
                woken.set_result(True)
                count -= 1

    def wake_all(self) -> None:
        """Wake everyone: the server stops."""
        for queue in self.queues():
            self.wake(queue, self._count)


def _give_up(woken: asyncio.Future[bool]) -> None:
    if not woken.done():
        woken.set_result(False)
