"""Long polling: requests that wait for a message, first come first served."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from fsmq.spool.errors import Unavailable

# Takes what to do when the client hangs up; None takes that back.
OnHangUp: TypeAlias = Callable[[Callable[[], None] | None], None]


class Waiter:
    """A request that waits in line. done: called once with whether something may have arrived."""

    __slots__ = ("_done", "_waiters", "queue", "timer")

    def __init__(self, waiters: Waiters, queue: str, done: Callable[[bool], None]) -> None:
        self.queue = queue
        self.timer: asyncio.TimerHandle | None = None
        self._waiters = waiters
        self._done: Callable[[bool], None] | None = done

    def end(self, woken: bool = False) -> None:
        """Leave the line: woken by an arrival, or else because of the time, or of a hang-up."""
        done, self._done = self._done, None
        if done is not None:
            self._waiters.remove(self)
            done(woken)


class Waiters:
    """Requests that wait, by queue. Thousands cost nothing while nothing arrives."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._queues: dict[str, OrderedDict[Waiter, None]] = {}

    def __len__(self) -> int:
        return self._count

    def queues(self) -> list[str]:
        """The queues that someone waits for."""
        return list(self._queues)

    def has(self, queue: str) -> bool:
        """Whether someone waits for a queue."""
        return queue in self._queues

    def enter(
        self, queue: str, seconds: float, done: Callable[[bool], None], *, again: bool = False
    ) -> Waiter:
        """Wait in line for ``seconds``; ``done`` tells how that ended.

        ``again`` is for a request that was woken in vain: it goes to the front.

        Raises:
            Unavailable: too many requests wait already.
        """
        if self._count >= self._limit and not again:
            raise Unavailable(f"{self._limit} requests wait for messages already", 5)
        waiter = Waiter(self, queue, done)
        line = self._queues.setdefault(queue, OrderedDict())
        line[waiter] = None
        if again:
            line.move_to_end(waiter, last=False)
        self._count += 1
        waiter.timer = asyncio.get_running_loop().call_later(seconds, waiter.end)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Take one out of its line: the dead would have to be woken one by one."""
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._count -= 1
        line = self._queues[waiter.queue]
        del line[waiter]
        if not line:
            del self._queues[waiter.queue]

    async def wait(
        self, queue: str, seconds: float, on_hang_up: OnHangUp, *, again: bool = False
    ) -> bool:
        """`enter`, and wait for its end; whether something may have arrived. Raises Unavailable."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(woken: bool) -> None:
            if not ended.done():
                ended.set_result(woken)

        waiter = self.enter(queue, seconds, done, again=again)
        on_hang_up(waiter.end)
        try:
            return await ended
        finally:
            on_hang_up(None)
            waiter.end()

    def wake(self, queue: str, count: int) -> None:
        """Wake the first ``count`` requests that wait for a queue."""
        line = self._queues.get(queue)
        for waiter in list(islice(line, count)) if line else ():
            waiter.end(woken=True)

    def wake_all(self) -> None:
        """Wake everyone: the server stops."""
        for queue in self.queues():
            self.wake(queue, self._count)
