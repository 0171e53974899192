"""One message: what it is, what is in it, and its life as the journal has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse

from fsmq.spool import Message
from fsmq.spool.checks import check_id, check_queue
from fsmq.spool.errors import InvalidValue, NoSuchMessage
from fsmq.spool.layout.names import facts
from fsmq.spool.records.life import LifeReader, LifeStep, in_order

from ...guard.sight import seen_step
from ...routing import needs
from ..page_request import PageRequest
from ..rendering import HEADERS

_BODY_BYTES = 64 * 1024
# A gap in a life that nothing explains: steps that must have been noted where they happened.
_BEGINNINGS = ("accepted", "moved", "delivered", "deferred")
# Steps are noted together with others, so long after they happened at most.
_NOTED_S = 5.0
# What a message does between a step and the next one.
_PHASES = {
    "accepted": "is delivered",
    "deferred": "is hidden",
    "delivered": "waits",
    "released": "waits",
    "redelivered": "waits",
    "buried": "waits",
    "moved": "waits",
    "claimed": "is worked on",
    "renewed": "is worked on",
}


class Shown(NamedTuple):
    """A step of a life.

    after: seconds since the one before. lasted: until the next one. share: of the whole time, 0 to
    100.
    """

    step: LifeStep
    after: float | None
    phase: str
    lasted: float
    share: float


class MessagePages:
    """The handlers. bodies: whether they show what is in messages."""

    def __init__(self, *, bodies: bool) -> None:
        self._bodies = bodies

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "q/{queue}/m/{id}", self.message, "One message", needs.queue("look"))
        if self._bodies:
            add(
                "GET",
                "q/{queue}/m/{id}/body",
                self.body,
                "Its body, as a file",
                needs.queue("look"),
            )

    async def message(self, request: PageRequest) -> StreamResponse:
        queue, message_id = _target(request)
        message = await request.service.receiver.find(request.call, queue, message_id)
        reader, steps = await _life(request, queue, message_id)
        if message is None and not steps:
            raise NoSuchMessage(
                queue, message_id, "in any state, and the journal has no step of it"
            )
        filed = None
        if message is not None:
            filed = await request.service.inspector.filed(queue, message.id, message.state)
        values = {
            "queue": queue,
            "id": message_id,
            "filed": filed,
            "message": message,
            "place": None if message is None else _place(message),
            "settings": await request.service.in_thread(request.spool.settings, queue),
            "body": b"" if message is None else message.body[:_BODY_BYTES],
            "is_cut": message is not None and len(message.body) > _BODY_BYTES,
            "steps": (shown := _shown(steps, None if message is None else request.now)),
            "spent": _spent(shown),
            "gap": _gap(steps, message, request.now),
            "next": reader.next,
            "last": steps[-1] if steps else None,
        }
        status = 200 if message is not None else 404
        return await request.page("message.html", values, status)

    async def body(self, request: PageRequest) -> StreamResponse:
        queue, message_id = _target(request)
        message = await request.service.receiver.find(request.call, queue, message_id)
        if message is None:
            raise NoSuchMessage(queue, message_id, "in any state")
        # Never as what its type says: a page among messages would be a page of ours.
        headers = {
            **HEADERS,
            "Content-Security-Policy": "sandbox; default-src 'none'",
            hdrs.CONTENT_TYPE: "application/octet-stream",
            hdrs.CONTENT_DISPOSITION: "attachment; filename=body",
        }
        return Response(body=message.body, headers=headers)


async def find(request: PageRequest, wanted: str) -> str | None:
    """The page of what somebody looks for: a queue of this very name, or a message of this id."""
    try:
        queue = check_queue(wanted)
    except InvalidValue:
        queue = ""
    is_seen = bool(queue) and request.identity.may_see(queue)
    if is_seen and await request.service.in_thread(request.spool.has_queue, queue):
        return request.url("q", queue)
    try:
        check_id("", wanted)
    except InvalidValue:
        return None

    identity = request.identity
    found = await request.service.inspector.find(
        wanted, lambda queues: [name for name in queues if identity.may("look", name)]
    )
    queue = found[0].queue if found else await _queue_by_journal(request, wanted)
    return request.url("q", queue, "m", wanted) if queue else None


async def _queue_by_journal(request: PageRequest, message_id: str) -> str:
    """Where a message was last that is nowhere now; empty if nothing says so, or not to all."""
    if facts(message_id).created_ms is None:
        return ""  # most texts that somebody looks for are no ids
    reader = LifeReader(request.spool.tree, "", message_id)
    async for _ in request.service.inspector.life(reader):
        pass
    queue, _ = reader.place
    return queue if queue and request.identity.may("look", queue) else ""


def _target(request: PageRequest) -> tuple[str, str]:
    queue = request.call.queue
    return queue, check_id(queue, request.call.names["id"])


async def _life(
    request: PageRequest, queue: str, message_id: str
) -> tuple[LifeReader, list[LifeStep]]:
    """What the journal has of a message, of queues that the visitor may look into."""
    reader = LifeReader(request.spool.tree, queue, message_id, request.query.get("after", ""))
    steps: list[LifeStep] = []
    async for found in request.service.inspector.life(reader):
        steps += [seen for step in found if (seen := seen_step(request.identity, step))]
    return reader, in_order(steps)


def _shown(steps: Sequence[LifeStep], now: float | None) -> list[Shown]:
    """now: until when the last step has lasted; None for a message that is gone."""
    if not steps:
        return []
    end = steps[-1].at if now is None else max(now, steps[-1].at)
    ends = [*(step.at for step in steps[1:]), end]
    whole = (end - steps[0].at) or 1.0
    shown = []
    for number, step in enumerate(steps):
        after = step.at - steps[number - 1].at if number else None
        lasted = max(0.0, ends[number] - step.at)
        share = round(100 * lasted / whole, 1)
        shown.append(Shown(step, after, _PHASES.get(step.event, ""), lasted, share))
    return shown


def _spent(steps: Sequence[Shown]) -> dict[str, float]:
    """Seconds of each phase, for the legend of the bar."""
    spent: dict[str, float] = {}
    for one in steps:
        if one.phase:
            spent[one.phase] = spent.get(one.phase, 0.0) + one.lasted
    return spent


def _gap(steps: Sequence[LifeStep], message: Message | None, now: float) -> str:
    """Why the life may be short of steps; empty if it begins where lives begin."""
    created = None if message is None else message.created_at
    if not steps and created is not None and now - created < _NOTED_S:
        return "Its first steps are noted in a moment: look again then."
    if not steps:
        return (
            "The journal has no step of it: it was off, its segments have expired, lines were"
            " dropped, or somebody used mv."
        )
    if steps[0].event not in _BEGINNINGS:
        return (
            "The beginning is missing: the journal was off then, its segment has expired, or lines"
            " were dropped."
        )
    return ""


def _place(message: Message) -> str:
    """Where a message stands in the tree."""
    folder = {"ready": "queues", "new": "new"}.get(message.state, "delay")
    sign = "/" if folder == "queues" else ":"
    return f"{folder}/{message.queue}{sign}{message.id}"
