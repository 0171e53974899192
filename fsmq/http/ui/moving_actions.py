"""Actions that move messages to other queues: moves and redrives, of chosen messages or of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fsmq.spool.checks import check_queue
from fsmq.spool.errors import InvalidValue
from fsmq.words import asked, moment

from ..guard.sight import targets
from .actions import Action, Done, Form, Question, back, messages
from .commands import body_with_ids, curl, fsmq
from .page_request import PageRequest

_MOST_A_SECOND = 1_000_000.0


async def _number(request: PageRequest, form: Form) -> int:
    return len(form.ids) or (await request.service.sizes.counts(form.queue)).ready


def _rate(form: Form) -> float | None:
    """Messages a second, or None for no limit. Raises InvalidValue."""
    return form.number("rate", 0.0, _MOST_A_SECOND) or None


def _rate_option(form: Form) -> list[str]:
    """The option of a command; none for a rate that is not a number, which is asked for again."""
    try:
        rate = _rate(form)
    except InvalidValue:
        rate = None
    return [] if rate is None else ["--rate", f"{rate:g}"]


async def _question(
    request: PageRequest, form: Form, verb: str, lines: Sequence[str], command: str, api: str
) -> Question:
    """The question whether to move messages, and to which queue."""
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
    """Check that messages may go to a queue; returns what `targets` returns."""
    allowed = targets(request.identity, None if to is None else check_queue(to, "to"))
    if to == form.queue:
        raise InvalidValue("to", "is the same queue")
    if to is not None and not await request.service.in_thread(request.spool.has_queue, to):
        near = asked(await request.near(to))
        raise InvalidValue("to", f"there is no queue named {to!r}" + (f": {near}" if near else ""))
    return allowed


def _paused_targets(request: PageRequest, form: Form) -> dict[str, str]:
    """The queues that a redrive may put messages into, and are paused: until when, in words."""
    to = form.text("to").strip()
    settings = request.settings_of(request.spool.queues())
    buries = [name for name, of in settings.items() if form.queue == of.dead_letter_queue]
    return {
        name: f"until {moment(settings[name].paused_until)}"
        if isinstance(pause, str)
        else "until it is resumed"
        for name in ([to] if to in settings else buries)
        if (pause := settings[name].pause_at(request.now))
    }


def _only_source(request: PageRequest, queue: str) -> str:
    """The queue whose dead letters are in this one; empty if there are several, or none."""
    settings = request.settings_of(request.spool.queues())
    found = [name for name, of in settings.items() if queue == of.dead_letter_queue]
    return found[0] if len(found) == 1 and request.identity.may_see(found[0]) else ""


# -- redrive ---------------------------------------------------------------------------------------


async def _ask_redrive(request: PageRequest, form: Form) -> Question:
    paused = await request.service.listing(_paused_targets, request, form)
    lines = (
        f"Each goes from {form.queue} back to its own queue, or all to one.",
        "Their deliveries count from 0 again. It goes on after a restart and can be stopped.",
        *(f"{name} is paused {how}: messages that go there wait." for name, how in paused.items()),
    )
    command = fsmq("redrive", form.queue, *_rate_option(form), ids=form.ids)
    body, rate = body_with_ids(form.ids), _rate_option(form)[1:]
    api = curl(request, "POST", form.queue, "redrive", body=body, rate=rate[0] if rate else None)
    return await _question(request, form, "Redrive", lines, command, api)


async def _redrive(request: PageRequest, form: Form) -> Done:
    to = form.text("to").strip() or None
    allowed = await _allowed(request, form, to)
    if form.ids and _rate(form) is None:
        redrive = request.service.changes.redrive(form.queue, form.ids, to, allowed)
        done = await request.service.queues.do(redrive)
        into = to or await request.service.listing(_only_source, request, form.queue)
        return Done("redriven", done.moved, back(request, form), of=into or "", to=to or "")
    number = await _number(request, form)
    only = list(form.ids) or None
    who = request.identity.account
    await request.service.moves.redrive(who, form.queue, to, _rate(form), only, allowed)
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
        move = request.service.changes.move(form.queue, to, only)
        done = await request.service.queues.do(move)
        return Done("moved", done.moved, back(request, form), of=to, to=to)
    number = await _number(request, form)
    who, rate = request.identity.account, _rate(form)
    await request.service.moves.begin(who, form.queue, to, in_flight=False, rate=rate, only=only)
    return Done("moving", number, request.url("work"), to=to)


MOVING_ACTIONS: Mapping[str, Action] = {
    "redrive": Action("receive", _redrive, _ask_redrive),
    "move": Action("receive", _move, _ask_move),
}
