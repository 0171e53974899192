"""Waits for locks of other processes on the event loop, without blocking threads.

A suspended process keeps its locks. Requests that waited for them in the shared threads would soon
occupy all of these threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fsmq.spool.errors import Unavailable

T = TypeVar("T")
# The mean time between two tries, of all that wait together.
_PAUSE_S = 0.001


class Patience:
    """The waits of one service."""

    def __init__(self) -> None:
        self._waiting = 0

    async def until_free(
        self, attempt: Callable[[], Awaitable[T]], held: type[Unavailable], patience_s: float
    ) -> T:
        """Retry while ``attempt`` raises ``held``. Raises Unavailable after ``patience_s``."""
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
