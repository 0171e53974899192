"""What the native routes of topics take and answer; docs/topics.md says what it means."""

from __future__ import annotations

from fsmq.spool.errors import (
    MessageTooLarge,
    NoSuchQueue,
    NoSuchSubscription,
    NoSuchTopic,
    QueueFull,
    Unavailable,
)
from fsmq.spool.layout.filters import MAX_FILTER_BYTES

from ..describe import (
    BYTES,
    JSON,
    MESSAGE_ID,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Component,
    Operation,
    Parameter,
    array,
    or_null,
    record,
)
from ..problem_answers import guarded
from ..problems import ExpectationFailed, SlowBody, UnreadableBody, UnsupportedEncoding
from .api import NEW_MESSAGE

_BODY = (UnreadableBody, SlowBody, MessageTooLarge, UnsupportedEncoding, ExpectationFailed)
_TOPIC = Parameter(
    "topic", "the topic's name; the rules are those of a queue's name", QUEUE_NAME, "path"
)
_CONDITION = {
    "oneOf": [
        {"type": "string", "description": "equals this text"},
        record({"prefix": {"type": "string"}}, additionalProperties=False),
        record(
            {"anything-but": {"oneOf": [{"type": "string"}, array({"type": "string"})]}},
            additionalProperties=False,
        ),
        record({"exists": {"type": "boolean"}}, additionalProperties=False),
    ]
}
_FILTER = {
    "type": "object",
    "description": "for each attribute, at least one of its conditions must hold",
    "additionalProperties": array(_CONDITION, minItems=1),
}
_SUBSCRIPTION = Component("Subscription", record({"queue": QUEUE_NAME, "filter": or_null(_FILTER)}))
_CREATED = {JSON: record({"topic": QUEUE_NAME, "created": {"type": "boolean"}})}
_SUBSCRIBED = {
    JSON: record(
        {
            "topic": QUEUE_NAME,
            "queue": QUEUE_NAME,
            "filter": or_null(_FILTER),
            "created": {"type": "boolean"},
        }
    )
}

LIST_TOPICS = Operation(
    id="list_topics",
    tag="Topics",
    summary="The names of all topics, sorted",
    answers={
        200: Answer("The names", {JSON: record({"topics": array(QUEUE_NAME)})}),
        **guarded(Unavailable),
    },
)
SHOW_TOPIC = Operation(
    id="show_topic",
    tag="Topics",
    summary="A topic's subscriptions",
    parameters=(_TOPIC,),
    answers={
        200: Answer(
            "The subscribed queues, sorted",
            {JSON: record({"topic": QUEUE_NAME, "subscriptions": array(_SUBSCRIPTION)})},
        ),
        **guarded(NoSuchTopic, Unavailable),
    },
)
CREATE_TOPIC = Operation(
    id="create_topic",
    tag="Topics",
    summary="Create a topic",
    description="A body is ignored.",
    parameters=(_TOPIC,),
    answers={
        200: Answer("It existed already", _CREATED),
        201: Answer("It was created, durably", _CREATED),
        **guarded(UnreadableBody, SlowBody, Unavailable),
    },
)
DELETE_TOPIC = Operation(
    id="delete_topic",
    tag="Topics",
    summary="Delete a topic and its subscriptions; queues and messages stay",
    parameters=(_TOPIC,),
    answers={
        200: Answer(
            "It was deleted", {JSON: record({"topic": QUEUE_NAME, "deleted": {"const": True}})}
        ),
        **guarded(NoSuchTopic, Unavailable),
    },
)
SUBSCRIBE = Operation(
    id="subscribe",
    tag="Topics",
    summary="Subscribe a queue, or replace its filter",
    parameters=(_TOPIC, QUEUE),
    body=Body(
        f"the filter, at most {MAX_FILTER_BYTES} bytes; empty: all messages", {JSON: _FILTER}
    ),
    answers={
        200: Answer("It was subscribed already; the new filter is in force", _SUBSCRIBED),
        201: Answer("It is subscribed, durably", _SUBSCRIBED),
        **guarded(NoSuchTopic, NoSuchQueue, Unavailable, *_BODY),
    },
)
UNSUBSCRIBE = Operation(
    id="unsubscribe",
    tag="Topics",
    summary="End a subscription",
    parameters=(_TOPIC, QUEUE),
    answers={
        200: Answer(
            "It has ended",
            {JSON: record({"topic": QUEUE_NAME, "queue": QUEUE_NAME, "deleted": {"const": True}})},
        ),
        **guarded(NoSuchTopic, NoSuchSubscription, Unavailable),
    },
)
PUBLISH = Operation(
    id="publish",
    tag="Topics",
    summary="Store a copy of a message in every subscribed queue",
    description="All of them or none. Attributes are headers `X-Message-Attribute-{name}`.",
    parameters=(_TOPIC, *(p for p in NEW_MESSAGE if p.name != "id")),
    body=Body("the message: any bytes, kept with the Content-Type of the request", BYTES),
    answers={
        201: Answer(
            "The copies are on stable media; their ids by queue",
            {
                JSON: record(
                    {
                        "topic": QUEUE_NAME,
                        "messages": {"type": "object", "additionalProperties": MESSAGE_ID},
                    }
                )
            },
        ),
        **guarded(NoSuchTopic, QueueFull, Unavailable, *_BODY),
    },
)
