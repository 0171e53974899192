"""Moves and redrives: of whole queues in the background, or of some messages at once.

Part of the native dialect.
"""

from __future__ import annotations

from functools import partial

from aiohttp.web import StreamResponse

from fsmq.spool.checks import MAX_RATE, MIN_RATE, check_queue, check_rate
from fsmq.spool.errors import InvalidValue, NoSuchQueue, Unavailable
from fsmq.spool.inspection import MAX_LISTED, MAX_MOVED, Move, latest
from fsmq.spool.prepare import Redriven

from ....wire import MAX_BATCH_BYTES, move_as_json, unquote_id
from ...answers import json_answer
from ...describe import (
    JSON,
    MOVED,
    QUEUE,
    QUEUE_NAME,
    SAME,
    Answer,
    Body,
    Component,
    Header,
    Kind,
    Operation,
    Parameter,
    QueryParameter,
    array,
    integer,
    json_object,
    number,
    or_null,
    query,
    record,
    text,
    whole,
    word,
)
from ...dialect import Handlers
from ...guard.access import Identity
from ...guard.sight import may_see_move, targets
from ...problem_answers import OF_BODIES, guarded, keyed
from ...problems import NotFound
from ...routing import needs
from ...routing.call import Call
from ...routing.router import Router
from .batch import IDS, some_ids


def _true_or_false(name: str, value: str) -> bool:
    """Parse true or false; an empty text is false."""
    if value not in ("true", "false", ""):
        raise InvalidValue(name, "is true or false")
    return value == "true"


def _rate(name: str, value: str) -> float:
    try:
        rate = float(value) if len(value) <= 30 and value.isascii() else float("nan")
    except ValueError:
        rate = float("nan")
    return check_rate(rate) or 0.0


_TRUE_OR_FALSE = word(["true", "false"], _true_or_false)
TO = QueryParameter(
    "to",
    "where they go",
    QUEUE_NAME,
    required=True,
    values="a queue that exists",
    parse=lambda name, value: check_queue(value, name),
    default="",
)
IN_FLIGHT = query(
    "in_flight",
    "whether claimed and delayed messages move, too, which makes them ready",
    _TRUE_OR_FALSE,
    otherwise="`false`",
)
DELAYED = query(
    "delayed",
    "whether messages that are delayed and not claimed move, too, and stay delayed",
    _TRUE_OR_FALSE,
    otherwise="`false`",
)
COUNT = query(
    "count",
    "move at most this many in the background, those that would be claimed last",
    whole(1, MAX_MOVED),
    otherwise="all",
)
RATE = query(
    "rate",
    "at most this many messages a second, in the background, even if a body has ids",
    Kind(number(MIN_RATE, MAX_RATE), _rate, f"{MIN_RATE:.12g} to {MAX_RATE:.12g}"),
    otherwise="no limit",
)
HOME = query(
    "to",
    "the queue to which all go",
    Kind(QUEUE_NAME, lambda name, value: check_queue(value, name), "a queue that exists"),
    otherwise="each back to its own queue",
)
LISTED = query(
    "count",
    "at most this many in all, but always all that are in progress",
    whole(1, MAX_LISTED),
    100,
)
_REF = text(description="the move's reference")
_MOVE = Component(
    "Move",
    record(
        {
            "move": _REF,
            "from": QUEUE_NAME,
            "to": {**or_null(QUEUE_NAME), "description": "null: from where they were buried"},
            "redrive": {"type": "boolean"},
            "in_flight": {"type": "boolean"},
            "rate": or_null(number(MIN_RATE, MAX_RATE)),
            "status": text(enum=["in_progress", "complete", "error", "stopped"]),
            "total": or_null(integer(0, description="messages that were found")),
            "moved": integer(0, description="messages that were moved so far"),
            "conflicts": integer(0, description="messages that stay: their ids are taken there"),
            "no_origin": integer(
                0,
                description="messages that stay: it is unknown from which queue they were buried,"
                " or the key may not send there",
            ),
            "error": or_null(text(description="why messages stay")),
        }
    ),
)
_BEGUN = Answer(
    "The move begins at once",
    {JSON: record({"move": _REF})},
    {"Location": Header("the path of its progress, from that of the request", text(), always=True)},
)
_REFERENCE = Parameter("ref", "the reference", text(), "path")


