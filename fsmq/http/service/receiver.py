"""Notices arrivals in queues, wakes the requests that wait for them, and finds messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from fsmq.spool import Message, Spool
from fsmq.spool.errors import FsmqError, NoSuchQueue, Unavailable, as_unavailable
from fsmq.spool.inspection import browse
from fsmq.spool.on_disk import OfQueues
from fsmq.spool.prepare import EVERYONE, Unlisted

from ..connection.turns import LoopTurns
from ..guard.sight import seen_message
from ..routing.call import Call
from ..running.runner import Runner
from .batcher import Batcher
from .waiters import Waiters

log = logging.getLogger(__name__)


class Receiver:
    """Notices arrivals in queues, and wakes the requests that wait for them."""

    def __init__(
        self,
        spool: Spool,
        runner: Runner,
        max_waiters: int,
        poll_interval: float,
    ) -> None:
        self.waiters = Waiters(max_waiters, LoopTurns())
        self._spool = spool
        self._runner = runner
        self._poll_interval = poll_interval
        self.is_stopping = False
        self.changes = 0  # how often a queue was created, deleted or opened
        self.arrivals = 0  # how many there were
        self._arrived_at: OfQueues[int] = OfQueues(spool.tree)  # the last number of each queue
        self._faulty: OfQueues[Unavailable] = OfQueues(spool.tree)  # queues that cannot be listed
        self._naming: Batcher[None, None, tuple[list[str], int]] = Batcher(self._list_names)
        self._names: frozenset[str] = frozenset()  # of all queues, as last listed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.Task[None] | None = None
        self._reopenings: dict[str, asyncio.TimerHandle] = {}  # the next looks at shut queues

    def start(self) -> None:
        """Begin to notice arrivals; called on the loop."""
        self._loop = asyncio.get_running_loop()
        ready = self._spool.context.ready
        ready.on_arrival = self._arrived
        ready.on_lost = self.rescan
        self._spool.context.limiter.on_unlisted = self._learn_beside
        fileno = self._spool.events_fileno()
        if fileno is not None:
            self._loop.add_reader(fileno, self._on_events)
        self._polling = self._loop.create_task(self._poll())

    def begin_stop(self) -> None:
        """End all waits."""
        self.is_stopping = True
        self.waiters.wake_all()

    def stop(self) -> None:
        """Stop noticing arrivals."""
        fileno = self._spool.events_fileno()
        if self._loop is not None and fileno is not None:
            self._loop.remove_reader(fileno)
        if self._polling is not None:
            self._polling.cancel()
        for timer in self._reopenings.values():
            timer.cancel()
        self._spool.context.ready.on_arrival = None

    def pause_of(self, queues: Sequence[str], at_most: float) -> float:
        """How long a request that got nothing waits unless woken, up to ``at_most`` seconds."""
        context = self._spool.context
        shut = context.limiter.shut
        if len(queues) > 1:  # in queues without messages nothing becomes ready as time passes
            has = context.ready.counts(queues)
            queues = [*has, *(queue for queue in queues if queue in shut and queue not in has)]
        for queue in queues:
            if shut and context.limiter.is_shut(queue):
                self._attend(queue)
            else:
                at_most = context.pause_of(queue, at_most)
        return at_most

    def _look_again(self, queue: str) -> None:
        del self._reopenings[queue]
        self._look((queue,))
        if self.waiters.has(queue):
            self._attend(queue)

    def _attend(self, queue: str) -> None:
        """Schedule a look at whether a queue that is shut has opened."""
        limiter = self._spool.context.limiter
        if queue in limiter.shut and queue not in self._reopenings and self._loop is not None:
            # One look for all requests that wait.
            self._reopenings[queue] = self._loop.call_later(
                limiter.look_in(queue), self._look_again, queue
            )

    def _look(self, queues: Sequence[str]) -> None:
        if not self._spool.context.ready.hears_all:
            self._runner.listings.submit(partial(self._look_now, queues))
            return
        try:
            self._look_now(queues)
        except Unlisted:
            self._runner.listings.submit(partial(self._look_now, queues))

    def _look_now(self, queues: Sequence[str]) -> None:
        try:
            self._spool.context.limiter.look(queues)
        except OSError:
            return  # the next claim reports it to its client

    def has_come(self, queues: Iterable[str], since: int) -> bool:
        """Whether one of these queues has messages, and had an arrival after number ``since``."""
        ready, at = self._spool.context.ready, self._arrived_at
        return any(at.get(queue, 0) > since and ready.count(queue) for queue in queues)

    def rescan(self) -> None:
        """List all queues in use again, in a thread."""
        self._runner.listings.submit(self._spool.context.ready.rescan)

    async def find(self, call: Call, queue: str, message_id: str) -> Message | None:
        """A message in any state, as the sender may see it; None if there is none.

        Raises NoSuchQueue, Overloaded, TooManyRequests, Unavailable.
        """
        call.admit()
        found = await self._runner.in_thread(self._find, call, queue, message_id)
        return None if found is None else seen_message(call.sender, found)

    def _find(self, call: Call, queue: str, message_id: str) -> Message | None:
        context = self._spool.context
        with as_unavailable(f"cannot look into queue {queue!r}"):
            if not self._spool.tree.has_queue(queue):
                raise NoSuchQueue(queue)
            return browse.find(context, queue, message_id, call)

    async def load(self, queue: str) -> None:
        """List a queue if its ready messages are not known yet; a million names take seconds.

        Raises NoSuchQueue, Unavailable.
        """
        if self._spool.context.ready.is_due(queue):
            await self._runner.listings.share(self._load_blocking, queue)

    async def load_any(self, queues: Sequence[str]) -> None:
        """`load` several queues for one claim; those that cannot be listed are logged and left out.

        Raises:
            NoSuchQueue: one of them has been deleted. Unavailable: none of them can be listed.
        """
        faults: list[Unavailable] = []
        for queue in queues:
            try:
                await self.load(queue)
            except Unavailable as error:
                faults.append(error)
                if len(queues) > 1 and queue not in self._faulty:
                    log.warning("claims from several queues leave one out: %s", error)
                    self._faulty[queue] = error
            else:
                if self._faulty.pop(queue, None) is not None:
                    log.info("claims from several queues take from queue %r again", queue)
        if len(faults) == len(queues):
            raise faults[0]

    def has_unlisted(self, queues: Iterable[str]) -> bool:
        """Whether a queue still has to be listed, and listing it has not failed."""
        unlisted = filter(self._spool.context.ready.is_due, queues)
        return any(queue not in self._faulty for queue in unlisted)

    async def learn(self, queue: str) -> None:
        """Count the claims of a queue with limits. Raises Unavailable."""
        await self._runner.listings.share(self._learn, queue)

    def _learn_beside(self, queue: str) -> None:
        # The next look wakes waiting requests; all others will claim again.
        self._runner.listings.submit(partial(self._learn, queue))

    def _learn(self, queue: str) -> None:
        with as_unavailable(f"cannot count the claims of queue {queue!r}"):
            self._spool.context.limiter.learn(queue)
            if self._spool.context.settings.get(queue).in_groups:
                self._spool.context.groups.learn(queue)

    def _load_blocking(self, queue: str) -> None:
        with as_unavailable(f"cannot list queue {queue!r}"):
            ready = self._spool.context.ready
            settings = self._spool.context.settings_of(queue)
            ready.set_partitions(queue, settings)
            ready.load(queue)
            if not settings.is_open:
                self._spool.context.limiter.learn(queue)

    # -- arrivals --------------------------------------------------------------------------------

    def _on_events(self) -> None:
        self._spool.context.ready.refresh()

    def _arrived(self, queue: str, count: int, seconds: float) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if not here:
            loop.call_soon_threadsafe(self._arrived, queue, count, seconds)
        elif count >= EVERYONE:
            self.changes += 1
            self._faulty.pop(queue, None)
            self.waiters.wake(queue, count)
            self.waiters.wake_for_new((queue,))
        elif (limiter := self._spool.context.limiter).shut and limiter.is_shut(queue):
            return  # nothing can be claimed before the queue opens
        else:
            self.arrivals += 1
            self._arrived_at[queue] = self.arrivals
            if seconds and self.waiters.has(queue):
                loop.call_later(seconds, self.waiters.wake, queue, count)
            else:
                self.waiters.wake(queue, count)

    async def names(self) -> tuple[list[str], int]:
        """The names of all queues, and the value of `changes` to which they correspond.

        All calls during a listing share the next one. Raises Unavailable.
        """
        return await self._naming.ask(None, None)

    async def _list_names(self, _: None, asked: Sequence[None]) -> Sequence[tuple[list[str], int]]:
        changes = self.changes
        names = await self._runner.listing(self._spool.queues)
        return [(names, changes + self._note_names(names))] * len(asked)

    def _note_names(self, names: Iterable[str]) -> bool:
        """Wake requests that wait for new queues, given all names; returns whether some are new.

        File events do so, too, but not on all filesystems, and they can be lost.
        """
        there = frozenset(names)
        come, self._names = there - self._names, there
        self.changes += bool(come)
        if come:
            self.waiters.wake_for_new(come)
        return bool(come)

    def note_fill(self, queue: str, fill: float, times: int = 1) -> None:
        """Record the share, 0 to 1, of the requested messages that claims have got."""
        metrics = self._spool.context.metrics
        metrics.observe(("batch_fill", queue), fill, times)
        metrics.set(("fill", queue), fill)
        if not fill and self._spool.context.limiter.shut:
            self._attend(queue)

    async def _poll(self) -> None:
        """Where file events do not arrive: list queues, and their names, while requests wait."""
        ready = self._spool.context.ready
        while True:
            await asyncio.sleep(1.0 if ready.hears_all else self._poll_interval)
            ready.refresh()  # a folder that was replaced sends no events until it is watched again
            self._spool.census.rest()
            queues = self.waiters.queues()
            if shut := self._spool.context.limiter.shut:
                self._look(queues)
                queues = [queue for queue in queues if queue not in shut]
            try:
                if queues:
                    await self._runner.listing(ready.poll, queues)
                if self.waiters.has_any_for_new:
                    await self.names()
            except (OSError, FsmqError):
                continue  # the next claim reports it to its client
