"""Dead letters: where they are, where they came from, and why; equal failures in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Message
from fsmq.spool.views.counts import Overview

from ...service.monitoring.inspector import Search
from ..page_request import Listed, PageRequest
from ..words import first

# So many messages of a queue are looked at for its groups, and so much of a body tells them apart.
MOST = 1000
_SIGNS = 60
# Numbers and ids are what equal failures differ by.
_NUMBER = re.compile(r"[0-9a-f-]*[0-9][0-9a-f-]*")
_LIST = re.compile(r"#(?:,? #)+")


class Group(NamedTuple):
    """Dead letters that look alike. origin, reason: None where the message does not know.

    body: of the first of them.
    """

    origin: str | None
    reason: str | None
    body: str
    since: float | None
    deliveries: int
    ids: tuple[str, ...]


class Dead(NamedTuple):
    """A queue of dead letters, and those that bury into it. more: whether there are more."""

    queue: str
    total: int
    sources: list[str]
    groups: list[Group]
    more: bool


class DeadPages:
    """The handlers."""

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "dead", self.dead, "All dead letters")

    async def dead(self, request: PageRequest) -> StreamResponse:
        surveyed = await request.service.surveys.queues()
        sources = await request.service.in_thread(_sources, request, surveyed)
        places = [await self._dead_of(request, q, of, surveyed) for q, of in sources.items()]
        places.sort(key=lambda place: (-place.total, place.queue))
        return await request.page("dead.html", {"places": places})

    async def _dead_of(
        self, request: PageRequest, queue: str, sources: list[str], surveyed: Mapping[str, Overview]
    ) -> Dead:
        total = surveyed[queue].counts.total if queue in surveyed else 0
        if not total or not request.identity.may("look", queue):
            return Dead(queue, total, sources, [], more=False)
        found, more = await request.peek(Search(queue, count=MOST))
        groups = await request.service.in_thread(_groups, found, request.bodies)
        return Dead(queue, total, sources, groups, more is not None)


def _sources(request: PageRequest, surveyed: Mapping[str, Overview]) -> dict[str, list[str]]:
    """The queues that hold dead letters, each with those that bury into it."""
    found: dict[str, list[str]] = {}
    for name, settings in request.settings_of(surveyed).items():
        to = settings.dead_letter_queue
        if to is not None and request.identity.may_see(to):
            found.setdefault(to, []).append(name)
    return found


def _form(body: bytes) -> str:
    """The start of a body without what equal failures differ by."""
    return _LIST.sub("#", _NUMBER.sub("#", first(body, 2 * _SIGNS)))[:_SIGNS]


def _groups(listed: list[Listed], bodies: bool) -> list[Group]:
    alike: dict[tuple[str | None, str | None, str], list[Message]] = {}
    for message, _ in listed:
        dead = message.dead_letter
        origin = dead.queue if dead else None
        reason = dead.reason if dead else None
        form = _form(message.body) if bodies else ""
        alike.setdefault((origin, reason, form), []).append(message)
    groups = []
    for (origin, reason, _), of in alike.items():
        moments = [one.dead_letter.at for one in of if one.dead_letter]
        tried = max((one.dead_letter.deliveries or 0 for one in of if one.dead_letter), default=0)
        ids = tuple(one.id for one in of)
        body = first(of[0].body, _SIGNS) if bodies else ""
        groups.append(Group(origin, reason, body, min(moments, default=None), tried, ids))
    return sorted(groups, key=lambda group: -len(group.ids))
