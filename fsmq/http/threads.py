"""Threads for what would hold the loop up: listings, purges, long batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """``workers`` threads beside one loop."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, "fsmq-fetch")

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long, and wait for it."""
        loop = asyncio.get_running_loop()
        context = copy_context()  # the journal tells which dialect a step came through
        return await loop.run_in_executor(self._pool, lambda: context.run(function, *arguments))

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Begin something that nobody waits for."""
        return self._pool.submit(function)

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown()
