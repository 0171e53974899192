"""Pages of queues: all of them, and one with its messages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Counts, QueueSettings
from fsmq.spool.checks import MAX_FILE_NAME_BYTES, check_queue
from fsmq.spool.errors import InvalidValue
from fsmq.spool.inspection import Overview
from fsmq.words import limits, moment

from ...routing import needs
from ...service.monitoring.rates import Rate
from ...service.monitoring.surveys import Hour
from ..charts import Spark, charts_of, spark
from ..page_request import PageRequest
from ..setting_fields import OF_FIFO, OF_QUEUE
from ..streams import Streams, Values
from .message_lists import choice, messages_of
from .search import Sought, find

ROWS = 100
# The age of older counts is shown.
_OLD_S = 5.0
FILTERS = ("all", "waiting", "late", "paused", "empty")


class Row(NamedTuple):
    """One queue in the table. rests: nobody is expected to consume it, so it is never late."""

    name: str
    counts: Counts
    oldest: float | None
    age: float
    late_after: float
    dead_letter_queue: str | None
    holds_dead: bool
    paused: bool | str | None
    rests: bool
    limits: str
    rate: Rate | None
    spark: Spark | None
    fifo: bool

    @property
    def is_late(self) -> bool:
        return self.age > self.late_after and not self.rests

    @property
    def weight(self) -> tuple[float, int]:
        """How bad it looks."""
        lateness = 0.0 if self.rests else self.age / max(self.late_after, 1.0)
        return (lateness, self.counts.total if self.holds_dead else 0)


_ORDERS: Mapping[str, Callable[[Row], Any]] = {
    "worst": lambda row: tuple(-part for part in row.weight),
    "name": lambda row: row.name,
    "ready": lambda row: -row.counts.ready,
    "in_flight": lambda row: -row.counts.in_flight,
    "delayed": lambda row: -row.counts.delayed,
    "new": lambda row: -row.counts.new,
    "oldest": lambda row: -row.age,
    "sent": lambda row: -(row.rate.sent if row.rate else 0.0),
    "redelivered": lambda row: -(row.spark.redelivered if row.spark else 0),
    "buried": lambda row: -(row.spark.buried if row.spark else 0),
    "removed": lambda row: -(row.rate.removed if row.rate else 0.0),
}


class QueuePages:
    """Handlers of the pages of queues."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "queues", self.queues, "All queues")
        add("GET", "q/{queue}", self.queue, "One queue", needs.queue())
        add("GET", "q/{queue}/history", self.history, "Its history", needs.queue())
        add("GET", "q/{queue}/settings", self.settings, "Its settings", needs.queue())

    # -- all queues ------------------------------------------------------------------------------

    async def queues(self, request: PageRequest) -> StreamResponse:
        if menu := request.query.get("menu"):
            return await request.page(*await menu_page(request, check_queue(menu)))
        wanted = request.query.get("find", "").strip()
        sought = (
            await find(request, wanted, lambda: _has_names(request, wanted)) if wanted else None
        )
        if sought is not None and sought.place is not None:
            return request.go(sought.place)

        async def values() -> Values:
            return {**await self._queues(request), "sought": sought or Sought()}

        return await self._streams.page_or_stream(
            request, "queues.html", "queues_live.html", values
        )

    async def _queues(self, request: PageRequest) -> Values:
        order = choice(request.query, "sort", _ORDERS, "worst")
        state = choice(request.query, "state", FILTERS, "all")
        sought = request.query.get("find", "").strip()
        pattern = _pattern(request, sought)
        surveyed = await request.service.surveys.queues()
        counted_at = request.service.surveys.queues.found_at
        rates = await request.service.surveys.rates()
        hour = await request.service.surveys.hour()
        rows = await request.service.listing(rows_of, request, surveyed, rates, hour)
        # As on the overview, without dead letters, which have a figure of their own.
        worked = [row.counts for row in rows if not row.holds_dead]
        total = Counts(*(sum(numbers) for numbers in zip(*worked, strict=True)))
        shown = [row for row in rows if _matches(row.name, pattern) and _is(row, state)]
        shown.sort(key=lambda row: (_ORDERS[order](row), row.name))
        pages = max(1, math.ceil(len(shown) / ROWS))
        page = min(request.number("page", 1, 10_000) or 1, pages)
        return {
            "rows": shown[(page - 1) * ROWS : page * ROWS],
            "found": len(shown),
            "near": () if shown else await request.near(sought, 3),
            "dead": sum(row.counts.total for row in rows if row.holds_dead),
            "late": sum(row.is_late for row in rows),
            "others": await request.service.listing(_others, request, sought) if sought else {},
            "counted_at": counted_at if time.time() - counted_at > _OLD_S else None,
            "queues": len(rows),
            "total": total,
            "sent": None if rates is None else sum(r.rate.sent for r in rows if r.rate),
            "order": order,
            "state": state,
            "filters": FILTERS,
            "pattern": pattern,
            "page": page,
            "pages": pages,
        }

    # -- one queue -------------------------------------------------------------------------------

    async def queue(self, request: PageRequest) -> StreamResponse:
        return await self._live(request, "messages", lambda: messages_of(request))

    async def history(self, request: PageRequest) -> StreamResponse:
        async def nothing() -> Values:
            return {}

        return await self._live(request, "history", nothing)

    async def settings(self, request: PageRequest) -> StreamResponse:
        return await request.page(*await settings_page(request))

    async def _live(
        self, request: PageRequest, tab: str, more: Callable[[], Awaitable[Values]]
    ) -> StreamResponse:
        """A tab of the page of a queue, below figures that are live."""
        queue = request.call.queue

        async def region() -> Values:
            return {**await _figures(request, queue), **await more(), "tab": tab}

        async def charts() -> Values:
            return await charts_of(request, queue) if tab == "history" else {}

        return await self._streams.page_or_stream(
            request, "queue.html", "queue_live.html", region, charts
        )


