"""Threads for work that would block the loop: listings, purges, long batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from fsmq.spool.errors import InUse
from fsmq.spool.prepare import SETTINGS_PATIENCE_S, without_waiting

from .patience import Patience

T = TypeVar("T")


class Threads:
    """``workers`` threads for one loop. begin: what each of them calls first."""

    def __init__(self, workers: int, begin: Callable[[], None] | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers, "fsmq-fetch", initializer=begin)
        self._shared: dict[Hashable, asyncio.Future[Any]] = {}
        self._patience = Patience()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long, and await it. It starts over while another process has a
        lock that it needs; after five seconds, Unavailable is raised.
        """
        attempt = partial(self.run_once, without_waiting, function, *arguments)
        return await self._patience.until_free(attempt, InUse, SETTINGS_PATIENCE_S)

    async def run_once(self, function: Callable[..., T], *arguments: object) -> T:
        """The same for what cannot start over: it waits for locks in its thread."""
        loop = asyncio.get_running_loop()
        context = copy_context()  # has the dialect, which the journal records
        return await loop.run_in_executor(self._pool, lambda: context.run(function, *arguments))

    async def share(self, function: Callable[..., T], *arguments: Hashable) -> T:
        """The same for what many callers can want at once: it runs once for all of them."""
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
            # Not in a callback, which runs a turn of the loop later: until then, callers would get
            # an old result, even those that ask again because it is too old.
            del self._shared[key]

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Run something without waiting for it."""
        return self._pool.submit(function)

    def close(self) -> None:
        """Wait for running work."""
        self._pool.shutdown()
