"""The page of schedules, which put messages at the moments of crontab lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp.web import StreamResponse

from fsmq.spool import ScheduleState
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchSchedule
from fsmq.spool.resources import Crontab, ScheduleSettings, check_schedule
from fsmq.words import asked

from ...guard.access import Identity, schedule
from ...guard.sight import check_changes, check_replaces, may_see_schedule, ruled_by
from ...service.resources import Check
from ..actions import Action, Actions, Done, Form, Question, attributes_of
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..streams import Streams

_OFFERED = 500
_RUNS = 3
_FIELDS = ("cron", "queue", "timezone", "catch_up", "content_type", "attributes", "body")


class SchedulePages:
    """Handlers of the page of schedules. Admins of a queue may define its schedules."""

    def __init__(self, streams: Streams, actions: Actions) -> None:
        self._streams = streams
        self._actions = actions
        self._actions_of_one: Mapping[str, Action] = {
            "define": Action("admin", _define, _ask_define, _new_page),
            "change": Action("admin", _change, _ask_change, _change_page),
            "put_now": Action("admin", _put_now),
            "stop": Action("admin", partial(_pause, paused=True)),
            "start": Action("admin", partial(_pause, paused=False)),
            "delete": Action("admin", _delete, _ask_delete),
        }

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "schedules", self.schedules, "All schedules")
        add("GET", "schedules/new", self.defining, "A schedule to be defined")
        add("GET", "schedules/change", self.changing, "A schedule to be changed")
        add("GET", "schedules/next", self.next, "The next runs of a crontab line")
        add("POST", "schedules", self.action, "Do something with a schedule")

    async def schedules(self, request: PageRequest) -> StreamResponse:
        async def values() -> dict[str, object]:
            found = await request.service.listing(request.spool.schedules)
            seen = [one for one in found if may_see_schedule(request.identity, one)]
            return {"schedules": seen, "in_zone": _in_zone}

        return await self._streams.page_or_stream(
            request, "schedules.html", "schedules_live.html", values
        )

    async def defining(self, request: PageRequest) -> StreamResponse:
        request.require_creation()
        return await request.page(*await _new_page(request))

    async def changing(self, request: PageRequest) -> StreamResponse:
        if not request.query.get("name"):
            return request.go(request.url("schedules"))
        return await request.page(*await _change_page(request))

    async def next(self, request: PageRequest) -> StreamResponse:
        """The next runs of what is being typed."""
        cron, zone = request.query.get("cron", ""), request.query.get("timezone", "")
        found = await request.service.in_thread(_next_runs, request, cron, zone)
        return await request.page("next_runs.html", found)

    async def action(self, request: PageRequest) -> StreamResponse:
        name, queue = await request.field("name"), await request.field("queue")
        if await request.field("do") != "define":
            state = await request.service.in_thread(request.spool.schedule(name).state)
            check_changes(request.identity, state)
            on = ruled_by(state)
            queue = on if state.settings is not None else ""
        else:
            on = queue
        noted = schedule(name)
        return await self._actions.answer(request, self._actions_of_one, queue, on, noted)


async def _new_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    taken = ""
    if request.problem_of("name"):
        taken = await request.service.in_thread(_may_change, request, request.typed("name").strip())
    return "new_schedule.html", {**await _form_values(request, {}), "taken": taken}


async def _change_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    """Raises NoSuchSchedule, Unauthorized, Forbidden."""
    name = request.query.get("name") or request.typed("name")
    settings = await request.service.in_thread(_settings_to_change, request, name)
    values = await _form_values(request, _texts(request, settings))
    return "new_schedule.html", {**values, "changed": name}


async def _form_values(request: PageRequest, texts: Mapping[str, str]) -> dict[str, object]:
    """The values of the form. texts: what its fields have before somebody types."""
    cron = request.typed("cron", texts.get("cron", ""))
    zone = request.typed("timezone", texts.get("timezone", ""))
    # What is wrong with these fields is said beside them.
    is_wrong = request.problem_of("cron") or request.problem_of("timezone")
    cron = "" if is_wrong else cron
    runs = await request.service.in_thread(_next_runs, request, cron, zone)
    queues = await request.service.listing(request.spool.queues)
    shown = request.identity.visible(queues)[:_OFFERED]
    empty = dict.fromkeys(_FIELDS, "")
    values = {"queues": shown, "texts": {**empty, **texts}, "given": texts}
    return {**runs, **values, "changed": "", "taken": ""}


def _settings_to_change(request: PageRequest, name: str) -> ScheduleSettings:
    state = request.spool.schedule(name).state()
    check_changes(request.identity, state)
    request.require("admin", ruled_by(state))  # read-only pages have no form
    if state.settings is None:
        raise InvalidValue("schedule", state.problem or "its file cannot be read")
    return state.settings


def _may_change(request: PageRequest, name: str) -> str:
    """The name, if it is that of a schedule that the visitor may change; else empty."""
    try:
        _settings_to_change(request, name)
    except FsmqError:
        return ""
    return name


def _texts(request: PageRequest, settings: ScheduleSettings) -> dict[str, str]:
    """The fields of a form with settings; without those that the visitor may not read, and without
    a body that is no text, so that these stay as they are.
    """
    texts = {
        "cron": settings.cron,
        "queue": settings.queue,
        "timezone": settings.timezone,
        "catch_up": settings.catch_up,
    }
    if request.bodies:
        texts["content_type"] = settings.content_type or ""
        texts["attributes"] = "\n".join(f"{n}: {v}" for n, v in settings.attributes.items())
        with suppress(UnicodeDecodeError):
            texts["body"] = settings.body.decode()
    return texts


def _next_runs(request: PageRequest, cron: str, zone: str) -> dict[str, object]:
    """The next runs of a crontab line, or why there are none. zone: empty for UTC."""
    zone = zone.strip() or "UTC"
    found: dict[str, object] = {"runs": (), "zone": zone, "problem": ""}
    if cron.strip():
        try:
            moments = Crontab(cron.strip(), zone).after(request.now)
            found["runs"] = [_in_zone(one, zone) for one in islice(moments, _RUNS)]
        except InvalidValue as error:
            found["problem"] = error.problem
    return found


def _in_zone(moment: float, zone: str) -> str:
    """A moment as a clock in a zone shows it; in UTC where there is no such zone."""
    try:
        shown = datetime.fromtimestamp(moment, ZoneInfo(zone))
    except (ValueError, OSError, KeyError):
        shown, zone = datetime.fromtimestamp(moment, UTC), "UTC"
    return f"{shown:%a %Y-%m-%d %H:%M:%S} {zone}"


def _changes(request: PageRequest) -> Check:
    return partial(check_changes, request.identity)


def _given(form: Form) -> dict[str, Any]:
    """The settings in a form. Raises InvalidValue."""
    return {
        "cron": form.text("cron").strip(),
        "queue": check_queue(form.text("queue").strip()),
        "body": _lines(form.text("body")),
        "timezone": form.text("timezone").strip() or "UTC",
        "catch_up": form.text("catch_up") or "last",
        "content_type": form.text("content_type").strip() or None,
        "attributes": attributes_of(form),
    }


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _settings(form: Form) -> ScheduleSettings:
    """The schedule in a form. Raises InvalidValue."""
    settings = ScheduleSettings.parse(_given(form))
    check_schedule(form.text("name").strip())
    return settings


def _check_free(identity: Identity, state: ScheduleState | None) -> None:
    """Raises InvalidValue, Unauthorized, Forbidden."""
    check_replaces(identity, state)
    if state is not None:
        raise InvalidValue("schedule", "there is a schedule of this name; change it")


def _changed(request: PageRequest, form: Form, now: ScheduleSettings) -> dict[str, Any]:
    """The settings that differ in a form from those of now. Raises InvalidValue."""
    given, shown = _given(form), _texts(request, now)
    return {
        name: value
        for name, value in given.items()
        if name in form.fields
        if name in shown and _lines(form.text(name)).strip() != _lines(shown[name]).strip()
    }


async def _ask_define(request: PageRequest, form: Form) -> Question | None:
    """A question if the queue does not exist."""
    settings, name = _settings(form), form.text("name").strip()
    with suppress(NoSuchSchedule):
        state = await request.service.in_thread(request.spool.schedule(name).state)
        _check_free(request.identity, state)
    return await _ask_without_queue(request, name, settings.queue, "Define")


async def _ask_change(request: PageRequest, form: Form) -> Question | None:
    name = form.text("name")
    now = await request.service.in_thread(_settings_to_change, request, name)
    now = now.changed(_changed(request, form, now))
    request.require("admin", now.queue)
    return await _ask_without_queue(request, name, now.queue, "Change")


async def _ask_without_queue(
    request: PageRequest, name: str, queue: str, verb: str
) -> Question | None:
    if await request.service.in_thread(request.spool.has_queue, queue):
        return None
    near = asked(await request.near(queue))
    problem = f"There is no queue named {queue}" + (f": {near}" if near else ".")
    return Question(
        f"{verb} the schedule {name} without its queue?",
        (problem, "The schedule puts nothing until somebody creates the queue."),
        f"{verb} schedule",
        command=fsmq("queue", "create", queue),
        curl=curl(request, "PUT", queue),
    )


async def _define(request: PageRequest, form: Form) -> Done:
    name, settings = form.text("name").strip(), _settings(form)
    await request.service.resources.define_schedule(
        name, partial(_check_free, request.identity), settings
    )
    return Done("scheduled", 1, request.url("schedules"), to=settings.queue)


async def _change(request: PageRequest, form: Form) -> Done:
    changes = partial(_changed, request, form)
    state = await request.service.resources.change_schedule(
        form.text("name"), _changes(request), changes
    )
    queue = form.queue if state.settings is None else state.settings.queue
    return Done("rescheduled", 1, request.url("schedules"), to=queue)


async def _put_now(request: PageRequest, form: Form) -> Done:
    await request.service.resources.put_of_schedule(form.text("name"), _changes(request))
    return Done("sent", 1, request.url("schedules"), to=form.queue)


async def _pause(request: PageRequest, form: Form, *, paused: bool) -> Done:
    name, changes = form.text("name"), {"paused": paused}
    check = _changes(request)
    await request.service.resources.change_schedule(name, check, lambda _: changes)
    return Done("stopped" if paused else "started", 1, request.url("schedules"), to=form.queue)


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    name = form.text("name")
    return Question(
        f"Delete the schedule {name}?",
        (f"It puts nothing more into {form.queue}; messages that it has put stay.",),
        "Delete the schedule",
        destroys=True,
        command=fsmq("schedule", "delete", name),
        curl=curl(request, "DELETE", "_schedules", name),
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.resources.delete_schedule(form.text("name"), _changes(request))
    return Done("schedule_deleted", 1, request.url("schedules"), to=form.queue)
