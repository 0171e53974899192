"""Topics in the native dialect: ``/_topics``, which no queue's name can be.

docs/topics.md is the specification.
"""

from __future__ import annotations

import json

from aiohttp.web import StreamResponse

from fsmq.spool import NewMessage
from fsmq.spool.errors import (
    LogFull,
    NoSuchLog,
    NoSuchQueue,
    NoSuchSubscription,
    NoSuchTopic,
    OtherWriter,
    QueueFull,
    Unavailable,
)
from fsmq.spool.resources import MAX_FILTER_BYTES, Filter, as_json, subscriber_of

from ...wire import quote_id
from ..answers import json_answer, made
from ..connection.pieces import listed
from ..describe import (
    BYTES,
    EXISTS,
    GONE,
    JSON,
    LOCATION,
    MESSAGE_ID,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Component,
    Operation,
    Parameter,
    array,
    json_object,
    or_null,
    record,
)
from ..dialect import Handlers
from ..guard.sight import seen_of
from ..problem_answers import OF_BODIES, guarded, keyed
from ..problems import SlowBody, UnreadableBody
from ..routing import needs
from ..routing.call import Call
from ..routing.headers import kept_headers
from ..routing.router import Router
from .forms import DEDUP_ID, DELAY, GROUP, PRIORITY, TTL

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
_SHOWN_FILTER = {
    "type": "object",
    "description": "as it was set; clients of SNS have conditions of more kinds, and nested ones",
}
_LOG = Parameter("log", "the log's name; the rules are those of a queue's name", QUEUE_NAME, "path")
_SUBSCRIPTION = Component(
    "Subscription",
    {
        "oneOf": [
            record({"queue": QUEUE_NAME, "filter": or_null(_SHOWN_FILTER)}),
            record({"log": QUEUE_NAME, "filter": or_null(_SHOWN_FILTER)}),
        ]
    },
)
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
_SUBSCRIBED_LOG = {
    JSON: record(
        {
            "topic": QUEUE_NAME,
            "log": QUEUE_NAME,
            "filter": or_null(_FILTER),
            "created": {"type": "boolean"},
        }
    )
}


