"""One message: its properties, its body, and its life from the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool import Message
from fsmq.spool.checks import check_id
from fsmq.spool.errors import NoSuchMessage
from fsmq.spool.inspection import LifeReader, LifeStep, life_in_order
from fsmq.words import number as in_words
from fsmq.words import share

from ...guard.access import Identity
from ...guard.sight import seen_step
from ...routing import needs
from ..page_request import PageRequest
from .downloads import BODY_BYTES, as_file

# The steps with which a life begins; with any other, the beginning is missing.
_BEGINNINGS = ("accepted", "moved", "delivered", "deferred")
# How many steps of a life are shown: the last ones.
_MOST_STEPS = 500
# Steps are written in groups, at most this long after they happened.
_NOTED_S = 5.0
# What happens to a message between a step and the next one.
_PHASES = {
    "accepted": "being delivered",
    "deferred": "delayed",
    "delivered": "waiting",
    "released": "waiting",
    "redelivered": "waiting",
    "buried": "waiting",
    "moved": "waiting",
    "claimed": "claimed",
    "renewed": "claimed",
}
# The narrowest part of the bar, in percent of it: a thinner one cannot be seen.
_THINNEST = 0.8


class Shown(NamedTuple):
    """A step of a life.

    after: seconds since the previous one. lasted: seconds until the next one.
    """

    step: LifeStep
    after: float | None
    phase: str
    lasted: float


class Part(NamedTuple):
    """A part of the bar of a life. at, share: where it begins and how wide it is, 0 to 100."""

    phase: str
    seconds: float
    at: float
    share: float


class MessagePages:
    """Handlers of the pages of a message. bodies: whether they show its body."""

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
        reader, found = await _life(request, queue, message_id)
        steps = found[-_MOST_STEPS:]
        if message is None and not steps:
            raise NoSuchMessage(
                queue, message_id, "in any state, and the journal has no step of it"
            )
        filed = None
        if message is not None:
            filed = await request.service.inspector.filed(queue, message.id, message.state)
        settings = await request.service.in_thread(request.spool.settings, queue)
        values = {
            "queue": queue,
            "id": message_id,
            "filed": filed,
            "message": message,
            "place": None if message is None else _place(message),
            "settings": settings,
            "pause": settings.pause_at(request.now),
            "body": b"" if message is None else message.body[:BODY_BYTES],
            "is_cut": message is not None and len(message.body) > BODY_BYTES,
            "steps": (shown := _shown(steps, message, request.now)),
            "spent": _spent(shown),
            "bar": _bar(shown),
            "claimed": next((one for one in reversed(steps) if one.event == "claimed"), None),
            "failure": next((one for one in reversed(steps) if one.reason is not None), None),
            "gap": _gap(found, message, request.now),
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
        return as_file(message.body)


def _target(request: PageRequest) -> tuple[str, str]:
    queue = request.call.queue
    return queue, check_id(queue, request.call.names["id"])


async def _life(
    request: PageRequest, queue: str, message_id: str
) -> tuple[LifeReader, list[LifeStep]]:
    """The steps of a message in the journal, in queues that the visitor may look into."""
    reader = LifeReader(request.spool.tree, queue, message_id, request.query.get("after", ""))
    found = [steps async for steps in request.service.inspector.life(reader)]
    return reader, await request.service.in_thread(_seen, request.identity, found)


def _seen(identity: Identity, found: Sequence[Sequence[LifeStep]]) -> list[LifeStep]:
    """All steps in order, as an identity may see them."""
    steps = (seen for some in found for step in some if (seen := seen_step(identity, step)))
    return life_in_order(steps)


def _shown(steps: Sequence[LifeStep], message: Message | None, now: float) -> list[Shown]:
    """The steps to be shown. now: when the last one ends, unless the message is gone."""
    if not steps:
        return []
    end = steps[-1].at if message is None else max(now, steps[-1].at)
    is_delayed = message is not None and message.state == "delayed"
    ends = [*(step.at for step in steps[1:]), end]
    shown = []
    for number, step in enumerate(steps):
        after = step.at - steps[number - 1].at if number else None
        lasted = max(0.0, ends[number] - step.at)
        is_last = number + 1 == len(steps)
        following = steps[number + 1].event if not is_last else "delivered" * is_delayed
        shown.append(Shown(step, after, _phase(step, following), lasted))
    return shown


def _phase(step: LifeStep, following: str) -> str:
    """What happens to a message after a step. following: the next event."""
    # After a release without a delay the next one is a claim.
    is_delayed = step.event == "released" and following in ("delivered", "redelivered")
    if is_delayed or (step.event == "deferred" and step.deliveries):
        return "waiting for a retry"
    return _PHASES.get(step.event, "")


def _bar(steps: Sequence[Shown]) -> list[Part]:
    """The bar of a life: what follows in the same phase is one part, with a gap to the next."""
    runs: list[tuple[str, float]] = []
    for one in steps:
        if runs and runs[-1][0] == one.phase:
            runs[-1] = (one.phase, runs[-1][1] + one.lasted)
        elif one.phase and one.lasted:
            runs.append((one.phase, one.lasted))
    whole = sum(lasted for _, lasted in runs) or 1.0
    widths = [max(_THINNEST, 100 * lasted / whole) for _, lasted in runs]
    parts, at = [], 0.0
    for (phase, lasted), width in zip(runs, widths, strict=True):
        wide = 100 * width / sum(widths)
        parts.append(Part(phase, lasted, round(at, 2), round(max(0.3, wide - 0.3), 2)))
        at += wide
    return parts


def _spent(steps: Sequence[Shown]) -> dict[str, tuple[float, str]]:
    """Seconds of each phase, and its share of all in words, for the legend of the bar."""
    spent: dict[str, float] = {}
    for one in steps:
        if one.phase:
            spent[one.phase] = spent.get(one.phase, 0.0) + one.lasted
    whole = sum(spent.values())
    return {
        phase: (seconds, share(seconds / whole) if whole else "")
        for phase, seconds in spent.items()
    }


def _gap(steps: Sequence[LifeStep], message: Message | None, now: float) -> str:
    """Why steps are missing, or may be; empty if the life is shown from its beginning."""
    created = None if message is None else message.created_at
    if not steps and created is not None and now - created < _NOTED_S:
        return "Its first steps will be written in a moment: reload the page."
    if not steps:
        return (
            "The journal has no step of it: it was off, its segments have expired, lines were"
            " dropped, or somebody used mv."
        )
    if len(steps) > _MOST_STEPS:
        shown, found = in_words(_MOST_STEPS), in_words(len(steps))
        return f"These are the last {shown} of {found} steps; the command below shows all."
    if steps[0].event not in _BEGINNINGS:
        return (
            "The beginning is missing: the journal was off then, its segment has expired, or lines"
            " were dropped."
        )
    return ""


def _place(message: Message) -> str:
    """The path of a message in the tree."""
    folder = {"ready": "queues", "new": "new"}.get(message.state, "delay")
    sign = "/" if folder == "queues" else ":"
    return f"{folder}/{message.queue}{sign}{message.id}"
