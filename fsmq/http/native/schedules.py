"""Schedules in the native dialect: ``/_schedules``; docs/http.md is the specification."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool import Schedule, ScheduleSettings, ScheduleState
from fsmq.spool.errors import (
    NoSuchQueue,
    NoSuchSchedule,
    QueueFull,
    Unavailable,
)
from fsmq.spool.resources import (
    MAX_NAME_BYTES,
    MAX_NEXT,
    MAX_SCHEDULE_BYTES,
    check_schedule,
    schedule_settings,
)

from ...wire import moment, quote_id
from ..answers import json_answer, made
from ..connection.pieces import listed
from ..describe import (
    EXISTS,
    GONE,
    JSON,
    LOCATION,
    MESSAGE_ID,
    QUEUE_NAME,
    SAME,
    Answer,
    Body,
    Component,
    Header,
    Operation,
    Parameter,
    array,
    json_object,
    or_null,
    query,
    record,
    text,
    whole,
)
from ..dialect import Handlers
from ..guard.sight import check_changes, check_replaces, ruled_by
from ..problem_answers import OF_BODIES, guarded, keyed
from ..problems import PreconditionFailed
from ..routing import needs
from ..routing.call import Call
from ..routing.router import Router
from .forms import MOMENT
from .preconditions import ETAG, IF_MATCH, if_match, with_etag
from .queues import changes_in, settings_schema

_NAME = {**QUEUE_NAME, "maxLength": MAX_NAME_BYTES}
_SCHEDULE = Parameter(
    "schedule",
    f"the schedule's name; the rules are those of a queue's name, with at most {MAX_NAME_BYTES}"
    " characters",
    _NAME,
    "path",
)
_MEMBERS = {
    **settings_schema(schedule_settings.SETTINGS),
    "body_base64": text(contentEncoding="base64", description="the body, if it is not UTF-8"),
}
SETTINGS = Component("ScheduleSettings", record(_MEMBERS, required=["cron", "queue"]))
_CHANGE = Component("ScheduleChange", record(_MEMBERS, required=[], additionalProperties=False))
_STATE = Component(
    "ScheduleState",
    record(
        {
            "schedule": _NAME,
            "settings": {
                "oneOf": [SETTINGS, {"type": "null"}],
                "description": "null if its file cannot be read",
            },
            "last": or_null({**MOMENT, "description": "the moment of its newest message"}),
            "next": or_null({**MOMENT, "description": "null while it is paused"}),
            "problem": or_null(text(description="why it puts nothing")),
        }
    ),
)
_COUNT = query("count", "how many moments", whole(1, MAX_NEXT), 5)


class Schedules(Handlers):
    """Schedules, which put messages at the moments of crontab lines."""

    def add_routes(self, router: Router) -> None:
        one = "/_schedules/{schedule}"
        admin = needs.anybody.then("`admin` on the schedule's queue")
        router.add("GET", "/_schedules", self.list_schedules, self.LIST, admin)
        router.add("GET", one, self.show, self.SHOW, admin)
        router.add("PUT", one, self.define, self.DEFINE, admin)
        router.add("PATCH", one, self.configure, self.CONFIGURE, admin)
        router.add("DELETE", one, self.delete, self.DELETE, admin)
        router.add("GET", f"{one}/next", self.next, self.NEXT, admin)
        router.add("POST", f"{one}/run", self.run, self.RUN, admin)

    LIST = Operation(
        id="list_schedules",
        tag="Schedules",
        summary="All schedules, sorted by name",
        answers={
            200: json_object(
                "Those on whose queues the key has `admin`", {"schedules": array(_STATE)}
            ),
            **keyed(Unavailable),
        },
    )

    async def list_schedules(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        call.admit()
        states = await self._service.listing(self._spool.schedules)
        seen = [as_json(state) for state in states if identity.may("admin", ruled_by(state))]
        return listed('{"schedules": [', seen, "]}\n")

    SHOW = Operation(
        id="show_schedule",
        tag="Schedules",
        summary="A schedule and its state",
        parameters=(_SCHEDULE,),
        answers={
            200: Answer("The schedule", {JSON: _STATE}, ETAG),
            **guarded(NoSuchSchedule, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        call.read()
        state = await self._administered(call, schedule)
        shown = as_json(state)
        return with_etag(json_answer(200, shown), shown["settings"])

    DEFINE = Operation(
        id="define_schedule",
        tag="Schedules",
        summary="Create a schedule, or replace it",
        description="It begins now, or continues if the line and the time zone are unchanged.",
        parameters=(_SCHEDULE,),
        body=Body(
            f"the schedule, at most {MAX_SCHEDULE_BYTES} bytes", {JSON: SETTINGS}, required=True
        ),
        again=EXISTS,
        answers={
            200: Answer("It was replaced", {JSON: _STATE}),
            201: Answer(
                "It was created, durably",
                {JSON: _STATE},
                LOCATION,
            ),
            **guarded(*OF_BODIES, Unavailable),
        },
    )

    async def define(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        call.read()
        content = ScheduleSettings.parse(await self._members(call))
        call.sender.require("admin", content.queue)
        check = partial(check_replaces, call.sender)
        created, state = await self._service.resources.define_schedule(
            schedule.name, check, content
        )
        return made(created, as_json(state), schedule.name)

    CONFIGURE = Operation(
        id="configure_schedule",
        tag="Schedules",
        summary="Change settings of a schedule",
        description="All changes are made, or none. `null` restores a default.",
        parameters=(_SCHEDULE, IF_MATCH),
        body=Body(
            f"the settings to be changed, at most {MAX_SCHEDULE_BYTES} bytes",
            {JSON: _CHANGE},
            required=True,
        ),
        again=SAME,
        answers={
            200: Answer("The schedule and its state", {JSON: _STATE}, ETAG),
            **guarded(NoSuchSchedule, PreconditionFailed, *OF_BODIES, Unavailable),
        },
    )

    async def configure(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        call.read()
        changes = await self._members(call)
        if isinstance(queue := changes.get("queue"), str):
            call.sender.require("admin", queue)
        await self._administered(call, schedule)
        change = if_match(call, changes, ScheduleSettings.as_json)
        check = partial(check_changes, call.sender)
        shown = as_json(await self._service.resources.change_schedule(schedule.name, check, change))
        return with_etag(json_answer(200, shown), shown["settings"])

    DELETE = Operation(
        id="delete_schedule",
        tag="Schedules",
        summary="Delete a schedule; messages that it has put stay",
        parameters=(_SCHEDULE,),
        again=GONE,
        answers={
            200: json_object("It was deleted", {"schedule": _NAME, "deleted": {"const": True}}),
            **guarded(NoSuchSchedule, Unavailable),
        },
    )

    async def delete(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        call.read()
        await self._administered(call, schedule)
        check = partial(check_changes, call.sender)
        await self._service.resources.delete_schedule(schedule.name, check)
        return json_answer(200, {"schedule": schedule.name, "deleted": True})

    NEXT = Operation(
        id="next_of_schedule",
        tag="Schedules",
        summary="The next moments of a schedule, as if it were not paused",
        parameters=(_SCHEDULE, _COUNT),
        answers={
            200: json_object("The moments", {"schedule": _NAME, "next": array(MOMENT)}),
            **guarded(NoSuchSchedule, Unavailable),
        },
    )

    async def next(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        count = call.read()[_COUNT]
        await self._administered(call, schedule)
        moments = await self._service.in_thread(schedule.next, count)
        shown = [moment(one) for one in moments]
        return json_answer(200, {"schedule": schedule.name, "next": shown})

    RUN = Operation(
        id="run_schedule",
        tag="Schedules",
        summary="Put the message of a schedule now, beside those of its moments",
        parameters=(_SCHEDULE,),
        again="puts a second message",
        answers={
            201: Answer(
                "It is on stable media",
                {JSON: record({"id": MESSAGE_ID})},
                {"Location": Header("its path, from that of the request", text(), always=True)},
            ),
            **guarded(NoSuchSchedule, NoSuchQueue, QueueFull, Unavailable),
        },
    )

    async def run(self, call: Call) -> StreamResponse:
        schedule = self._named(call)
        call.read()
        state = await self._administered(call, schedule)
        check = partial(check_changes, call.sender)
        message_id = await self._service.resources.put_of_schedule(schedule.name, check)
        answer = json_answer(201, {"id": quote_id(message_id)})
        path = f"{ruled_by(state)}/messages/{quote_id(message_id)}"
        answer.headers["Location"] = f"../../{path}"  # from /_schedules/{schedule}/run
        return answer

    def _named(self, call: Call) -> Schedule:
        return self._spool.schedule(check_schedule(call.names["schedule"]))

    async def _members(self, call: Call) -> dict[str, Any]:
        body = await call.json_body(MAX_SCHEDULE_BYTES, self._service.read_timeout)
        return await self._service.beside(len(body), changes_in, body)

    async def _administered(self, call: Call, schedule: Schedule) -> ScheduleState:
        """The state of a schedule; the sender must be an admin of its queue.

        Raises:
            NoSuchSchedule: it does not exist, or the sender may not see it.
            Unauthorized, Forbidden
        """
        state = await self._service.in_thread(schedule.state)
        check_changes(call.sender, state)
        return state


def as_json(state: ScheduleState) -> dict[str, Any]:
    """The state of a schedule, for an answer."""
    return {
        "schedule": state.name,
        "settings": None if state.settings is None else state.settings.as_json(),
        "last": None if state.last is None else moment(state.last),
        "next": None if state.next is None else moment(state.next),
        "problem": state.problem,
    }
