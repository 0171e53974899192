"""Channels of logs in the native dialect: ``/_logs/{log}/channels``."""

from __future__ import annotations

from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool import Channel
from fsmq.spool.errors import (
    ClaimVoid,
    InvalidValue,
    NoSuchChannel,
    NoSuchLog,
    NotInFlight,
    Unavailable,
)
from fsmq.spool.inspection import named
from fsmq.spool.prepare import MAX_CLAIMS
from fsmq.spool.resources import CHANNEL_SETTINGS, ChannelSettings, checked

from ....wire import moment
from ...answers import json_answer, made
from ...describe import (
    BYTES,
    DONE_BEFORE,
    EXISTS,
    GONE,
    JSON,
    LOCATION,
    MAX_SETTINGS_BYTES,
    OTHERS,
    QUEUE_NAME,
    SAME,
    Answer,
    Body,
    Component,
    Header,
    Operation,
    array,
    integer,
    json_object,
    number,
    or_null,
    record,
    text,
)
from ...dialect import Handlers
from ...problem_answers import OF_BODIES, guarded
from ...problems import PreconditionFailed, SlowBody, UnreadableBody
from ...routing import bodies, needs
from ...routing.call import Call
from ...routing.router import Router
from ..forms import ATTRIBUTES, MESSAGES, MOMENT, REASON, WAIT, check_reason_is_used
from ..preconditions import ETAG, IF_MATCH, if_match, with_etag
from ..queues import ADMIN_OF_DEAD, changes_in, require_dead_letters
from .log_batch import ACKED, acked
from .log_forms import (
    BEGIN,
    BURY,
    CHANNEL,
    CHANNEL_MESSAGE,
    CLAIM_HEADERS,
    COUNT,
    DELIVERIES,
    GENERATION,
    LOG,
    OFFSET,
    RELEASE,
    RENEWAL,
    SETTINGS_OF_CHANNEL,
    TO,
    VISIBILITY,
    encode_claimed,
    headers_of_claimed,
    offset_of,
    reason_of,
)

SETTINGS = Component("ChannelSettings", record(SETTINGS_OF_CHANNEL))
CHANGE = Component(
    "ChannelSettingsChange", record(SETTINGS_OF_CHANNEL, required=[], additionalProperties=False)
)
_NAMES = {"log": QUEUE_NAME, "channel": QUEUE_NAME}
_CREATED = {JSON: record({**_NAMES, "created": {"type": "boolean"}})}
_SETTINGS_BODY = f"settings, at most {MAX_SETTINGS_BYTES} bytes"
_REASON = Header(
    "why there is nothing, if it is one of these", text(enum=["paused", "blocked", "stalled"])
)
_MISSING = (NoSuchLog, NoSuchChannel)
_PATH = "/_logs/{log}/channels/{channel}"


