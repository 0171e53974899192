"""Inspections that can take seconds: each has a budget of time, and few run at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fsmq.spool import Spool, State
from fsmq.spool.errors import Unavailable, as_unavailable
from fsmq.spool.inspection import (
    MAX_ANSWER_BYTES,
    Act,
    Acts,
    Filed,
    Finding,
    Found,
    LastPlaces,
    LifeReader,
    LifeStep,
    Moment,
    Place,
    Report,
    Reports,
    Wanted,
    browse,
    examine,
    filed,
    known_as,
    last_places,
    look_at_cluster,
    of_schedules,
    places,
    read_history,
)
from fsmq.spool.prepare import Room

from ...guard.access import Identity
from ...guard.sight import seen_message
from ...running.runner import Runner
from ..asking import account, check_is_there
from .spool_warnings import SpoolWarnings, long_paused
from .surveys import Kept

T = TypeVar("T")
# The largest budget of an inspection, and the default ones.
MAX_BUDGET_S = 20.0
SEARCH_S = 2.0
LIFE_S = 5.0
_FIND_S = 5.0
# Few, because inspections read many files, and others need the disk and the processor, too.
_AT_ONCE = 3
# Of one key, or without keys: a search can take longer than another waits for its turn. So one of a
# key leaves a turn to what else its key looks at, and two leave one to other keys.
_OF_A_KEY = 2
# How long each waits for its turn. A life takes one for each segment of the journal.
_TURN_S = 10.0
# An examination makes work for mover and reaper, and for the disk, so it is not repeated sooner.
_HEALTH_S = 60.0
# Warnings use the disk as well, but only briefly.
_WARNINGS_S = 5.0
_PAUSED_S = 60.0
_ACTS_S = 2.0


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for; see :func:`fsmq.spool.views.browse.search`."""

    queue: str
    state: str = State.READY.value
    count: int = 10
    after: str = ""
    wanted: Wanted | None = None
    budget: float = SEARCH_S


class Inspector:
    """Looks at one spool. Methods raise what the functions of the spool raise.

    warnings: what is wrong now, a sentence each.
    acts: what people last did in the dashboard, the newest first.
    long_paused: queues that somebody may have forgotten to resume, at most a minute old.
    """

    def __init__(self, spool: Spool, runner: Runner, reports: Reports) -> None:
        self._spool = spool
        self._runner = runner
        self._reports = reports
        self._few = asyncio.Semaphore(_AT_ONCE)
        # Of each key that looks for something now.
        self._of_key: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()
        self._health: tuple[float, list[Finding]] | None = None
        self._examining = asyncio.Lock()
        found = SpoolWarnings(spool, reports)
        self.long_paused = Kept(lambda: runner.listing(self._long_paused), least_s=_PAUSED_S)
        self.warnings = Kept(lambda: runner.listing(found.look), least_s=_WARNINGS_S)
        acts = Acts(spool.tree)
        self.acts: Kept[list[Act]] = Kept(lambda: runner.listing(acts.look), least_s=_ACTS_S)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        """Look at something for a request, in its turn.

        What is found for all keys at once takes none: they would wait for that of another key.
        """
        # In shared threads, because each thread keeps the largest message that it has read. So few
        # of each key wait for them: else those of another would come behind all that one asks for.
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(_TURN_S):
                    of_key = self._of_key.setdefault(account(), asyncio.Semaphore(_OF_A_KEY))
                    await turn.enter_async_context(of_key)
                    await turn.enter_async_context(self._few)
            except TimeoutError:
                raise Unavailable("other searches take all the time there is for them", 5) from None
            check_is_there()
            return await self._runner.listing(function, *arguments)

    async def peek(
        self, identity: Identity, what: Search, room: Room, *, reads_much: bool = False
    ) -> Found:
        """Messages in one state that match a search, as an identity may see them.

        room: memory for their bodies. reads_much: more than is shown; so few run at a time, as
        those with a filter do.
        """
        is_quick = what.wanted is None and not reads_much
        run = self._runner.listing if is_quick else self._run
        found = await run(
            browse.search,
            self._spool.context,
            what.queue,
            what.state,
            what.count,
            what.after,
            what.wanted,
            what.budget,
            MAX_ANSWER_BYTES,
            room,
        )
        messages = [seen_message(identity, message) for message in found.messages]
        return found._replace(messages=messages)

    async def find(
        self, message_id: str, may_look: Callable[[Iterable[str]], Iterable[str]]
    ) -> list[Place]:
        """Where messages with an id are, only in those queues that ``may_look`` returns."""
        return await self._run(places, self._spool.context, message_id, may_look, _FIND_S)

    async def gone(self, message_id: str) -> LastPlaces:
        """Where messages of an id were last, by the journal; it searches for some seconds."""
        return await self._run(self._gone, message_id)

    def _gone(self, message_id: str) -> LastPlaces:
        with as_unavailable("cannot read the journal"):
            return last_places(self._spool.tree, message_id, known_as(message_id), LIFE_S)

    async def filed(self, queue: str, message_id: str, state: str) -> Filed | None:
        """The file of a message in a state; None if it is not there any more."""
        return await self._run(filed, self._spool.context, queue, message_id, state)

    async def history(
        self, queues: Sequence[str], since: float, until: float, step: float
    ) -> dict[str, list[Moment]]:
        """The history of some queues; see :func:`read_history`."""
        return await self._run(self._history, queues, since, until, step)

    def _history(
        self, queues: Sequence[str], since: float, until: float, step: float
    ) -> dict[str, list[Moment]]:
        with as_unavailable("cannot read the history"):
            return read_history(self._spool.tree, queues, since, until, step)

    async def life(
        self, reader: LifeReader, budget: float = LIFE_S
    ) -> AsyncIterator[list[LifeStep]]:
        """The steps of a message as they are found; some of the lists may be empty."""
        batches = reader.batches(budget)

        def step() -> list[LifeStep] | None:
            with as_unavailable("cannot read the journal"):
                return next(batches, None)

        while (batch := await self._run(step)) is not None:
            yield batch

    async def cluster(self) -> dict[str, Any]:
        """Hosts, programs and the spool; see :func:`look_at_cluster`."""
        return await self._run(self._cluster)

    def _cluster(self) -> dict[str, Any]:
        node, process = self._reports.node, self._reports.process
        snapshot = self._spool.context.metrics.snapshot_quietly()
        return look_at_cluster(self._spool, node, Report(node, process, snapshot, os.getpid()))

    def _long_paused(self) -> list[str]:
        with as_unavailable("cannot look for paused queues"):
            return long_paused(self._spool)

    @property
    def last_health(self) -> tuple[float, list[Finding]] | None:
        """The last result of :meth:`health`, however old; None before the first."""
        return self._health

    async def health(self) -> tuple[float, list[Finding]]:
        """When the spool was examined, at most a minute ago, in Unix seconds, and the findings.

        It can take some seconds.
        """
        async with self._examining:
            now = time.time()
            if self._health is None or not 0 <= now - self._health[0] < _HEALTH_S:
                self._health = (now, await self._runner.listing(self._examine))
            return self._health

    def _examine(self) -> list[Finding]:
        with as_unavailable("cannot examine the spool"):
            found = list(examine(self._spool.context, str(self._spool.tree.root)))
            return [*found, *of_schedules(self._spool.schedules())]
