"""The worker for handlers that block: each message in a thread, the rest on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import prepare
from ..errors import FsmqError
from ..layout.messages.message import Message
from .async_worker import AsyncWorker
from .handlers import Claim, WorkerOptions, in_thread
from .source import ClaimCall, LocalSource, Source

if TYPE_CHECKING:
    from ..log._sync.channel_message import ChannelMessage
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
    spool: Spool, queue: Any, handler: Callable[[Message, Claim], object], *pace: Any
) -> Worker:
    """A worker on a queue of the library, or on several. pace: as of `WorkerOptions`."""

    def give_back(messages: Sequence[Message]) -> None:
        for message in messages:
            with suppress(FsmqError):
                spool.complete(prepare.release_unseen(spool.context, message))

    return _worker(queue.name, queue.claim, give_back, handler, *pace)


def channel_worker(
    channel: Channel, handler: Callable[[ChannelMessage, Claim], object], *pace: Any
) -> Worker:
    """The same on a channel."""

    def claim(count: int, visibility: float, wait: float) -> Sequence[ChannelMessage]:
        # Several of one key in one claim would be worked on side by side.
        most = count if channel.settings().order == "none" else 1
        return channel.claim(most, visibility, wait)

    def give_back(messages: Sequence[ChannelMessage]) -> None:
        channel.release(*messages)

    return _worker(f"{channel.log.name}/{channel.name}", claim, give_back, handler, *pace)


def _worker(
    name: str,
    claim: ClaimCall,
    give_back: Callable[[Sequence[Any]], None],
    handler: Callable[[Any, Claim], object],
    *pace: Any,
) -> Worker:
    options = WorkerOptions(*pace)
    return Worker(LocalSource(name, claim, give_back, options.concurrency), handler, options)
