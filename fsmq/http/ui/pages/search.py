"""The search: a queue or a log by its name, or messages by their id, also those that are gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from fsmq.spool.checks import check_id, check_queue
from fsmq.spool.errors import InvalidValue
from fsmq.spool.inspection import LifeReader
from fsmq.spool.on_disk import facts

from ..page_request import PageRequest

_SHOWN = 100


class Sought(NamedTuple):
    """What a search has found.

    place: the page to go to, if there is only one. messages: of an id that several have, what each
    is called and its page. others: whether messages that are gone were not looked for, because
    names match. since: from when on the journal was searched, in Unix seconds; None if all was.
    """

    place: str | None = None
    messages: Sequence[tuple[str, str]] = ()
    others: bool = False
    since: float | None = None


async def find(
    request: PageRequest, wanted: str, has_names: Callable[[], Awaitable[bool]]
) -> Sought:
    """A queue or a log of exactly this name, or the messages of this id.

    has_names: whether the text is a part of a name. Then the journal is searched for messages that
    are gone only with the parameter ``gone``, because that takes seconds.
    """
    with suppress(InvalidValue):
        if named := await request.service.listing(_named, request, check_queue(wanted)):
            return Sought(named[0] if len(named) == 1 else None)
    try:
        check_id("", wanted)
    except InvalidValue:
        return Sought()

    identity, inspector = request.identity, request.service.inspector
    places = await inspector.find(
        wanted, lambda queues: [name for name in queues if identity.may("look", name)]
    )
    if places:
        return _of_messages(
            [
                (f"{one.id} in {one.queue}", request.url("q", one.queue, "m", one.id))
                for one in places
            ]
        )
    if facts(wanted).created_ms is not None:
        queue = await _queue_by_journal(request, wanted)
        return Sought(request.url("q", queue, "m", wanted) if queue else None)
    if "gone" not in request.query and await has_names():
        return Sought(others=True)
    gone = await inspector.gone(wanted)
    seen = [name for name in reversed(gone.names) if identity.may("look", name[0])]
    pages = [(f"{name} in {queue}", request.url("q", queue, "m", name)) for queue, name in seen]
    return _of_messages(pages, gone.since)


def _of_messages(pages: list[tuple[str, str]], since: float | None = None) -> Sought:
    if len(pages) == 1 and since is None:
        return Sought(pages[0][1])
    return Sought(messages=pages[:_SHOWN], since=since)


def _named(request: PageRequest, name: str) -> list[str]:
    """The pages of the queue and the log of a name, if the visitor may see them."""
    identity, spool = request.identity, request.spool
    found = []
    if identity.may_see(name) and spool.has_queue(name):
        found.append(request.url("q", name))
    if name in identity.visible_logs(spool.logs()):
        found.append(request.url("logs", name))
    return found


async def _queue_by_journal(request: PageRequest, message_id: str) -> str:
    """The last queue of a message that is gone; empty if unknown, or not visible to the visitor."""
    reader = LifeReader(request.spool.tree, "", message_id)
    async for _ in request.service.inspector.life(reader):
        pass
    queue, _ = reader.place
    return queue if queue and request.identity.may("look", queue) else ""
