"""The client for coroutines; its requests are in :mod:`fsmq.client.verbs`."""

from __future__ import annotations

import ssl
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from fsmq.spool._async.claimed_message import AsyncClaimed
from fsmq.spool._async.selection import AsyncSelection
from fsmq.spool.layout.messages.message import Message
from fsmq.spool.layout.names import check_queue
from fsmq.spool.moves.order import Move
from fsmq.spool.records.history import Moment
from fsmq.spool.schedules.schedule_settings import ScheduleState, check_schedule
from fsmq.spool.verbs.choice import Choice
from fsmq.spool.verbs.several import Turns
from fsmq.spool.views.places import Place

from ..exchange import Verb
from ..options import Options
from ..session._async.session import AsyncSession
from ..verbs.inspection_verbs import InspectionVerbs
from ..verbs.log_verbs import LogVerbs
from ..verbs.moves import MoveVerbs
from ..verbs.queue_verbs import Verbs
from ..verbs.schedule_verbs import ScheduleVerbs
from ..verbs.topic_verbs import TopicVerbs
from ..workers.async_workers import worker_of
from .log import AsyncClientLog
from .queue import AsyncQueue
from .schedule import AsyncClientSchedule
from .topic import AsyncClientTopic

if TYPE_CHECKING:
    from fsmq.spool.worker.async_worker import AsyncWorker


