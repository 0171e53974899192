"""What the routes of moves take and answer; docs/http.md says what it means."""

from __future__ import annotations

from fsmq.spool.errors import Unavailable

from ..describe import (
    JSON,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Header,
    Operation,
    Parameter,
    integer,
    or_null,
    record,
    text,
)
from ..problem_answers import guarded
from ..problems import NotFound
from .many_api import IDS, OF_BODIES

_REF = text(description="the move's reference")
MOVE = Operation(
    id="move",
    tag="Queues",
    summary="Move all messages to another queue, in the background; or some of them, at once",
    parameters=(
        QUEUE,
        Parameter("to", "the target queue, which must exist", QUEUE_NAME, required=True),
        Parameter(
            "in_flight",
            "whether to move claimed and delayed messages, too, which makes them ready;"
            " default: false",
            text(enum=["true", "false"]),
        ),
    ),
    body=Body(
        "the ids of those to move; nothing: all move",
        {JSON: record({"ids": {**IDS, "minItems": 1}}, additionalProperties=False)},
    ),
    answers={
        200: Answer(
            "Those of the body have moved, as far as they can",
            {
                JSON: record(
                    {
                        "moved": integer(0, description="messages that were moved"),
                        "conflicts": integer(0, description="messages that stay"),
                    }
                )
            },
        ),
        202: Answer(
            "The move begins at once",
            {JSON: record({"move": _REF})},
            {"Location": Header("the URL of its progress", text(), always=True)},
        ),
        **guarded(*OF_BODIES, Unavailable),
    },
)
SHOW_MOVE = Operation(
    id="show_move",
    tag="Queues",
    summary="Show the progress of a move",
    parameters=(Parameter("ref", "the reference", text(), "path"),),
    answers={
        200: Answer(
            "The move",
            {
                JSON: record(
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
                    }
                )
            },
        ),
        **guarded(NotFound, Unavailable),
    },
)
