"""Surveys: what all queues, consumers and logs look like, counted once for all who ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from fsmq.spool.consumers.behind import Behind, behind_by_consumer
from fsmq.spool.errors import as_unavailable
from fsmq.spool.layout.throttle import Throttle
from fsmq.spool.records.reports import Reports
from fsmq.spool.spool import Spool
from fsmq.spool.views.counts import Overview

from ..running.runner import Runner
from .log_survey import LogOverview, survey_logs
from .rates import Rate, Rates

T = TypeVar("T")
ByConsumer: TypeAlias = dict[str, dict[str, Behind]]

# No survey takes more than this share of the time.
_SHARE = Throttle(0.05, least_s=1.0)


class Kept(Generic[T]):
    """What one look found, for all who ask within a second, or longer where looking takes long."""

    def __init__(self, look: Callable[[], Awaitable[T]]) -> None:
        self._look = look
        self._found: T | None = None
        self._until = 0.0
        self._looking: asyncio.Lock = asyncio.Lock()

    async def get(self) -> T:
        """Raises what the look raises."""
        async with self._looking:
            started = time.monotonic()
            if self._found is None or started >= self._until:
                self._found = await self._look()
                ended = time.monotonic()
                self._until = ended + _SHARE.pause(ended - started)
            return self._found


class Surveys:
    """What has to be listed to be known, kept as long as the cost of a look asks for."""

    def __init__(self, spool: Spool, runner: Runner, reports: Reports) -> None:
        self._spool = spool
        self._reports = reports
        self._counters = Rates()
        self._queues = Kept(lambda: runner.listing(spool.survey))
        self._consumers = Kept(lambda: runner.listing(behind_by_consumer, spool.context))
        self._logs = Kept(lambda: runner.listing(survey_logs, spool))
        self._rates = Kept(lambda: runner.listing(self._sample))

    async def queues(self) -> dict[str, Overview]:
        """Counts of all queues."""
        return await self._queues.get()

    async def consumers(self) -> ByConsumer:
        """How far all consumers are behind."""
        return await self._consumers.get()

    async def logs(self) -> dict[str, LogOverview]:
        """All logs and channels."""
        return await self._logs.get()

    async def rates(self) -> dict[str, Rate] | None:
        """Messages a second of all queues; None before there has been a second look."""
        return await self._rates.get()

    def _sample(self) -> dict[str, Rate] | None:
        with as_unavailable("cannot read what other processes report"):
            others = [report.snapshot for report in self._reports.read()]
        return self._counters.sample([self._spool.context.metrics.snapshot_quietly(), *others])
