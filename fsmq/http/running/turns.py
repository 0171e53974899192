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
    """The queued work of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._until = 0.0  # the end of this turn; 0.0 if nothing has been done in it

    def do(self, work: Callable[[], object]) -> None:
        """Do something short: at once, or in a later turn if this one is used up."""
        if self._waiting or (self._until and time.monotonic() >= self._until):
            self._waiting.append(work)
            return
        if not self._until:
            self._begin()
        work()

    def go_through(self, steps: Iterator[object]) -> None:
        """Do something in any number of short steps, with other work in between."""

        def go_on() -> None:
            for _ in steps:
                if self._waiting or time.monotonic() >= self._until:
                    self._waiting.append(go_on)
                    return

        self.do(go_on)

    def _begin(self) -> None:
        self._until = time.monotonic() + _TURN_S
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._until = 0.0
        if self._waiting:
            self._begin()  # first, so that the others have their turn even if one fails
        while self._waiting and time.monotonic() < self._until:
            self._waiting.popleft()()
