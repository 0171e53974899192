"""Moves: of whole queues in the background, or of some messages. Part of the native dialect."""

from __future__ import annotations

from aiohttp.web import StreamResponse

from fsmq.spool.errors import InvalidValue, NoSuchQueue, Unavailable
from fsmq.spool.layout.names import check_queue
from fsmq.spool.moves import MAX_COUNT
from fsmq.spool.verbs.move import Moved

from ...wire import MAX_BATCH_BYTES, unquote_id
from ..answers import json_answer
from ..describe import (
    JSON,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Header,
    Kind,
    Operation,
    Parameter,
    QueryParameter,
    integer,
    json_object,
    or_null,
    query,
    record,
    text,
    whole,
)
from ..dialect import Handlers
from ..problem_answers import OF_BODIES, guarded, keyed
from ..problems import NotFound
from ..routing.call import Call
from ..routing.router import Router
from .batch import IDS, some_ids


def _true_or_false(name: str, value: str) -> bool:
    """Which of both; an empty text is false."""
    if value not in ("true", "false", ""):
        raise InvalidValue(name, "is true or false")
    return value == "true"


TO = QueryParameter(
    "to",
    "the target queue, which must exist",
    QUEUE_NAME,
    required=True,
    parse=lambda name, value: check_queue(value, name),
    default="",
)
IN_FLIGHT = query(
    "in_flight",
    "whether to move claimed and delayed messages, too, which makes them ready; default: false",
    Kind(text(enum=["true", "false"]), _true_or_false),
)
DELAYED = query(
    "delayed",
    "whether to move messages that are delayed and not claimed, too, which stay delayed;"
    " default: false",
    Kind(text(enum=["true", "false"]), _true_or_false),
)
COUNT = query(
    "count", "move at most this many, those that would be claimed last", whole(1, MAX_COUNT)
)
_REF = text(description="the move's reference")


class Moves(Handlers):
    """Moves of messages, and how far they are."""

    def add_routes(self, router: Router) -> None:
        router.add("POST", "/{queue}/move", self.begin, self.MOVE)
        router.add("GET", "/_moves/{ref}", self.show, self.SHOW)

    MOVE = Operation(
        id="move",
        tag="Queues",
        summary="Move all messages to another queue, in the background; or some of them, at once",
        parameters=(QUEUE, TO, IN_FLIGHT, DELAYED, COUNT),
        body=Body(
            "the ids of those to move; nothing: all move",
            {JSON: record({"ids": {**IDS, "minItems": 1}}, additionalProperties=False)},
        ),
        answers={
            200: json_object(
                "Those of the body have moved, as far as they can",
                {
                    "moved": integer(0, description="messages that were moved"),
                    "conflicts": integer(0, description="messages that stay"),
                },
            ),
            202: Answer(
                "The move begins at once",
                {JSON: record({"move": _REF})},
                {"Location": Header("the URL of its progress", text(), always=True)},
            ),
            **guarded(NoSuchQueue, *OF_BODIES, Unavailable),
        },
    )

    async def begin(self, call: Call) -> StreamResponse:
        source = call.queue("receive")
        given = call.read()
        target, in_flight = given[TO], bool(given[IN_FLIGHT])
        call.identify_bearer().require("send", target)
        if source == target:
            raise InvalidValue("to", "is the same queue")
        for queue in (source, target):
            if not self._spool.has_queue(queue):
                raise NoSuchQueue(queue)
        if call.request.can_read_body:
            return await self._some(call, source, target, in_flight)
        move = await self._service.moves.begin(
            source, target, in_flight=in_flight, delayed=bool(given[DELAYED]), count=given[COUNT]
        )
        answer = json_answer(202, {"move": move.ref})
        answer.headers["Location"] = f"/_moves/{move.ref}"
        return answer

    async def _some(self, call: Call, source: str, target: str, in_flight: bool) -> StreamResponse:
        """Move some messages, and answer when they have been moved."""
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        ids = await self._service.beside(len(body), some_ids, body)
        only = [unquote_id(message_id) for message_id in ids]

        def move() -> Moved:
            return self._spool.queue(source).move_to(target, only=only, in_flight=in_flight)

        moved = await self._service.listing(move)
        return json_answer(200, {"moved": moved.moved, "conflicts": moved.conflicts})

    SHOW = Operation(
        id="show_move",
        tag="Queues",
        summary="Show the progress of a move",
        parameters=(Parameter("ref", "the reference", text(), "path"),),
        answers={
            200: json_object(
                "The move",
                {
                    "move": _REF,
                    "from": QUEUE_NAME,
                    "to": QUEUE_NAME,
                    "in_flight": {"type": "boolean"},
                    "status": text(enum=["in_progress", "complete", "error"]),
                    "total": or_null(integer(0, description="messages that were found")),
                    "moved": integer(0, description="messages that were moved so far"),
                    "conflicts": integer(0, description="messages that stay"),
                    "error": or_null(text(description="why messages stay")),
                },
            ),
            **keyed(NotFound, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        identity = call.identify_bearer()
        identity.visible(())  # refuses who has no key where one is needed
        call.read()
        ref = call.names["ref"]
        move = await self._service.in_thread(self._spool.find_move, ref)
        if move is None or not (identity.may_see(move.source) or identity.may_see(move.target)):
            raise NotFound(f"/_moves/{ref}")
        return json_answer(
            200,
            {
                "move": move.ref,
                "from": move.source,
                "to": move.target,
                "in_flight": move.in_flight,
                "status": move.status,
                "total": move.total,
                "moved": move.moved,
                "conflicts": move.conflicts,
                "error": move.error,
            },
        )
