"""Handlers for topics and subscriptions."""

from __future__ import annotations

from aiohttp.web import StreamResponse

from fsmq.spool import NewMessage
from fsmq.spool.errors import NoSuchQueue, NoSuchTopic
from fsmq.spool.resources import log_of

from ...wire import quote_id
from ..dialect import Handlers
from ..guard import access
from ..guard.sight import seen_of
from ..routing.call import Call
from ..routing.headers import kept_headers
from .answers import Refused, answer, answer_list


class Topics(Handlers):
    """Topics and their queues, in Dynamiq's form."""

    async def list(self, call: Call) -> StreamResponse:
        names = await self._service.names(call, self._spool.topics, call.sender.visible_topics)
        return answer_list('{"topics":[', names, "]}")

    async def show(self, call: Call) -> StreamResponse:
        topic = call.topic
        try:
            return await self._queues(call, topic)
        except NoSuchTopic:
            raise Refused(404, "Topic did not exist.") from None

    async def create(self, call: Call) -> StreamResponse:
        topic = call.topic
        await call.discard_body(self._service.read_timeout)
        if not await self._service.resources.create_topic(topic):
            raise Refused(422, "Topic already exists.")
        return answer(201, {"Queues": []})

    async def delete(self, call: Call) -> StreamResponse:
        topic = call.topic
        try:
            await self._service.resources.delete_topic(topic)
        except NoSuchTopic:
            raise Refused(404, "Topic did not exist.") from None
        return answer(200, {"Deleted": True})

    async def subscribe(self, call: Call) -> StreamResponse:
        topic, queue = call.topic, call.queue
        await call.discard_body(self._service.read_timeout)
        try:
            # keep: an existing subscription may have a filter from the native dialect.
            await self._service.resources.subscribe(topic, queue, keep=True)
            return await self._queues(call, topic)
        except NoSuchTopic:
            raise Refused(422, "Topic does not exist. Please create it first.") from None
        except NoSuchQueue:
            raise Refused(422, "Queue does not exist. Please create it first") from None

    async def unsubscribe(self, call: Call) -> StreamResponse:
        topic, queue = call.topic, call.queue
        await self._service.resources.create_topic(topic)
        if call.sender.may_see(queue):
            await self._service.resources.unsubscribe(topic, queue)
        return await self._queues(call, topic)

    async def publish(self, call: Call) -> StreamResponse:
        topic = call.topic
        limit = self._spool.context.max_message_bytes
        body = await call.body(limit, self._service.read_timeout)
        content_type, attributes = kept_headers(call.request.headers)
        message = NewMessage(body, content_type=content_type, attributes=attributes)
        try:
            ids = await self._service.publish(call, topic, message)
        except NoSuchTopic:
            if call.sender.may("admin", access.topic(topic)):
                await self._service.resources.create_topic(topic)
            ids = {}
        quoted = {queue: quote_id(message_id) for queue, message_id in ids.items()}
        return answer_list("{", quoted, "}")

    async def _queues(self, call: Call, topic: str) -> StreamResponse:
        found = await self._service.listing(self._spool.subscriptions, topic)
        subscriptions = seen_of(call.sender, found)
        return answer_list(
            '{"Queues":[', [one for one in subscriptions if log_of(one) is None], "]}"
        )
