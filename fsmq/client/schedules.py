"""Schedules over HTTP: the requests of each verb, and the objects that send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsmq.spool.errors import FsmqError, InvalidValue, NoSuchSchedule
from fsmq.spool.schedules.schedule import schedule_of
from fsmq.spool.schedules.schedule_settings import (
    CatchUp,
    ScheduleSettings,
    ScheduleState,
    check_schedule,
)
from fsmq.wire import seconds, unquote_id

from .errors import UnexpectedAnswer, error_of
from .exchange import Answer, Verb
from .incoming import member, parsed
from .verbs import Verbs

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client


class ScheduleVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def schedules(self) -> Verb[list[ScheduleState]]:
        answer = yield from self._verbs.done("GET", "/_schedules")
        return [_state(answer, found) for found in member(answer, "schedules")]

    def define(self, name: str, content: ScheduleSettings) -> Verb[bool]:
        """A second try after a lost answer finds it there: False, though it was ours."""
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
        """A second try after a lost answer puts a second message."""
        answer = yield from self._verbs.done("POST", f"{_path(name)}/run")
        return unquote_id(member(answer, "id"))

    def delete(self, name: str) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", _path(name))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A second try after a lost answer finds none.
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
        given |= {
            n: v for n, v in ScheduleSettings("", "", body).as_json().items() if n[:4] == "body"
        }
    if isinstance(attributes := given.get("attributes"), Mapping):
        given["attributes"] = dict(attributes)
    try:
        json.dumps(given)
    except TypeError as error:
        raise InvalidValue("changes", str(error)) from None
    return given


class ClientSchedule:
    """One schedule of a server; every verb is durable when it returns."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = ScheduleVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<ClientSchedule {self.name!r} of {self.client.options.origin}>"

    def define(
        self,
        cron: str,
        queue: str,
        body: bytes | str = b"",
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        paused: bool = False,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> bool:
        """Create the schedule, or replace it; False if it was there.

        It begins now; if it was there with the same line and zone, it goes on where it was. See
        :class:`~fsmq.spool.ScheduleSettings` for the arguments.

        Raises InvalidValue.
        """
        content = schedule_of(
            cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
            content_type, attributes,
        )  # fmt: skip
        return self._run(self._verbs.define(self.name, content))

    def state(self) -> ScheduleState:
        """The schedule as it stands. Raises NoSuchSchedule."""
        return self._run(self._verbs.state(self.name))

    def configure(self, **changes: Any) -> ScheduleSettings:
        """Change some of it, such as ``configure(paused=True)``; all of it then.

        Raises InvalidValue, NoSuchSchedule.
        """
        return self._run(self._verbs.configure(self.name, changes))

    def next(self, count: int = 5) -> list[float]:
        """The next moments, in Unix seconds, as if it were not paused. Raises NoSuchSchedule."""
        return self._run(self._verbs.next(self.name, count))

    def put_now(self) -> str:
        """Put its message now, beside those of its moments; the message's id.

        Raises NoSuchSchedule, NoSuchQueue, QueueFull; InvalidValue if the queue takes no such body.
        """
        return self._run(self._verbs.run(self.name))

    def delete(self) -> None:
        """Delete the schedule; messages that it has put stay. Raises NoSuchSchedule."""
        self._run(self._verbs.delete(self.name))


class AsyncClientSchedule:
    """One schedule of a server, for coroutines; otherwise as :class:`ClientSchedule`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = ScheduleVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<AsyncClientSchedule {self.name!r} of {self.client.options.origin}>"

    async def define(
        self,
        cron: str,
        queue: str,
        body: bytes | str = b"",
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        paused: bool = False,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> bool:
        """Create the schedule, or replace it; False if it was there.

        It begins now; if it was there with the same line and zone, it goes on where it was. See
        :class:`~fsmq.spool.ScheduleSettings` for the arguments.

        Raises InvalidValue.
        """
        content = schedule_of(
            cron, queue, body, timezone, catch_up, paused, delay, priority, ttl,
            content_type, attributes,
        )  # fmt: skip
        return await self._run(self._verbs.define(self.name, content))

    async def state(self) -> ScheduleState:
        """The schedule as it stands. Raises NoSuchSchedule."""
        return await self._run(self._verbs.state(self.name))

    async def configure(self, **changes: Any) -> ScheduleSettings:
        """Change some of it, such as ``configure(paused=True)``; all of it then.

        Raises InvalidValue, NoSuchSchedule.
        """
        return await self._run(self._verbs.configure(self.name, changes))

    async def next(self, count: int = 5) -> list[float]:
        """The next moments, in Unix seconds, as if it were not paused. Raises NoSuchSchedule."""
        return await self._run(self._verbs.next(self.name, count))

    async def put_now(self) -> str:
        """Put its message now, beside those of its moments; the message's id.

        Raises NoSuchSchedule, NoSuchQueue, QueueFull; InvalidValue if the queue takes no such body.
        """
        return await self._run(self._verbs.run(self.name))

    async def delete(self) -> None:
        """Delete the schedule; messages that it has put stay. Raises NoSuchSchedule."""
        await self._run(self._verbs.delete(self.name))
