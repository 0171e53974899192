"""Actions on channels of logs: pause, move, pass a message over, change and delete them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.errors import InvalidValue
from fsmq.spool.resources import ChannelSettings, check_dead_letters, place_in

from ...guard import access
from ...routing import needs
from ..actions import Action, Actions, Done, Form, Question, messages
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..setting_fields import OF_CHANNEL, arguments
from .channel_pages import channel_page, settings_page

_MOST_DIGITS = 18


class ChannelActions:
    """The handler of the actions on channels."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._of_channel: Mapping[str, Action] = {
            "pause": Action("admin", partial(_pause, paused=True)),
            "resume": Action("admin", partial(_pause, paused=False)),
            "seek": Action("admin", _seek, _ask_seek, channel_page),
            "skip": Action("receive", _skip, _ask_skip),
            "bury": Action("receive", _bury, _ask_bury),
            "configure": Action("admin", _configure, _ask_configure, settings_page),
            "delete": Action("admin", _delete, _ask_delete),
        }

    def add_pages(self, add: Callable[..., None]) -> None:
        path = "logs/{log}/c/{channel}"
        add("POST", path, self.action, "Do something with a channel", needs.channel())

    async def action(self, request: PageRequest) -> StreamResponse:
        right_on = access.channel(*request.call.channel)
        return await self._actions.answer(request, self._of_channel, right_on)


def _place(request: PageRequest, form: Form) -> str:
    """The page to return to: that of the log, if the form was there."""
    log, channel = request.call.channel
    segments = ("logs", log) if form.text("back") == "log" else ("logs", log, "c", channel)
    return request.url(*segments)


async def _pause(request: PageRequest, form: Form, *, paused: bool) -> Done:
    of = request.call.channel
    await request.service.log_resources.configure_channel(of, lambda _: {"paused": paused})
    word = "channel_paused" if paused else "channel_resumed"
    return Done(word, 1, _place(request, form))


# -- the position ----------------------------------------------------------------------------------


async def _ask_seek(request: PageRequest, form: Form) -> Question:
    of, to = request.call.channel, form.text("to").strip()
    log, called = request.spool.log(of[0]), "/".join(of)
    state = await request.service.logs.state(of)
    stats = await request.service.logs.run(log.stats)
    offset = await request.service.logs.run(log.offset_of, place_in("to", to))
    offset = min(max(offset, stats.first), stats.next)
    if offset > state.position:
        moved = messages(offset - state.position)
        what = f"It passes over {moved}, those that it has finished among them."
    else:
        what = f"It hands out {messages(state.position - offset)} again that it has finished."
    lines = [f"It goes from offset {state.position} to {offset}. {what}"]
    if state.in_flight:
        lines.append(f"Claims of {messages(state.in_flight)} in flight become void.")
    return Question(
        f"Move the channel {called}?",
        lines,
        f"Move to {offset}",
        command=fsmq("channel", "seek", *of, to),
        curl=curl(request, "POST", "_logs", of[0], "channels", of[1], "seek", to=to),
    )


async def _seek(request: PageRequest, form: Form) -> Done:
    to = place_in("to", form.text("to").strip())
    position = await request.service.log_resources.seek(request.call.channel, to)
    return Done("sought", position, _place(request, form))


def _message(of: tuple[str, str], offset: int) -> tuple[str, ...]:
    return "_logs", of[0], "channels", of[1], "messages", str(offset)


# -- a message that blocks -------------------------------------------------------------------------


def _blocking(form: Form) -> tuple[int, int]:
    """The offset in a form, and the generation of the channel when its page was made."""
    numbers = []
    for name in ("offset", "generation"):
        given = form.text(name)
        if not (given.isascii() and given.isdecimal() and len(given) <= _MOST_DIGITS):
            raise InvalidValue(name, f"{given[:50]!r} is not a number of a page")
        numbers.append(int(given))
    return numbers[0], numbers[1]


