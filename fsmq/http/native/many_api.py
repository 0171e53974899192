"""What peek, batch and ack take and answer; docs/http.md says what it means."""

from __future__ import annotations

from fsmq.spool.errors import DuplicateMessage, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
from fsmq.spool.verbs.put import MAX_BATCH
from fsmq.spool.verbs.receive import MAX_CLAIMS

from ...wire import MAX_BATCH_BYTES
from ..describe import (
    JSON,
    MESSAGE_ID,
    QUEUE,
    Answer,
    Body,
    Operation,
    Parameter,
    array,
    integer,
    or_null,
    record,
    text,
)
from ..problem_answers import guarded
from ..problems import ExpectationFailed, SlowBody, UnreadableBody, UnsupportedEncoding
from .api import MESSAGE, NEW_MESSAGE, STATE

PEEK_COUNT = 10
OF_BODIES = (
    UnreadableBody,
    NoSuchQueue,
    SlowBody,
    MessageTooLarge,
    UnsupportedEncoding,
    ExpectationFailed,
)

PEEK = Operation(
    id="peek",
    tag="Messages",
    summary="Look at the messages in one state, without claiming them",
    parameters=(
        QUEUE,
        Parameter(
            "state",
            "which messages; `delay` is both in_flight and delayed",
            text(enum=[*STATE["enum"], "delay"], default="ready"),
        ),
        Parameter("count", "at most this many", integer(1, MAX_CLAIMS, default=PEEK_COUNT)),
        Parameter("after", "begin behind this id, given as an answer had it", text()),
    ),
    answers={
        200: Answer(
            "The messages in their order",
            {JSON: record({"messages": array(MESSAGE, maxItems=MAX_CLAIMS)})},
        ),
        **guarded(NoSuchQueue, Unavailable),
    },
)
_NEW_MESSAGE = record(
    {
        "body": or_null(text(description="a text, stored as UTF-8")),
        "body_base64": or_null(text(contentEncoding="base64", description="or bytes")),
        **{
            parameter.name: or_null(dict(parameter.schema, description=parameter.description))
            for parameter in NEW_MESSAGE
            if isinstance(parameter.schema, dict)
        },
        "content_type": or_null(text()),
        "attributes": or_null({"type": "object", "additionalProperties": text()}),
    },
    required=[],
    additionalProperties=False,
    anyOf=[{"required": ["body"]}, {"required": ["body_base64"]}],
)
BATCH = Operation(
    id="batch",
    tag="Messages",
    summary="Store many messages, all or none",
    parameters=(QUEUE,),
    body=Body(
        f"the messages, at most {MAX_BATCH_BYTES} bytes",
        {JSON: array(_NEW_MESSAGE, minItems=1, maxItems=MAX_BATCH)},
        required=True,
    ),
    answers={
        201: Answer(
            "All are on stable media; their ids in the same order",
            {JSON: record({"ids": array(MESSAGE_ID)})},
        ),
        **guarded(*OF_BODIES, DuplicateMessage, QueueFull, Unavailable),
    },
)
IDS = array(MESSAGE_ID, maxItems=MAX_BATCH)
ACK = Operation(
    id="ack",
    tag="Messages",
    summary="Remove many messages in any state; acknowledges claimed ones",
    parameters=(QUEUE,),
    body=Body(
        "their ids",
        {JSON: record({"ids": {**IDS, "minItems": 1}}, additionalProperties=False)},
        required=True,
    ),
    answers={
        200: Answer(
            "Which of them were removed, and which were missing",
            {JSON: record({"removed": IDS, "missing": IDS})},
        ),
        **guarded(*OF_BODIES, Unavailable),
    },
)
