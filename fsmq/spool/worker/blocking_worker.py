"""The worker for blocking handlers: each message in a thread, all else on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..claimed import Claim
from ..context import OpenSpool
from .async_worker import AsyncWorker
from .handlers import WorkerOptions, in_thread
from .source import Source, channel_source, queue_source

if TYPE_CHECKING:
    from ..log.channel import Channel


class Worker:
    """Calls a function for each message of a queue, each time in a new thread.

    It does what :class:`~fsmq.spool.worker.async_worker.AsyncWorker` does, but a thread cannot be
    cancelled: a handler must check ``claim.lost`` itself. One that still runs ``stop_timeout``
    seconds after a stop is abandoned; its message becomes ready when its claim ends.

    Make one with the ``worker`` of a queue; it runs once.
    """

    def __init__(
        self, source: Source, handler: Callable[[Any, Claim], object], options: WorkerOptions
    ) -> None:
        self._worker = AsyncWorker(source, in_thread(handler), options)

    @property
    def lost(self) -> int:
        """The number of messages lost so far: their claims ended before their handlers."""
        return self._worker.lost

    def run(self, *, signals: bool = True) -> None:
        """Work until stopped, as :meth:`AsyncWorker.run` does; blocks."""
        asyncio.run(self._worker.run(signals=signals))

    def stop(self) -> None:
        """Ask it to stop; returns at once. Safe in threads, in handlers, and before :meth:`run`."""
        self._worker.stop()


def queue_worker(
    spool: OpenSpool, queue: Any, handler: Callable[[Any, Claim], object], *pace: Any
) -> Worker:
    """A worker on one or several local queues. pace: the arguments of `WorkerOptions`."""
    options = WorkerOptions(*pace)
    return Worker(queue_source(spool, queue, options.concurrency), handler, options)


def channel_worker(channel: Channel, handler: Callable[[Any, Claim], object], *pace: Any) -> Worker:
    """A worker on a channel. pace: the arguments of `WorkerOptions`."""
    options = WorkerOptions(*pace)
    return Worker(channel_source(channel, options.concurrency), handler, options)
