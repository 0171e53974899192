"""Logs in the native dialect: ``/_logs``. docs/http.md is the specification."""

from __future__ import annotations

from aiohttp.web import Response, StreamResponse

from fsmq.spool.errors import (
    FsmqError,
    LogFull,
    NoSuchLog,
    OffsetGone,
    OtherWriter,
    Unavailable,
)
from fsmq.spool.inspection import LogBatch, LogStats
from fsmq.spool.prepare import MAX_BATCH, MAX_CLAIMS
from fsmq.spool.resources import From, LogSettings

from ....wire import MAX_BATCH_BYTES, exact_moment
from ...answers import json_answer, made
from ...connection.pieces import listed
from ...describe import (
    BYTES,
    EXISTS,
    GONE,
    JSON,
    LOCATION,
    MAX_SETTINGS_BYTES,
    ONCE,
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
    or_null,
    record,
    text,
)
from ...dialect import Handlers
from ...guard.sight import seen_channels
from ...problem_answers import OF_BODIES, guarded, keyed
from ...problems import PreconditionFailed
from ...routing import bodies, needs
from ...routing.call import Call
from ...routing.headers import KEY, kept_headers
from ...routing.router import Router
from ..forms import ATTRIBUTES, MOMENT, WAIT
from ..preconditions import ETAG, IF_MATCH, if_match, with_etag
from ..queues import changes_in
from .log_batch import NEW_MESSAGE, new_messages
from .log_forms import (
    COUNT,
    FROM,
    HEADERS,
    LOG,
    LOG_MESSAGE,
    MESSAGE_KEY,
    OWN_ID,
    SETTINGS_OF_LOG,
    encode,
    headers_of,
    new_entry,
    published,
)

SETTINGS = Component("LogSettings", record(SETTINGS_OF_LOG))
CHANGE = Component(
    "LogSettingsChange", record(SETTINGS_OF_LOG, required=[], additionalProperties=False)
)
_CREATED = {JSON: record({"log": QUEUE_NAME, "created": {"type": "boolean"}})}
_SETTINGS_BODY = f"settings, at most {MAX_SETTINGS_BYTES} bytes"


