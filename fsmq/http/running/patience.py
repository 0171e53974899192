"""Waits for locks that other processes have: on the loop, so that they take no thread from others.

A process that is stopped keeps its locks. What waits for them in threads that all share would soon
have all of these threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fsmq.spool.errors import Unavailable

T = TypeVar("T")
# All that wait try one after the other, so often.
_PAUSE_S = 0.001


class Patience:
    """The waits of one service."""

    def __init__(self) -> None:
        self._waiting = 0

    async def until_free(
        self, attempt: Callable[[], Awaitable[T]], held: type[Unavailable], patience_s: float
    ) -> T:
        """Try something again as long as it raises ``held``; Unavailable if that takes too long."""
        end = time.monotonic() + patience_s
        while True:
            try:
                return await attempt()
            except held as error:
                if time.monotonic() >= end:
                    raise Unavailable(str(error)) from None
            self._waiting += 1
            try:
                await asyncio.sleep(_PAUSE_S * self._waiting)
            finally:
                self._waiting -= 1
