"""Where a message is, and what happened to it. Part of the native dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool.checks import MAX_DELIVERIES, check_id
from fsmq.spool.errors import Unavailable
from fsmq.spool.inspection import LifeReader, LifeStep
from fsmq.spool.prepare import portions

from ...wire import moment, quote_id
from ..answers import json_answer
from ..connection.pieces import PiecesInTime
from ..describe import (
    MESSAGE_ID,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Operation,
    array,
    as_it_is,
    integer,
    json_object,
    or_null,
    query,
    record,
    seconds,
    text,
)
from ..dialect import Handlers
from ..guard.access import Identity
from ..guard.sight import seen_step
from ..problem_answers import guarded, keyed
from ..routing import needs
from ..routing.call import Call
from ..routing.router import Router
from ..service.monitoring.inspector import LIFE_S, MAX_BUDGET_S
from .forms import ID, MOMENT, STATE

JSON_LINES = "application/x-ndjson"
AFTER = query("after", "continue there", as_it_is(text(), "a `next`"))
BUDGET = query(
    "budget",
    'stop after this time; then the last line is `{"next": "…"}`',
    seconds(MAX_BUDGET_S),
    LIFE_S,
)
_STEP = record(
    {
        "at": integer(0, description="Unix milliseconds"),
        "event": text(),
        "queue": QUEUE_NAME,
        "id": text(),
        "next": text(description="alone in the last line, if it stopped: the `after` to continue"),
    },
    required=[],
    description="a line of the journal, see docs/journal.md",
)
# How many steps are written at a time; others have their turn in between.
_STEPS = 100
_NEED = needs.anybody.then("`look` on each queue that is looked into")


class Inspection(Handlers):
    """Handlers that look for one message in all queues and in the journal."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_messages/{id}", self.find, self.FIND, _NEED)
        router.add("GET", "/{queue}/messages/{id}/life", self.life, self.LIFE, needs.queue("look"))

    FIND = Operation(
        id="find",
        tag="Messages",
        summary="In which queue, and in which state, a message is",
        parameters=(ID,),
        answers={
            200: json_object(
                "Where it is: in no queue, in one, or in several that have the same id",
                {
                    "id": MESSAGE_ID,
                    "places": array(
                        record(
                            {
                                "queue": QUEUE_NAME,
                                "id": MESSAGE_ID,
                                "state": STATE,
                                "deliveries": or_null(integer(0, MAX_DELIVERIES)),
                                "deadline": or_null(MOMENT),
                            }
                        )
                    ),
                },
            ),
            **keyed(Unavailable),
        },
    )

    async def find(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        message_id = check_id("", call.names["id"])

        def may_look(queues: Iterable[str]) -> Iterable[str]:
            return (queue for queue in queues if identity.may("look", queue))

        found = await self._service.inspector.find(message_id, may_look)
        places: list[dict[str, Any]] = [
            {
                **place._asdict(),
                "id": quote_id(place.id),
                "deadline": None if place.deadline is None else moment(place.deadline),
            }
            for place in found
        ]
        return json_answer(200, {"id": quote_id(message_id), "places": places})

    LIFE = Operation(
        id="life",
        tag="Messages",
        summary="What happened to a message, by the journal",
        description="Also of a message that is gone, and across moves. Steps in queues on which the"
        " key lacks the right `look` are left out.",
        parameters=(QUEUE, ID, AFTER, BUDGET),
        answers={
            200: Answer(
                "The steps in their order, one JSON object a line, while they are found",
                {JSON_LINES: _STEP},
            ),
            **guarded(Unavailable),
        },
    )

    async def life(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        message_id = check_id(queue, call.names["id"])
        reader = LifeReader(self._spool.tree, queue, message_id, given[AFTER] or "")
        lines = self._lines(reader, given[BUDGET], call.sender)
        first = await anext(lines)  # before the answer begins, so that errors have a status
        return Response(body=PiecesInTime(first, lines), content_type=JSON_LINES)

    async def _lines(
        self, reader: LifeReader, budget: float, identity: Identity
    ) -> AsyncIterator[bytes]:
        async for found in self._service.inspector.life(reader, budget):
            for steps in [*portions(found, _STEPS)] or [[]]:  # an empty one is a pause
                if identity.is_over:
                    return
                yield b"".join(_line(seen) for step in steps if (seen := seen_step(identity, step)))
        following = {"next": reader.next}
        yield b"" if reader.next is None else json.dumps(following).encode() + b"\n"


def _line(step: LifeStep) -> bytes:
    return json.dumps(step.as_json()).encode() + b"\n"
