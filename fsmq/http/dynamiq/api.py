"""The descriptions of the routes; docs/dynamiq.md is their documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fsmq.spool.checks import MAX_PARTITIONS, MAX_TTL_S, MAX_VISIBILITY_S

from ..describe import (
    BYTES,
    JSON,
    MESSAGE_ID,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Header,
    Operation,
    Parameter,
    Schema,
    array,
    integer,
    number,
    record,
    text,
)

PREFIXES = ("", "/v1")
_ERROR = {JSON: record({"error": text()})}
_WORDS = {JSON: text()}
_TEXT = {"text/plain": text()}
_NAMES = array(QUEUE_NAME)
_QUEUES = {JSON: record({"Queues": _NAMES})}
_DELETED = {JSON: record({"Deleted": {"const": True}})}
_MESSAGES = array(record({"id": MESSAGE_ID, "body": text()}))
_RETRY = {"Retry-After": Header("whole seconds", integer(1), always=True)}
_BODY = Body("the message: any bytes", BYTES)
_SETTINGS: Schema = record(
    {
        "visibility_timeout": number(0, MAX_VISIBILITY_S),
        "min_partitions": integer(1, MAX_PARTITIONS),
        "max_partitions": integer(1, MAX_PARTITIONS),
        "max_partition_age": number(0, MAX_TTL_S),
        "compressed_messages": {"type": "boolean"},
    },
    required=[],
)
_SHOWN: Schema = record(
    {
        "VisibilityTimeout": number(0, MAX_VISIBILITY_S),
        "MinPartitions": integer(1, MAX_PARTITIONS),
        "MaxPartitions": integer(1, MAX_PARTITIONS),
        "MaxPartitionAge": number(0, MAX_TTL_S),
        "CompressedMessages": {"type": "boolean"},
        "partitions": integer(1, MAX_PARTITIONS),
    }
)
_PATH = {
    "topic": Parameter("topic", "the topic's name", QUEUE_NAME, "path"),
    "queue": QUEUE,
    "id": Parameter("id", "the message's id", text(), "path"),
    "number": Parameter(
        "number", "GET: a number of messages, DELETE: ids with commas between them", text(), "path"
    ),
}


class _Route(NamedTuple):
    id: str
    summary: str
    answers: dict[int, Answer]
    body: Body | None = None


def _good(content: Mapping[str, Schema], status: int = 200) -> dict[int, Answer]:
    return {status: Answer("done", content)}


def _bad(content: Mapping[str, Schema], *statuses: int) -> dict[int, Answer]:
    return {status: Answer("refused", content) for status in statuses}


_ROUTES = {
    "GET /topics": _Route("list_topics", "All topics", _good({JSON: record({"topics": _NAMES})})),
    "GET /topics/{topic}": _Route(
        "show_topic", "A topic's queues", {**_good(_QUEUES), **_bad(_ERROR, 404)}
    ),
    "PUT /topics/{topic}": _Route("create_topic", "Create a topic", _good(_QUEUES, 201)),
    "DELETE /topics/{topic}": _Route(
        "delete_topic", "Delete a topic", {**_good(_DELETED), **_bad(_ERROR, 404)}
    ),
    "PUT /topics/{topic}/queues/{queue}": _Route("subscribe", "Subscribe a queue", _good(_QUEUES)),
    "DELETE /topics/{topic}/queues/{queue}": _Route(
        "unsubscribe", "End a subscription; creates the topic", _good(_QUEUES)
    ),
    "PUT /topics/{topic}/message": _Route(
        "publish",
        "Put a copy into every subscribed queue; creates the topic",
        _good({JSON: {"type": "object", "additionalProperties": MESSAGE_ID}}),
        _BODY,
    ),
    "GET /queues": _Route("list_queues", "All queues", _good({JSON: record({"queues": _NAMES})})),
    "GET /queues/{queue}": _Route(
        "show_queue", "A queue's settings", {**_good({JSON: _SHOWN}), **_bad(_WORDS, 404)}
    ),
    "PUT /queues/{queue}": _Route("create_queue", "Create a queue", _good(_WORDS, 201)),
    "PATCH /queues/{queue}": _Route(
        "configure_queue",
        "Change settings",
        {**_good(_WORDS), **_bad(_ERROR, 404)},
        Body("the settings to be changed", {JSON: _SETTINGS}, required=True),
    ),
    "DELETE /queues/{queue}": _Route(
        "delete_queue", "Delete a queue", {**_good(_DELETED), **_bad(_ERROR, 404)}
    ),
    "PUT /queues/{queue}/message": _Route(
        "put", "Store a message; its id, or nothing if there is no queue", _good(_TEXT), _BODY
    ),
    "GET /queues/{queue}/messages/{number}": _Route(
        "fetch",
        "Claim messages, at most 1000",
        {**_good({JSON: _MESSAGES}), **_bad({JSON: {}}, 404, 422)},
    ),
    "DELETE /queues/{queue}/messages/{number}": _Route(
        "delete_messages",
        "Delete messages",
        {**_good({JSON: record({"deleted": integer(0)})}), **_bad(_ERROR, 404)},
    ),
    "GET /queues/{queue}/message/{id}": _Route(
        "look",
        "Look at a message",
        {**_good({JSON: record({"messages": _MESSAGES})}), **_bad(_ERROR, 404)},
    ),
    "DELETE /queues/{queue}/message/{id}": _Route(
        "delete_message", "Delete a message", _good({JSON: {"type": "boolean"}})
    ),
    "GET /status/servers": _Route("servers", "The hosts that are alive", _good(_TEXT)),
    "GET /status/partitionrange": _Route(
        "partition_range",
        "This host's part of the ids",
        _good({JSON: record({"bottom": text(r"\d+"), "top": text(r"\d+")})}),
    ),
}
_ALIASES = {"/queues/{queue}/": "/queues/{queue}", "/queue/{queue}": "/queues/{queue}"}
_COMMON = {
    401: Answer("a key is needed", _ERROR),
    403: Answer("the key lacks the right", _ERROR),
    422: Answer("a value does not fit", _ERROR),
    500: Answer("an error of the server", _ERROR),
    503: Answer("the disk fails", _ERROR, _RETRY),
}
_OF_BODIES = {
    408: Answer("the body did not arrive in time", _ERROR),
    413: Answer("the body is too large", _ERROR),
    415: Answer("the body has an unknown encoding", _ERROR),
    417: Answer("something other than 100-continue is expected", _ERROR),
}


def operation(method: str, path: str, prefix: str) -> Operation:
    """The description of a route."""
    route = _ROUTES[f"{method} {_ALIASES.get(path, path)}"]
    another = {"/queues/{queue}/": "_slash", "/queue/{queue}": "_short"}.get(path, "")
    return Operation(
        id=f"dynamiq{prefix.replace('/', '_')}_{route.id}{another}",
        tag="Dynamiq, under /v1" if prefix else "Dynamiq",
        summary=route.summary,
        answers={**_COMMON, **(_OF_BODIES if route.body else {}), **route.answers},
        parameters=tuple(_PATH[name] for name in re.findall(r"\{(\w+)\}", path)),
        body=route.body,
    )