async def menu_page(request: PageRequest, queue: str = "") -> tuple[str, Values]:
    """The actions for a queue of the table, or for that of the page."""
    queue = queue or request.call.queue
    request.identity.require_sight(queue)
    settings = await request.service.in_thread(request.spool.settings, queue)
    feeders = await request.service.listing(_feeders, request, queue)
    values = {"queue": queue, "settings": settings, "holds_dead": bool(feeders["queues"])}
    return "menu.html", values


async def settings_page(request: PageRequest) -> tuple[str, Values]:
    """The settings of a queue, as a form for its admins."""
    queue = request.call.queue
    settings = await request.service.in_thread(request.spool.settings, queue)
    values = OF_QUEUE.page(
        request,
        settings,
        queue,
        request.url("q", queue),
        f"fsmq queue config {queue}",
        () if settings.fifo else OF_FIFO,
    )
    values |= {"queue": queue, "settings": settings, "tab": "settings"}
    values["holds_dead"] = bool((await request.service.listing(_feeders, request, queue))["queues"])
    return "queue.html", values


async def _figures(request: PageRequest, queue: str) -> Values:
    """The counts and the rates of a queue, and what is special about it."""
    overview = await request.service.surveys.queue(queue)
    counts, oldest, *_ = overview
    settings = await request.service.in_thread(request.spool.settings, queue)
    rates = await request.service.surveys.rates() or {}
    rate = rates.get(queue)
    request.service.recent.add(queue, request.now, counts, oldest, rate)
    feeders = await request.service.listing(_feeders, request, queue)
    holds_dead = bool(feeders["queues"])
    row = _row(queue, overview, settings, request.now, holds_dead=holds_dead, rate=rate)
    return {
        "queue": queue,
        "settings": settings,
        "row": row,
        "claimed": await _last_claim(request, row) if row.is_late else "",
        "holds_dead": holds_dead,
        "counts": counts,
        "oldest": oldest,
        "rate": rate,
        "point": json.dumps([*counts, oldest, *(round(60 * one) for one in rate or ())]),
        "feeders": feeders,
    }


