"""Group commit on the event loop: requests that wait at the same moment share one sync.

Handlers change the tree on the loop, in calls of microseconds; only the sync itself, which takes
milliseconds and needs no interpreter, runs in a thread. So there is one hand-off between threads
for a whole group and not one for each message.
"""

from __future__ import annotations

import asyncio
import logging
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from fsmq.spool.context import Pending
from fsmq.spool.durability.sync import IN_FLIGHT, Group, Syncer
from fsmq.spool.errors import Unavailable

T = TypeVar("T")
log = logging.getLogger(__name__)


class _Order:
    """A group on its way: what is to be synced, and who waits for it."""

    def __init__(self) -> None:
        self.group = Group()
        self.waiting: list[asyncio.Future[None]] = []


class Commits:
    """Completes verbs of the spool, many at a time.

    close_late: close the files of a group in its thread, and not on the loop. Closing a file costs
        a microsecond on a disk, and a thread would have to wait for the interpreter with each of
        them; on a network filesystem it may ask the server.
    """

    def __init__(self, syncer: Syncer, *, close_late: bool) -> None:
        self._syncer = syncer
        self._close_late = close_late
        self._orders: SimpleQueue[tuple[_Order, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._next = _Order()
        self._planned = False
        self._in_flight = 0
        self._threads = [
            Thread(target=self._work, name="fsmq-sync", daemon=True) for _ in range(IN_FLIGHT)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Wait for what runs."""
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    async def complete(self, pending: Pending[T]) -> T:
        """Make a verb durable and give its result. Raises Unavailable if the disk refuses."""
        await self.sync(pending)
        return pending.finish()

    async def sync(self, pending: Pending[T]) -> None:
        """Make a verb durable, and leave its finish to the caller. Raises Unavailable."""
        work = pending.work
        if work.files or work.folders:
            order = self._next
            order.group.works.append(work)
            loop = asyncio.get_running_loop()
            synced: asyncio.Future[None] = loop.create_future()
            order.waiting.append(synced)
            self._plan(loop)
            await synced
            try:
                order.group.check()
            except Unavailable:
                pending.abandon()
                raise

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._planned and self._in_flight < IN_FLIGHT:
            self._planned = True
            # Not at once: other handlers that are ready in this turn of the loop join first.
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._planned = False
        order, self._next = self._next, _Order()
        self._in_flight += 1
        self._orders.put((order, loop))

    def _end(self, order: _Order, loop: asyncio.AbstractEventLoop) -> None:
        self._in_flight -= 1
        if self._next.waiting and not self._planned:
            self._start(loop)  # first of all: the disk works while these callers go on
        order.group.close()
        for synced in order.waiting:
            if not synced.done():
                synced.set_result(None)

    def _work(self) -> None:
        while (task := self._orders.get()) is not None:
            order, loop = task
            try:
                self._syncer.sync_open(order.group)
            except BaseException as error:  # those who wait must hear of it, whatever it is
                log.exception("the sync failed")
                order.group.error = Unavailable(f"the sync failed: {error}")
            if self._close_late:
                order.group.close()
            loop.call_soon_threadsafe(self._end, order, loop)
