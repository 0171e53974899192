"""Schedules over HTTP: the requests of each verb, and what the answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchSchedule
from fsmq.spool.schedules.schedule_settings import (
    ScheduleSettings,
    ScheduleState,
    body_members,
    check_schedule,
)
from fsmq.wire import seconds, unquote_id

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Answer, Verb
from .incoming import member, parsed
from .queue_verbs import Verbs


class ScheduleVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def schedules(self) -> Verb[list[ScheduleState]]:
        answer = yield from self._verbs.done("GET", "/_schedules")
        return [_state(answer, found) for found in member(answer, "schedules")]

    def define(self, name: str, content: ScheduleSettings) -> Verb[bool]:
        """A retry after a lost answer finds the schedule, and returns False."""
        body = json.dumps(content.as_json()).encode()
        answer = yield from self._verbs.done("PUT", _path(name), body=body)
        return answer.status == 201

    def state(self, name: str) -> Verb[ScheduleState]:
        answer = yield from self._verbs.done("GET", _path(name))
        return _state(answer, parsed(answer))

    def configure(self, name: str, changes: Mapping[str, Any]) -> Verb[ScheduleSettings]:
        body = json.dumps(_changes(changes)).encode()
        answer = yield from self._verbs.done("PATCH", _path(name), body=body)
        state = _state(answer, parsed(answer))
        if state.settings is None:
            raise UnexpectedAnswer(answer.status, "no settings; is this a server of fsmq?")
        return state.settings

    def next(self, name: str, count: int) -> Verb[list[float]]:
        answer = yield from self._verbs.done("GET", f"{_path(name)}/next", {"count": count})
        return [seconds(moment) for moment in member(answer, "next")]

    def run(self, name: str) -> Verb[str]:
        """A retry after a lost answer puts a second message."""
        answer = yield from self._verbs.done("POST", f"{_path(name)}/run")
        return unquote_id(member(answer, "id"))

    def delete(self, name: str) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", _path(name))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A retry after a lost answer finds no schedule.
            if not (outcome.again and isinstance(error, NoSuchSchedule)):
                raise error


def _path(name: str) -> str:
    return f"/_schedules/{check_schedule(name)}"


def _state(answer: Answer, found: Any) -> ScheduleState:
    try:
        content = found["settings"]
        return ScheduleState(
            found["schedule"],
            None if content is None else ScheduleSettings.parse(content),
            None if found["last"] is None else seconds(found["last"]),
            None if found["next"] is None else seconds(found["next"]),
            found["problem"],
        )
    except (KeyError, TypeError, ValueError, FsmqError) as error:
        raise UnexpectedAnswer(answer.status, f"no schedule of fsmq: {error!r}") from error


def _changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(changes)
    if isinstance(body := given.get("body"), bytes):
        del given["body"]
        given |= body_members(body)
    if isinstance(attributes := given.get("attributes"), Mapping):
        given["attributes"] = dict(attributes)
    try:
        json.dumps(given)
    except TypeError as error:
        raise InvalidValue("changes", str(error)) from None
    return given
