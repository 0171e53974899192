"""Surveys: what all queues, consumers and logs look like, counted once for all who ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from fsmq.spool import Spool
from fsmq.spool.consumers.behind import Behind, behind_by_consumer
from fsmq.spool.errors import NoSuchQueue, as_unavailable
from fsmq.spool.layout.duty_cycle import DutyCycle
from fsmq.spool.records.history import EVERY_S as HISTORY_EVERY_S
from fsmq.spool.records.history import Moment, read_history
from fsmq.spool.records.reports import Reports
from fsmq.spool.staging.staged_jobs import staged_jobs
from fsmq.spool.views.counts import Overview

from ...running.runner import Runner
from .log_survey import survey_logs
from .rates import Rate, Rates

T = TypeVar("T")
ByConsumer: TypeAlias = dict[str, dict[str, Behind]]

# No survey takes more than this share of the time.
_SHARE = 0.05
_HOUR_S = 3600.0
# How long the figures of one queue hold, and of how many they are kept.
_ONE_S = 0.5
_MOST_KEPT = 200


class Hour(NamedTuple):
    """The history of queues between two moments, in Unix seconds."""

    since: float
    until: float
    queues: dict[str, list[Moment]]


class Kept(Generic[T]):
    """What one look found, for all who ask soon after.

    found_at: when, in Unix seconds.
    least_s: seconds for which it holds; longer where looking takes long.
    """

    def __init__(self, look: Callable[[], Awaitable[T]], least_s: float = 1.0) -> None:
        self._look = look
        self._share = DutyCycle(_SHARE, least_s=least_s)
        self.found_at = 0.0
        self._found: T | None = None
        self._until = 0.0
        self._looking: asyncio.Lock = asyncio.Lock()

    async def __call__(self) -> T:
        """Raises what the look raises."""
        async with self._looking:
            started = time.monotonic()
            if self._found is None or started >= self._until:
                self._found = await self._look()
                ended, self.found_at = time.monotonic(), time.time()
                self._until = ended + self._share.pause(ended - started)
            return self._found


class Surveys:
    """What has to be listed to be known, kept as long as the cost of a look asks for.

    queues: counts of all queues.
    consumers: how far all consumers are behind.
    staged: jobs that are being written, or whose messages are on their way.
    logs: all logs and channels.
    rates: messages a second of all queues; None before there has been a second look.
    hour: the history of all queues over the last hour, as old as half a minute.
    """

    def __init__(self, spool: Spool, runner: Runner, reports: Reports) -> None:
        self._spool = spool
        self._reports = reports
        self._runner = runner
        self._counters = Rates()
        self._one: dict[str, Kept[dict[str, Overview]]] = {}
        self.queues = Kept(lambda: runner.listing(spool.survey))
        self.consumers = Kept(lambda: runner.listing(behind_by_consumer, spool.context))
        self.staged = Kept(lambda: runner.listing(staged_jobs, spool.context))
        self.logs = Kept(lambda: runner.listing(survey_logs, spool))
        self.rates = Kept(lambda: runner.listing(self._sample))
        self.hour = Kept(self._last_hour, least_s=30.0)

    async def queue(self, name: str) -> Overview:
        """One queue, as old as half a second. Raises NoSuchQueue, Unavailable."""
        kept = self._one.get(name)
        if kept is None:
            while len(self._one) >= _MOST_KEPT:
                self._one.pop(next(iter(self._one)))
            kept = self._one[name] = Kept(
                lambda: self._runner.listing(self._spool.survey, name), least_s=_ONE_S
            )
        found = (await kept()).get(name)
        if found is None:
            raise NoSuchQueue(name)  # it was deleted meanwhile
        return found

    async def _last_hour(self) -> Hour:
        names = list(await self.queues())
        return await self._runner.listing(self._read_hour, names)

    def _read_hour(self, names: list[str]) -> Hour:
        now = self._spool.context.clock()
        with as_unavailable("cannot read the history"):
            found = read_history(self._spool.tree, names, now - _HOUR_S, now, HISTORY_EVERY_S)
        return Hour(now - _HOUR_S, now, found)

    def _sample(self) -> dict[str, Rate] | None:
        with as_unavailable("cannot read what other processes report"):
            others = [report.snapshot for report in self._reports.read()]
        return self._counters.sample([self._spool.context.metrics.snapshot_quietly(), *others])
