"""Pages of queues: all of them, and one with its messages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Counts, QueueSettings
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.names import MAX_FILE_NAME_BYTES
from fsmq.spool.layout.settings import SETTINGS
from fsmq.spool.views.counts import Overview
from fsmq.spool.views.wanted import Wanted, wanted
from fsmq.wire import quote_id
from fsmq.words import limits

from ...routing import needs
from ...service.monitoring.inspector import Search
from ...service.monitoring.rates import Rate
from ...service.monitoring.surveys import Hour
from ..actions import MOST_IDS, SEARCHES, Form
from ..charts import Spark, charts_of, spark
from ..page_request import PageRequest
from ..streams import Streams, Values
from .message_pages import find

ROWS, MESSAGES = 100, 50
# Counts that are older say so.
_OLD_S = 5.0
STATES = ("ready", "in_flight", "delayed", "new")
FILTERS = ("all", "waiting", "late", "paused", "empty")


class Row(NamedTuple):
    """One queue in the table. rests: nobody is expected to work at it, so it is never late."""

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
    """The handlers."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "", self.queues, "All queues")
        add("GET", "q/{queue}", self.queue, "One queue", needs.queue())

    # -- all queues ------------------------------------------------------------------------------

    async def queues(self, request: PageRequest) -> StreamResponse:
        if menu := request.query.get("menu"):
            return await self._menu(request, check_queue(menu))
        wanted = request.query.get("find", "").strip()
        if wanted and (place := await find(request, wanted)) is not None:
            return request.go(place)
        return await self._streams.page_or_stream(
            request, "queues.html", "queues_live.html", lambda: self._queues(request)
        )

    async def _menu(self, request: PageRequest, queue: str) -> StreamResponse:
        """What can be done with a queue of the table."""
        request.identity.require_sight(queue)
        settings = await request.service.in_thread(request.spool.settings, queue)
        feeders = await request.service.listing(_feeders, request, queue)
        values = {"queue": queue, "settings": settings, "holds_dead": bool(feeders["queues"])}
        return await request.page("menu.html", values)

    async def _queues(self, request: PageRequest) -> Values:
        order = _choice(request.query, "sort", _ORDERS, "worst")
        state = _choice(request.query, "state", FILTERS, "all")
        sought = request.query.get("find", "").strip()
        pattern = _pattern(request, sought)
        surveyed = await request.service.surveys.queues()
        counted_at = request.service.surveys.queues.found_at
        rates = await request.service.surveys.rates()
        hour = await request.service.surveys.hour()
        rows = await request.service.listing(_rows, request, surveyed, rates, hour)
        total = Counts(*(sum(numbers) for numbers in zip(*(r.counts for r in rows), strict=True)))
        shown = [row for row in rows if _matches(row.name, pattern) and _is(row, state)]
        shown.sort(key=lambda row: (_ORDERS[order](row), row.name))
        pages = max(1, math.ceil(len(shown) / ROWS))
        page = min(request.number("page", 1, 10_000) or 1, pages)
        return {
            "rows": shown[(page - 1) * ROWS : page * ROWS],
            "found": len(shown),
            "topics": await request.service.listing(_topics, request, sought) if sought else (),
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
        queue = request.call.queue
        return await self._streams.page_or_stream(
            request,
            "queue.html",
            "queue_live.html",
            lambda: self._queue(request, queue),
            lambda: charts_of(request, queue),
        )

    async def _queue(self, request: PageRequest, queue: str) -> Values:
        state = _choice(request.query, "state", STATES, "ready")
        after = request.query.get("after", "")
        counts, oldest, *_ = await request.service.surveys.queue(queue)
        settings = await request.service.in_thread(request.spool.settings, queue)
        rates = await request.service.surveys.rates() or {}
        may_look = request.identity.may("look", queue)
        filtered = _wanted(request, request.query)
        search = Search(queue, state, MESSAGES, after, filtered)
        messages, more = await request.peek(search) if may_look else ([], None)
        rate = rates.get(queue)
        request.service.recent.add(queue, request.now, counts, oldest, rate)
        return {
            "queue": queue,
            "settings": settings,
            "changed": _changed(settings),
            "paused": settings.pause_at(request.now),
            "limits": limits(settings.max_in_flight, settings.max_rate),
            "kinds": SETTINGS,
            "counts": counts,
            "oldest": oldest,
            "rate": rate,
            "point": json.dumps([*counts, oldest, *(round(60 * one) for one in rate or ())]),
            "feeders": await request.service.listing(_feeders, request, queue),
            "state": state,
            "states": STATES,
            "may_look": may_look,
            "messages": messages,
            "searched": {n: request.query[n] for n in SEARCHES if request.query.get(n)},
            "after": after,
            "more": more,
            "most": MOST_IDS,
        }


async def choose_all(request: PageRequest, queue: str) -> None:
    """Where a form is for all that match, put their ids into it: of as many as one action may do.

    What is asked then, and done later, is about these and no others. So it is asked again where
    somebody who was asked wants only the first ones.
    """
    form = await request.form()
    count = Form(queue, (), form, {}).number("count", 0, MOST_IDS)
    if form.pop("count", None) and count:
        form.pop("sure", None)
        if "message" in form:
            form["message"] = form["message"][: math.ceil(count)]
        else:
            await _choose(request, queue, form, math.ceil(count))
    if form.pop("all", None):
        await _choose(request, queue, form, MOST_IDS)


async def _choose(request: PageRequest, queue: str, form: dict[str, list[str]], most: int) -> None:
    request.identity.require("look", queue)
    given = {name: values[-1] for name, values in form.items() if values}
    state = _choice(given, "state", STATES, "ready")
    search = Search(queue, state, most, wanted=_wanted(request, given))
    found, _ = await request.peek(search)
    form["message"] = [quote_id(one.message.id) for one in found]


def _rows(
    request: PageRequest,
    surveyed: Mapping[str, Overview],
    rates: Mapping[str, Rate] | None,
    hour: Hour,
) -> list[Row]:
    now = request.now
    settings = request.settings_of(surveyed)
    dead = {one.dead_letter_queue for one in settings.values()}
    return [
        Row(
            name,
            surveyed[name].counts,
            oldest := surveyed[name].oldest,
            0.0 if oldest is None else max(0.0, now - oldest),
            one.late_after,
            one.dead_letter_queue,
            name in dead,
            pause := one.pause_at(now),
            pause is not None or (name in dead and one.alert_age is None),
            limits(one.max_in_flight, one.max_rate),
            None if rates is None else rates.get(name, Rate()),
            spark(moments, hour.since, hour.until) if (moments := hour.queues.get(name)) else None,
        )
        for name, one in settings.items()
    ]


def _topics(request: PageRequest, pattern: str) -> list[str]:
    found = request.identity.visible_topics(request.spool.topics())
    return [name for name in found if _matches(name, pattern)]


def _pattern(request: PageRequest, sought: str) -> str:
    """What names of queues are matched against; of each pattern all that is compiled is kept."""
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


def _choice(
    query: Mapping[str, str], name: str, choices: Mapping[str, Any] | Sequence[str], to: str
) -> str:
    given = query.get(name, to)
    if given not in choices:
        raise InvalidValue(name, f"expected one of: {', '.join(choices)}")
    return given


def _wanted(request: PageRequest, query: Mapping[str, str]) -> Wanted | None:
    """What the filter above the messages asks for. Raises InvalidValue."""
    attribute = query.get("attribute", "")
    name, equals, value = attribute.partition("=")
    if attribute and not equals:
        raise InvalidValue("attribute", "expected NAME=VALUE")
    older = query.get("older_than", "")
    try:
        older_than = float(older) if older else None
    except ValueError:
        raise InvalidValue("older_than", "must be a number of seconds") from None
    contains = query.get("containing") or None
    attributes = {name.strip(): value.strip()} if attribute else None
    return wanted(request.now, attributes, contains, older_than)


def _changed(settings: QueueSettings) -> dict[str, Any]:
    """The settings that are not as they are by default."""
    default = QueueSettings().as_dict()
    return {name: value for name, value in settings.as_dict().items() if value != default[name]}


def _feeders(request: PageRequest, queue: str) -> dict[str, list[str]]:
    """What sends into a queue: queues that bury into it, and topics."""
    settings = request.settings_of(request.spool.queues())
    buries = [name for name, of in settings.items() if of.dead_letter_queue == queue]
    topics = request.identity.visible_topics(request.spool.topics())
    feeding = [topic for topic in topics if queue in request.spool.subscriptions(topic)]
    return {"queues": buries, "topics": feeding}
