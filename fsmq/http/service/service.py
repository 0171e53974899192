"""The service: one spool on one event loop, as all dialects use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fsmq.spool import NewMessage, QueueSettings, Spool, prepare
from fsmq.spool.errors import (
    InvalidValue,
    MessageTooLarge,
    OtherWriter,
    Unavailable,
    as_unavailable,
)
from fsmq.spool.inspection import REPORTS_EVERY_S, Reports
from fsmq.spool.prepare import (
    FEW,
    LARGE_BYTES,
    MAX_CLAIMS,
    Batch,
    Copy,
    Prepared,
    copies_of,
    listings,
)
from fsmq.spool.resources import (
    MAX_LOOKED_INTO_BYTES,
    Filter,
    Subscription,
    log_of,
    looks_into_bodies,
    work_of,
)

from ..guard.access import Access, Identity
from ..guard.admission import Admission
from ..guard.keys import KeyRing
from ..guard.sight import seen_error, seen_of
from ..routing.call import Call
from ..routing.json_room import room_of_json
from ..running.runner import Runner
from .changes import Changes
from .log_resources import LogResources
from .logs import OpenLogs
from .monitoring.inspector import Inspector
from .monitoring.recent import Recent
from .monitoring.recording import Recording
from .monitoring.sizes import Sizes
from .monitoring.surveys import Surveys
from .move_thread import MoveThread
from .queues import Queues
from .receiver import Receiver
from .resources import Resources
from .wanted import size_of

MAX_COUNT = MAX_CLAIMS
_SMALL_COUNT = 256
# The memory of a name in a list.
_NAME_BYTES = 128


class Service(Runner):
    """Verbs of the spool for handlers: awaitable, grouped, and never blocking the loop for long.

    workers: threads for requests that take long.
    poll_interval: seconds between two listings if the spool polls.
    read_timeout: seconds that a client may take to send a body.
    access: who may do what; None: everybody may do everything.
    admission: how much may go on at a time.
    history: whether this process records the numbers of messages, minute by minute.
    node, process, processes: the name of this host among its peers, the name of this process on the
        host, and how many processes serve there.
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
        history: bool = False,
    ) -> None:
        context = spool.context
        super().__init__(spool.syncer, context.sequencer, workers, context.depths.learn)
        self.spool = spool
        self.read_timeout = read_timeout
        self.access = access or Access()
        self.admission = admission or Admission()
        self.node = node
        self.processes = processes
        self.reports = Reports(spool.tree, node, process)
        self.stopping = False
        self.connections: Callable[[], dict[str, int]] = dict  # set by the server: open and in use
        self.ended = asyncio.Event()  # set when the stop begins
        self.sizes = Sizes(spool, self.listings)
        self.surveys = Surveys(spool, self, self.reports)
        self.recent = Recent()
        self.inspector = Inspector(spool, self, self.reports)
        self.moves = MoveThread(spool, self.threads)
        self.receiver = Receiver(spool, self, max_waiters, poll_interval)
        self.changes = Changes(spool)
        self.resources = Resources(spool, self)
        self.queues = Queues(spool, self, self.admission, self.receiver)
        self.logs = OpenLogs(spool, self.admission, max_waiters, poll_interval)
        self.log_resources = LogResources(spool, self.logs)
        self._reporting: asyncio.Task[None] | None = None
        self._recording = Recording(spool, self, self.surveys, self.reports) if history else None
        self._noting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to notice arrivals; called on the loop."""
        listings.forbid()
        self.receiver.start()
        self._reporting = asyncio.create_task(self._report())
        if self._recording is not None:
            self._noting = asyncio.create_task(self._recording.run())
        self.moves.start()

    async def stop(self) -> None:
        """End threads and file watches; nothing may be in progress any more."""
        if self._reporting is not None:
            self._reporting.cancel()
        if self._noting is not None:
            self._noting.cancel()
        await self.in_thread(self.reports.leave)
        self.receiver.stop()
        await self.moves.stop()
        self.logs.close()
        self.close()
        if self._recording is not None:
            self._recording.close()
        listings.allow()

    def begin_stop(self) -> None:
        """End all waits."""
        self.stopping = True
        self.receiver.begin_stop()
        self.logs.begin_stop()
        self.ended.set()

    def take_keys(self, ring: KeyRing) -> None:
        """Use other keys from now on, also for requests that wait."""
        self.access.replace(ring)
        self.receiver.waiters.wake_all()
        self.logs.waiters.wake_all()

    # -- verbs -----------------------------------------------------------------------------------

    async def publish(self, call: Call, topic: str, message: NewMessage) -> dict[str, str]:
        """Store a copy in every subscribed queue and log; returns their ids by queue.

        Ids and errors name only subscribers that the sender may see. Raises what
        :func:`fsmq.spool.prepare.publish_copies` raises, Overloaded, TooManyRequests.
        """
        async with self._telling(call.sender, topic):
            topics = self.spool.context.topics
            to = topics.known(topic, FEW)
            body = len(message.body)
            work = 0 if to is None else work_of(to, body, size_of(message) - body)
            light = to is not None and work <= LARGE_BYTES
            # Here, and not in the thread, which may go on when the request has ended.
            subscribed = await self.listing(topics.subscribed, topic) if to is None else to
            hold_looks(call, (one.filter for one in subscribed), [message.body])
            publish = partial(self._publish, topic, message, to if light else None)
            found = await self.do(publish, light=light)
            self._wake_readers(found)
            return seen_of(call.sender, found)

    def _wake_readers(self, subscribers: Iterable[str]) -> None:
        for log in filter(None, map(log_of, subscribers)):
            self.logs.published(log, 1)

    @asynccontextmanager
    async def _telling(self, identity: Identity, topic: str) -> AsyncIterator[None]:
        """Hide from errors the subscribers that the sender may not see."""
        try:
            yield
        except (Unavailable, OtherWriter, MessageTooLarge, InvalidValue) as error:
            to = await self.listing(self.spool.context.topics.subscribed, topic)
            names = {name for one in to for name in (one.subscriber, one.target) if name}
            seen = seen_error(identity, names, error)
            if seen is error:
                raise
            raise seen from error

    async def publish_copies(
        self, identity: Identity, topic: str, publications: Sequence[Sequence[Copy]]
    ) -> None:
        """Publish messages, each given as its copies, all or none, with one sync.

        Raises what :meth:`publish` raises.
        """
        copies = [copy for publication in publications for copy in publication]
        light = (
            len(copies) <= _SMALL_COUNT
            and sum(len(copy.message.body) for copy in copies) <= LARGE_BYTES
            and all(log_of(copy.to) is None for copy in copies)  # publishing to a log takes long
        )
        puts = [partial(self._publish_copies, topic, one) for one in publications]
        async with self._telling(identity, topic):
            for found in await self.queues.put_all(puts, light=light):
                self._wake_readers(found)

    def _publish(
        self, topic: str, message: NewMessage, to: Sequence[Subscription] | None
    ) -> Prepared[dict[str, str]]:
        topics = self.spool.context.topics
        if to is None:
            to = topics.subscribed(topic)
        return self._publish_copies(topic, copies_of(topics, topic, message, to))

    def _publish_copies(
        self, topic: str, copies: Sequence[Copy], batch: Batch | None = None
    ) -> Prepared[dict[str, str]]:
        spool = self.spool
        with as_unavailable(f"cannot read the settings of the queues of {topic!r}"):
            queues = {copy.to for copy in copies if log_of(copy.to) is None}
            settings = {queue: spool.context.settings.get(queue) for queue in queues}
        return prepare.publish_copies(spool.context, copies, settings, batch)

    async def names(
        self,
        call: Call,
        names: Callable[[], list[str]],
        visible: Callable[[Iterable[str]], list[str]],
    ) -> list[str]:
        """The names of a listing that may be shown. Raises what the two functions raise."""
        call.admit()
        found = await self.listing(lambda: visible(names()))
        call.hold(_NAME_BYTES * len(found), sure=True)
        return found

    def body_limit(self, settings: QueueSettings) -> int:
        """The largest body, in bytes, that a queue with these settings takes."""
        most = self.spool.context.max_message_bytes
        limit = settings.max_message_bytes
        return most if limit is None else min(limit, most)

    async def _report(self) -> None:
        """Report the metrics of this process to the others on this host."""
        metrics = self.spool.context.metrics
        while True:
            self.spool.context.journal.measure_lag()
            if self.reports.is_due(metrics):
                await self.in_thread(self.reports.write_if_due, metrics)
            await asyncio.sleep(REPORTS_EVERY_S)


def hold_looks(call: Call, filters: Iterable[Filter | None], bodies: Iterable[bytes]) -> None:
    """Hold the memory of what bodies become while the filters of subscriptions look into them.

    Raises Overloaded, TooManyRequests.
    """
    if any(map(looks_into_bodies, filters)):
        looked_into = (one for one in bodies if len(one) <= MAX_LOOKED_INTO_BYTES)
        call.hold_made(sum(map(room_of_json, looked_into)))
