"""Schedules: messages at the moments of crontab lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp.web import StreamResponse

from fsmq.spool.errors import NoSuchSchedule
from fsmq.spool.layout.names import check_queue

from ...guard.sight import may_see_schedule, name_of, ruled_by
from ..acts import Act, Acts, Done, Form, Question, attributes_of
from ..commands import curl, fsmq
from ..streams import Streams
from ..visit import Visit


class SchedulePages:
    """The handlers. Whoever is an admin of a queue may define what is put there, and when."""

    def __init__(self, streams: Streams, acts: Acts, *, may_act: bool) -> None:
        self._streams = streams
        self._acts = acts
        self._may_act = may_act
        self._acts_of_one: Mapping[str, Act] = {
            "define": Act("admin", _define),
            "put_now": Act("admin", _put_now),
            "stop": Act("admin", _stop),
            "start": Act("admin", _start),
            "delete": Act("admin", _delete, _ask_delete),
        }

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "schedules", self.schedules, "All schedules")
        if self._may_act:
            add("POST", "schedules", self.act, "Do something with a schedule")

    async def schedules(self, visit: Visit) -> StreamResponse:
        async def values() -> dict[str, object]:
            found = await visit.service.listing(visit.spool.schedules)
            return {"schedules": [one for one in found if may_see_schedule(visit.identity, one)]}

        return await self._streams.page_or_stream(
            visit, "schedules.html", "schedules_live.html", values
        )

    async def act(self, visit: Visit) -> StreamResponse:
        form = await visit.form()
        name, queue = form.get("name", [""])[0].strip(), form.get("queue", [""])[0].strip()
        if form.get("do") != ["define"]:
            state = await visit.service.in_thread(visit.spool.schedule(name).state)
            if not may_see_schedule(visit.identity, state):
                raise NoSuchSchedule(name)
            on = ruled_by(state)
            queue = on if state.settings is not None else ""
        else:
            on = check_queue(queue)
            await _check_name(visit, name)
        return await self._acts.answer(visit, self._acts_of_one, queue, on)


async def _check_name(visit: Visit, name: str) -> None:
    """Make sure that a name is free, or that of a schedule that the visitor may replace."""
    try:
        state = await visit.service.in_thread(visit.spool.schedule(name).state)
    except NoSuchSchedule:
        return
    visit.require("admin", name_of(visit.identity, state))


async def _define(visit: Visit, form: Form) -> Done:
    schedule = visit.spool.schedule(form.text("name").strip())
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

    await visit.service.in_thread(define)
    return Done("scheduled", 1, visit.url("schedules"))


async def _put_now(visit: Visit, form: Form) -> Done:
    schedule = visit.spool.schedule(form.text("name"))
    await visit.service.in_thread(schedule.put_now)
    return Done("sent", 1, visit.url("schedules"))


async def _stop(visit: Visit, form: Form) -> Done:
    return await _pause(visit, form, paused=True)


async def _start(visit: Visit, form: Form) -> Done:
    return await _pause(visit, form, paused=False)


async def _pause(visit: Visit, form: Form, *, paused: bool) -> Done:
    schedule = visit.spool.schedule(form.text("name"))
    await visit.service.in_thread(lambda: schedule.configure(paused=paused))
    return Done("stopped" if paused else "started", 1, visit.url("schedules"))


async def _ask_delete(visit: Visit, form: Form) -> Question:
    name = form.text("name")
    return Question(
        f"Delete the schedule {name}?",
        (f"It puts nothing more into {form.queue}; what it has put stays.",),
        "Delete the schedule",
        command=fsmq("schedule", "rm", name),
        curl=curl(visit, "DELETE", "_schedules", name),
    )


async def _delete(visit: Visit, form: Form) -> Done:
    await visit.service.in_thread(visit.spool.schedule(form.text("name")).delete)
    return Done("schedule_deleted", 1, visit.url("schedules"))
