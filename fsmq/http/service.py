"""The service: one spool on one event loop, as all dialects use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from fsmq.spool import browse, listings
from fsmq.spool.claim import MAX_CLAIMS
from fsmq.spool.context import Pending, join
from fsmq.spool.counts import Uncounted
from fsmq.spool.errors import FsmqError, NoSuchQueue, telling, unavailable
from fsmq.spool.filters import Filter
from fsmq.spool.message import Message, NewMessage
from fsmq.spool.put import Batch
from fsmq.spool.reports import EVERY_S, Reports
from fsmq.spool.settings import QueueSettings
from fsmq.spool.spool import Spool

from .access import Access
from .admission import Admission
from .commit import Commits
from .keys import KeyRing
from .move_maker import MoveMaker
from .request import Call
from .sizes import Sizes
from .threads import Threads
from .waiters import Waiters

T = TypeVar("T")
MAX_COUNT = MAX_CLAIMS
# Writing more than this would hold the loop up for longer than handing it to a thread.
_SMALL_BYTES = 256 * 1024
_FEW = 32
# So many listings go on at a time. They take as long as there are messages, whatever a request
# asks for, so they have threads of their own: all others would wait behind them.
_LISTINGS = 4
_SMALL_COUNT = 256


class Service:
    """Verbs of the spool for handlers: awaited, grouped, and never blocking the loop for long.

    workers: threads for requests that take long.
    poll_interval: seconds between two listings where the spool polls.
    read_timeout: seconds that a client may take to send a body.
    access: who may do what; without it everybody may do everything.
    admission: how much may go on at a time.
    node, process, processes: the name of this host among its peers, that of this process on it, and
        how many serve on it.
    """

    def __init__(
        self,
        spool: Spool,
        *,
        workers: int = 8,
        max_waiters: int = 10_000,
        poll_interval: float = 0.25,
        read_timeout: float = 30.0,
        access: Access | None = None,
        admission: Admission | None = None,
        node: str = "localhost",
        process: str = "mq",
        processes: int = 1,
    ) -> None:
        self.spool = spool
        self.waiters = Waiters(max_waiters)
        self.read_timeout = read_timeout
        self.access = access or Access()
        self.admission = admission or Admission()
        self.node = node
        self.processes = processes
        self.reports = Reports(spool.tree, node, process)
        self.stopping = False
        self._threads = Threads(workers, listings.forbid)
        self._listings = Threads(min(workers, _LISTINGS))
        self.sizes = Sizes(spool, self._listings)
        self.moves = MoveMaker(spool, self._threads)
        self._commits = Commits(spool.syncer)
        self._poll_interval = poll_interval
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to notice arrivals; call it on the loop."""
        self._loop = asyncio.get_running_loop()
        listings.forbid()
        ready = self.spool.context.ready
        ready.on_arrival = self._arrived
        ready.on_lost = self.rescan
        fileno = self.spool.events_fileno()
        if fileno is not None:
            self._loop.add_reader(fileno, self._on_events)
        self._tasks = [self._loop.create_task(work()) for work in (self._poll, self._report)]
        self.moves.start()

    async def stop(self) -> None:
        """Give threads and watches back; nothing may be in progress any more."""
        fileno = self.spool.events_fileno()
        if self._loop is not None and fileno is not None:
            self._loop.remove_reader(fileno)
        for task in self._tasks:
            task.cancel()
        await self.in_thread(self.reports.leave)
        self.spool.context.ready.on_arrival = None
        await self.moves.stop()
        self._commits.close()
        self._threads.close()
        self._listings.close()
        listings.allow()

    def begin_stop(self) -> None:
        """Let no one wait any more."""
        self.stopping = True
        self.waiters.wake_all()

    def take_keys(self, ring: KeyRing) -> None:
        """Let other keys hold from now on, also for those that wait."""
        self.access.replace(ring)
        self.waiters.wake_all()

    # -- verbs -----------------------------------------------------------------------------------

    async def complete(self, pending: Pending[T]) -> T:
        """Make a verb durable together with all others that wait. Raises Unavailable."""
        return await self._commits.complete(pending)

    async def put(
        self, queue: str, messages: Sequence[NewMessage], settings: QueueSettings
    ) -> list[str]:
        """Store messages in a queue of these settings; their ids.

        Raises what :func:`fsmq.spool.put.put` raises.
        """
        few = len(messages) <= _FEW
        try:
            if few and sum(len(message.body) for message in messages) <= _SMALL_BYTES:
                pending = self.spool.put(queue, messages, settings)
            else:
                pending = await self.in_thread(self.spool.put, queue, messages, settings)
        except Uncounted:
            await self._listings.share(self.spool.depths.learn, queue)
            return await self.put(queue, messages, settings)
        return await self._complete(few, pending)

    async def publish(self, topic: str, message: NewMessage) -> dict[str, str]:
        """Store a copy in every subscribed queue; their ids by queue.

        Raises what :func:`fsmq.spool.publish.publish` raises.
        """
        with telling(f"cannot read the subscriptions of {topic!r}"):
            to = self.spool.context.topics.known(topic, _FEW)
        light = to is not None and len(to) * len(message.body) <= _SMALL_BYTES
        try:
            if light:
                pending = self._publish(topic, message, to)
            else:
                pending = await self.in_thread(self._publish, topic, message)
        except Uncounted:
            pending = await self.listing(self._publish, topic, message)
        return await self._complete(light, pending)

    def _publish(
        self, topic: str, message: NewMessage, to: Mapping[str, Filter | None] | None = None
    ) -> Pending[dict[str, str]]:
        spool = self.spool
        if to is None:
            to = spool.subscriptions(topic)
        with telling(f"cannot read the settings of the queues of {topic!r}"):
            settings = {queue: spool.context.settings.get(queue) for queue in to}
        return spool.publish(topic, message, to, settings)

    async def _complete(self, light: bool, pending: Pending[T]) -> T:
        """The same as :meth:`complete`, also for a verb whose end takes long."""
        if light:
            return await self.complete(pending)
        await self._commits.sync(pending)
        return await self.in_thread(pending.finish)

    async def remove(self, queue: str, message_ids: Sequence[str]) -> list[bool]:
        """Remove messages; tells for each id whether it was there.

        Raises what :func:`fsmq.spool.removal.remove` raises.
        """
        few = len(message_ids) <= _FEW
        if few:
            pending = self.spool.remove(queue, message_ids)
        else:
            pending = await self.in_thread(self.spool.remove, queue, message_ids)
        return await self._complete(few, pending)

    async def beside(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes the longer the more bytes it works on; in a thread if many."""
        if size <= _SMALL_BYTES:
            return function(*arguments)
        return await self.in_thread(function, *arguments)

    async def store(
        self, puts: Sequence[Callable[[Batch], Pending[T]]], messages: int, size: int
    ) -> None:
        """Do several puts, all or none, and make them durable with one sync.

        messages, size: how many there are in all, and their bytes. Raises what the puts raise.
        """
        light = messages <= _SMALL_COUNT and size <= _SMALL_BYTES
        try:
            pending = self._put_all(puts) if light else await self.in_thread(self._put_all, puts)
        except Uncounted:
            pending = await self.listing(self._put_all, puts)
        await self._complete(light, pending)

    def _put_all(self, puts: Sequence[Callable[[Batch], Pending[T]]]) -> Pending[list[T]]:
        batch = Batch(self.spool.tree)
        pendings: list[Pending[T]] = []
        try:
            for put in puts:
                pendings.append(put(batch))
        except BaseException:
            for pending in pendings:
                pending.abandon()
            raise
        return join(pendings)

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes long beside the loop."""
        return await self._threads.run(function, *arguments)

    async def listing(self, function: Callable[..., T], *arguments: object) -> T:
        """Run something that takes the longer the more there is in the tree."""
        return await self._listings.run(function, *arguments)

    def body_limit(self, settings: QueueSettings) -> int:
        """The largest body, in bytes, that a queue of these settings takes."""
        most = self.spool.context.max_message_bytes
        limit = settings.max_message_bytes
        return most if limit is None else min(limit, most)

    async def fetch(
        self, call: Call, queue: str, count: int, visibility: float | None, wait: float
    ) -> list[Message]:
        """Claim up to ``count`` messages, waiting up to ``wait`` seconds for the first.

        A client that has hung up gets nothing: what was claimed for it goes back at once.
        """
        return await self.fetch_by(
            call, (queue,), lambda: self.spool.claim(queue, count, visibility), count, wait
        )

    async def fetch_by(
        self,
        call: Call,
        queues: Sequence[str],
        claim: Callable[[], Pending[list[Message]]],
        count: int,
        wait: float,
    ) -> list[Message]:
        """The same for a claim that takes from several queues, and waits for the first of them."""
        with ExitStack() as place:
            return await self._fetch_in(place, call, queues, claim, count, wait)

    async def _fetch_in(
        self,
        place: ExitStack,
        call: Call,
        queues: Sequence[str],
        claim: Callable[[], Pending[list[Message]]],
        count: int,
        wait: float,
    ) -> list[Message]:
        queue = queues[0]
        end = time.monotonic() + wait
        again = woken = False
        try:
            while True:
                messages = await self._claim(call, queues, claim)
                woken = False
                if messages:
                    self._note_fill(queue, len(messages), count)
                    return await self._unless_gone(call, messages)
                left = end - time.monotonic()
                if left <= 0 or self.stopping:
                    self._note_fill(queue, 0, count)
                    return []
                ripens_in = self.spool.context.ready.ripens_in(queue)
                pause = left if ripens_in is None else min(left, ripens_in)
                if not again:
                    # Until its end: one that was woken in vain must not lose its place to another.
                    place.enter_context(self.admission.waiting(call.account))
                woken = await self.waiters.wait(queue, pause, call.on_hang_up, again=again)
                if call.is_gone or (call.identity is not None and call.identity.stale):
                    return []
                again = True
        finally:
            if woken:
                # It has gone, or was refused: what woke it is for the next in line.
                self.waiters.wake(queue, 1)

    async def _claim(
        self,
        call: Call,
        queues: Sequence[str],
        claim: Callable[[], Pending[list[Message]]],
    ) -> list[Message]:
        while True:
            for one in queues:
                await self.load(one)
            call.admit()
            claimed = claim()
            call.hold(claimed.size, sure=True)
            messages = await self.complete(claimed)
            # An event may have dropped what was listed: the folder was made, or replaced, just now.
            if messages or all(map(self.spool.context.ready.is_loaded, queues)):
                return messages

    async def _unless_gone(self, call: Call, messages: list[Message]) -> list[Message]:
        if not call.is_gone:
            return messages
        for message in messages:
            try:
                await self.complete(self.spool.give_back(message))
            except FsmqError:
                continue  # its timer brings it back
        return []

    def rescan(self) -> None:
        """List all queues in use again, beside the loop."""
        self._listings.submit(self.spool.context.ready.rescan)

    def find(self, queue: str, message_id: str) -> Message | None:
        """Look at a message in whatever state it is; blocks."""
        context = self.spool.context
        try:
            if not self.spool.tree.has_queue(queue):
                raise NoSuchQueue(queue)
            return browse.find(context, queue, message_id)
        except OSError as error:
            raise unavailable(error, f"cannot look into queue {queue!r}") from error

    async def load(self, queue: str) -> None:
        """List a queue where only that tells what is ready: a million names take seconds.

        Raises NoSuchQueue, Unavailable.
        """
        if self.spool.context.ready.is_due(queue):
            await self._listings.share(self._load_blocking, queue)

    def _load_blocking(self, queue: str) -> None:
        try:
            ready = self.spool.context.ready
            ready.divide(queue, self.spool.context.settings_of(queue))
            ready.load(queue)
        except OSError as error:
            raise unavailable(error, f"cannot list queue {queue!r}") from error

    # -- arrivals --------------------------------------------------------------------------------

    def _on_events(self) -> None:
        self.spool.context.ready.refresh()

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
        elif seconds and self.waiters.has(queue):
            loop.call_later(seconds, self.waiters.wake, queue, count)
        else:
            self.waiters.wake(queue, count)

    def _note_fill(self, queue: str, got: int, asked: int) -> None:
        metrics = self.spool.context.metrics
        metrics.observe(("batch_fill", queue), got / asked)
        metrics.set(("fill", queue), got / asked)

    async def _report(self) -> None:
        """Let the other processes of this host know what this one counts."""
        metrics = self.spool.context.metrics
        while True:
            self.spool.context.journal.measure_lag()
            if self.reports.is_due(metrics):
                await self.in_thread(self.reports.tell, metrics)
            await asyncio.sleep(EVERY_S)

    async def _poll(self) -> None:
        """Where events do not arrive: list the queues that someone waits for."""
        ready = self.spool.context.ready
        while True:
            await asyncio.sleep(self._poll_interval if ready.polls else 1.0)
            ready.refresh()  # a folder that was removed sends no events until it is watched anew
            self.spool.census.rest()
            queues = self.waiters.queues()
            if queues:
                try:
                    await self.listing(ready.poll, queues)
                except OSError:
                    continue  # a fetch will tell it to its client
