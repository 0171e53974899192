"""Turns of the event loop: runs queued work, in its order, for some milliseconds at a time.

In between, the loop runs everything else.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

_TURN_S = 0.005


class LoopTurns:
    """The queued work of one event loop, in turns of so many seconds."""

    def __init__(self, seconds: float = _TURN_S) -> None:
        self._seconds = seconds
        self._waiting: deque[Callable[[], object]] = deque()
        self._until = 0.0  # the end of this turn; 0.0 if nothing has been done in it

    @property
    def is_over(self) -> bool:
        """Whether this turn is used up, or others wait for theirs."""
        if not self._until:
            self._begin()
        return bool(self._waiting) or time.monotonic() >= self._until

    def do(self, work: Callable[[], object]) -> None:
        """Do something short: at once, or in a later turn if this one is used up."""
        if self.is_over:
            self._waiting.append(work)
        else:
            work()

    def do_later(self, work: Callable[[], object]) -> None:
        """Do something short, but not before the caller has returned."""
        if not self._until:
            self._begin()
        self._waiting.append(work)

    async def through(self, steps: Iterator[object]) -> None:
        """The same as :meth:`go_through`, and wait for the end. Raises what the steps raise."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def all_steps() -> Iterator[None]:
            try:
                while not ended.done():  # the caller may have been cancelled
                    if next(steps, self) is self:
                        ended.set_result(None)
                    yield
            except Exception as error:
                if not ended.done():
                    ended.set_exception(error)

        self.go_through(all_steps())
        await ended

    def go_through(self, steps: Iterator[object]) -> None:
        """Do something in any number of short steps, with other work in between."""

        def go_on() -> None:
            for _ in steps:
                if self.is_over:
                    self._waiting.append(go_on)
                    return

        self.do(go_on)

    def _begin(self) -> None:
        self._until = time.monotonic() + self._seconds
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._until = 0.0
        if self._waiting:
            self._begin()  # first, so that the others have their turn even if one fails
        while self._waiting:
            self._waiting.popleft()()
            if time.monotonic() >= self._until:
                return