async def _ask_skip(request: PageRequest, form: Form) -> Question:
    of, (offset, _) = request.call.channel, _blocking(form)
    body = {"offsets": [offset]}
    return Question(
        f"Skip the message at offset {offset}?",
        (
            f"The channel {'/'.join(of)} does not hand it out again: it counts as done.",
            "It stays in the log, and other channels are not affected.",
        ),
        "Skip the message",
        command=fsmq("ack", "/".join(of), str(offset)),
        curl=curl(request, "POST", "_logs", of[0], "channels", of[1], "done", body=body),
    )


async def _skip(request: PageRequest, form: Form) -> Done:
    offset, generation = _blocking(form)
    ranges = [(offset, offset + 1)]
    number = await request.service.logs.ack(request.call.channel, ranges, generation)
    return Done("skipped", number, _place(request, form))


async def _ask_bury(request: PageRequest, form: Form) -> Question:
    of, (offset, _) = request.call.channel, _blocking(form)
    settings = (await request.service.logs.state(of)).settings
    if settings.dead_letter_queue is None:
        raise InvalidValue("do", "the channel has no dead_letter_queue: set one first")
    return Question(
        f"Bury the message at offset {offset}?",
        (
            f"A copy goes to {settings.dead_letter_queue}, and the channel {'/'.join(of)}"
            " does not hand it out again.",
        ),
        "Bury the message",
        command=fsmq("bury", "/".join(of), str(offset)),
        curl=curl(request, "PATCH", *_message(of, offset), bury="true"),
        template="reason.html",
        asks=("reason",),
    )


async def _bury(request: PageRequest, form: Form) -> Done:
    offset, generation = _blocking(form)
    reason = form.text("reason").strip() or f"buried by {request.identity.name}"
    of, resources = request.call.channel, request.service.log_resources
    settings = (await request.service.logs.state(of)).settings
    await resources.bury(of, offset, generation, 0, reason)
    return Done("buried", 1, _place(request, form), to=settings.dead_letter_queue or "")


# -- settings --------------------------------------------------------------------------------------


async def _changes(request: PageRequest, form: Form) -> tuple[ChannelSettings, dict[str, Any]]:
    old = (await request.service.logs.state(request.call.channel)).settings
    changes = OF_CHANNEL.changes(request, form, old)
    if (target := changes.get("dead_letter_queue")) is not None:
        await request.service.in_thread(check_dead_letters, request.spool.context, target)
    return old, changes


async def _ask_configure(request: PageRequest, form: Form) -> Question:
    old, changes = await _changes(request, form)
    of = request.call.channel
    command = fsmq("channel", "config", *of, *arguments(changes))
    api = curl(request, "PATCH", "_logs", of[0], "channels", of[1], body=changes)
    return OF_CHANNEL.question(f"the channel {'/'.join(of)}", old, changes, command, api)


async def _configure(request: PageRequest, form: Form) -> Done:
    _, changes = await _changes(request, form)
    await request.service.log_resources.configure_channel(request.call.channel, lambda _: changes)
    log, channel = request.call.channel
    return Done("configured", len(changes), request.url("logs", log, "c", channel, "settings"))


# -- the end ---------------------------------------------------------------------------------------


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    of = request.call.channel
    state = await request.service.logs.state(of)
    return Question(
        f"Delete the channel {'/'.join(of)}?",
        (
            f"Its position, offset {state.position}, is forgotten; the log keeps its messages.",
            "Consumers of the channel get errors from then on. This cannot be undone.",
        ),
        f"Delete {of[1]}",
        destroys=True,
        command=fsmq("channel", "delete", *of),
        curl=curl(request, "DELETE", "_logs", of[0], "channels", of[1]),
        typed=of[1],
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    of = request.call.channel
    await request.service.log_resources.delete_channel(of)
    return Done("channel_deleted", 1, request.url("logs", of[0]))
