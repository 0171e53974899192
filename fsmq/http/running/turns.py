"""Turns of the event loop: what many ask for at once is done for some milliseconds at a time.

In between others have their turn. What was asked for first is done first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

_TURN_S = 0.005


class LoopTurns:
    """What is to be done on one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._until = 0.0  # of this turn; 0.0 where nothing has been done in it

    def do(self, work: Callable[[], object]) -> None:
        """Do something short: at once, or when others have had their turn."""
        if self._waiting or (self._until and time.monotonic() >= self._until):
            self._waiting.append(work)
            return
        if not self._until:
            self._begin()
        work()

    def go_through(self, steps: Iterator[object]) -> None:
        """Do something in short steps, of which there may be any number.

        What others ask for meanwhile is done between two of them.
        """

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
            self._begin()  # first: should one fail, the others have their turn all the same
        while self._waiting and time.monotonic() < self._until:
            self._waiting.popleft()()
