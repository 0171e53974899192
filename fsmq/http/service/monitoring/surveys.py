"""Surveys: the state of all queues, consumers and logs, counted once for all requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from fsmq.spool import Spool
from fsmq.spool.checks import DutyCycle
from fsmq.spool.errors import NoSuchQueue, as_unavailable
from fsmq.spool.inspection import (
    HISTORY_EVERY_S,
    Happened,
    HourTotals,
    Moment,
    Overview,
    Report,
    Reports,
    read_history,
)
from fsmq.spool.shared_jobs import Behind, behind_by_consumer, staged_jobs

from ...running.runner import Runner
from .log_survey import LogOverview, overview_of, survey_logs
from .rates import ClaimRate, LogRate, Rate, Rates

T = TypeVar("T")
ByConsumer: TypeAlias = dict[str, dict[str, Behind]]

# No survey takes more than this share of the time.
_SHARE = 0.05
_HOUR_S = 3600.0
# How many hours are added up.
HOURS = 12
# How long the figures of one queue are valid, and of how many queues they are kept.
_ONE_S = 0.5
_MOST_KEPT = 200


class Hour(NamedTuple):
    """The history of queues between two moments, in Unix seconds."""

    since: float
    until: float
    queues: dict[str, list[Moment]]


class Claimer(NamedTuple):
    """A program that claims messages of a queue, or (``logs/<name>``) of a log."""

    node: str
    process: str
    source: str


class Happening(NamedTuple):
    """What happens to messages per second: by queue, by log, and by who claims.

    Each is None before the second look.
    """

    queues: dict[str, Rate] | None
    logs: dict[str, LogRate] | None
    claims: dict[Claimer, ClaimRate] | None


class Kept(Generic[T]):
    """The cached result of one look.

    found_at: when it was found, in Unix seconds.
    least_s: seconds for which it is valid; longer if looking takes long.
    """

    def __init__(self, look: Callable[[], Awaitable[T]], least_s: float = 1.0) -> None:
        self._look = look
        self._share = DutyCycle(_SHARE, least_s=least_s)
        self.found_at = 0.0
        self._found: T | None = None
        self._until = 0.0
        self._looking: asyncio.Lock = asyncio.Lock()
        self._again: asyncio.Task[T] | None = None

    async def within(self, seconds: float) -> T | None:
        """What a look finds within some seconds, or else what was found last, however old.

        None: nothing is known yet. A look that takes longer goes on, for later requests. Raises
        what the look raises.
        """
        if self._found is None or time.monotonic() >= self._until:
            if self._again is None or self._again.done():
                self._again = asyncio.create_task(self())
                self._again.add_done_callback(_look_at_error)
            done, _ = await asyncio.wait([self._again], timeout=seconds)
            for looked in done:
                looked.result()
        return self._found

    async def __call__(self) -> T:
        """Raises what the look raises."""
        async with self._looking:
            started = time.monotonic()
            if self._found is None or started >= self._until:
                self._found = await self._look()
                ended, self.found_at = time.monotonic(), time.time()
                self._until = ended + self._share.pause(ended - started)
            return self._found


def _look_at_error(looked: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging the error of a look for which no request waits any more."""
    if not looked.cancelled():
        looked.exception()


