"""The overview: what needs attention, what there is now, the last hours, and who consumes.

It is quick however much there is: where counting takes long it shows the counts before.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Counts
from fsmq.spool.inspection import HISTORY_EVERY_S, Figures, Happened, Moment, Overview

from ...guard.access import log as right_on_log
from ...service.monitoring.log_survey import LogOverview
from ...service.monitoring.surveys import ByConsumer, Happening, Hour
from ..page_request import PATIENCE_S, PageRequest
from ..streams import Streams, Values
from .attention import attention
from .log_pages import seen_logs
from .queue_pages import Row, rows_of

# The age of older counts is shown.
_OLD_S = 10.0
_CONSUMERS = 10
_SOURCES = 5
# What the list of queues was asked for as long as it was the first page.
_OF_QUEUES = ("find", "match", "menu", "page", "sort", "state")


class Consumer(NamedTuple):
    """Who consumes: a program that claims, a consumer of batches, or a channel of a log.

    sources: the queues and logs, each with its page; more: how many others. rate: messages a
    second. behind: messages. oldest: when the oldest of them was made, in Unix seconds. place: its
    own page, if it has one.
    """

    kind: str
    name: str
    sources: Sequence[tuple[str, str]]
    more: int = 0
    rate: float | None = None
    behind: int | None = None
    oldest: float | None = None
    place: str = ""


class HourRow(NamedTuple):
    """What happened in an hour, which begins at a time in Unix seconds."""

    at: float
    happened: Happened


class _Found(NamedTuple):
    """What is known; None where nothing is yet."""

    queues: dict[str, Overview] | None
    happening: Happening | None
    logs: dict[str, LogOverview] | None
    consumers: ByConsumer | None
    hours: dict[float, dict[str, Happened]] | None


class OverviewPages:
    """The handler of the first page."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "", self.overview, "What needs attention, and what there is")

    async def overview(self, request: PageRequest) -> StreamResponse:
        if asked := {name: request.query[name] for name in _OF_QUEUES if name in request.query}:
            return request.go(request.url("queues", **asked))
        return await self._streams.page_or_stream(
            request,
            "overview.html",
            "overview_live.html",
            partial(_now, request),
            partial(_charts, request),
            also={"below": "overview_below.html"},
        )


async def _now(request: PageRequest) -> Values:
    surveys = request.service.surveys
    found = _Found(
        *await asyncio.gather(
            surveys.queues.within(PATIENCE_S),
            surveys.happening.within(PATIENCE_S),
            surveys.logs.within(PATIENCE_S),
            surveys.consumers.within(PATIENCE_S),
            surveys.hours.within(PATIENCE_S),
        )
    )
    counted_at = surveys.queues.found_at
    # Not where folders are listed: surveys that go on may have all threads for that.
    values = await request.service.in_thread(_values, request, found)
    return {**values, "counted_at": counted_at if time.time() - counted_at > _OLD_S else None}


def _values(request: PageRequest, found: _Found) -> Values:
    happening = found.happening or Happening(None, None, None)
    rows = rows_of(request, found.queues or {}, happening.queues)
    logs = seen_logs(request, found.logs or {})
    # A queue of dead letters waits for a person, not for a consumer.
    worked = [row for row in rows if not row.holds_dead]
    total = Counts(*(sum(numbers) for numbers in zip(*(r.counts for r in worked), strict=True)))
    waiting = [row for row in worked if row.oldest is not None and not row.rests]
    slowest = min(waiting, key=attrgetter("oldest"), default=None)
    rates = [row.rate for row in worked if row.rate is not None]
    sums = [sum(numbers) for numbers in zip(*rates, strict=True)] if rates else []
    health = request.service.inspector.last_health
    sees_all = request.identity.sees_all_queues
    oldest = None if slowest is None else slowest.oldest
    point = [*total, oldest, *(round(60 * one) for one in sums)]
    return {
        "is_counted": found.queues is not None,
        "queues": len(rows),
        "kinds": attention(request, rows, logs, health if sees_all else None),
        "examined_at": health[0] if health is not None and sees_all else None,
        "total": total,
        "slowest": slowest,
        "dead": sum(row.counts.total for row in rows if row.holds_dead),
        "sent": sums[0] if sums else None,
        "removed": sums[2] if sums else None,
        "point": json.dumps(point),
        "hours": None if found.hours is None else _hours(request, found.hours),
        "consumers": _consumers(request, found, happening, logs, rows),
        "listed": _CONSUMERS,
    }