class Topics(Handlers):
    """Topics, their subscriptions, and publishing."""

    def add_routes(self, router: Router) -> None:
        one, admin = "/_topics/{topic}", needs.topic("admin")
        queue, log = f"{one}/queues/{{queue}}", f"{one}/logs/{{log}}"
        of_queue = needs.both(admin, needs.queue("admin"))
        of_log = needs.both(admin, needs.log("admin"))
        router.add("GET", "/_topics", self.list_topics, self.LIST, needs.anybody)
        router.add("GET", one, self.show, self.SHOW, needs.topic())
        router.add("PUT", one, self.create, self.CREATE, admin)
        router.add("DELETE", one, self.delete, self.DELETE, admin)
        router.add("PUT", queue, self.subscribe, self.SUBSCRIBE, of_queue)
        router.add("DELETE", queue, self.unsubscribe, self.UNSUBSCRIBE, admin)
        router.add("PUT", log, self.subscribe_log, self.SUBSCRIBE_LOG, of_log)
        router.add("DELETE", log, self.unsubscribe_log, self.UNSUBSCRIBE_LOG, admin)
        router.add("POST", f"{one}/messages", self.publish, self.PUBLISH, needs.topic("send"))

    LIST = Operation(
        id="list_topics",
        tag="Topics",
        summary="The names of all topics, sorted",
        answers={
            200: json_object("The names", {"topics": array(QUEUE_NAME)}),
            **keyed(Unavailable),
        },
    )

    async def list_topics(self, call: Call) -> StreamResponse:
        identity = call.sender
        call.read()
        names = await self._service.names(call, self._spool.topics, identity.visible_topics)
        return listed('{"topics": [', names, "]}\n")

    SHOW = Operation(
        id="show_topic",
        tag="Topics",
        summary="A topic's subscriptions",
        parameters=(_TOPIC,),
        answers={
            200: json_object(
                "The subscribed queues, sorted, and then logs, as far as the key may see them",
                {"topic": QUEUE_NAME, "subscriptions": array(_SUBSCRIPTION)},
            ),
            **guarded(NoSuchTopic, Unavailable),
        },
    )

    async def show(self, call: Call) -> StreamResponse:
        topic = call.topic
        call.read()
        call.admit()
        found = await self._service.listing(self._spool.subscriptions, topic)
        subscriptions = seen_of(call.sender, found)
        before = f'{{"topic": {json.dumps(topic)}, "subscriptions": ['
        return listed(before, as_json(subscriptions), "]}\n")

    CREATE = Operation(
        id="create_topic",
        tag="Topics",
        summary="Create a topic",
        description="A body is ignored.",
        parameters=(_TOPIC,),
        again=EXISTS,
        answers={
            200: Answer("It existed already", _CREATED),
            201: Answer("It was created, durably", _CREATED, LOCATION),
            **guarded(UnreadableBody, SlowBody, Unavailable),
        },
    )

    async def create(self, call: Call) -> StreamResponse:
        topic = call.topic
        call.read()
        await call.discard_body(self._service.read_timeout)
        created = await self._service.resources.create_topic(topic)
        return made(created, {"topic": topic, "created": created}, topic)

    DELETE = Operation(
        id="delete_topic",
        tag="Topics",
        summary="Delete a topic and its subscriptions; queues and messages stay",
        parameters=(_TOPIC,),
        again=GONE,
        answers={
            200: json_object("It was deleted", {"topic": QUEUE_NAME, "deleted": {"const": True}}),
            **guarded(NoSuchTopic, Unavailable),
        },
    )

    async def delete(self, call: Call) -> StreamResponse:
        topic = call.topic
        call.read()
        await self._service.resources.delete_topic(topic)
        return json_answer(200, {"topic": topic, "deleted": True})

    SUBSCRIBE = Operation(
        id="subscribe",
        tag="Topics",
        summary="Subscribe a queue, or replace its filter",
        parameters=(_TOPIC, QUEUE),
        body=Body(
            f"the filter, at most {MAX_FILTER_BYTES} bytes; empty: all messages", {JSON: _FILTER}
        ),
        again=EXISTS,
        answers={
            200: Answer("It was subscribed already; the new filter is in force", _SUBSCRIBED),
            201: Answer("It is subscribed, durably", _SUBSCRIBED, LOCATION),
            **guarded(NoSuchTopic, NoSuchQueue, Unavailable, *OF_BODIES),
        },
    )

    async def subscribe(self, call: Call) -> StreamResponse:
        return await self._subscribe(call, call.topic, call.queue)

    SUBSCRIBE_LOG = Operation(
        id="subscribe_log",
        tag="Topics",
        summary="Subscribe a log, or replace its filter",
        parameters=(_TOPIC, _LOG),
        body=SUBSCRIBE.body,
        again=EXISTS,
        answers={
            200: Answer("It was subscribed already; the new filter is in force", _SUBSCRIBED_LOG),
            201: Answer("It is subscribed, durably", _SUBSCRIBED_LOG),
            **guarded(NoSuchTopic, NoSuchLog, Unavailable, *OF_BODIES),
        },
    )

    async def subscribe_log(self, call: Call) -> StreamResponse:
        return await self._subscribe(call, call.topic, subscriber_of(call.log))

    async def _subscribe(self, call: Call, topic: str, queue: str) -> StreamResponse:
        call.read()
        body = await call.body(MAX_FILTER_BYTES, self._service.read_timeout)
        filter = Filter.parse(body)
        added = await self._service.resources.subscribe(topic, queue, filter)
        answer = {"topic": topic, **as_json({queue: filter})[0], "created": added}
        return made(added, answer, queue)

    UNSUBSCRIBE = Operation(
        id="unsubscribe",
        tag="Topics",
        summary="End a subscription",
        parameters=(_TOPIC, QUEUE),
        again=GONE,
        answers={
            200: json_object(
                "It has ended",
                {"topic": QUEUE_NAME, "queue": QUEUE_NAME, "deleted": {"const": True}},
            ),
            **guarded(NoSuchTopic, NoSuchSubscription, Unavailable),
        },
    )

    async def unsubscribe(self, call: Call) -> StreamResponse:
        topic, queue = call.topic, call.queue
        call.read()
        await self._unsubscribe(call, topic, queue)
        return json_answer(200, {"topic": topic, "queue": queue, "deleted": True})

    UNSUBSCRIBE_LOG = Operation(
        id="unsubscribe_log",
        tag="Topics",
        summary="End the subscription of a log",
        parameters=(_TOPIC, _LOG),
        again=GONE,
        answers={
            200: json_object(
                "It has ended",
                {"topic": QUEUE_NAME, "log": QUEUE_NAME, "deleted": {"const": True}},
            ),
            **guarded(NoSuchTopic, NoSuchSubscription, Unavailable),
        },
    )

    async def unsubscribe_log(self, call: Call) -> StreamResponse:
        topic, log = call.topic, call.log
        call.read()
        await self._unsubscribe(call, topic, subscriber_of(log))
        return json_answer(200, {"topic": topic, "log": log, "deleted": True})

    async def _unsubscribe(self, call: Call, topic: str, subscriber: str) -> None:
        # Works for a subscription whose queue is deleted, too.
        is_seen = call.sender.may_see(subscriber)
        if not is_seen or not await self._service.resources.unsubscribe(topic, subscriber):
            raise NoSuchSubscription(topic, subscriber)

    PUBLISH = Operation(
        id="publish",
        tag="Topics",
        summary="Store a copy of a message in every subscribed queue, and publish it to logs",
        description="All of them or none. Attributes are headers `X-Message-Attribute-{name}`.",
        parameters=(_TOPIC, DELAY, PRIORITY, TTL, GROUP, DEDUP_ID),
        body=Body("the message: any bytes, kept with the Content-Type of the request", BYTES),
        again="some queues can get a second copy",
        answers={
            201: json_object(
                "The copies are on stable media; the ids by queue, and offsets by `logs/{log}`, of"
                " those that the key may see",
                {
                    "topic": QUEUE_NAME,
                    "messages": {"type": "object", "additionalProperties": MESSAGE_ID},
                },
            ),
            **guarded(NoSuchTopic, QueueFull, LogFull, OtherWriter, Unavailable, *OF_BODIES),
        },
    )

    async def publish(self, call: Call) -> StreamResponse:
        topic = call.topic
        given = call.read()
        limit = self._spool.context.max_message_bytes
        body = await call.body(limit, self._service.read_timeout)
        content_type, attributes = kept_headers(call.request.headers)
        message = NewMessage(
            body,
            given[DELAY],
            given[PRIORITY],
            given[TTL],
            None,
            content_type,
            attributes,
            given[GROUP],
            given[DEDUP_ID],
        )
        ids = await self._service.publish(call, topic, message)
        quoted = {queue: quote_id(message_id) for queue, message_id in ids.items()}
        before = f'{{"topic": {json.dumps(topic)}, "messages": {{'
        return listed(before, quoted, "}}\n", status=201)