class Moves(Handlers):
    """Moves of messages, and their progress."""

    def add_routes(self, router: Router) -> None:
        receive = needs.queue("receive")
        home = "`send` on `to`, or without it on each queue that gets messages"
        source = needs.anybody.then("`receive` on the queue that messages leave")
        seen = needs.anybody.then("any right on all queues of a move")
        router.add("POST", "/{queue}/move", self.begin, self.MOVE, receive.then("`send` on `to`"))
        router.add("POST", "/{queue}/redrive", self.redrive, self.REDRIVE, receive.then(home))
        router.add("GET", "/_moves", self.list_all, self.LIST, seen)
        router.add("GET", "/_moves/{ref}", self.show, self.SHOW, seen)
        router.add("DELETE", "/_moves/{ref}", self.stop, self.STOP, source)

    MOVE = Operation(
        id="move",
        tag="Queues",
        summary="Move all messages to another queue, in the background; or some of them, at once or"
        " at a rate",
        parameters=(QUEUE, TO, IN_FLIGHT, DELAYED, COUNT, RATE),
        body=Body(
            "the ids of those to move; nothing: all move",
            {JSON: record({"ids": {**IDS, "minItems": 1}}, additionalProperties=False)},
        ),
        again=MOVED,
        answers={
            200: json_object(
                "Without a rate: the messages in the body have moved, as far as possible",
                {
                    "moved": integer(0, description="messages that were moved"),
                    "conflicts": integer(0, description="messages that stay"),
                },
            ),
            202: _BEGUN,
            **guarded(NoSuchQueue, *OF_BODIES, Unavailable),
        },
    )

    async def begin(self, call: Call) -> StreamResponse:
        source = call.queue
        given = call.read()
        target, in_flight = given[TO], bool(given[IN_FLIGHT])
        targets(call.sender, target)
        if source == target:
            raise InvalidValue("to", "is the same queue")
        for queue in (source, target):
            if not self._spool.has_queue(queue):
                raise NoSuchQueue(queue)
        only = None
        if call.request.can_read_body:
            only = await self._ids_of(call)
            if given[RATE] is None:
                return await self._move_some(source, target, only, in_flight)
        move = await self._service.moves.begin(
            call.sender.account,
            source,
            target,
            in_flight=in_flight,
            delayed=bool(given[DELAYED]),
            count=given[COUNT],
            rate=given[RATE],
            only=only,
        )
        return _begun(move)

    async def _ids_of(self, call: Call) -> list[str]:
        """The ids in a body."""
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        ids = await self._service.beside(len(body), some_ids, body)
        return [unquote_id(message_id) for message_id in ids]

    async def _move_some(
        self, source: str, target: str, only: list[str], in_flight: bool
    ) -> StreamResponse:
        move = self._service.changes.move(source, target, only, in_flight=in_flight)
        moved = await self._service.queues.do(move)
        return json_answer(200, {"moved": moved.moved, "conflicts": moved.conflicts})

    REDRIVE = Operation(
        id="redrive",
        tag="Queues",
        summary="Move dead letters back to the queues from which they were buried: all, in the"
        " background; or some, at once or at a rate",
        description="Only ready messages move; their deliveries are counted from 0 again.",
        parameters=(QUEUE, HOME, RATE),
        body=Body(
            "the ids of those to redrive; nothing: all",
            {JSON: record({"ids": {**IDS, "minItems": 1}}, additionalProperties=False)},
        ),
        again=MOVED,
        answers={
            200: json_object(
                "Without a rate: the messages in the body have moved, as far as possible",
                {name: _MOVE.schema["properties"][name] for name in Redriven._fields},
            ),
            202: _BEGUN,
            **guarded(NoSuchQueue, *OF_BODIES, Unavailable),
        },
    )

    async def redrive(self, call: Call) -> StreamResponse:
        dead = call.queue
        given = call.read()
        to = given[HOME]
        allowed = targets(call.sender, to)
        if to == dead:
            raise InvalidValue("to", "is the same queue")
        for queue in (dead, to or dead):
            if not self._spool.has_queue(queue):
                raise NoSuchQueue(queue)
        only = await self._ids_of(call) if call.request.can_read_body else None
        rate = given[RATE]
        if only is None or rate is not None:
            who = call.sender.account
            return _begun(await self._service.moves.redrive(who, dead, to, rate, only, allowed))
        redrive = self._service.changes.redrive(dead, only, to, allowed)
        done = await self._service.queues.do(redrive)
        return json_answer(200, done._asdict())

    LIST = Operation(
        id="list_moves",
        tag="Queues",
        summary="List the moves in progress, and the last that have ended; the newest first",
        parameters=(LISTED,),
        answers={
            200: json_object("The moves", {"moves": array(_MOVE)}),
            **keyed(Unavailable),
        },
    )

    async def list_all(self, call: Call) -> StreamResponse:
        identity = call.sender
        count = call.read()[LISTED]
        wanted = partial(may_see_move, identity)
        found = await self._service.in_thread(latest, self._spool.context, count, wanted)
        return json_answer(200, {"moves": list(map(move_as_json, found))})

    SHOW = Operation(
        id="show_move",
        tag="Queues",
        summary="Show the progress of a move",
        parameters=(_REFERENCE,),
        answers={200: Answer("The move", {JSON: _MOVE}), **keyed(NotFound, Unavailable)},
    )

    async def show(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        return json_answer(200, move_as_json(await self._found(identity, call.names["ref"])))

    STOP = Operation(
        id="stop_move",
        tag="Queues",
        summary="End a move early; what has moved stays",
        parameters=(_REFERENCE,),
        again=SAME,
        answers={
            200: Answer("The move, which has ended", {JSON: _MOVE}),
            202: Answer("The move, which will end soon", {JSON: _MOVE}),
            **keyed(NotFound, Unavailable),
        },
    )

    async def stop(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        ref = call.names["ref"]
        identity.require("receive", (await self._found(identity, ref)).source)
        move = await self._service.moves.stop_move(ref)
        if move is None:
            raise NotFound(f"/_moves/{ref}")
        return json_answer(202 if move.status == "in_progress" else 200, move_as_json(move))

    async def _found(self, identity: Identity, ref: str) -> Move:
        move = await self._service.in_thread(self._spool.find_move, ref)
        if move is None or not may_see_move(identity, move):
            raise NotFound(f"/_moves/{ref}")
        return move


def _begun(move: Move) -> StreamResponse:
    answer = json_answer(202, {"move": move.ref})
    answer.headers["Location"] = f"../_moves/{move.ref}"  # from /{queue}/move
    return answer
