"""Counts the requests that are being answered, for a stop to wait for them."""

from __future__ import annotations

import asyncio


class OpenRequests:
    """Counts the requests that have begun and are not answered yet."""

    def __init__(self) -> None:
        self.number = 0
        self._none = asyncio.Event()

    def begin(self) -> None:
        self.number += 1

    def end(self) -> None:
        self.number -= 1
        if not self.number:
            self._none.set()

    async def until_none(self) -> None:
        """Wait until no request is open."""
        while self.number:
            self._none.clear()
            await self._none.wait()
