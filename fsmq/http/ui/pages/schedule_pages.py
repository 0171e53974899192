"""Schedules: messages at the moments of crontab lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aiohttp.web import StreamResponse

from fsmq.spool.checks import check_queue
from fsmq.spool.errors import NoSuchSchedule

from ...guard.sight import may_see_schedule, name_of, ruled_by
from ..actions import Action, Actions, Done, Form, Question, attributes_of
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..streams import Streams


class SchedulePages:
    """The handlers. Whoever is an admin of a queue may define what is put there, and when."""

    def __init__(self, streams: Streams, actions: Actions) -> None:
        self._streams = streams
        self._actions = actions
        self._actions_of_one: Mapping[str, Action] = {
            "define": Action("admin", _define),
            "put_now": Action("admin", _put_now),
            "stop": Action("admin", partial(_pause, paused=True)),
            "start": Action("admin", partial(_pause, paused=False)),
            "delete": Action("admin", _delete, _ask_delete),
        }

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "schedules", self.schedules, "All schedules")
        add("POST", "schedules", self.action, "Do something with a schedule")

    async def schedules(self, request: PageRequest) -> StreamResponse:
        async def values() -> dict[str, object]:
            found = await request.service.listing(request.spool.schedules)
            return {"schedules": [one for one in found if may_see_schedule(request.identity, one)]}

        return await self._streams.page_or_stream(
            request, "schedules.html", "schedules_live.html", values
        )

    async def action(self, request: PageRequest) -> StreamResponse:
        form = await request.form()
        name, queue = form.get("name", [""])[0].strip(), form.get("queue", [""])[0].strip()
        if form.get("do") != ["define"]:
            state = await request.service.in_thread(request.spool.schedule(name).state)
            if not may_see_schedule(request.identity, state):
                raise NoSuchSchedule(name)
            on = ruled_by(state)
            queue = on if state.settings is not None else ""
        else:
            on = check_queue(queue)
            await _check_name(request, name)
        return await self._actions.answer(request, self._actions_of_one, queue, on)


async def _check_name(request: PageRequest, name: str) -> None:
    """Make sure that a name is free, or that of a schedule that the visitor may replace."""
    try:
        state = await request.service.in_thread(request.spool.schedule(name).state)
    except NoSuchSchedule:
        return
    request.require("admin", name_of(request.identity, state))


async def _define(request: PageRequest, form: Form) -> Done:
    schedule = request.spool.schedule(form.text("name").strip())
    attributes = attributes_of(form)

    def define() -> None:
        schedule.define(
            form.text("cron").strip(),
            form.queue,
            form.text("body").replace("\r\n", "\n"),
            timezone=form.text("timezone").strip() or "UTC",
            catch_up=form.text("catch_up") or "last",  # type: ignore[arg-type]  # it is checked
            content_type=form.text("content_type").strip() or None,
            attributes=attributes,
        )

    await request.service.in_thread(define)
    return Done("scheduled", 1, request.url("schedules"))


async def _put_now(request: PageRequest, form: Form) -> Done:
    schedule = request.spool.schedule(form.text("name"))
    await request.service.in_thread(schedule.put_now)
    return Done("sent", 1, request.url("schedules"))


async def _pause(request: PageRequest, form: Form, *, paused: bool) -> Done:
    schedule = request.spool.schedule(form.text("name"))
    await request.service.in_thread(lambda: schedule.configure(paused=paused))
    return Done("stopped" if paused else "started", 1, request.url("schedules"))


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    name = form.text("name")
    return Question(
        f"Delete the schedule {name}?",
        (f"It puts nothing more into {form.queue}; what it has put stays.",),
        "Delete the schedule",
        command=fsmq("schedule", "rm", name),
        curl=curl(request, "DELETE", "_schedules", name),
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.in_thread(request.spool.schedule(form.text("name")).delete)
    return Done("schedule_deleted", 1, request.url("schedules"))