def _hours(request: PageRequest, hours: Mapping[float, Mapping[str, Happened]]) -> list[HourRow]:
    """What happened in each hour to the queues that the visitor may see, the newest first."""
    names = set().union(*hours.values())
    seen = set(request.identity.visible(names))
    found = []
    for at, queues in sorted(hours.items(), reverse=True):
        counted = [happened for queue, happened in queues.items() if queue in seen]
        found.append(HourRow(at, Happened(*map(sum, zip(*counted, strict=True)))))
    return found


# -- who consumes ----------------------------------------------------------------------------------


def _consumers(
    request: PageRequest,
    found: _Found,
    happening: Happening,
    logs: Mapping[str, LogOverview],
    rows: Iterable[Row],
) -> list[Consumer]:
    shown = {row.name for row in rows}
    consumers = _batches(request, found, shown)
    for log, overview in logs.items():
        source = ((f"logs/{log}", request.url("logs", log)),)
        for name, state in overview.channels.items():
            oldest = overview.at - state.lag_seconds if state.lag else None
            place = request.url("logs", log, "c", name)
            one = Consumer("channel", name, source, behind=state.lag, oldest=oldest, place=place)
            consumers.append(one)
    consumers.sort(key=lambda one: -(one.behind or 0))
    return [*_claimers(request, happening, shown, logs), *consumers]


def _claimers(
    request: PageRequest,
    happening: Happening,
    queues: Iterable[str],
    logs: Iterable[str],
) -> list[Consumer]:
    """The programs that claim from what the visitor may see, those that claim most first."""
    places = {name: request.url("q", name) for name in queues}
    places |= {right_on_log(name): request.url("logs", name) for name in logs}
    by_program: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for claimer, rate in (happening.claims or {}).items():
        if rate.claimed and claimer.source in places:
            program = f"{claimer.process}, host {claimer.node}"
            by_program[program].append((rate.claimed, claimer.source))
    found = []
    for program, claimed in by_program.items():
        claimed.sort(reverse=True)
        sources = [(name, places[name]) for _, name in claimed[:_SOURCES]]
        a_second = sum(one for one, _ in claimed)
        found.append(Consumer("claims", program, sources, len(claimed) - len(sources), a_second))
    return sorted(found, key=lambda one: -(one.rate or 0.0))


def _batches(request: PageRequest, found: _Found, queues: set[str]) -> list[Consumer]:
    return [
        Consumer(
            "batches",
            name,
            [(queue, request.url("q", queue))],
            behind=one.messages,
            oldest=one.oldest,
        )
        for name, behind in (found.consumers or {}).items()
        for queue, one in behind.items()
        if queue in queues
    ]


# -- the last hour ---------------------------------------------------------------------------------


async def _charts(request: PageRequest) -> Values:
    hour = await request.service.surveys.hour.within(PATIENCE_S)
    found = hour or Hour(request.now - 3600.0, request.now, {})
    return {
        "step": HISTORY_EVERY_S,
        "since": found.since,
        "until": found.until,
        "moments": await request.service.in_thread(_summed, request, found),
        "figures": Figures._fields,
    }


def _summed(request: PageRequest, hour: Hour) -> list[Moment]:
    """The history of all queues together that the visitor may see, but for those of dead letters.

    The age of the oldest is that of the queue whose oldest message waits longest.
    """
    settings = request.settings_of(hour.queues)
    dead = {one.dead_letter_queue for one in settings.values()}
    histories = [hour.queues[name] for name in settings if name not in dead]
    return [
        Moment(at[0].at, _together([one.figures for one in at]))
        for at in zip(*histories, strict=True)
    ]


def _together(figures: Sequence[Figures]) -> Figures:
    columns = dict(zip(Figures._fields, zip(*figures, strict=True), strict=True))
    ages = [age for age in columns.pop("oldest") if age is not None]
    sums = {name: sum(column) for name, column in columns.items()}
    return Figures(**sums, oldest=max(ages, default=None))
