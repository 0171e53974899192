"""Many messages with one request: peek and batch. Part of the native dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote_plus

from aiohttp.web import Response, StreamResponse

from fsmq.spool import NewMessage, State
from fsmq.spool.checks import MAX_TTL_S
from fsmq.spool.errors import (
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)
from fsmq.spool.inspection import MAX_ATTRIBUTES, MAX_TEXT_BYTES, wanted
from fsmq.spool.prepare import MAX_BATCH, MAX_CLAIMS

from ....wire import MAX_BATCH_BYTES, quote_id, unquote_id
from ...answers import json_answer
from ...describe import (
    JSON,
    MESSAGE_ID,
    QUEUE,
    Answer,
    Body,
    Header,
    Kind,
    Operation,
    OperationWithMany,
    array,
    as_it_is,
    json_object,
    many_named,
    or_null,
    query,
    record,
    seconds,
    text,
    whole,
    word,
)
from ...dialect import Handlers
from ...problem_answers import OF_BODIES, guarded
from ...routing import bodies, needs
from ...routing.call import Call
from ...routing.headers import EVENTS
from ...routing.router import Router
from ...service.monitoring.inspector import MAX_BUDGET_S, SEARCH_S, Search
from ..forms import DEDUP_ID, DELAY, GROUP, MESSAGE, MESSAGES, OWN_ID, PRIORITY, STATE, TTL
from . import events
from .batch_bodies import body_in, made_of, members_of


def _state(name: str, value: str) -> str:
    """A state, which the spool checks; an empty text is the default."""
    if value == State.REMOVE.value:
        raise InvalidValue(name, "what was removed cannot be looked at")
    return value or State.READY.value


OF_STATE = query(
    "state",
    "which messages; `delay` is both in_flight and delayed",
    word([*STATE["enum"], "delay"], _state),
    State.READY.value,
)
COUNT = query(
    "count",
    "at most this many; fewer if their bodies reach 64 MiB or use up the memory for bodies",
    whole(1, MAX_CLAIMS),
    10,
)
AFTER = query(
    "after",
    "begin after this id: the `next` of the previous page",
    Kind(text(), lambda _, value: unquote_id(value), "an id"),
)
ATTRIBUTES = many_named(
    "attribute.",
    "only messages whose attribute NAME has this value; the case of the name does not matter; up to"
    f" {MAX_ATTRIBUTES}",
    text(),
)
CONTAINS = query(
    "contains",
    "only messages with this text in their (plain) body",
    as_it_is(text(minLength=1), f"1 to {MAX_TEXT_BYTES} bytes"),
)
OLDER_THAN = query(
    "older_than",
    "only messages that were put at least this long ago, by the time in their ids; not those whose"
    " ids have none",
    seconds(MAX_TTL_S),
)
BUDGET = query("budget", "stop after this time", seconds(MAX_BUDGET_S), SEARCH_S)
IDS = array(MESSAGE_ID, maxItems=MAX_BATCH)
NEW_MESSAGE = record(
    {
        "body": or_null(text(description="a text, stored as UTF-8")),
        "body_base64": or_null(text(contentEncoding="base64", description="or bytes")),
        **{
            parameter.name: or_null(dict(parameter.schema, description=parameter.in_words))
            for parameter in (DELAY, PRIORITY, TTL, OWN_ID, GROUP, DEDUP_ID)
            if isinstance(parameter.schema, dict)
        },
        "content_type": or_null(text()),
        "attributes": or_null({"type": "object", "additionalProperties": text()}),
    },
    required=[],
    additionalProperties=False,
    anyOf=[{"required": ["body"]}, {"required": ["body_base64"]}],
)
_FIELDS = NEW_MESSAGE["properties"].keys()


class Batches(Handlers):
    """Handlers that show or store many messages with one request."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/{queue}/peek", self.peek, self.PEEK, needs.queue("look"))
        router.add("POST", "/{queue}/batch", self.post, self.BATCH, needs.queue("send"))

    PEEK = OperationWithMany(
        id="peek",
        tag="Messages",
        summary="Look at the messages in one state, without claiming them",
        parameters=(QUEUE, OF_STATE, COUNT, AFTER, CONTAINS, OLDER_THAN, BUDGET, ATTRIBUTES),
        many=ATTRIBUTES,
        answers={
            200: Answer(
                "The messages in their order; `next` is the `after` of the next page, null if there"
                " is none",
                {
                    JSON: record(
                        {
                            "messages": array(MESSAGE, maxItems=MAX_CLAIMS),
                            "next": or_null(MESSAGE_ID),
                        }
                    )
                },
                {"Link": Header('the next page, with `rel="next"`', text())},
            ),
            **guarded(NoSuchQueue, Unavailable),
        },
    )

    async def peek(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        now = self._spool.context.clock()
        fitting = wanted(now, given[ATTRIBUTES], given[CONTAINS], given[OLDER_THAN])
        what = Search(
            queue, given[OF_STATE], given[COUNT], given[AFTER] or "", fitting, given[BUDGET]
        )
        call.admit()
        if what.state == State.READY.value:
            await self._service.receiver.load(queue)
        found = await self._service.inspector.peek(call.sender, what, call)
        following = None if found.next is None else quote_id(found.next)
        behind = f'], "next": {json.dumps(following)}}}\n'.encode()
        answer = bodies.in_json(found.messages, bodies.encode, (*MESSAGES[:2], behind))
        if following is not None:
            answer.headers["Link"] = next_page(call, f"/{queue}/peek", following)
        return answer

    BATCH = Operation(
        id="batch",
        tag="Messages",
        summary="Store many messages, all or none",
        parameters=(QUEUE,),
        body=Body(
            f"the messages, at most {MAX_BATCH_BYTES} bytes",
            {
                JSON: array(NEW_MESSAGE, minItems=1, maxItems=MAX_BATCH),
                EVENTS: {**events.SCHEMA, "maxItems": MAX_BATCH},
            },
            required=True,
        ),
        again="as for one message; if `mq` died in the middle of it, clients put missing messages"
        " one by one, with their ids",
        answers={
            201: json_object(
                "All are on stable media; their ids in the same order", {"ids": array(MESSAGE_ID)}
            ),
            **guarded(NoSuchQueue, *OF_BODIES, DuplicateMessage, QueueFull, Unavailable),
        },
    )

    async def post(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        self._spool.settings(queue)  # raises NoSuchQueue before the body is read
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        are_events = call.request.content_type == EVENTS
        read = events.new_messages if are_events else new_messages
        messages = await self._service.beside(len(body), read, body)
        del body  # each message has its own
        try:
            return stored(await self._service.queues.put(queue, messages))
        except FsmqError as error:
            raise indexed(error, len(messages)) from None


def indexed(error: FsmqError, number: int) -> FsmqError:
    """An error of a batch, with the index of its message if it has only one."""
    if number == 1 and isinstance(error, InvalidValue | MessageTooLarge | DuplicateMessage):
        error.index = 0
    return error


def next_page(call: Call, path: str, after: str) -> str:
    """The ``Link`` to the next page: the same query, except for ``after``."""
    given = call.raw_query.split("&") if call.raw_query else []
    kept = [pair for pair in given if unquote_plus(pair.partition("=")[0]) != "after"]
    query = "&".join([*kept, f"after={quote(after, safe='')}"])
    return f'<{path}?{quote(query, safe="%=&+:@,;!*()/?~", errors="surrogateescape")}>; rel="next"'


def stored(ids: Sequence[str]) -> Response:
    """The answer to a ``POST /{queue}/batch``."""
    return json_answer(201, {"ids": [quote_id(message_id) for message_id in ids]})


# -- bodies ----------------------------------------------------------------------------------------


def new_messages(body: bytes) -> list[NewMessage]:
    """The messages of a ``POST /{queue}/batch``; their values are checked when they are put.

    Raises:
        UnreadableBody: it is not a JSON array of objects.
        InvalidValue: with the index of the message.
    """
    return made_of(body, "messages", _new_message)


def some_ids(body: bytes) -> list[str]:
    """The ids of a body ``{"ids": [...]}``.

    Raises:
        UnreadableBody, InvalidValue
    """
    return made_of(body, "ids", _id, within="ids")


def _id(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidValue("ids", "has an element that is not a string")
    return given


def _new_message(described: Any) -> NewMessage:
    given = members_of(described, _FIELDS, ("id", "content_type", "group", "dedup_id"))
    return NewMessage(
        body=body_in(given),
        delay=given.get("delay"),
        priority=given.get("priority", 0),
        ttl=given.get("ttl"),
        id=given.get("id"),
        content_type=given.get("content_type"),
        attributes=given["attributes"],
        group=given.get("group"),
        dedup_id=given.get("dedup_id"),
    )
