"""The worker for handlers that block: each message in a thread, the rest on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fsmq.spool.layout.message import Message

from .aio import AsyncClient
from .handlers import Claim, Pace, in_thread
from .options import MAX_CONNECTIONS, Options
from .worker import AsyncWorker


class Worker:
    """Calls a function for each message of a queue, each call in a thread of its own.

    It does what :class:`~fsmq.client.worker.AsyncWorker` does, but a thread cannot be cancelled: a
    handler whose message is lost has to look at ``claim.lost`` itself, and one that still runs when
    the time of a stop is over is left behind; its message comes back when its claim ends.

    Make one with :meth:`~fsmq.client.ClientQueue.worker`; it runs once.
    """

    def __init__(
        self, options: Options, queue: str, handler: Callable[[Message, Claim], object], pace: Pace
    ) -> None:
        # One for each message in work, one that claims, and some in reserve.
        connections = min(MAX_CONNECTIONS, max(options.connections, pace.concurrency + 10))
        self._client = AsyncClient.of(replace(options, connections=connections))
        self._worker = AsyncWorker(self._client.queue(queue), in_thread(handler), pace)

    def run(self, *, signals: bool = True) -> None:
        """Work until stopped, as :meth:`AsyncWorker.run` does; blocks."""
        asyncio.run(self._run(signals))

    def stop(self) -> None:
        """Let it end; returns at once. Safe in threads, in handlers, and before :meth:`run`."""
        self._worker.stop()

    async def _run(self, signals: bool) -> None:
        try:
            await self._worker.run(signals=signals)
        finally:
            await self._client.close()
