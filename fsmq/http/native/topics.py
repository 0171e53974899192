"""Topics in the native dialect: ``/_topics``, beside the queues, whose names begin otherwise."""

from __future__ import annotations

import json

from aiohttp.web import StreamResponse

from fsmq.spool.errors import NoSuchSubscription
from fsmq.spool.layout.filters import MAX_FILTER_BYTES, Filter
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.names import MAX_PRIORITY, check_queue
from fsmq.spool.layout.settings import MAX_DELAY_S, MAX_TTL_S, check_number, check_seconds
from fsmq.spool.layout.topics import as_json

from ...wire import quote_id
from ..answers import json_answer
from ..connection.pieces import listed
from ..routing.call import Call
from ..routing.headers import kept_headers
from ..routing.router import Router
from ..service.service import Service
from . import topics_api as api


class NativeTopics:
    """Translates requests into verbs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_topics", self.list_topics, api.LIST_TOPICS)
        router.add("GET", "/_topics/{topic}", self.show, api.SHOW_TOPIC)
        router.add("PUT", "/_topics/{topic}", self.create, api.CREATE_TOPIC)
        router.add("DELETE", "/_topics/{topic}", self.delete, api.DELETE_TOPIC)
        router.add("PUT", "/_topics/{topic}/queues/{queue}", self.subscribe, api.SUBSCRIBE)
        router.add("DELETE", "/_topics/{topic}/queues/{queue}", self.unsubscribe, api.UNSUBSCRIBE)
        router.add("POST", "/_topics/{topic}/messages", self.publish, api.PUBLISH)

    async def list_topics(self, call: Call) -> StreamResponse:
        identity = call.identify_bearer()
        call.expect()
        names = await self._service.names(call, self._spool.topics, identity.visible_topics)
        return listed('{"topics": [', names, "]}\n")

    async def show(self, call: Call) -> StreamResponse:
        topic = call.topic()
        call.expect()
        call.admit()
        subscriptions = await self._service.listing(self._spool.subscriptions, topic)
        before = f'{{"topic": {json.dumps(topic)}, "subscriptions": ['
        return listed(before, as_json(subscriptions), "]}\n")

    async def create(self, call: Call) -> StreamResponse:
        topic = call.topic("admin")
        call.expect()
        await call.discard_body(self._service.read_timeout)
        created = await self._service.in_thread(self._spool.create_topic, topic)
        return json_answer(201 if created else 200, {"topic": topic, "created": created})

    async def delete(self, call: Call) -> StreamResponse:
        topic = call.topic("admin")
        call.expect()
        await self._service.listing(self._spool.delete_topic, topic)
        return json_answer(200, {"topic": topic, "deleted": True})

    async def subscribe(self, call: Call) -> StreamResponse:
        topic, queue = call.topic("admin"), call.queue("admin")
        call.expect()
        body = await call.body(MAX_FILTER_BYTES, self._service.read_timeout)
        filter = Filter.parse(body)
        added = await self._service.in_thread(self._spool.subscribe, topic, queue, filter)
        answer = {"topic": topic, **as_json({queue: filter})[0], "created": added}
        return json_answer(201 if added else 200, answer)

    async def unsubscribe(self, call: Call) -> StreamResponse:
        topic, queue = call.topic("admin"), check_queue(call.names["queue"])
        call.expect()
        if not await self._service.in_thread(self._spool.unsubscribe, topic, queue):
            raise NoSuchSubscription(topic, queue)
        return json_answer(200, {"topic": topic, "queue": queue, "deleted": True})

    async def publish(self, call: Call) -> StreamResponse:
        topic = call.topic("send")
        call.expect("delay", "priority", "ttl")
        priority = check_number("priority", call.number("priority") or 0, 0, MAX_PRIORITY)
        delay, ttl = call.seconds("delay"), call.seconds("ttl")
        if delay is not None:
            check_seconds("delay", delay, MAX_DELAY_S)
        if ttl is not None:
            check_seconds("ttl", ttl, MAX_TTL_S)
        limit = self._spool.context.max_message_bytes
        body = await call.body(limit, self._service.read_timeout)
        content_type, attributes = kept_headers(call.request.headers)
        message = NewMessage(body, delay, priority, ttl, None, content_type, attributes)
        ids = await self._service.publish(topic, message)
        quoted = {queue: quote_id(message_id) for queue, message_id in ids.items()}
        before = f'{{"topic": {json.dumps(topic)}, "messages": {{'
        return listed(before, quoted, "}}\n", status=201)
