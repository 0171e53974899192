"""Messages of queues with an index, by the ids that producers give; and the zones of shards."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool import Indexed, Message, NewMessage
from fsmq.spool.checks import MAX_DELAY_S, MAX_GIVEN_BYTES, MAX_VISIBILITY_S, check_queue
from fsmq.spool.errors import (
    InUse,
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)
from fsmq.spool.inspection import peers
from fsmq.spool.prepare import IDS_PATIENCE_S, MAX_BATCH, check_free

from ....wire import MAX_BATCH_BYTES, MAX_BY_ID_BYTES, as_json, unquote_id
from ...answers import json_answer
from ...describe import (
    JSON,
    MESSAGE_ID,
    QUEUE,
    SAME,
    TRUE,
    Answer,
    Body,
    Operation,
    Parameter,
    array,
    as_it_is,
    json_object,
    number,
    or_null,
    query,
    record,
    text,
)
from ...dialect import Handlers
from ...guard.access import Identity
from ...guard.sight import seen_message
from ...problem_answers import OF_BODIES, guarded, keyed
from ...problems import SlowBody, UnreadableBody
from ...routing import needs
from ...routing.body_reader import object_in
from ...routing.call import Call
from ...routing.router import Router
from ..forms import MESSAGE
from .batch import NEW_MESSAGE, new_messages

ENSURE = query("ensure", "put a message only if none has its id", TRUE)
AMONG = query(
    "among",
    "with `ensure`: other queues with an index in which no message may have its id either",
    as_it_is(text(), "names of queues, with commas between them"),
)
_zone = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_GIVEN_ID = text(minLength=1, maxLength=MAX_GIVEN_BYTES)
_VERBS = ("find", "claim", "ack", "remove", "renew", "postpone")
_REQUEST = record(
    {
        "do": text(enum=[*_VERBS]),
        "ids": array(_GIVEN_ID, minItems=1, maxItems=MAX_BATCH),
        "visibility": or_null(number(0, MAX_VISIBILITY_S)),
        "delay": or_null(number(0, MAX_DELAY_S)),
        "attributes": or_null({"type": "object", "additionalProperties": text()}),
        "names": or_null({"type": "object", "additionalProperties": MESSAGE_ID}),
    },
    required=["do", "ids"],
    additionalProperties=False,
)


_PUT = needs.queue("send").then("`send` on each of `among`, too")
_ACT = needs.queue("look").then("`receive`, too, for all but `find`")


class ById(Handlers):
    """Handlers for messages by the ids that producers give, and for zones."""

    def add_routes(self, router: Router) -> None:
        router.add("POST", "/{queue}/ids", self.put, self.PUT, _PUT)
        router.add("POST", "/{queue}/by-id", self.act, self.ACT, _ACT)
        router.add("GET", "/_zones", self.zones, self.ZONES, needs.anybody)
        router.add("PUT", "/_zones/{zone}", self.beat, self.BEAT, needs.anybody)

    PUT = Operation(
        id="put_by_id",
        tag="Messages by id",
        summary="Store messages under ids of any text; a message with the same id is replaced",
        description="The queue must have an index, and every message an `id`.",
        parameters=(QUEUE, ENSURE, AMONG),
        body=Body(
            f"the messages as `POST /{{queue}}/batch` takes them, at most {MAX_BATCH_BYTES} bytes",
            {JSON: array(NEW_MESSAGE, minItems=1, maxItems=MAX_BATCH)},
            required=True,
        ),
        again="each message replaces itself; with `ensure`, those of the first try are not put"
        " again",
        answers={
            201: json_object(
                "They are on stable media; for each whether it was put, which is always true"
                " without `ensure`",
                {"put": array({"type": "boolean"})},
            ),
            **guarded(NoSuchQueue, *OF_BODIES, QueueFull, Unavailable),
        },
    )

    async def put(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        among = [check_queue(name, "among") for name in (given[AMONG] or "").split(",") if name]
        for name in among:
            call.sender.require("send", name)
        self._spool.settings(queue)  # raises NoSuchQueue before the body is read
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        messages = await self._service.beside(len(body), new_messages, body)
        indexed = self._spool.indexed(queue)
        try:
            if given[ENSURE] is not None:
                verb = partial(_ensure, indexed, messages, among)
            else:
                verb = partial(_upsert, indexed, messages)
            ids = [message.id or "" for message in messages]
            check = partial(check_free, self._spool.context, [queue, *among], ids, to_put=True)
            put = await self._patiently(check, verb)
        except (InvalidValue, MessageTooLarge) as error:
            if len(messages) == 1:
                error.index = 0
            raise
        return json_answer(201, {"put": put})

    ACT = Operation(
        id="act_by_id",
        tag="Messages by id",
        summary="Find, claim, acknowledge, remove, renew or postpone messages by their ids",
        description="`find`, `claim` and `postpone` take one id. `ack` and `renew` act on what is"
        " in flight, `postpone` on what is not, `claim` on what is ready or delayed; `remove` on"
        " all."
        " `visibility` belongs to claim and renew, where 0 releases; `delay` and `attributes` to"
        " postpone; `names` says of some ids which message ack means, by its name in the queue.",
        parameters=(QUEUE,),
        body=Body(
            f"what is done, with which ids, at most {MAX_BY_ID_BYTES} bytes",
            {JSON: _REQUEST},
            required=True,
        ),
        again="null or false for what the first try did. A renewal is done again, and a claimed"
        " message is ready again when its claim ends",
        answers={
            200: json_object(
                "For each id whether it was done; of find and claim the message, or null",
                {"results": array({"anyOf": [{"type": ["boolean", "null"]}, MESSAGE]})},
            ),
            **guarded(NoSuchQueue, *OF_BODIES, Unavailable),
        },
    )

    async def act(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        asked = _request(await call.json_body(MAX_BY_ID_BYTES, self._service.read_timeout))
        if asked["do"] != "find":
            call.sender.require("receive", queue)
        verb = partial(_act, self._spool.indexed(queue), asked, call.sender)
        check = partial(
            check_free,
            self._spool.context,
            [queue],
            asked["ids"],
            to_put=asked["do"] == "postpone",
            to_remove=asked["do"] == "remove",
        )
        results = await self._patiently(check, verb)
        return json_answer(200, {"results": results})

    async def _patiently(
        self, check: Callable[[], None], verb: Callable[[], list[Any]]
    ) -> list[Any]:
        """Run a verb in a thread once nobody else has locked its ids; waiting blocks no thread."""

        def run() -> list[Any]:
            check()
            return verb()

        attempt = partial(self._service.listing, run)
        return await self._service.patience.until_free(attempt, InUse, IDS_PATIENCE_S)

    ZONES = Operation(
        id="zones",
        tag="Messages by id",
        summary="The zones of shards that have a consumer, and the nodes that are alive",
        answers={
            200: json_object(
                "Their names, and this node's", {"zones": array(text()), "node": text()}
            ),
            **keyed(Unavailable),
        },
    )

    async def zones(self, call: Call) -> StreamResponse:
        call.read()
        found = await self._service.in_thread(peers.zones, self._spool.tree)
        return json_answer(200, {"zones": found, "node": self._service.node})

    BEAT = Operation(
        id="beat_zone",
        tag="Messages by id",
        summary="Report that a zone of shards has a consumer, for the next 20 seconds",
        description="A body is ignored.",
        parameters=(Parameter("zone", "the zone", text(r"[A-Za-z0-9_.-]{1,40}"), "path"),),
        again=SAME,
        answers={204: Answer("It counts as alive"), **keyed(UnreadableBody, SlowBody, Unavailable)},
    )

    async def beat(self, call: Call) -> StreamResponse:
        call.read()
        zone = call.names["zone"]
        if not _zone.fullmatch(zone):
            raise InvalidValue("zone", "must be 1 to 40 of A-Z a-z 0-9 _ . -")
        await call.discard_body(self._service.read_timeout)
        await self._service.in_thread(peers.beat_zone, self._spool.tree, zone)
        return Response(status=204)


def _upsert(indexed: Indexed, messages: list[NewMessage]) -> list[bool]:
    indexed.upsert(messages)
    return [True] * len(messages)


def _ensure(indexed: Indexed, messages: list[NewMessage], among: list[str]) -> list[bool]:
    return [indexed.ensure(message, among=among) for message in messages]


def _request(body: bytes) -> dict[str, Any]:
    """What a request asks for. Raises UnreadableBody, InvalidValue."""
    asked = object_in(body)
    unknown = sorted(asked.keys() - _REQUEST["properties"].keys())
    if unknown:
        known = ", ".join(_REQUEST["properties"])
        raise InvalidValue(unknown[0][:100], f"unknown member; expected one of: {known}")
    verb, ids = asked.get("do"), asked.get("ids")
    if verb not in _VERBS:
        raise InvalidValue("do", f"expected one of: {', '.join(_VERBS)}")
    most = 1 if verb in ("find", "claim", "postpone") else MAX_BATCH
    if not isinstance(ids, list) or not 1 <= len(ids) <= most:
        raise InvalidValue("ids", f"must be an array of 1 to {most} ids")
    for name in ("attributes", "names"):
        found = asked.get(name) or {}
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise InvalidValue(name, "must be an object of strings")
    return asked


def _act(indexed: Indexed, asked: dict[str, Any], identity: Identity) -> list[Any]:
    ids: list[str] = asked["ids"]
    do: dict[str, Callable[[], list[Any]]] = {
        "find": lambda: [_shown(indexed.find(ids[0]), identity)],
        "claim": lambda: [_shown(indexed.claim(ids[0], asked.get("visibility")), identity)],
        "ack": lambda: indexed.ack(*ids, names=_unquoted(asked.get("names") or {})),
        "remove": lambda: indexed.remove(*ids),
        "renew": lambda: [indexed.renew(one, _needed(asked, "visibility")) for one in ids],
        "postpone": lambda: [
            indexed.postpone(ids[0], _needed(asked, "delay"), asked.get("attributes") or {})
        ],
    }
    return do[asked["do"]]()


def _unquoted(names: dict[str, str]) -> dict[str, str]:
    return {given_id: unquote_id(name) for given_id, name in names.items()}


def _needed(asked: dict[str, Any], name: str) -> float:
    if asked.get(name) is None:
        raise InvalidValue(name, "is missing")
    value: float = asked[name]
    return value


def _shown(message: Message | None, identity: Identity) -> dict[str, Any] | None:
    return None if message is None else as_json(seen_message(identity, message))
