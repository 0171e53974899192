"""The engine: verbs on messages of queues, for requests of all dialects.

Requests of one turn of the event loop are done together: one verb for a queue, and one sync for
all. No request fails because of another. Large ones, and those that have to list a folder first,
run in a thread.

Each verb exists twice: as a coroutine, and, as ``begin_…``, with a callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from fsmq.spool import Message, NewMessage, Spool, prepare
from fsmq.spool.errors import DuplicateMessage, Unavailable
from fsmq.spool.inspection import via
from fsmq.spool.prepare import (
    FEW,
    LARGE_BYTES,
    MOST_AT_ONCE,
    Acked,
    Batch,
    Prepared,
    Room,
    Unlisted,
    finish,
    giving_way,
    join,
)

from ..guard.admission import Admission
from ..routing.call import Call
from ..running.runner import Runner
from .asking import Answered, Party, Tasks, answer_of, report
from .changes import Change
from .claims import Claims
from .receiver import Receiver
from .wanted import GLANCE_S, Wanted, size_of

T = TypeVar("T")
R = TypeVar("R")
_Prepared: TypeAlias = "Prepared[list[R]]"
# How many bytes of bodies are handled at a time.
_MOST_BYTES = 1024 * 1024


class _Job:
    """What one request wants from a queue.

    things: messages to be stored, or ids of those to be removed. claims: the claims that they must
    be in. answered: gets a result for each. size: their bytes. is_alone: it is not grouped with
    others. through: the dialect that the journal records for it.
    """

    __slots__ = ("answered", "claims", "is_alone", "queue", "size", "things", "through")

    def __init__(
        self,
        queue: str,
        things: Sequence[Any],
        claims: Sequence[str | None],
        answered: Answered[Any],
        size: int = 0,
        is_alone: bool = False,
    ) -> None:
        self.queue = queue
        self.things = things
        self.claims = claims
        self.answered = answered
        self.size = size
        self.is_alone = is_alone
        self.through = via.get()


class _TurnBatcher(Generic[R]):
    """Groups the calls of one verb of the spool in one turn of the loop.

    begin: does it for a queue, for things and their claims; returns a result for each thing.
    is_whole: if it fails it has changed nothing, so each of several jobs can be tried alone.
    """

    def __init__(
        self,
        runner: Runner,
        begin: Callable[[str, Sequence[Any], Sequence[str | None]], _Prepared[R]],
        is_whole: bool,
    ) -> None:
        self._runner = runner
        self._begin = begin
        self._is_whole = is_whole
        self._turn: dict[tuple[str, str | None], list[_Job]] = {}
        self._tasks = Tasks()

    def ask(self, job: _Job) -> None:
        """Do a job together with the others of this turn."""
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._run)
        self._turn.setdefault((job.queue, job.through), []).append(job)

    def _run(self) -> None:
        turn, self._turn = self._turn, {}
        for jobs in turn.values():
            for portion in _portions(jobs):
                self._runner.turns.do(partial(self._do, portion))

    def _do(self, jobs: list[_Job]) -> None:
        via.set(jobs[0].through)
        if len(jobs) == 1 and (len(jobs[0].things) > FEW or jobs[0].size > LARGE_BYTES):
            self._tasks.spawn(self._do_beside(jobs[0]))
            return
        queue, things, claims = jobs[0].queue, jobs[0].things, jobs[0].claims
        if len(jobs) > 1:
            things = [one for job in jobs for one in job.things]
            claims = [one for job in jobs for one in job.claims]
        try:
            prepared = self._begin(queue, things, claims)
        except Unlisted as error:
            self._tasks.spawn(self._count_and_do(jobs, error.queue))
        except Exception as error:
            if isinstance(error, Unavailable) and not self._is_whole:
                self._refuse(jobs, error)  # a second try would not report what the first has done
            else:
                self._refuse_each(jobs, error)
        else:
            self._runner.then(prepared, partial(self._done, jobs), partial(self._failed, jobs))

    async def _do_beside(self, job: _Job) -> None:
        """Do a large job in a thread."""
        begin = partial(self._begin, job.queue, job.things, job.claims)
        try:
            results = await self._runner.do(begin, light=False, in_turn=True)
        except Exception as error:
            report(job.answered, error)
        else:
            report(job.answered, results)

    async def _count_and_do(self, jobs: list[_Job], queue: str) -> None:
        try:
            await self._runner.count(queue)
        except Exception as error:
            self._refuse(jobs, error)
        else:
            self._do(jobs)

    def _done(self, jobs: list[_Job], results: Sequence[R]) -> None:
        if len(jobs) == 1:
            report(jobs[0].answered, results)
            return
        at = 0
        for job in jobs:
            end = at + len(job.things)
            report(job.answered, results[at:end])
            at = end

    def _failed(self, jobs: list[_Job], error: Exception) -> None:
        if isinstance(error, DuplicateMessage):
            self._refuse_each(jobs, error)  # nothing was stored
        else:
            self._refuse(jobs, error)

    def _refuse_each(self, jobs: list[_Job], error: Exception) -> None:
        """Do each job alone, so that only those at fault fail."""
        if len(jobs) == 1:
            self._refuse(jobs, error)
            return
        for job in jobs:
            self._do([job])

    def _refuse(self, jobs: list[_Job], error: Exception) -> None:
        for job in jobs:
            report(job.answered, error)


class Queues:
    """The verbs. See the modules of the spool's verbs for what they raise."""

    def __init__(
        self, spool: Spool, runner: Runner, admission: Admission, receiver: Receiver
    ) -> None:
        self._spool = spool
        self._runner = runner
        self._receiver = receiver
        self._claims = Claims(spool, runner, admission, receiver)
        self._puts: _TurnBatcher[str] = _TurnBatcher(
            runner, lambda queue, messages, _: self.storing(queue, messages), True
        )
        self._acks: _TurnBatcher[Acked] = _TurnBatcher(runner, self._ack, False)

    # -- put ---------------------------------------------------------------------------------------

    async def put(self, queue: str, messages: Sequence[NewMessage]) -> Sequence[str]:
        """Store messages, all or none; returns their ids."""
        return await answer_of(partial(self.begin_put, queue, messages))

    def begin_put(
        self, queue: str, messages: Sequence[NewMessage], answered: Answered[Sequence[str]]
    ) -> None:
        size, is_alone = 0, False
        for message in messages:
            size += size_of(message)
            # If a client's id is taken already, only that request fails.
            is_alone = is_alone or message.id is not None
        self._puts.ask(_Job(queue, messages, (), answered, size, is_alone))

    def storing(
        self, queue: str, messages: Iterable[NewMessage], batch: Batch | None = None
    ) -> _Prepared[str]:
        """A prepared put of messages into a queue. batch: shared with puts into other queues."""
        return prepare.put(self._spool.context, queue, messages, batch=batch)

    async def put_all(
        self, puts: Sequence[Callable[[Batch], Prepared[T]]], *, light: bool
    ) -> list[T]:
        """Do puts into several queues, all or none, with one sync; returns the result of each."""
        return await self._runner.do(partial(self._put_all, puts), light=light)

    def _put_all(self, puts: Sequence[Callable[[Batch], Prepared[T]]]) -> Prepared[list[T]]:
        batch = Batch(self._spool.tree)
        all_prepared: list[Prepared[T]] = []
        try:
            for put in giving_way(puts):
                all_prepared.append(put(batch))
        except BaseException:
            for prepared in all_prepared:
                prepared.abort()
            raise
        return join(all_prepared)

    # -- claim -------------------------------------------------------------------------------------

    async def claim(self, party: Party, wanted: Wanted) -> list[Message]:
        """Claim messages for a request. If its client has hung up, they are released at once."""
        return await answer_of(
            partial(self.begin_claim, party, wanted), self._claims.release_unseen
        )

    def begin_claim(self, party: Party, wanted: Wanted, answered: Answered[list[Message]]) -> None:
        self._claims.begin(party, wanted, answered)

    async def glance(self, call: Call, queue: str, most: int) -> list[Message]:
        """Messages that could be claimed; the next claim can get the same ones."""
        await self._receiver.load(queue)
        call.admit()
        return await self._runner.in_thread(self._glance, queue, most, call)

    def _glance(self, queue: str, most: int, room: Room) -> list[Message]:
        """Claim and release at once, without a sync."""
        wanted = Wanted((queue,), visibility=GLANCE_S)
        prepared = finish(self._claims.steps(wanted, most, room))
        prepared.dirty.close()
        messages = prepared.commit()
        prepared.abort()
        return messages

    # -- ack ---------------------------------------------------------------------------------------

    async def ack(
        self, queue: str, ids: Sequence[str], claims: Sequence[str | None] = ()
    ) -> Sequence[Acked]:
        """Remove messages, each only in its claim if one is named; returns what became of each."""
        return await answer_of(partial(self.begin_ack, queue, ids, claims))

    def begin_ack(
        self,
        queue: str,
        ids: Sequence[str],
        claims: Sequence[str | None],
        answered: Answered[Sequence[Acked]],
    ) -> None:
        self._acks.ask(_Job(queue, ids, claims or [None] * len(ids), answered))

    def _ack(
        self, queue: str, ids: Sequence[str], claims: Sequence[str | None]
    ) -> _Prepared[Acked]:
        return prepare.remove_if(self._spool.context, queue, ids, claims)

    # -- change ------------------------------------------------------------------------------------

    async def do(self, change: Change[T]) -> T:
        """Carry out a change, durably."""
        if change.where == "listing":
            prepared = await self._runner.listing(change.begin)
            return await self._runner.complete(prepared, light=False)
        return await self._runner.do(change.begin, light=change.where == "loop")

    def begin(self, change: Change[T], answered: Answered[T]) -> None:
        """The same for changes on the loop, with a callback."""
        try:
            prepared = change.begin()
        except Exception as error:
            report(answered, error)
        else:
            reported = partial(report, answered)
            self._runner.then(prepared, reported, reported)


def _portions(jobs: list[_Job]) -> Iterator[list[_Job]]:
    """Groups of jobs to be done at once: several with few messages in all, or a single one."""
    part: list[_Job] = []
    number = size = 0
    for job in jobs:
        number += len(job.things)
        size += job.size
        if part and (
            job.is_alone or part[-1].is_alone or number > MOST_AT_ONCE or size > _MOST_BYTES
        ):
            yield part
            part, number, size = [], len(job.things), job.size
        part.append(job)
    yield part
