"""Pages of logs: all of them, one with its channels and messages, and one message."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from aiohttp.web import StreamResponse

from fsmq.spool import LogMessage
from fsmq.spool.errors import InvalidValue, OffsetGone
from fsmq.spool.inspection import ChannelState, LogBatch, LogStats
from fsmq.spool.resources import LogSettings, place_in

from ...guard import access
from ...guard.access import Identity
from ...guard.sight import seen_channels
from ...routing import needs
from ...service.monitoring.log_survey import LogOverview
from ...service.monitoring.rates import LogRate
from ..page_request import PageRequest, UiOptions
from ..setting_fields import OF_LOG
from ..streams import Streams, Values
from .attention import is_blocked, is_lagging
from .downloads import BODY_BYTES, as_file

T = TypeVar("T")
ROWS, MESSAGES = 100, 50
# How many bytes of bodies are read for a list of messages, and shown of each.
_LIST_BYTES = 4 * 1024 * 1024
_BEGINNING = 512
_MOST_OFFSET = 10**18 - 1


class LogRow(NamedTuple):
    """One log in the table. worst: the channel that is furthest behind."""

    name: str
    stats: LogStats
    channels: int
    rate: LogRate | None
    worst: ChannelState | None
    worst_since: float | None
    blocked: int
    paused: int


class ChannelRow(NamedTuple):
    """A channel of a log. state: None if it cannot be read. on: the name of rights on it.

    since: when its oldest unfinished message was published, in Unix seconds.
    """

    name: str
    on: str
    state: ChannelState | None
    since: float | None

    @property
    def is_blocked(self) -> bool:
        return self.state is not None and is_blocked(self.state)

    @property
    def is_lagging(self) -> bool:
        return self.state is not None and is_lagging(self.state)

    @property
    def weight(self) -> tuple[bool, int, str]:
        """Sorts the worst first."""
        return not self.is_blocked, -(self.state.lag if self.state else 0), self.name


class Listed(NamedTuple):
    """A message of a list, with the beginning of its body, and the size of the whole body."""

    message: LogMessage
    body: bytes
    size: int


class LogPages:
    """Handlers of the pages of logs. options: what they may show."""

    def __init__(self, streams: Streams, options: UiOptions) -> None:
        self._streams = streams
        self._options = options

    def add_pages(self, add: Callable[..., None]) -> None:
        look = needs.log("look")
        add("GET", "logs", self.logs, "All logs")
        add("GET", "logs/{log}", self.log, "One log", needs.log())
        add("GET", "logs/{log}/settings", self.settings, "Its settings", needs.log())
        add("GET", "logs/{log}/m/{offset}", self.message, "One message of a log", look)
        if self._options.bodies:
            add("GET", "logs/{log}/m/{offset}/body", self.body, "Its body, as a file", look)

    # -- all logs --------------------------------------------------------------------------------

    async def logs(self, request: PageRequest) -> StreamResponse:
        return await self._streams.page_or_stream(
            request, "logs.html", "logs_live.html", partial(_logs, request)
        )

    # -- one log ---------------------------------------------------------------------------------

    async def log(self, request: PageRequest) -> StreamResponse:
        return await self._streams.page_or_stream(
            request,
            "log.html",
            "log_live.html",
            partial(_log, request),
            partial(_messages, request),
        )

    async def settings(self, request: PageRequest) -> StreamResponse:
        return await request.page(*await settings_page(request))

    # -- one message -----------------------------------------------------------------------------

    async def message(self, request: PageRequest) -> StreamResponse:
        log, offset = request.call.log, _offset(request)
        message = await _message(request, log, offset)
        stats = (await request.service.surveys.log(log)).stats
        values = {
            "log": log,
            "offset": offset,
            "stats": stats,
            "message": message,
            "body": b"" if message is None else message.body[:BODY_BYTES],
            "is_cut": message is not None and len(message.body) > BODY_BYTES,
        }
        return await request.page("log_message.html", values, 404 if message is None else 200)

    async def body(self, request: PageRequest) -> StreamResponse:
        log, offset = request.call.log, _offset(request)
        message = await _message(request, log, offset)
        if message is None:
            first = (await request.service.surveys.log(log)).stats.first
            raise OffsetGone(log, offset, first)
        return as_file(message.body)


async def settings_of(request: PageRequest) -> LogSettings:
    """The settings of the log of a page. Raises NoSuchLog, Unavailable."""
    return (await request.service.logs.run(request.spool.log(request.call.log).stats)).settings


async def settings_page(request: PageRequest) -> tuple[str, Values]:
    """The settings of a log, as a form for its admins."""
    log, settings = request.call.log, await settings_of(request)
    on, place = access.log(log), request.url("logs", log)
    values = OF_LOG.page(request, settings, on, place, f"fsmq log config {log}")
    return "log.html", {**values, "log": log, "tab": "settings"}


# -- what may be seen ------------------------------------------------------------------------------


def seen_log(identity: Identity, name: str, log: LogOverview) -> LogOverview:
    """A log with those of its channels that an identity may see."""
    names = seen_channels(identity, name, log.stats.channels)
    channels = {one: log.channels[one] for one in names if one in log.channels}
    return log._replace(stats=log.stats._replace(channels=names), channels=channels)


def seen_logs(request: PageRequest, logs: Mapping[str, LogOverview]) -> dict[str, LogOverview]:
    """Those logs and channels that the visitor may see."""
    identity = request.identity
    return {name: seen_log(identity, name, logs[name]) for name in identity.visible_logs(logs)}


async def overview_of(request: PageRequest) -> LogOverview:
    """The log of a page; as it is now, if the page reports an action on it."""
    return await request.service.surveys.log(request.call.log, fresh="did" in request.query)


def channel_row(log: str, name: str, overview: LogOverview) -> ChannelRow:
    """A channel of a log, as a row of a table."""
    state = overview.channels.get(name)
    since = overview.at - state.lag_seconds if state is not None and state.lag else None
    return ChannelRow(name, access.channel(log, name), state, since)


def _rows(log: str, overview: LogOverview) -> list[ChannelRow]:
    rows = [channel_row(log, name, overview) for name in overview.stats.channels]
    return sorted(rows, key=lambda row: row.weight)


def _part(request: PageRequest, rows: Sequence[T]) -> tuple[Sequence[T], int, int]:
    """The rows of a page of a table, the number of the page, and of how many."""
    pages = max(1, math.ceil(len(rows) / ROWS))
    page = min(request.number("page", 1, 10_000) or 1, pages)
    return rows[(page - 1) * ROWS : page * ROWS], page, pages


# -- values of pages -------------------------------------------------------------------------------


async def _logs(request: PageRequest) -> Values:
    surveyed = await request.service.surveys.logs()
    rates = (await request.service.surveys.happening()).logs
    rows = await request.service.listing(_log_rows, request, surveyed, rates)
    shown, page, pages = _part(request, rows)
    return {"rows": shown, "logs": len(rows), "page": page, "pages": pages}


def _log_rows(
    request: PageRequest, logs: Mapping[str, LogOverview], rates: Mapping[str, LogRate] | None
) -> list[LogRow]:
    found = []
    for name, log in seen_logs(request, logs).items():
        channels = _rows(name, log)
        worst = min(channels, key=lambda row: -(row.state.lag if row.state else 0), default=None)
        states = list(log.channels.values())
        row = LogRow(
            name,
            log.stats,
            len(channels),
            None if rates is None else rates.get(name, LogRate()),
            None if worst is None else worst.state,
            None if worst is None else worst.since,
            sum(map(is_blocked, states)),
            sum(state.paused for state in states),
        )
        found.append(row)
    return sorted(found, key=lambda row: (-row.blocked, -(row.worst.lag if row.worst else 0)))


async def _log(request: PageRequest) -> Values:
    name = request.call.log
    log = seen_log(request.identity, name, await overview_of(request))
    rates = (await request.service.surveys.happening()).logs
    rows = _rows(name, log)
    shown, page, pages = _part(request, rows)
    return {
        "log": name,
        "on": access.log(name),
        "stats": log.stats,
        "rate": None if rates is None else rates.get(name, LogRate()),
        "channels": shown,
        "number": len(rows),
        "page": page,
        "pages": pages,
        "tab": "messages",
    }


async def _messages(request: PageRequest) -> Values:
    """The messages from a place on; the newest if none is given."""
    log, given = request.call.log, request.query.get("from", "").strip()
    values: Values = {"given": given, "messages": (), "gone": None, "lost": 0}
    values |= {
        "before": None,
        "after": None,
        "may_look": request.identity.may("look", access.log(log)),
    }
    if not values["may_look"]:
        return values
    stats = (await request.service.surveys.log(log)).stats
    start = max(stats.first, stats.next - MESSAGES)
    try:
        if given:
            place = place_in("from", given)
            opened = request.spool.log(log)
            start = await request.service.logs.run(opened.offset_of, place)
    except InvalidValue as error:
        request.refused(error, {"from": [given]})
        return values
    if start < stats.first:
        values["gone"] = start
        start = stats.first
    request.call.in_json = False
    batch = await _page(request, log, start, MESSAGES)
    values |= {
        "messages": [Listed(one, one.body[:_BEGINNING], len(one.body)) for one in batch.messages],
        "lost": batch.lost,
        "before": max(stats.first, start - MESSAGES) if start > stats.first else None,
        "after": batch.next if batch.next < stats.next else None,
    }
    return values


async def _page(request: PageRequest, log: str, start: int, count: int) -> LogBatch:
    """Messages from an offset on; from the first one if it has been removed meanwhile."""
    logs = request.service.logs
    try:
        return await logs.page(request.call, log, start, count, 0.0, _LIST_BYTES)
    except OffsetGone as error:
        return await logs.page(request.call, log, error.first, count, 0.0, _LIST_BYTES)


async def _message(request: PageRequest, log: str, offset: int) -> LogMessage | None:
    request.call.in_json = False
    try:
        batch = await request.service.logs.page(request.call, log, offset, 1, 0.0)
    except OffsetGone:
        return None
    return next((one for one in batch.messages if one.offset == offset), None)


def _offset(request: PageRequest) -> int:
    given = request.call.names["offset"]
    if not (given.isascii() and given.isdecimal() and len(given) <= len(str(_MOST_OFFSET))):
        raise InvalidValue("offset", f"{given[:50]!r} is not an offset")
    return int(given)
