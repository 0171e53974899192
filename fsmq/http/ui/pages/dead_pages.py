"""Dead letters: where they are, where they came from, and why; one row for each reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Message
from fsmq.spool.inspection import Overview

from ...service.monitoring.inspector import Search
from ..listed import Listed, peek
from ..page_request import PageRequest

# How many messages of a queue are grouped, and by how many characters of their reasons.
MOST = 1000
_SIGNS = 300
# How many messages of a group are listed, unless only this group is shown.
_EXAMPLES = 20
# Numbers and ids differ between equal failures, so they are ignored.
_SIGNS_OF_NUMBERS = re.compile(r"[0-9a-f-]+")
_DIGIT = re.compile(r"[0-9]")
_LIST = re.compile(r"#(?:,? #)+")


class Group(NamedTuple):
    """Dead letters with one origin and similar reasons.

    origin, reason: None if the messages do not say. is_folded: their reasons differ by numbers,
    which are # in reason. key: names the group in addresses.
    """

    origin: str | None
    reason: str | None
    is_folded: bool
    since: float | None
    deliveries: int
    messages: list[Message]
    key: str


class Dead(NamedTuple):
    """A dead-letter queue. sources: queues that bury into it. more: whether there are more."""

    queue: str
    total: int
    sources: list[str]
    groups: list[Group]
    more: bool


class DeadPages:
    """The handler of the page of dead letters."""

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "dead", self.dead, "All dead letters")

    async def dead(self, request: PageRequest) -> StreamResponse:
        surveyed = await request.service.surveys.queues()
        sources = await request.service.in_thread(_sources, request, surveyed)
        only = request.query.get("queue")
        if only is not None:
            sources = {queue: of for queue, of in sources.items() if queue == only}
        places = [await self._dead_of(request, q, of, surveyed) for q, of in sources.items()]
        places.sort(key=lambda place: (-place.total, place.queue))
        empty = [place for place in places if not place.total]
        key, reason = request.query.get("group"), request.query.get("reason", "").strip()
        values = {
            "places": places,
            "empty": empty,
            "reason_given": reason,
            "is_filtered": bool(only or key or reason),
            "looked_at": MOST,
            "is_one": key is not None,
            "most": _EXAMPLES if key is None else MOST,
        }
        return await request.page("dead.html", values)

    async def _dead_of(
        self, request: PageRequest, queue: str, sources: list[str], surveyed: Mapping[str, Overview]
    ) -> Dead:
        total = surveyed[queue].counts.total if queue in surveyed else 0
        if not total or not request.identity.may("look", queue):
            return Dead(queue, total, sources, [], more=False)
        found, more = await peek(request, Search(queue, count=MOST))
        groups = await request.service.in_thread(_groups, found, request.query)
        return Dead(queue, total, sources, groups, more is not None)


def _sources(request: PageRequest, surveyed: Mapping[str, Overview]) -> dict[str, list[str]]:
    """The dead-letter queues, each with the queues that bury into it."""
    found: dict[str, list[str]] = {}
    for name, settings in request.settings_of(surveyed).items():
        to = settings.dead_letter_queue
        if to is not None and request.identity.may_see(to):
            found.setdefault(to, []).append(name)
    return found


def _folded(text: str) -> str:
    """The start of a text, without what differs between equal failures."""
    return _LIST.sub("#", _SIGNS_OF_NUMBERS.sub(_number, text))[:_SIGNS]


def _number(found: re.Match[str]) -> str:
    return "#" if _DIGIT.search(found[0]) else found[0]


def _groups(listed: list[Listed], query: Mapping[str, str]) -> list[Group]:
    """The dead letters by origin and reason, the largest group first.

    query: may ask for one group only, and for those reasons that contain a text.
    """
    text = query.get("reason", "").strip().lower()
    found: dict[tuple[str | None, str | None], list[Message]] = {}
    for message, _ in listed:
        dead = message.dead_letter
        reason = dead.reason if dead else None
        if text in (reason or "").lower():
            folded = reason and _folded(reason)
            found.setdefault((dead.queue if dead else None, folded), []).append(message)
    groups = [_group(origin, folded, of) for (origin, folded), of in found.items()]
    kept = [one for one in groups if query.get("group", one.key) == one.key]
    return sorted(kept, key=lambda group: -len(group.messages))


def _group(origin: str | None, folded: str | None, of: list[Message]) -> Group:
    dead = [one.dead_letter for one in of if one.dead_letter]
    reasons = {one.reason for one in dead}
    reason = folded if len(reasons) > 1 else next(iter(reasons), None)
    since = min((one.at for one in dead), default=None)
    tried = max((one.deliveries or 0 for one in dead), default=0)
    key = f"{origin or ''}: {folded or ''}"
    return Group(origin, reason, len(reasons) > 1, since, tried, of, key)