async def _last_claim(request: PageRequest, row: Row) -> str:
    """Since when no consumer has claimed from a queue, in words; empty if one does now."""
    if row.counts.in_flight or (row.rate is not None and row.rate.received):
        return ""
    hour = await request.service.surveys.hour()
    claims = [one.at for one in hour.queues.get(row.name, ()) if one.figures.received]
    return moment(claims[-1]) if claims else "no"


def rows_of(
    request: PageRequest,
    surveyed: Mapping[str, Overview],
    rates: Mapping[str, Rate] | None,
    hour: Hour | None = None,
) -> list[Row]:
    """The queues that the visitor may see; without an hour they have no sparklines."""
    now = request.now
    settings = request.settings_of(surveyed)
    dead = {one.dead_letter_queue for one in settings.values()}
    return [
        _row(
            name,
            surveyed[name],
            one,
            now,
            holds_dead=name in dead,
            rate=None if rates is None else rates.get(name, Rate()),
            sparks=spark(moments, hour.since, hour.until)
            if hour is not None and (moments := hour.queues.get(name))
            else None,
        )
        for name, one in settings.items()
    ]


async def _has_names(request: PageRequest, text: str) -> bool:
    """Whether there are queues, topics or logs with this in their names."""
    queues = await request.service.listing(request.spool.queues)
    if any(_matches(one, text) for one in request.identity.visible(queues)):
        return True
    return bool(await request.service.listing(_others, request, text))


def _others(request: PageRequest, pattern: str) -> dict[str, list[tuple[str, str]]]:
    """The topics and the logs that match: each a name and the address of its page."""
    identity, spool = request.identity, request.spool
    found = {
        "topic": ("topics", identity.visible_topics(spool.topics())),
        "log": ("logs", identity.visible_logs(spool.logs())),
    }
    return {
        kind: matching
        for kind, (place, names) in found.items()
        if (matching := [(one, request.url(place, one)) for one in names if _matches(one, pattern)])
    }


def _row(
    name: str,
    overview: Overview,
    settings: QueueSettings,
    now: float,
    *,
    holds_dead: bool,
    rate: Rate | None,
    sparks: Spark | None = None,
) -> Row:
    pause = settings.pause_at(now)
    return Row(
        name,
        overview.counts,
        overview.oldest,
        0.0 if overview.oldest is None else max(0.0, now - overview.oldest),
        settings.late_after,
        settings.dead_letter_queue,
        holds_dead,
        pause,
        pause is not None or (holds_dead and settings.alert_age is None),
        limits(settings.max_in_flight, settings.max_rate),
        rate,
        sparks,
        settings.fifo,
    )


def _pattern(request: PageRequest, sought: str) -> str:
    """The pattern for names of queues; limited, because compiled patterns are cached."""
    pattern = request.query.get("match") or sought
    if len(pattern) > MAX_FILE_NAME_BYTES:
        raise InvalidValue("match", "is longer than any name")
    return pattern


def _matches(name: str, pattern: str) -> bool:
    if not pattern:
        return True
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def _is(row: Row, state: str) -> bool:
    match state:
        case "waiting":
            return row.counts.ready + row.counts.new > 0
        case "late":
            return row.is_late
        case "paused":
            return row.paused is not None
        case "empty":
            return row.counts.total == 0
    return True


def _feeders(request: PageRequest, queue: str) -> dict[str, list[str]]:
    """The sources of a queue: queues that bury into it, and topics."""
    settings = request.settings_of(request.spool.queues())
    buries = [name for name, of in settings.items() if of.dead_letter_queue == queue]
    topics = request.identity.visible_topics(request.spool.topics())
    feeding = [topic for topic in topics if queue in request.spool.subscriptions(topic)]
    return {"queues": buries, "topics": feeding}
