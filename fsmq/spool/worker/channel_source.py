"""A channel of a log as a worker uses it: its messages are called by their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from ..errors import FsmqError
from ..log.channel import Channel
from ..log.delivered import Delivered
from .blocking_worker import Worker
from .handlers import Claim, WorkerOptions
from .source import ThreadedSource

_WAIT_S = 1.0
_FOR_EVER_S = float("inf")


class ChannelSource(ThreadedSource):
    """A channel of a spool. Its verbs wait for the disk, so each runs in a thread."""

    def __init__(self, channel: Channel, concurrency: int) -> None:
        super().__init__(concurrency)
        self.name = f"{channel.log.name}/{channel.name}"
        self._channel = channel

    async def claim(self, count: int, visibility: float) -> list[Delivered]:
        """See :meth:`Source.claim`."""
        claimed = self._threads.submit(self._claim, count, visibility)
        try:
            return list(await asyncio.wrap_future(claimed))
        except asyncio.CancelledError:
            claimed.add_done_callback(self._release_claimed)  # the thread goes on
            raise

    async def renew(self, message: Delivered, visibility: float, patience: float) -> object:
        """See :meth:`Source.renew`."""
        return await self._persist(
            patience, partial(self._channel.renew, message, visibility=visibility)
        )

    async def release(self, message: Delivered, delay: float, patience: float) -> None:
        """See :meth:`Source.release`."""
        await self._persist(patience, partial(self._channel.release, message, delay=delay))

    async def bury(self, message: Delivered, reason: str | None, patience: float) -> None:
        """See :meth:`Source.bury`."""
        await self._persist(patience, partial(self._channel.bury, message, reason=reason))

    async def _remove(self, messages: list[Delivered]) -> None:
        await self._persist(_FOR_EVER_S, self._channel.done, *messages)

    def _claim(self, count: int, visibility: float) -> Iterable[Delivered]:
        # Several of one key in one claim would be worked on side by side.
        if self._channel.settings().order != "none":
            count = 1
        return self._channel.claim(count, visibility, _WAIT_S)

    def _release_claimed(self, claimed: Future[Iterable[Delivered]]) -> None:
        if claimed.cancelled() or claimed.exception() is not None:
            return
        with suppress(FsmqError):  # they come back when their claims end
            self._channel.release(*claimed.result())


def channel_worker(
    channel: Channel, handler: Callable[[Delivered, Claim], object], *pace: Any
) -> Worker:
    """A worker on a channel of the library. pace: as of `WorkerOptions`."""
    options = WorkerOptions(*pace)
    return Worker(ChannelSource(channel, options.concurrency), handler, options)