class Channels(Handlers):
    """Channels of logs, and their messages."""

    def add_routes(self, router: Router) -> None:
        admin, receive = needs.channel("admin"), needs.channel("receive")
        named = admin.then(ADMIN_OF_DEAD)
        one = f"{_PATH}/messages/{{offset}}"
        router.add("GET", _PATH, self.show, self.SHOW, needs.channel())
        router.add("PUT", _PATH, self.create, self.CREATE, named)
        router.add("PATCH", _PATH, self.configure, self.CONFIGURE, named)
        router.add("DELETE", _PATH, self.delete, self.DELETE, admin)
        router.add("POST", f"{_PATH}/seek", self.seek, self.SEEK, admin)
        router.add("GET", f"{_PATH}/messages", self.claim, self.CLAIM, receive)
        router.add("POST", f"{_PATH}/done", self.ack, self.ACK, receive)
        router.add("PATCH", one, self.change, self.CHANGE, receive)
        router.add("DELETE", one, self.finish, self.FINISH, receive)

    # -- the channel itself ----------------------------------------------------------------------

    SHOW = Operation(
        id="show_channel",
        tag="Logs",
        summary="A channel's state and settings",
        parameters=(LOG, CHANNEL),
        answers={
            200: json_object(
                "Its state",
                {
                    **_NAMES,
                    "position": integer(0, description="the lowest unfinished offset"),
                    "lag": integer(0, description="unfinished messages"),
                    "lag_bytes": integer(0, description="of them, about"),
                    "lag_seconds": number(0, 2**53, description="the age of the lowest"),
                    "in_flight": integer(0),
                    "delayed": integer(0),
                    "lost": integer(0, description="removed or damaged before they were done"),
                    "first_lost": or_null(integer(0)),
                    "skipped": integer(0),
                    "buried": integer(0),
                    "blocked_at": or_null(integer(0, description="its deliveries are used up")),
                    "unburied_at": or_null(
                        integer(0, description="its dead-letter queue did not take it")
                    ),
                    "stalled": or_null(text(enum=["window"])),
                    "paused": {"type": "boolean"},
                    "generation": integer(1),
                    "settings": SETTINGS,
                },
                ETAG,
            ),
            **guarded(*_MISSING, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        of = call.channel
        call.read()
        state = await self._service.logs.state(of)
        facts = {"log": of[0], "channel": of[1], **state._asdict()}
        settings = state.settings.as_dict()
        return with_etag(json_answer(200, {**facts, "settings": settings}), settings)

    CREATE = Operation(
        id="create_channel",
        tag="Logs",
        summary="Create a channel",
        parameters=(LOG, CHANNEL, BEGIN),
        body=Body(f"{_SETTINGS_BODY}; empty: the defaults", {JSON: CHANGE}),
        again=EXISTS,
        answers={
            200: Answer("It existed already, and is as it was", _CREATED),
            201: Answer("It was created, durably", _CREATED, LOCATION),
            **guarded(NoSuchLog, *OF_BODIES, Unavailable),
        },
    )

    async def create(self, call: Call) -> StreamResponse:
        of = call.channel
        start = call.read()[BEGIN]
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        settings = _changes_in(call, body) if body else {}
        created = await self._service.log_resources.create_channel(of, start, settings)
        return made(created, {"log": of[0], "channel": of[1], "created": created}, of[1])

    CONFIGURE = Operation(
        id="configure_channel",
        tag="Logs",
        summary="Change settings of a channel",
        description="All changes are made, or none. `null` restores a default that is null.",
        parameters=(LOG, CHANNEL, IF_MATCH),
        body=Body(f"the {_SETTINGS_BODY}", {JSON: CHANGE}, required=True),
        again=SAME,
        answers={
            200: json_object("All settings", {**_NAMES, "settings": SETTINGS}, ETAG),
            **guarded(*_MISSING, PreconditionFailed, *OF_BODIES, Unavailable),
        },
    )

    async def configure(self, call: Call) -> StreamResponse:
        of = call.channel
        call.read()
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        changes = _changes_in(call, body)
        change = if_match(call, changes, ChannelSettings.as_dict)
        settings = (await self._service.log_resources.configure_channel(of, change)).as_dict()
        answer = json_answer(200, {"log": of[0], "channel": of[1], "settings": settings})
        return with_etag(answer, settings)

    DELETE = Operation(
        id="delete_channel",
        tag="Logs",
        summary="Delete a channel; messages that were kept only for it can then be removed",
        parameters=(LOG, CHANNEL),
        again=GONE,
        answers={
            200: json_object("It was deleted", {**_NAMES, "deleted": {"const": True}}),
            **guarded(*_MISSING, Unavailable),
        },
    )

    async def delete(self, call: Call) -> StreamResponse:
        of = call.channel
        call.read()
        await self._service.log_resources.delete_channel(of)
        return json_answer(200, {"log": of[0], "channel": of[1], "deleted": True})

    SEEK = Operation(
        id="seek",
        tag="Logs",
        summary="Move a channel to another position; claims in flight become void",
        description="A body is ignored.",
        parameters=(LOG, CHANNEL, TO),
        again=SAME,
        answers={
            200: json_object("It is there, durably", {**_NAMES, "position": integer(0)}),
            **guarded(*_MISSING, UnreadableBody, SlowBody, Unavailable),
        },
    )

    async def seek(self, call: Call) -> StreamResponse:
        of = call.channel
        to = call.read()[TO]
        await call.discard_body(self._service.read_timeout)
        if to is None:
            raise InvalidValue("to", "is missing: give an offset, a moment, first or last")
        position = await self._service.log_resources.seek(of, to)
        return json_answer(200, {"log": of[0], "channel": of[1], "position": position})

    # -- messages --------------------------------------------------------------------------------

    CLAIM = Operation(
        id="claim_from_channel",
        tag="Logs",
        summary="Claim messages of a channel, in the order of their offsets",
        description=ATTRIBUTES,
        parameters=(LOG, CHANNEL, VISIBILITY, WAIT, COUNT),
        again=OTHERS,
        answers={
            200: Answer(
                "One message as it was published, with any content type; or, with `count` or"
                " `Accept: application/json`, JSON with 1 to `count` messages and without"
                " these headers",
                {
                    **BYTES,
                    "*/*": {},
                    JSON: record(
                        {"messages": array(CHANNEL_MESSAGE, minItems=1, maxItems=MAX_CLAIMS)}
                    ),
                },
                CLAIM_HEADERS,
            ),
            204: Answer("No message can be claimed", headers={"X-Channel-State": _REASON}),
            **guarded(*_MISSING, Unavailable),
        },
    )

    async def claim(self, call: Call) -> StreamResponse:
        of = call.channel
        given = call.read()
        count = given[COUNT]
        call.in_json = count is not None or call.wants_json
        messages = await self._service.logs.claim(
            call, of, count or 1, given[VISIBILITY], given[WAIT]
        )
        if not messages:
            reason = "" if call.is_gone else reason_of(await self._service.logs.state(of))
            return Response(status=204, headers={"X-Channel-State": reason} if reason else {})
        if call.in_json:
            return bodies.in_json(messages, encode_claimed, MESSAGES)
        return bodies.raw(messages[0], headers_of_claimed(messages[0]))

    ACK = Operation(
        id="done",
        tag="Logs",
        summary="Acknowledge messages that a channel has handed out",
        parameters=(LOG, CHANNEL),
        body=Body("which", {JSON: ACKED}, required=True),
        again=DONE_BEFORE,
        answers={
            200: json_object(
                "They are done, durably; how many were not done before", {"done": integer(0)}
            ),
            **guarded(*_MISSING, NotInFlight, ClaimVoid, *OF_BODIES, Unavailable),
        },
    )

    async def ack(self, call: Call) -> StreamResponse:
        of = call.channel
        call.read()
        body = await call.json_body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        ranges, through, generation = acked(body)
        logs = self._service.logs
        if through is None:
            number = await logs.ack(of, ranges, generation)
        else:
            last = through

            def verb(channel: Channel) -> int:
                return channel.done_through(named(last, generation or 0, 0))

            number = await logs.change(of, verb, MAX_CLAIMS)
        return json_answer(200, {"done": number})

    CHANGE = Operation(
        id="change_of_channel",
        tag="Logs",
        summary="Renew a claim, release it, or bury its message",
        description="Give at most one of the first three; without one the claim is renewed.",
        parameters=(LOG, CHANNEL, OFFSET, RENEWAL, RELEASE, BURY, REASON, GENERATION, DELIVERIES),
        again="a renewal is repeated. A release or a burial was done if the answer is 404",
        answers={
            204: Answer(
                "Done",
                headers={"X-Message-Deadline": Header("the new deadline, if renewed", MOMENT)},
            ),
            **guarded(*_MISSING, NotInFlight, ClaimVoid, UnreadableBody, SlowBody, Unavailable),
        },
    )

    async def change(self, call: Call) -> StreamResponse:
        of = call.channel
        given = call.read()
        offset = offset_of(call.names["offset"])
        await call.discard_body(self._service.read_timeout)
        visibility, delay, bury = given[RENEWAL], given[RELEASE], given[BURY]
        if sum(value is not None for value in (visibility, delay, bury)) > 1:
            raise InvalidValue("visibility", "release and bury exclude each other: give one")
        reason, releases = given[REASON], delay is not None or visibility == 0
        check_reason_is_used(reason, bury or releases)
        claim = (offset, given[GENERATION] or 0, given[DELIVERIES] or 0)
        if bury:
            await self._service.log_resources.bury(of, *claim, reason)
            return Response(status=204)

        def verb(channel: Channel) -> float | None:
            message = named(*claim)
            if releases:
                channel.release(message, delay=delay or 0.0, reason=reason)
            else:
                return channel.renew(message, visibility=visibility)
            return None

        deadline = await self._service.logs.change(of, verb)
        headers = {} if deadline is None else {"X-Message-Deadline": moment(deadline)}
        return Response(status=204, headers=headers)

    FINISH = Operation(
        id="done_one",
        tag="Logs",
        summary="Acknowledge a message that a channel has handed out",
        parameters=(LOG, CHANNEL, OFFSET, GENERATION),
        again=DONE_BEFORE,
        answers={
            202: Answer("It is done, durably; perhaps it was before"),
            **guarded(*_MISSING, NotInFlight, ClaimVoid, Unavailable),
        },
    )

    async def finish(self, call: Call) -> StreamResponse:
        of = call.channel
        generation = call.read()[GENERATION]
        offset = offset_of(call.names["offset"])
        await self._service.logs.ack(of, [(offset, offset + 1)], generation)
        return Response(status=202)


def _changes_in(call: Call, body: bytes) -> dict[str, Any]:
    """The settings of a channel in a body; checks them, and the right to set them."""
    changes = changes_in(body)
    for name, value in changes.items():
        checked(CHANNEL_SETTINGS, name, value)
    require_dead_letters(call, changes)
    return changes
