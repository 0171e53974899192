"""The descriptions of the routes; docs/emodb.md is their documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..describe import (
    JSON,
    Answer,
    Body,
    Header,
    Operation,
    Parameter,
    Schema,
    array,
    integer,
    record,
    text,
)

_TAGS = {"queue": "EmoDB queues", "dedupq": "EmoDB dedup queues"}
_NAME = text(r"([a-z0-9:@-]|__)[a-z0-9.:@_-]*", minLength=1, maxLength=180)
_QUEUE = Parameter("queue", "the queue's name; it need not exist", _NAME, "path")
_TTL = Parameter("ttl", "seconds of the claim; default 30", integer(0, 3600))
_PARTITIONED = Parameter("partitioned", "accepted and ignored", {"type": "boolean"})
_ID = text(r"([0-9a-f]{2})+", description="bound to its queue")
_ANY: Schema = {"description": "any JSON value"}
_EXCEPTION = Header("the name of a Java exception", text())
_TEXT = {"text/plain": text()}
_DONE = Answer("done", {JSON: record({"success": {"const": True}})})
_COUNT = Answer("the number", {JSON: integer(0)})
_MESSAGES = Answer("the messages", {JSON: array(record({"id": _ID, "payload": _ANY}))})
_REFUSED = Answer("a value does not fit", {**_TEXT, JSON: _ANY}, {"X-BV-Exception": _EXCEPTION})
_ERRORS = {
    400: _REFUSED,
    403: Answer("the key may not do this", {JSON: _ANY}, {"X-BV-Exception": _EXCEPTION}),
    406: Answer("the client does not accept JSON", _TEXT),
    429: Answer("the key has too many open requests", _TEXT),
    500: Answer("an error of the server", {JSON: _ANY}),
    503: Answer("the disk fails", {JSON: _ANY}, {"X-BV-Exception": _EXCEPTION}),
}
_BODY_ERRORS = {
    408: Answer("the body did not arrive in time", _TEXT),
    415: Answer("the body is not labelled application/json", _TEXT),
    417: Answer("something other than 100-continue is expected", _TEXT),
    422: Answer("the body is empty", {JSON: _ANY}),
}
_IDS = Body("the messages' ids", {JSON: array(_ID)}, required=True)


def _limit(most: int) -> Parameter:
    return Parameter("limit", "messages; default 10", integer(1, most))


@dataclass(frozen=True)
class _Route:
    """An operation, without what differs between the two services."""

    id: str
    summary: str
    good: Answer
    parameters: tuple[Parameter, ...] = (_QUEUE,)
    body: Body | None = None
    partitioned: tuple[str, ...] = ("queue", "dedupq")  # which services check this parameter
    more: Mapping[int, Answer] = field(default_factory=dict)


_ROUTES = {
    ("POST", "/{queue}/send"): _Route(
        "send",
        "Send one message",
        _DONE,
        body=Body("the message", {JSON: _ANY}, required=True),
        partitioned=(),
    ),
    ("POST", "/{queue}/sendbatch"): _Route(
        "send_batch",
        "Send messages, all or none",
        _DONE,
        body=Body("the messages", {JSON: array(_ANY)}, required=True),
        partitioned=(),
    ),
    ("POST", "/_sendbatch"): _Route(
        "send_batches",
        "Send messages to several queues, all or none",
        _DONE,
        (),
        Body(
            "messages by queue",
            {JSON: {"type": "object", "additionalProperties": array(_ANY)}},
            required=True,
        ),
        (),
    ),
    ("GET", "/{queue}/poll"): _Route(
        "poll", "Claim messages", _MESSAGES, (_QUEUE, _TTL, _limit(1000))
    ),
    ("GET", "/{queue}/peek"): _Route(
        "peek",
        "Look at messages, claimed ones too",
        _MESSAGES,
        (_QUEUE, _limit(5000)),
        partitioned=("dedupq",),
    ),
    ("POST", "/{queue}/renew"): _Route(
        "renew", "Renew claims, or end them with ttl=0", _DONE, (_QUEUE, _TTL), _IDS
    ),
    ("POST", "/{queue}/ack"): _Route("ack", "Remove messages", _DONE, body=_IDS),
    ("GET", "/{queue}/size"): _Route(
        "size",
        "Count messages, claimed ones too",
        _COUNT,
        (_QUEUE, Parameter("limit", "count exactly up to this number", integer(1, 2**63 - 1))),
        partitioned=("dedupq",),
    ),
    ("GET", "/{queue}/claimcount"): _Route("claim_count", "Count claims", _COUNT),
    ("POST", "/{queue}/unclaimall"): _Route("unclaim_all", "End all claims", _DONE),
    ("POST", "/_move"): _Route(
        "move",
        "Move all messages to another queue, in the background",
        Answer("ordered", {JSON: record({"id": text(description="the reference")})}),
        (
            Parameter("from", "the queue to empty", _NAME, required=True),
            Parameter("to", "the queue to fill", _NAME, required=True),
        ),
        partitioned=(),
    ),
    ("GET", "/_move/{reference}"): _Route(
        "show_move",
        "The progress of a move",
        Answer(
            "the move",
            {
                JSON: record(
                    {
                        "from": _NAME,
                        "to": _NAME,
                        "status": text(enum=["IN_PROGRESS", "COMPLETE", "ERROR"]),
                    }
                )
            },
        ),
        (Parameter("reference", "from the answer to the move", text(), "path"),),
        partitioned=(),
        more={404: Answer("there is no such move", {JSON: _ANY}, {"X-BV-Exception": _EXCEPTION})},
    ),
    ("DELETE", "/{queue}"): _Route("purge", "Remove all messages", _DONE),
}

PING = Operation(
    id="ping",
    open=True,
    tag="EmoDB",
    summary="Whether the server is there",
    answers={200: Answer("it is", {"text/plain": text(enum=["pong"])})},
)


def operation(service: str, method: str, path: str) -> Operation:
    """The description of a route of ``queue`` or ``dedupq``; ``path`` is without the prefix."""
    route = _ROUTES[method, path]
    parameters = route.parameters
    if service in route.partitioned:
        parameters = (*parameters, _PARTITIONED)
    return Operation(
        id=f"emodb_{service}_{route.id}",
        tag=_TAGS[service],
        summary=route.summary,
        answers={200: route.good, **_ERRORS, **(_BODY_ERRORS if route.body else {}), **route.more},
        parameters=parameters,
        body=route.body,
    )
