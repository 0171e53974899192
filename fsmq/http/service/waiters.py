"""Long polling: requests that wait for a message, first come first served."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Protocol, TypeAlias

from fsmq.spool.errors import Unavailable
from fsmq.spool.prepare import portions

from ..connection.turns import LoopTurns

# Sets the function to call when the client hangs up; None cancels that.
OnHangUp: TypeAlias = Callable[[Callable[[], None] | None], None]
Done: TypeAlias = Callable[[str | None], None]

# How many waiters that have left a line may stay in its heap.
_KEPT = 16
# How many new queues are compared with a wish at a time; if there are too many, all count as fits.
_FEW, _TOO_MANY = 50, 2000
# How many waiters that an arrival wakes leave their lines at once; the others do in later turns.
_AT_ONCE = 16


class Wish(Protocol):
    """Which queues, not created yet, a request waits for."""

    @property
    def alike(self) -> Hashable:
        """A value that is equal for all that wait for the same queues."""

    def fits(self, queue: str) -> bool:
        """Whether the request waits for a queue that has just been created."""


class Waiter:
    """A request that waits in the lines of its queues, with the same place in all of them.

    done: called once, with the queue in which something may have arrived, "" if queues may have
    been created, and None if its time is over or its client has hung up. wish: the queues for which
    it also waits once they are created. place: smaller ones come first.
    """

    __slots__ = ("_done", "_waiters", "place", "queues", "timer", "wish")

    def __init__(
        self, waiters: Waiters, queues: Sequence[str], place: int, done: Done, wish: Wish | None
    ) -> None:
        self.queues = queues
        self.place = place
        self.wish = wish
        self.timer: asyncio.TimerHandle | None = None
        self._waiters = waiters
        self._done: Done | None = done

    def __lt__(self, other: Waiter) -> bool:
        return self.place < other.place

    @property
    def is_waiting(self) -> bool:
        """Whether ``done`` has not been called yet."""
        return self._done is not None

    def end(self, woken_by: str | None = None) -> None:
        """Leave all lines: woken by an arrival, or because of a timeout or hang-up."""
        done, self._done = self._done, None
        if done is not None:
            self._waiters.remove(self)
            done(woken_by)

    def leave(self) -> None:
        """`end` it because of a timeout or hang-up, in turns: many may do so at the same moment."""
        self._waiters.turns.do(self.end)


class _Line:
    """The waiters for one queue: a heap, in which those that have left stay for a while."""

    def __init__(self) -> None:
        self.number = 0
        self._heap: list[Waiter] = []

    def enter(self, waiter: Waiter) -> None:
        heapq.heappush(self._heap, waiter)
        self.number += 1

    def leave(self) -> None:
        """Record that one has left."""
        self.number -= 1
        if len(self._heap) > 2 * self.number + _KEPT:
            self._heap = [one for one in self._heap if one.is_waiting]
            heapq.heapify(self._heap)

    def first(self, number: int) -> list[Waiter]:
        """Take out the first ones, which are about to leave."""
        found: list[Waiter] = []
        while self._heap and len(found) < number:
            waiter = heapq.heappop(self._heap)
            if waiter.is_waiting:
                found.append(waiter)
        return found


class Waiters:
    """Requests that wait, by queue. Thousands cost nothing while nothing arrives.

    turns: run the ends of waiters, because many, in many lines, can end at the same moment. They
    are used for nothing else, which would have to wait for all these.
    """

    def __init__(self, limit: int, turns: LoopTurns) -> None:
        self._limit = limit
        self.turns = turns
        self._all: dict[Waiter, None] = {}
        self._places = count()
        self._queues: dict[str, _Line] = {}
        # The waiters that also wait for new queues, by their wishes.
        self._wishes: dict[Hashable, tuple[Wish, dict[Waiter, None]]] = {}
        self._come: set[str] = set()  # new queues that are not compared with the wishes yet
        self._is_asking = False

    def __len__(self) -> int:
        return len(self._all)

    def queues(self) -> list[str]:
        """The queues that have waiters."""
        return list(self._queues)

    @property
    def has_any_for_new(self) -> bool:
        """Whether a request waits for new queues."""
        return bool(self._wishes)

    def has(self, queue: str) -> bool:
        """Whether a request waits for a queue."""
        return queue in self._queues

    def last_place(self) -> int:
        """A place after all others."""
        return next(self._places)

    def enter(
        self,
        queues: Sequence[str],
        seconds: float,
        done: Done,
        *,
        place: int,
        again: bool = False,
        wish: Wish | None = None,
    ) -> Waiter:
        """Wait in the lines of queues for ``seconds``. done, wish: see `Waiter`.

        place: of this request, from :meth:`last_place`; it keeps its place if it was woken in vain
        and waits ``again``.

        Raises:
            Unavailable: too many requests wait already.
        """
        if len(self._all) >= self._limit and not again:
            raise Unavailable(f"{self._limit} requests wait for messages already", 5)
        waiter = Waiter(self, queues, place, done, wish)
        lines = self._queues
        for queue in queues:
            if (line := lines.get(queue)) is None:
                line = lines[queue] = _Line()
            line.enter(waiter)
        if wish is not None:
            self._wishes.setdefault(wish.alike, (wish, {}))[1][waiter] = None
        self._all[waiter] = None
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(seconds, waiter.leave)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out of its lines."""
        if waiter.timer is not None:
            waiter.timer.cancel()
        del self._all[waiter]
        for queue in waiter.queues:
            line = self._queues[queue]
            line.leave()
            if not line.number:
                del self._queues[queue]
        if waiter.wish is not None:
            _, waiters = self._wishes[waiter.wish.alike]
            del waiters[waiter]
            if not waiters:
                del self._wishes[waiter.wish.alike]

    async def wait(
        self,
        queue: str,
        seconds: float,
        on_hang_up: OnHangUp,
        *,
        place: int,
        again: bool = False,
    ) -> bool:
        """`enter` and await the end; whether something may have arrived. Raises Unavailable."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(woken_by: str | None) -> None:
            if not ended.done():
                ended.set_result(woken_by is not None)

        waiter = self.enter((queue,), seconds, done, place=place, again=again)
        on_hang_up(waiter.end)
        try:
            return await ended
        finally:
            on_hang_up(None)
            waiter.end()

    def wake(self, queue: str, number: int) -> None:
        """Wake the first ``number`` requests that wait for a queue."""
        line = self._queues.get(queue)
        for at, waiter in enumerate(line.first(number) if line else ()):
            if at < _AT_ONCE:
                waiter.end(queue)
            else:
                self.turns.do(partial(self._wake_one, waiter, queue))

    def _wake_one(self, waiter: Waiter, queue: str) -> None:
        if waiter.is_waiting:
            waiter.end(queue)
        else:
            self.wake(queue, 1)  # it has left by now, so the next one is woken

    def wake_for_new(self, queues: Iterable[str]) -> None:
        """Wake, in turns, requests that wait for new queues, if some of these fit and are new.

        Requests with equal wishes are checked together, against all queues that have been created
        since the last check.
        """
        if not self._wishes:
            return
        self._come.update(queues)
        if not self._is_asking:
            self._is_asking = True
            asyncio.get_running_loop().call_soon(self.turns.go_through, self._asking())

    def _asking(self) -> Iterator[None]:
        try:
            while self._come:
                come, self._come = list(self._come), set()
                for wish, waiters in list(self._wishes.values()):
                    yield from self._asking_about(come, wish, waiters)
        finally:
            self._is_asking = False

    def _asking_about(
        self, come: list[str], wish: Wish, waiters: dict[Waiter, None]
    ) -> Iterator[None]:
        fitting = set(come if len(come) > _TOO_MANY else ())
        for few in portions(() if fitting else come, _FEW):
            fitting.update(filter(wish.fits, few))
            yield
        for waiter in list(waiters) if fitting else ():
            if not fitting.issubset(waiter.queues):
                waiter.end("")
            yield

    def wake_all(self) -> None:
        """Wake all requests, in turns, because the server stops or keys have changed."""
        self.turns.go_through(map(partial(Waiter.end, woken_by=""), list(self._all)))
