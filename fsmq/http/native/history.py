"""The history of queues, which the charts show. Part of the native dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from aiohttp.web import Response, StreamResponse

from fsmq.spool.checks import check_queue
from fsmq.spool.errors import InvalidValue, Unavailable
from fsmq.spool.inspection import HISTORY_EVERY_S, HISTORY_S, MAX_STEP_S, Figures, Moment, step_of
from fsmq.spool.prepare import portions

from ..connection.pieces import Pieces
from ..describe import (
    JSON,
    QUEUE_NAME,
    Kind,
    Operation,
    array,
    json_object,
    number,
    or_null,
    query,
    text,
    whole,
)
from ..dialect import Handlers
from ..problem_answers import guarded
from ..routing import needs
from ..routing.call import Call
from ..routing.router import Router
from .forms import MOMENT

# The approximate size of a row in an answer.
_ROW_BYTES = 96
# How many rows are written at a time.
_ROWS = 1000


def _moment(name: str, value: str) -> float:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidValue(name, f"{value[:50]!r} is not a moment of RFC 3339") from None
    if found.tzinfo is None:
        raise InvalidValue(name, "needs its offset, such as Z")
    return found.timestamp()


QUEUE = query(
    "queue",
    "which",
    Kind(QUEUE_NAME, lambda name, value: check_queue(value, name), "a queue"),
    otherwise="all that the key may see",
)
FROM = query("from", "since when", Kind(MOMENT, _moment, "a moment"), otherwise="three hours ago")
STEP = query(
    "step",
    "of each row; larger if there would be more than 100,000 rows",
    whole(int(HISTORY_EVERY_S), int(MAX_STEP_S), "seconds"),
    otherwise="60; 600 for more than six hours",
)
_NEED = needs.anybody.then("any right on `queue`, if it is given")


class HistoryOfQueues(Handlers):
    """How many messages there were, and how many came and went."""

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_history", self.show, self.HISTORY, _NEED)

    HISTORY = Operation(
        id="history",
        tag="Queues",
        summary="How many messages queues had, and how many came and went",
        parameters=(QUEUE, FROM, STEP),
        answers={
            200: json_object(
                "For each queue, a row for each step whose figures are known",
                {
                    "step": number(HISTORY_EVERY_S, 1e9, description="seconds"),
                    "figures": array(
                        text(enum=["at", *Figures._fields]),
                        description="what the numbers of a row are; `at` is the beginning of the"
                        " step in Unix milliseconds, `oldest` is in seconds",
                    ),
                    "queues": {
                        "type": "object",
                        "additionalProperties": array(array(or_null(number(0, 1e15)))),
                    },
                },
            ),
            **guarded(Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        identity = call.sender
        given = call.read()
        queue, now = given[QUEUE], self._spool.context.clock()
        call.admit()
        if queue is None:
            queues = await self._service.names(call, self._spool.queues, identity.visible)
        else:
            identity.require_sight(queue)
            queues = [queue]
        begin = given[FROM]
        since = now - HISTORY_S if begin is None else begin
        step = step_of(since, now, len(queues), given[STEP])
        found = await self._service.inspector.history(queues, since, now, step)
        call.hold(_ROW_BYTES * sum(map(len, found.values())), sure=True)
        return Response(body=Pieces(_written(step, found)), content_type=JSON)


def _written(step: float, found: Mapping[str, list[Moment]]) -> Iterator[bytes]:
    figures = json.dumps(["at", *Figures._fields])
    before = f'{{"step": {step:g}, "figures": {figures}, "queues": {{'
    for queue, moments in found.items():
        yield f"{before}{json.dumps(queue)}: [".encode()
        for part, portion in enumerate(portions(moments, _ROWS)):
            rows = [[round(moment.at * 1000), *moment.figures] for moment in portion]
            yield f"{', ' if part else ''}{json.dumps(rows)[1:-1]}".encode()
        yield b"]"
        before = ", "
    yield f"{before if not found else ''}}}}}\n".encode()
