"""Many messages with one request: peek and batch. Part of the native dialect."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any
from urllib.parse import quote, unquote_plus

from aiohttp.web import StreamResponse

from fsmq.spool.errors import (
    DuplicateMessage,
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.settings import MAX_TTL_S
from fsmq.spool.layout.transitions import State
from fsmq.spool.verbs.put import MAX_BATCH
from fsmq.spool.verbs.receive import MAX_CLAIMS
from fsmq.spool.views.wanted import MAX_TEXT_BYTES, wanted

from ...wire import MAX_BATCH_BYTES, quote_id, unquote_id
from ..answers import json_answer
from ..describe import (
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
)
from ..dialect import Handlers
from ..problem_answers import OF_BODIES, guarded
from ..problems import UnreadableBody
from ..routing import bodies
from ..routing.call import Call
from ..routing.json_reader import LongText, Reader
from ..routing.router import Router
from ..service.looks import MAX_BUDGET_S, SEARCH_S, Search
from .forms import DELAY, MESSAGE, MESSAGES, OWN_ID, PRIORITY, STATE, TTL


def _state(name: str, value: str) -> str:
    """A state, which the spool checks; an empty text is none."""
    if value == State.REMOVE.value:
        raise InvalidValue(name, "what was removed cannot be looked at")
    return value or State.READY.value


OF_STATE = query(
    "state",
    "which messages; `delay` is both in_flight and delayed",
    Kind(text(enum=[*STATE["enum"], "delay"]), _state),
    State.READY.value,
)
COUNT = query("count", "at most this many", whole(1, MAX_CLAIMS), 10)
AFTER = query(
    "after",
    "begin behind this id, given as an answer had it",
    Kind(text(), lambda _, value: unquote_id(value)),
)
ATTRIBUTES = many_named("attribute.", "only messages whose attribute NAME has this value", text())
CONTAINS = query(
    "contains",
    f"only messages whose body has this text, of at most {MAX_TEXT_BYTES} bytes",
    as_it_is(text(minLength=1)),
)
OLDER_THAN = query(
    "older_than", "only messages that were put this many seconds ago", seconds(MAX_TTL_S)
)
BUDGET = query("budget", "seconds after which it stops", seconds(MAX_BUDGET_S), SEARCH_S)
IDS = array(MESSAGE_ID, maxItems=MAX_BATCH)
NEW_MESSAGE = record(
    {
        "body": or_null(text(description="a text, stored as UTF-8")),
        "body_base64": or_null(text(contentEncoding="base64", description="or bytes")),
        **{
            parameter.name: or_null(dict(parameter.schema, description=parameter.description))
            for parameter in (DELAY, PRIORITY, TTL, OWN_ID)
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

_decoder = JSONDecoder()


class Batches(Handlers):
    """Many messages at a time: shown, stored."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/{queue}/peek", self.peek, self.PEEK)
        router.add("POST", "/{queue}/batch", self.post, self.BATCH)

    PEEK = OperationWithMany(
        id="peek",
        tag="Messages",
        summary="Look at the messages in one state, without claiming them",
        parameters=(QUEUE, OF_STATE, COUNT, AFTER, CONTAINS, OLDER_THAN, BUDGET, ATTRIBUTES),
        many=ATTRIBUTES,
        answers={
            200: Answer(
                "The messages in their order; `next` is the `after` with which to go on, null"
                " where all have been looked at",
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
        queue = call.queue("look")
        given = call.read()
        now = self._spool.context.clock()
        fitting = wanted(now, given[ATTRIBUTES], given[CONTAINS], given[OLDER_THAN])
        what = Search(
            *(queue, given[OF_STATE], given[COUNT], given[AFTER] or "", fitting, given[BUDGET])
        )
        call.admit()
        if what.state == State.READY.value:
            await self._service.receiver.load(queue)
        found = await self._service.looks.peek(what, call)
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
            {JSON: array(NEW_MESSAGE, minItems=1, maxItems=MAX_BATCH)},
            required=True,
        ),
        answers={
            201: json_object(
                "All are on stable media; their ids in the same order", {"ids": array(MESSAGE_ID)}
            ),
            **guarded(NoSuchQueue, *OF_BODIES, DuplicateMessage, QueueFull, Unavailable),
        },
    )

    async def post(self, call: Call) -> StreamResponse:
        queue = call.queue("send")
        call.read()
        settings = self._spool.settings(queue)
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        messages = await self._service.beside(len(body), new_messages, body)
        try:
            ids = await self._service.put(queue, messages, settings)
        except (InvalidValue, MessageTooLarge, DuplicateMessage) as error:
            if len(messages) == 1:
                error.index = 0
            raise
        return json_answer(201, {"ids": [quote_id(message_id) for message_id in ids]})


def next_page(call: Call, path: str, after: str) -> str:
    """The ``Link`` to the page that follows one: the same query, but for where it begins."""
    given = call.raw_query.split("&") if call.raw_query else []
    kept = [pair for pair in given if unquote_plus(pair.partition("=")[0]) != "after"]
    query = "&".join([*kept, f"after={quote(after, safe='')}"])
    return f'<{path}?{quote(query, safe="%=&+:@,;!*()/?~", errors="surrogateescape")}>; rel="next"'


# -- what is in a body -----------------------------------------------------------------------------


def new_messages(body: bytes) -> list[NewMessage]:
    """The messages of a ``POST /{queue}/batch``; their values are checked when they are put.

    Raises:
        UnreadableBody: it is no JSON array of objects.
        InvalidValue: with the index of the message.
    """
    messages = []
    for index, described in enumerate(elements_in(body, "messages")):
        try:
            messages.append(_new_message(described))
        except InvalidValue as error:
            error.index = index
            raise
    return messages


def some_ids(body: bytes) -> list[str]:
    """The ids of a body ``{"ids": [...]}``.

    Raises:
        UnreadableBody, InvalidValue
    """
    ids = []
    for index, message_id in enumerate(elements_in(body, "ids", within="ids")):
        if not isinstance(message_id, str):
            error = InvalidValue("ids", "has an element that is not a string")
            error.index = index
            raise error
        ids.append(message_id)
    return ids


def elements_in(body: bytes, name: str, within: str | None = None) -> Iterator[Any]:
    """The elements of an array, which is all of a body, or the one member of an object.

    Raises:
        UnreadableBody, InvalidValue
    """
    reader = Reader(body, _decoder)
    number = 0
    try:
        for element in _elements(reader, name, within):
            number += 1
            if number > MAX_BATCH:
                break
            yield element
        else:
            reader.end()
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"the body is not JSON: {error}") from None
    if not 1 <= number <= MAX_BATCH:
        many = "more" if number else "none"
        raise InvalidValue(name, f"{many} are given; one batch takes 1 to {MAX_BATCH}")