class AsyncClient(AsyncSession):
    """The queues of a server with the API of the embedded library, for coroutines.

    >>> async with AsyncClient("http://127.0.0.1:8080") as client:
    ...     jobs = client.queue("jobs")
    ...     await jobs.put(b"hello")

    url: the server, such as ``http://host:8080``; its path, if any, is put before all paths.
    key: sent as a bearer token; None takes that of the environment variable FSMQ_KEY, if any.
    ca: a file of the authorities that may have signed the server's certificate, or an SSLContext;
        None takes those of the system.
    timeout: seconds of silence after which a request has failed (the wait of a claim is added).
    retry_for: seconds for which a request is tried again while the server cannot be reached or
        answers 503; pauses between tries get longer, and are at least what the server asks for.
    connections: how many are kept open at most.

    Connections are made when needed and kept. Use it on one event loop, and close it there.
    All methods raise :class:`~fsmq.FsmqError`: the errors of the library, and ConnectionFailed when
    no answer came, AccessDenied, UnexpectedAnswer.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: str | Path | ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        connections: int = 100,
    ) -> None:
        super().__init__(Options(url, key, ca, timeout, retry_for, connections))

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.options.origin}>"

    # -- queues ----------------------------------------------------------------------------------

    @overload
    def queue(self, name: str, *, create: Literal[False] = False) -> AsyncQueue: ...
    @overload
    def queue(self, name: str, *, create: Literal[True]) -> Coroutine[Any, Any, AsyncQueue]: ...
    def queue(
        self, name: str, *, create: bool = False
    ) -> AsyncQueue | Coroutine[Any, Any, AsyncQueue]:
        """A queue to work with. It is only created if ``create`` is given.

        Its verbs raise NoSuchQueue if it does not exist.
        """
        queue = AsyncQueue(self, check_queue(name))
        return _created(queue) if create else queue

    def select(self, queues: str | Iterable[str]) -> AsyncSelection[AsyncWorker]:
        """Several queues to claim from together: ``["high:3", "tenant-*"]``. See `Choice`."""
        return AsyncSelection(self, Choice(queues))

    async def _claim_several(
        self, turns: Turns, count: int, visibility: float | None, wait: float
    ) -> list[Message]:
        """The ``claim`` of a selection."""
        return await self.run(self.verbs.claim_several(turns.choice, count, visibility, wait))

    def _selection_worker(self, selection: AsyncSelection[AsyncWorker], *of: Any) -> AsyncWorker:
        """The ``worker`` of a selection."""

        def claim(verbs: Verbs, *by: Any) -> Verb[list[AsyncClaimed]]:
            messages = yield from verbs.claim_several(Choice(selection.name), *by)
            return [AsyncClaimed.all(self.queue(one.queue), [one])[0] for one in messages]

        return worker_of(self, selection.name, claim, *of)

    async def queues(self) -> list[str]:
        """The names of all visible queues, sorted."""
        return await self.run(self.verbs.queues())

    async def has_queue(self, name: str) -> bool:
        """Whether there is a queue of this name."""
        return await self.run(self.verbs.has_queue(name))

    async def create_queue(self, name: str, *, index: bool = False, fifo: bool = False) -> bool:
        """Create a queue durably; False if it exists.

        index: its messages can be found by the ids that producers give them, see :meth:`indexed`.
            Raises InvalidValue if it exists without an index.
        fifo: the messages of each group are claimed in their order. Raises InvalidValue if it
            exists without that, or together with ``index``.
        """
        return await self.run(self.verbs.create_queue(name, index, fifo))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and all its messages. Raises NoSuchQueue."""
        await self.run(self.verbs.delete_queue(name))

    # -- moves in the background -----------------------------------------------------------------

    async def begin_redrive(
        self,
        dead: str,
        *,
        to: str | None = None,
        rate: float | None = None,
        only: Sequence[str] | None = None,
    ) -> Move:
        """Order a redrive of all ready messages of a dead-letter queue; some process makes it.

        to: the queue to which all go; None: each to the queue from which it was buried. rate: the
        most messages a second. only: the ids to redrive, at most 1000; None: all.

        Raises InvalidValue, NoSuchQueue, Unavailable.
        """
        return await self.run(MoveVerbs(self.verbs).begin_redrive(dead, to, rate, only))

    async def find_move(self, ref: str) -> Move | None:
        """The progress of a move; None if there is none. Raises Unavailable."""
        return await self.run(MoveVerbs(self.verbs).find_move(ref))

    async def moves(self, count: int = 100) -> list[Move]:
        """All moves in progress, and the latest ended ones; the newest first.

        count: at most this many, 1 to 1000, but always all in progress.

        Raises InvalidValue, Unavailable.
        """
        return await self.run(MoveVerbs(self.verbs).moves(count))

    async def stop_move(self, ref: str) -> Move | None:
        """End a move early: what has moved stays. Returns its progress; None if there is none.

        It may still be in progress if another process works on it and is slow.
        Raises Unavailable.
        """
        return await self.run(MoveVerbs(self.verbs).stop_move(ref))

    # -- topics ----------------------------------------------------------------------------------

    @overload
    def topic(self, name: str, *, create: Literal[False] = False) -> AsyncClientTopic: ...
    @overload
    def topic(
        self, name: str, *, create: Literal[True]
    ) -> Coroutine[Any, Any, AsyncClientTopic]: ...
    def topic(
        self, name: str, *, create: bool = False
    ) -> AsyncClientTopic | Coroutine[Any, Any, AsyncClientTopic]:
        """A topic to work with. It is only created if ``create`` is given.

        Its verbs raise NoSuchTopic if it does not exist.
        """
        topic = AsyncClientTopic(self, check_queue(name, "topic"))
        return _created(topic) if create else topic

    async def topics(self) -> list[str]:
        """The names of all visible topics, sorted."""
        return await self.run(TopicVerbs(self.verbs).topics())

    async def create_topic(self, name: str) -> bool:
        """Create a topic durably; False if it exists."""
        return await self.run(TopicVerbs(self.verbs).create(name))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        await self.run(TopicVerbs(self.verbs).delete(name))

    # -- logs ------------------------------------------------------------------------------------

    @overload
    def log(self, name: str, *, create: Literal[False] = False) -> AsyncClientLog: ...
    @overload
    def log(self, name: str, *, create: Literal[True]) -> Coroutine[Any, Any, AsyncClientLog]: ...
    def log(
        self, name: str, *, create: bool = False
    ) -> AsyncClientLog | Coroutine[Any, Any, AsyncClientLog]:
        """An ordered log to work with. This creates nothing, unless ``create`` is given.

        Its verbs raise NoSuchLog if there is none of this name.
        """
        log = AsyncClientLog(self, check_queue(name, "log"))
        return _created(log) if create else log

    async def logs(self) -> list[str]:
        """The names of all logs, sorted."""
        return await self.run(LogVerbs(self.verbs).logs())

    # -- looking ---------------------------------------------------------------------------------

    async def find(self, message_id: str) -> list[Place]:
        """The queues and states in which messages of this id are; empty if there are none."""
        return await self.run(InspectionVerbs(self.verbs).find(message_id))

    async def cluster(self) -> dict[str, Any]:
        """The hosts and programs of the spool, and the state of its filesystem, for people.

        See ``GET /_cluster`` in docs/http.md; members may be added.
        """
        return await self.run(InspectionVerbs(self.verbs).cluster())

    async def history(
        self, queue: str | None = None, *, since: float | None = None, step: float | None = None
    ) -> dict[str, list[Moment]]:
        """How many messages queues had, and how many arrived and left, from the history.

        queue: None for all. since: Unix seconds; None is three hours ago. step: seconds, at least
        60; None is a minute, or ten minutes if the period is longer than six hours.
        """
        return await self.run(InspectionVerbs(self.verbs).history(queue, since, step))

    # -- schedules -------------------------------------------------------------------------------

    def schedule(self, name: str) -> AsyncClientSchedule:
        """A schedule to work with. This creates nothing.

        Its verbs raise NoSuchSchedule if there is none of this name.
        """
        return AsyncClientSchedule(self, check_schedule(name))

    async def schedules(self) -> list[ScheduleState]:
        """The states of all schedules, sorted by name."""
        return await self.run(ScheduleVerbs(self.verbs).schedules())


N = TypeVar("N", AsyncQueue, AsyncClientTopic, AsyncClientLog)


async def _created(named: N) -> N:
    await named.create()
    return named