class Surveys:
    """What takes a listing to find out, cached for longer the more a look costs.

    queues: counts of all queues.
    consumers: how far all consumers are behind.
    staged: jobs that are being written, or whose messages are on their way.
    logs: all logs and channels.
    happening: what happens to messages per second.
    hour: the history of all queues over the last hour, up to half a minute old.
    hours: what happened in the last hours, by their beginnings in Unix seconds, and by queue.
    """

    def __init__(self, spool: Spool, runner: Runner, reports: Reports) -> None:
        self._spool = spool
        self._reports = reports
        self._runner = runner
        self._of_queues = Rates(Rate, "put", "claim", "remove", "redeliver", "bury")
        self._of_logs = Rates(LogRate, "log_publish", "log_claim", "log_done")
        self._of_claims = Rates(ClaimRate, "claim", "remove")
        self._totals = HourTotals(spool.tree)
        self._reading: asyncio.Lock = asyncio.Lock()  # parsing the history takes a processor
        self._one: dict[str, Kept[dict[str, Overview]]] = {}
        self._log: dict[str, Kept[LogOverview]] = {}
        self.queues = Kept(lambda: runner.listing(spool.survey))
        self.consumers = Kept(lambda: runner.listing(behind_by_consumer, spool.context))
        self.staged = Kept(lambda: runner.listing(staged_jobs, spool.context))
        self.logs = Kept(lambda: runner.listing(survey_logs, spool))
        self.happening = Kept(lambda: runner.listing(self._sample))
        self.hour = Kept(self._last_hour, least_s=30.0)
        self.hours = Kept(self._last_hours, least_s=30.0)

    async def rates(self) -> dict[str, Rate] | None:
        """Messages per second of all queues; None before the second look. Raises Unavailable."""
        return (await self.happening()).queues

    async def log(self, name: str, *, fresh: bool = False) -> LogOverview:
        """One log, up to half a second old unless ``fresh``. Raises NoSuchLog, Unavailable."""
        if fresh:
            self._log.pop(name, None)
        runner, spool = self._runner, self._spool
        return await _kept(self._log, name, lambda: runner.listing(overview_of, spool, name))()

    async def queue(self, name: str) -> Overview:
        """One queue, up to half a second old. Raises NoSuchQueue, Unavailable."""
        runner, spool = self._runner, self._spool
        kept = _kept(self._one, name, lambda: runner.listing(spool.survey, name))
        found = (await kept()).get(name)
        if found is None:
            raise NoSuchQueue(name)  # it has just been deleted
        return found

    async def _last_hour(self) -> Hour:
        names = list(await self.queues())
        async with self._reading:
            return await self._runner.listing(self._read_hour, names)

    async def _last_hours(self) -> dict[float, dict[str, Happened]]:
        async with self._reading:
            return await self._runner.listing(self._read_hours)

    def _read_hour(self, names: list[str]) -> Hour:
        now = self._spool.context.clock()
        with as_unavailable("cannot read the history"):
            found = read_history(self._spool.tree, names, now - _HOUR_S, now, HISTORY_EVERY_S)
        return Hour(now - _HOUR_S, now, found)

    def _read_hours(self) -> dict[float, dict[str, Happened]]:
        with as_unavailable("cannot read the history"):
            return self._totals.read(self._spool.context.clock(), HOURS)

    def _sample(self) -> Happening:
        own = self._spool.context.metrics.snapshot_quietly()
        with as_unavailable("cannot read what other processes report"):
            reports = self._reports.read()
        reports.append(Report(self._reports.node, self._reports.process, own))
        counted = [report.snapshot.counts for report in reports]
        return Happening(
            self._of_queues.sample(counted),
            self._of_logs.sample(counted),
            self._of_claims.sample(map(_by_claimer, reports)),
        )


def _by_claimer(report: Report) -> dict[tuple[str, Claimer], int]:
    """The claims and acks that a process reports, by queue and by log."""
    found = {}
    for key, number in report.snapshot.counts.items():
        kind, is_log = key[0].removeprefix("log_"), key[0].startswith("log_")
        if kind in ("claim", "remove", "done") and len(key) == 2:
            source = f"logs/{key[1]}" if is_log else key[1]
            claimer = Claimer(report.node, report.process, source)
            found["claim" if kind == "claim" else "remove", claimer] = number
    return found


def _kept(known: dict[str, Kept[T]], name: str, look: Callable[[], Awaitable[T]]) -> Kept[T]:
    """The cached look at one thing, of those that were looked at last."""
    found = known.get(name)
    if found is None:
        while len(known) >= _MOST_KEPT:
            known.pop(next(iter(known)))
        found = known[name] = Kept(look, least_s=_ONE_S)
    return found
