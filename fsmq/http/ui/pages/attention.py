"""What needs attention: the problems of queues, logs and the last health check, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fsmq.spool.inspection import ChannelState, Finding, Health

from ...service.monitoring.log_survey import LogOverview
from ..actions import messages
from ..page_request import PageRequest
from .queue_pages import Row

# How many of a kind are listed.
MOST = 5
# A channel lags when its oldest message has waited for this many visibility timeouts, like a queue.
_LATE = 10


class Item(NamedTuple):
    """One problem.

    kind: a word. is_bad: whether something goes wrong, rather than being as somebody has set it.
    place: the page of it. text: the sentence after its name. at: the time, in Unix seconds, whose
    age ends the sentence. note: what else to know.
    """

    kind: str
    is_bad: bool
    place: str
    name: str
    text: str
    at: float | None = None
    note: str = ""


class OfChannel(NamedTuple):
    """A channel of a log. since: when its oldest unfinished message was published."""

    log: str
    name: str
    state: ChannelState
    since: float

    @property
    def called(self) -> str:
        return f"{self.log}/{self.name}"

    def place(self, request: PageRequest) -> str:
        return request.url("logs", self.log, "c", self.name)


class Kind(NamedTuple):
    """The problems of one kind: the first ones, how many more there are, and where all are."""

    items: Sequence[Item]
    more: int
    place: str


def attention(
    request: PageRequest,
    rows: Sequence[Row],
    logs: Mapping[str, LogOverview],
    health: tuple[float, Sequence[Finding]] | None,
) -> list[Kind]:
    """The problems among queues and logs that the visitor may see."""
    channels = [
        OfChannel(log, name, state, one.at - state.lag_seconds)
        for log, one in logs.items()
        for name, state in one.channels.items()
    ]
    items = [
        *_of_health(request, health),
        *(_blocked(request, one) for one in channels if is_blocked(one.state)),
        *_late(request, rows),
        *_dead(request, rows),
        *(_lagging(request, one) for one in channels if is_lagging(one.state)),
        *_paused(request, rows, channels),
    ]
    places = {
        "health": request.url("cluster", health="yes"),
        "late": request.url("queues", state="late"),
        "dead letters": request.url("dead"),
        "paused": request.url("queues", state="paused"),
    }
    found = []
    for kind, of_kind in groupby(items, attrgetter("kind")):
        listed = list(of_kind)
        place = places.get(kind, request.url("logs"))
        found.append(Kind(listed[:MOST], max(0, len(listed) - MOST), place))
    return found


def is_lagging(state: ChannelState) -> bool:
    """Whether a channel is further behind than its consumers should let it be."""
    after = _LATE * state.settings.visibility_timeout
    return bool(state.lag) and not state.paused and state.lag_seconds > after


def is_blocked(state: ChannelState) -> bool:
    """Whether a channel does not hand out all that it could, and somebody has to look at it."""
    return any(one is not None for one in (state.blocked_at, state.unburied_at, state.stalled))


def _of_health(
    request: PageRequest, health: tuple[float, Sequence[Finding]] | None
) -> Iterator[Item]:
    place = request.url("cluster", health="yes") + "#health"
    bad = (Health.ERROR, Health.WARNING)
    for one in health[1] if health is not None else ():
        if one.health in bad:
            yield Item("health", True, place, one.name, one.text, note=one.advice or "")


def _blocked(request: PageRequest, of: OfChannel) -> Item:
    state, note = of.state, ""
    if state.blocked_at is not None:
        text = f"has used up the deliveries of the message at offset {state.blocked_at}"
        note = {"key": "its key waits", "strict": "the channel waits"}.get(state.settings.order, "")
    elif state.unburied_at is not None:
        text = f"cannot move the message at offset {state.unburied_at} to its dead-letter queue"
    else:
        text = "hands out nothing new: max_window is reached"
        note = f"the message at offset {state.position} is not finished"
    return Item("blocked", True, of.place(request), of.called, text, note=note)


def _late(request: PageRequest, rows: Iterable[Row]) -> Iterator[Item]:
    for row in sorted((row for row in rows if row.is_late), key=lambda row: -row.weight[0]):
        text = f"has {messages(row.counts.ready + row.counts.new)} waiting, the oldest for"
        note = _why_late(row)
        yield Item("late", True, request.url("q", row.name), row.name, text, row.oldest, note)


def _why_late(row: Row) -> str:
    """What may hold back the messages of a queue; empty if the counts do not tell."""
    hidden = row.counts.in_flight + row.counts.delayed
    if row.fifo and hidden:
        # Which groups they are in takes a look at each name.
        return f"{messages(hidden)} in flight or delayed may hold back their groups"
    idle = row.rate is not None and not row.rate.received and not row.counts.in_flight
    return "nothing is claimed from it" if idle else ""


def _dead(request: PageRequest, rows: Iterable[Row]) -> Iterator[Item]:
    full = [row for row in rows if row.holds_dead and row.counts.total]
    for row in sorted(full, key=lambda row: -row.counts.total):
        number = row.counts.total
        text = f"holds {messages(number)}" + (", the oldest for" if row.oldest else "")
        yield Item("dead letters", True, request.url("dead"), row.name, text, row.oldest)


def _lagging(request: PageRequest, of: OfChannel) -> Item:
    text = f"is {messages(of.state.lag)} behind, the oldest for"
    return Item("lagging", True, of.place(request), of.called, text, of.since)


def _paused(
    request: PageRequest, rows: Iterable[Row], channels: Iterable[OfChannel]
) -> Iterator[Item]:
    for row in rows:
        if row.paused:
            until = f"until {row.paused}" if isinstance(row.paused, str) else "until it is resumed"
            yield Item("paused", False, request.url("q", row.name), row.name, until)
    for one in channels:
        if one.state.paused:
            yield Item("paused", False, one.place(request), one.called, "until it is resumed")