class Logs(Handlers):
    """Logs, and their messages."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_logs", self.list_logs, self.LIST, needs.anybody)
        router.add("GET", "/_logs/{log}", self.show, self.SHOW, needs.log())
        router.add("PUT", "/_logs/{log}", self.create, self.CREATE, needs.log("admin"))
        router.add("PATCH", "/_logs/{log}", self.configure, self.CONFIGURE, needs.log("admin"))
        router.add("DELETE", "/_logs/{log}", self.delete, self.DELETE, needs.log("admin"))
        router.add("POST", "/_logs/{log}/messages", self.publish, self.PUBLISH, needs.log("send"))
        router.add("GET", "/_logs/{log}/messages", self.read, self.READ, needs.log("look"))
        router.add(
            "POST", "/_logs/{log}/batch", self.publish_many, self.PUBLISH_MANY, needs.log("send")
        )

    LIST = Operation(
        id="list_logs",
        tag="Logs",
        summary="The names of all logs, sorted",
        answers={
            200: json_object("The names", {"logs": array(QUEUE_NAME)}),
            **keyed(Unavailable),
        },
    )

    async def list_logs(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        names = await self._service.names(call, self._spool.logs, identity.visible_logs)
        return listed('{"logs": [', names, "]}\n")

    SHOW = Operation(
        id="show_log",
        tag="Logs",
        summary="A log in numbers, its channels and its settings",
        parameters=(LOG,),
        answers={
            200: json_object(
                "What it holds",
                {
                    "log": QUEUE_NAME,
                    "uuid": text(),
                    "first": integer(0, description="the first offset that is left"),
                    "next": integer(0, description="the offset that the next message gets"),
                    "bytes": integer(0),
                    "segments": integer(0),
                    "oldest_at": or_null(MOMENT),
                    "newest_at": or_null(MOMENT),
                    "channels": array(QUEUE_NAME),
                    "settings": SETTINGS,
                },
                ETAG,
            ),
            **guarded(NoSuchLog, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        log = call.log
        call.read()
        stats: LogStats = await self._service.logs.run(self._spool.log(log).stats)
        facts = {"log": log, "uuid": stats.uuid, **stats._asdict(), "settings": None}
        facts["channels"] = seen_channels(call.sender, log, stats.channels)
        for name in ("oldest_at", "newest_at"):
            moment = getattr(stats, name)
            facts[name] = None if moment is None else exact_moment(moment)
        settings = stats.settings.as_dict()
        return with_etag(json_answer(200, {**facts, "settings": settings}), settings)

    CREATE = Operation(
        id="create_log",
        tag="Logs",
        summary="Create a log",
        parameters=(LOG,),
        body=Body(f"{_SETTINGS_BODY}; empty: the defaults", {JSON: CHANGE}),
        again=EXISTS,
        answers={
            200: Answer("It existed already, and is as it was", _CREATED),
            201: Answer("It was created, durably", _CREATED, LOCATION),
            **guarded(*OF_BODIES, Unavailable),
        },
    )

    async def create(self, call: Call) -> StreamResponse:
        log = call.log
        call.read()
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        settings = changes_in(body) if body else {}
        created = await self._service.log_resources.create_log(log, settings)
        return made(created, {"log": log, "created": created}, log)

    CONFIGURE = Operation(
        id="configure_log",
        tag="Logs",
        summary="Change settings of a log",
        description="All changes are made, or none. `null` restores a default that is null.",
        parameters=(LOG, IF_MATCH),
        body=Body(f"the {_SETTINGS_BODY}", {JSON: CHANGE}, required=True),
        again=SAME,
        answers={
            200: json_object("All settings", {"log": QUEUE_NAME, "settings": SETTINGS}, ETAG),
            **guarded(NoSuchLog, PreconditionFailed, *OF_BODIES, Unavailable),
        },
    )

    async def configure(self, call: Call) -> StreamResponse:
        log = call.log
        call.read()
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        changes = changes_in(body)
        change = if_match(call, changes, LogSettings.as_dict)
        settings = (await self._service.log_resources.configure_log(log, change)).as_dict()
        return with_etag(json_answer(200, {"log": log, "settings": settings}), settings)

    DELETE = Operation(
        id="delete_log",
        tag="Logs",
        summary="Delete a log with all its messages and channels",
        parameters=(LOG,),
        again=GONE,
        answers={
            200: json_object("It was deleted", {"log": QUEUE_NAME, "deleted": {"const": True}}),
            **guarded(NoSuchLog, Unavailable),
        },
    )

    async def delete(self, call: Call) -> StreamResponse:
        log = call.log
        call.read()
        await self._service.log_resources.delete_log(log)
        return json_answer(200, {"log": log, "deleted": True})

    PUBLISH = Operation(
        id="publish_to_log",
        tag="Logs",
        summary="Publish a message to a log",
        description=f"{ATTRIBUTES} `Content-Encoding` may be gzip or deflate.",
        parameters=(LOG, OWN_ID, MESSAGE_KEY),
        body=Body("the message: any bytes, kept with the Content-Type of the request", BYTES),
        again=ONCE,
        answers={
            201: Answer(
                "It is on stable media, and so is its place in the order",
                {JSON: record({"offset": integer(0)})},
                {"X-Message-Offset": Header("its offset", integer(0), always=True)},
            ),
            **guarded(NoSuchLog, OtherWriter, LogFull, *OF_BODIES, Unavailable),
        },
    )

    async def publish(self, call: Call) -> StreamResponse:
        log = call.log
        given = call.read()
        limit = self._spool.context.max_message_bytes
        body = await call.body(limit, self._service.read_timeout)
        headers = call.request.headers
        entry = new_entry(body, headers.get(KEY), given, kept_headers(headers))
        try:
            offset = await self._service.logs.publish(log, [entry])
        except FsmqError as error:
            error.index = None  # there is only one message
            raise
        headers_of_answer, answer = published(offset)
        return Response(status=201, body=answer, headers=headers_of_answer)

    PUBLISH_MANY = Operation(
        id="publish_many_to_log",
        tag="Logs",
        summary="Publish consecutive messages, all or none",
        parameters=(LOG,),
        body=Body(
            f"the messages, at most {MAX_BATCH_BYTES} bytes",
            {JSON: array(NEW_MESSAGE, minItems=1, maxItems=MAX_BATCH)},
            required=True,
        ),
        again=ONCE,
        answers={
            201: json_object(
                "All are on stable media, at consecutive offsets",
                {"first": integer(0), "count": integer(1, MAX_BATCH)},
            ),
            **guarded(NoSuchLog, OtherWriter, LogFull, *OF_BODIES, Unavailable),
        },
    )

    async def publish_many(self, call: Call) -> StreamResponse:
        log = call.log
        call.read()
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        entries = await self._service.beside(len(body), new_messages, body)
        del body  # each message has its own
        first = await self._service.logs.publish(log, entries)
        return json_answer(201, {"first": first, "count": len(entries)})

    READ = Operation(
        id="read_log",
        tag="Logs",
        summary="Read a log without a channel; it leaves no trace",
        description=ATTRIBUTES,
        parameters=(LOG, FROM, COUNT, WAIT),
        answers={
            200: Answer(
                "One message as it was published, with any content type; or, with `count` or"
                " `Accept: application/json`, JSON without these headers. `next` is the offset to"
                " continue at, `lost` the number of damaged messages before it",
                {
                    **BYTES,
                    "*/*": {},
                    JSON: record(
                        {
                            "messages": array(LOG_MESSAGE, maxItems=MAX_CLAIMS),
                            "next": integer(0),
                            "lost": integer(0),
                        }
                    ),
                },
                HEADERS,
            ),
            204: Answer("There are no messages from there on"),
            **guarded(NoSuchLog, OffsetGone, Unavailable),
        },
    )

    async def read(self, call: Call) -> StreamResponse:
        log = call.log
        given = call.read()
        count = given[COUNT]
        call.in_json = count is not None or call.wants_json
        batch = await self._page(call, log, given[FROM], count or 1, given[WAIT])
        while not call.in_json and batch.lost and not batch.messages:
            batch = await self._page(call, log, batch.next, 1, 0.0)
        if not batch.messages and not batch.lost:
            return Response(status=204)
        if call.in_json:
            behind = f'], "next": {batch.next}, "lost": {batch.lost}}}\n'.encode()
            return bodies.in_json(batch.messages, encode, (b'{"messages": [', b", ", behind))
        [message] = batch.messages
        return bodies.raw(message, headers_of(message))

    async def _page(self, call: Call, log: str, place: From, count: int, wait: float) -> LogBatch:
        logs = self._service.logs
        start = place
        if not isinstance(place, int):
            start = await logs.run(self._spool.log(log).offset_of, place)
        assert isinstance(start, int)
        try:
            return await logs.page(call, log, start, count, wait)
        except OffsetGone as error:
            if place != "first":
                raise
            return await logs.page(call, log, error.first, count, wait)
