"""Actions that bring messages into other queues: moves and redrives, of chosen ones or of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsmq.spool.checks import check_queue
from fsmq.spool.errors import InvalidValue, NoSuchQueue

from ..guard.sight import targets
from .actions import Action, Done, Form, Question, messages
from .commands import body_with_ids, curl, fsmq
from .page_request import PageRequest

_MOST_A_SECOND = 1_000_000.0


async def _number(request: PageRequest, form: Form) -> int:
    return len(form.ids) or (await request.service.sizes.counts(form.queue)).ready


def _rate(form: Form) -> float | None:
    """Messages a second, or None for no limit. Raises InvalidValue."""
    return form.number("rate", 0.0, _MOST_A_SECOND) or None


def _rate_option(form: Form) -> list[str]:
    rate = _rate(form)
    return [] if rate is None else ["--rate", f"{rate:g}"]


async def _question(
    request: PageRequest, form: Form, verb: str, lines: Sequence[str], command: str, api: str
) -> Question:
    """The question whether to move messages; where to is asked with it."""
    number = await _number(request, form)
    what = messages(number) if form.ids else f"all {messages(number)}"
    return Question(
        f"{verb} {what}?",
        lines,
        f"{verb} {what}",
        command=command,
        curl=api,
        template="target.html",
        asks=("to", "rate", "count"),
        values={"number": number, "home": verb == "Redrive"},
    )


async def _allowed(request: PageRequest, form: Form, to: str | None) -> tuple[str, ...] | None:
    """Where messages may go, as `targets` has it, if they may go to this queue."""
    allowed = targets(request.identity, None if to is None else check_queue(to, "to"))
    if to == form.queue:
        raise InvalidValue("to", "is the same queue")
    if to is not None and not await request.service.in_thread(request.spool.has_queue, to):
        raise NoSuchQueue(to)
    return allowed


# -- redrive ---------------------------------------------------------------------------------------


async def _ask_redrive(request: PageRequest, form: Form) -> Question:
    lines = (
        f"They go from {form.queue} to the queue that each was buried from, or all to one.",
        "Their deliveries count from 0 again. It goes on after a restart and can be stopped.",
    )
    command = fsmq("redrive", form.queue, *_rate_option(form), ids=form.ids)
    body, rate = body_with_ids(form.ids), _rate(form)
    api = curl(request, "POST", form.queue, "redrive", body=body, rate=rate)
    return await _question(request, form, "Redrive", lines, command, api)


async def _redrive(request: PageRequest, form: Form) -> Done:
    to = form.text("to").strip() or None
    allowed = await _allowed(request, form, to)
    if form.ids and _rate(form) is None:
        redrive = request.service.changes.redrive(form.queue, form.ids, to, allowed)
        done = await request.service.queues.do(redrive)
        return Done("redriven", done.moved, request.url("q", form.queue), to=to or "")
    number = await _number(request, form)
    only = list(form.ids) or None
    await request.service.moves.redrive(form.queue, to, _rate(form), only, allowed)
    return Done("redriving", number, request.url("work"), to=to or "")


# -- move ------------------------------------------------------------------------------------------


async def _ask_move(request: PageRequest, form: Form) -> Question:
    lines = (
        f"They go from {form.queue} to another queue, with their ids and all that they carry.",
    )
    command = fsmq("mv", *_rate_option(form), form.queue, "TARGET", ids=form.ids)
    api = curl(request, "POST", form.queue, "move", body=body_with_ids(form.ids), to="TARGET")
    return await _question(request, form, "Move", lines, command, api)


async def _move(request: PageRequest, form: Form) -> Done:
    to, only = form.text("to").strip(), list(form.ids) or None
    await _allowed(request, form, to)
    if only and _rate(form) is None:
        queue = request.spool.queue(form.queue)
        done = await request.service.listing(lambda: queue.move_to(to, only=only))
        return Done("moved", done.moved, request.url("q", form.queue), to=to)
    number = await _number(request, form)
    await request.service.moves.begin(form.queue, to, in_flight=False, rate=_rate(form), only=only)
    return Done("moving", number, request.url("work"), to=to)


MOVING_ACTIONS: Mapping[str, Action] = {
    "redrive": Action("receive", _redrive, _ask_redrive),
    "move": Action("receive", _move, _ask_move),
}