def _elements(reader: Reader, name: str, within: str | None) -> Iterator[Any]:
    if reader.first() != ("[" if within is None else "{"):
        # It may be no JSON at all. Not skipped: that reads on however many values there are.
        reader.value()
        what = f"the {name} are not a JSON array" if within is None else _not_alone(within)
        raise UnreadableBody(what)
    if within is None:
        yield from reader.elements()
        return
    number = 0
    for member in reader.members():
        number += 1
        if member != within or number > 1:
            raise UnreadableBody(_not_alone(within))
        yield from _elements(reader, name, None)
    if not number:
        raise UnreadableBody(_not_alone(within))


def _not_alone(member: str) -> str:
    return f'the body is not a JSON object with the one member "{member}"'


def _new_message(described: Any) -> NewMessage:
    if not isinstance(described, dict):
        raise InvalidValue("message", "is not a JSON object")
    unknown = sorted(described.keys() - _FIELDS)
    if unknown:
        known = ", ".join(_FIELDS)
        raise InvalidValue(unknown[0][:100], f"unknown field; expected one of: {known}")
    # null is what many libraries write for "not set".
    given = {name: value for name, value in described.items() if value is not None}
    for name in ("id", "content_type"):
        if not isinstance(given.get(name, ""), str):
            raise InvalidValue(name, "must be a string")
    attributes = given.get("attributes", {})
    if not isinstance(attributes, dict) or not are_strings(attributes):
        raise InvalidValue("attributes", "must be an object of strings")
    return NewMessage(
        body=body_in(given),
        delay=given.get("delay"),
        priority=given.get("priority", 0),
        ttl=given.get("ttl"),
        id=given.get("id"),
        content_type=given.get("content_type"),
        attributes=attributes,
    )


def body_in(given: dict[str, Any]) -> bytes:
    text, encoded = given.get("body"), given.get("body_base64")
    if (text is None) == (encoded is None):
        raise InvalidValue("body", "is missing: give either body or body_base64")
    if encoded is None:
        if not isinstance(text, str | LongText):
            raise InvalidValue("body", "must be a string (JSON must be encoded as a string)")
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise InvalidValue("body", "contains an unpaired surrogate") from None
    try:
        if isinstance(encoded, LongText):
            return encoded.from_base64()
        return base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidValue("body_base64", f"is not base64: {error}") from None


def are_strings(attributes: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in attributes.values())
