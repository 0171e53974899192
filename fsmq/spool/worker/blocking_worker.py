"""The worker for handlers that block: each message in a thread, the rest on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..claimed import Claim
from .async_worker import AsyncWorker
from .handlers import WorkerOptions, in_thread
from .source import Source, channel_source, queue_source

if TYPE_CHECKING:
    from ..log.channel import Channel
    from ..spool import Spool


class Worker:
    """Calls a function for each message of a queue, each call in a thread of its own.

    It does what :class:`~fsmq.spool.worker.async_worker.AsyncWorker` does, but a thread cannot be
    cancelled: a handler whose message is lost has to look at ``claim.lost`` itself, and one that
    still runs when the time of a stop is over is left behind; its message comes back when its claim
    ends.

    Make one with the ``worker`` of a queue; it runs once.
    """

    def __init__(
        self, source: Source, handler: Callable[[Any, Claim], object], options: WorkerOptions
    ) -> None:
        self._worker = AsyncWorker(source, in_thread(handler), options)

    @property
    def lost(self) -> int:
        """How many messages it has lost so far: their claims ended before their handlers."""
        return self._worker.lost

    def run(self, *, signals: bool = True) -> None:
        """Work until stopped, as :meth:`AsyncWorker.run` does; blocks."""
        asyncio.run(self._worker.run(signals=signals))

    def stop(self) -> None:
        """Let it end; returns at once. Safe in threads, in handlers, and before :meth:`run`."""
        self._worker.stop()


def queue_worker(
    spool: Spool, queue: Any, handler: Callable[[Any, Claim], object], *pace: Any
) -> Worker:
    """A worker on a queue of the library, or on several. pace: as of `WorkerOptions`."""
    options = WorkerOptions(*pace)
    return Worker(queue_source(spool, queue, options.concurrency), handler, options)


def channel_worker(channel: Channel, handler: Callable[[Any, Claim], object], *pace: Any) -> Worker:
    """The same on a channel."""
    options = WorkerOptions(*pace)
    return Worker(channel_source(channel, options.concurrency), handler, options)
