"""Threads for what would hold the loop up: listings, purges, long batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from fsmq.spool.durability.locks import without_waiting
from fsmq.spool.durability.settings_lock import PATIENCE_S as SETTINGS_PATIENCE_S
from fsmq.spool.errors import InUse

from .patience import Patience

T = TypeVar("T")


class Threads:
    """``workers`` threads beside one loop. begin: what each of them does first."""

    def __init__(self, workers: int, begin: Callable[[], None] | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers, "fsmq-fetch", initializer=begin)
        self._shared: dict[Hashable, asyncio.Future[Any]] = {}
        self._patience = Patience()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long, and wait for it; from its beginning again, as long as
        another process has a lock that it needs. Raises Unavailable behind five seconds.
        """
        attempt = partial(self.run_once, without_waiting, function, *arguments)
        return await self._patience.until_free(attempt, InUse, SETTINGS_PATIENCE_S)

    async def run_once(self, function: Callable[..., T], *arguments: object) -> T:
        """The same for what cannot begin again: it waits for locks in its thread."""
        loop = asyncio.get_running_loop()
        context = copy_context()  # the journal tells which dialect a step came through
        return await loop.run_in_executor(self._pool, lambda: context.run(function, *arguments))

    async def share(self, function: Callable[..., T], *arguments: Hashable) -> T:
        """The same for what many may want at once: it runs once for all of them."""
        key = (function, *arguments)
        running = self._shared.get(key)
        if running is None:
            running = asyncio.ensure_future(self._run_once(key, function, *arguments))
            self._shared[key] = running
        result: T = await asyncio.shield(running)
        return result

    async def _run_once(self, key: Hashable, function: Callable[..., T], *arguments: Hashable) -> T:
        try:
            return await self.run(function, *arguments)
        finally:
            # Not in a callback, which comes a turn of the loop later: what is over would be given
            # to who asks meanwhile, and without a turn to who asks again because it is too old.
            del self._shared[key]

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Begin something that nobody waits for."""
        return self._pool.submit(function)

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown()
