"""Actions on logs: create, change, delete, and create a channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.checks import check_queue
from fsmq.spool.resources import CHANNEL_SETTINGS, LOG_SETTINGS, LogSettings, place_in

from ...guard import access
from ...routing import needs
from ..actions import Action, Actions, Done, Form, Question, messages
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..setting_fields import OF_LOG, arguments, parsed, setting_field
from .log_pages import settings_of, settings_page

_ORDERS = {
    "key": "key: the messages of one key in order",
    "strict": "strict: all messages in order, one claim at a time",
    "none": "none: any message, failed ones hold back nothing",
}


class LogActions:
    """Handlers of the actions on logs, and of the pages with forms for new logs and channels."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._of_all: Mapping[str, Action] = {"create": Action("admin", _create, form=_new_page)}
        self._of_log: Mapping[str, Action] = {
            "create_channel": Action("admin", _create_channel, form=_new_channel_page),
            "configure": Action("admin", _configure, _ask_configure, settings_page),
            "delete": Action("admin", _delete, _ask_delete),
        }

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "new-log", self.creating, "A log to be created")
        add("GET", "logs/{log}/new", self.creating_channel, "A channel to be created", needs.log())
        add("POST", "logs", self.on_all, "Create a log")
        may = needs.log().then("`admin` on it, or on the channel to be created")
        add("POST", "logs/{log}", self.on_log, "Do something with it", may)

    async def creating(self, request: PageRequest) -> StreamResponse:
        request.require_creation()
        return await request.page(*await _new_page(request))

    async def creating_channel(self, request: PageRequest) -> StreamResponse:
        request.require_creation()
        await settings_of(request)  # there is such a log
        return await request.page(*await _new_channel_page(request))

    async def on_all(self, request: PageRequest) -> StreamResponse:
        right_on = access.log(await request.field("log"))
        return await self._actions.answer(request, self._of_all, right_on)

    async def on_log(self, request: PageRequest) -> StreamResponse:
        log = request.call.log
        right_on = access.log(log)
        if await request.field("do") == "create_channel":
            right_on = access.channel(log, await request.field("channel"))
        return await self._actions.answer(request, self._of_log, right_on)


# -- create ----------------------------------------------------------------------------------------


async def _new_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    retain_for = setting_field(LOG_SETTINGS, "retain_for", LOG_SETTINGS["retain_for"].default)
    return "new_log.html", {"retain_for": retain_for}


async def _create(request: PageRequest, form: Form) -> Done:
    log, settings = check_queue(form.text("log").strip(), "log"), {}
    if retain_for := form.text("retain_for").strip():
        settings["retain_for"] = parsed("retain_for", LOG_SETTINGS["retain_for"], retain_for)
    created = await request.service.log_resources.create_log(log, settings)
    return Done("log_created" if created else "log_there", 1, request.url("logs", log))


async def _new_channel_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    default = CHANNEL_SETTINGS["order"].default
    return "new_channel.html", {"log": request.call.log, "orders": _ORDERS, "default": default}


async def _create_channel(request: PageRequest, form: Form) -> Done:
    log, channel = request.call.log, check_queue(form.text("channel").strip(), "channel")
    start = place_in("from", form.text("from").strip() or "last")
    settings = {"order": form.text("order")} if form.text("order") else {}
    created = await request.service.log_resources.create_channel((log, channel), start, settings)
    word = "channel_created" if created else "channel_there"
    return Done(word, 1, request.url("logs", log, "c", channel))


# -- settings --------------------------------------------------------------------------------------


async def _changes(request: PageRequest, form: Form) -> tuple[LogSettings, dict[str, Any]]:
    old = await settings_of(request)
    return old, OF_LOG.changes(request, form, old)


async def _ask_configure(request: PageRequest, form: Form) -> Question:
    old, changes = await _changes(request, form)
    log = request.call.log
    command = fsmq("log", "config", log, *arguments(changes))
    api = curl(request, "PATCH", "_logs", log, body=changes)
    return OF_LOG.question(f"the log {log}", old, changes, command, api)


async def _configure(request: PageRequest, form: Form) -> Done:
    _, changes = await _changes(request, form)
    await request.service.log_resources.configure_log(request.call.log, lambda _: changes)
    return Done("configured", len(changes), request.url("logs", request.call.log, "settings"))


# -- the end ---------------------------------------------------------------------------------------


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    log = request.call.log
    stats = await request.service.logs.run(request.spool.log(log).stats)
    return Question(
        f"Delete the log {log}?",
        (
            f"Its {messages(stats.next - stats.first)} and all of its channels are deleted.",
            "Publishers and consumers get errors from then on. This cannot be undone.",
        ),
        f"Delete {log}",
        destroys=True,
        command=fsmq("log", "delete", log),
        curl=curl(request, "DELETE", "_logs", log),
        typed=log,
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.log_resources.delete_log(request.call.log)
    return Done("log_deleted", 1, request.url("logs"))
