"""A channel of a log as a worker uses it: its messages are called by their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from ..errors import FsmqError
from ..log.channel import Channel
from ..log.handed import Handed
from .blocking_worker import Worker
from .handlers import Claim, WorkerOptions
from .source import ThreadedSource

_WAIT_S = 1.0
_FOR_EVER_S = float("inf")


class HeldMessages:
    """The messages that a worker holds, by their offsets: what is done with one is of its claim."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: dict[str, Handed] = {}

    def hold(self, messages: Iterable[Handed]) -> list[Handed]:
        """Note messages that were claimed."""
        found = list(messages)
        self._held.update((str(message.offset), message) for message in found)
        return found

    def given(self, offsets: Iterable[str]) -> list[Handed | int]:
        """Messages, as the verbs of a channel take them."""
        return [self._held.get(offset, int(offset)) for offset in offsets]

    def forget(self, offsets: Iterable[str]) -> None:
        """Forget messages that are settled."""
        for offset in offsets:
            self._held.pop(offset, None)


class ChannelSource(ThreadedSource, HeldMessages):
    """A channel of a spool. Its verbs wait for the disk, so each runs in a thread."""

    def __init__(self, channel: Channel, concurrency: int) -> None:
        HeldMessages.__init__(self, f"{channel.log.name}/{channel.name}")
        ThreadedSource.__init__(self, concurrency)
        self._channel = channel

    async def claim(self, count: int, visibility: float) -> list[Handed]:
        """See :meth:`Source.claim`."""
        claimed = self._threads.submit(self._claim, count, visibility)
        try:
            return self.hold(await asyncio.wrap_future(claimed))
        except asyncio.CancelledError:
            claimed.add_done_callback(self._release_claimed)  # the thread goes on
            raise

    async def renew(self, message_id: str, visibility: float, patience: float) -> object:
        """See :meth:`Source.renew`."""

        def renew() -> object:
            return self._channel.renew(*self.given([message_id]), visibility=visibility)

        return await self._persist(patience, renew)

    async def release(self, message_id: str, delay: float, patience: float) -> None:
        """See :meth:`Source.release`."""

        def release() -> None:
            self._channel.release(*self.given([message_id]), delay=delay)

        await self._persist(patience, release)
        self.forget([message_id])

    async def bury(self, message_id: str, reason: str | None, patience: float) -> None:
        """See :meth:`Source.bury`. The letter tells of its channel, and not the reason."""
        await self._persist(patience, self._channel.bury, *self.given([message_id]))
        self.forget([message_id])

    async def _remove(self, message_ids: list[str]) -> None:
        await self._persist(_FOR_EVER_S, self._channel.done, *self.given(message_ids))
        self.forget(message_ids)

    def _claim(self, count: int, visibility: float) -> Iterable[Handed]:
        # Several of one key in one claim would be worked on side by side.
        if self._channel.settings().order != "none":
            count = 1
        return self._channel.claim(count, visibility, _WAIT_S)

    def _release_claimed(self, claimed: Future[Iterable[Handed]]) -> None:
        if claimed.cancelled() or claimed.exception() is not None:
            return
        with suppress(FsmqError):  # they come back when their claims end
            self._channel.release(*claimed.result())


def channel_worker(
    channel: Channel, handler: Callable[[Handed, Claim], object], *pace: Any
) -> Worker:
    """A worker on a channel of the library. pace: as of `WorkerOptions`."""
    options = WorkerOptions(*pace)
    return Worker(ChannelSource(channel, options.concurrency), handler, options)
