"""The native dialect: the six endpoints of the original, and what was added to them.

Queues are at ``/{queue}``, messages at ``/{queue}/messages``. docs/http.md is the specification.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse

from fsmq.spool.errors import InvalidValue, NoSuchMessage
from fsmq.spool.layout.message import Message, NewMessage
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.spool.layout.settings import MAX_DELAY_S, check_number, check_seconds

from ...wire import MAX_WAIT_S, moment, quote_id
from ..answers import json_answer
from ..connection.pieces import listed
from ..describe import MAX_SETTINGS_BYTES
from ..problems import UnreadableBody
from ..routing import bodies
from ..routing.call import Call
from ..routing.headers import ATTRIBUTE, kept_headers
from ..routing.router import Router
from ..service.service import MAX_COUNT, Service
from . import api

# What stands around messages in JSON.
MESSAGES = (b'{"messages": [', b", ", b"]}\n")


class Native:
    """Translates requests into verbs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/", self.list_queues, api.LIST_QUEUES)
        router.add("HEAD", "/", self.list_queues, api.LIST_QUEUES)
        router.add("GET", "/{queue}", self.show_queue, api.SHOW_QUEUE)
        router.add("HEAD", "/{queue}", self.show_queue, api.SHOW_QUEUE)
        router.add("PUT", "/{queue}", self.create_queue, api.CREATE_QUEUE)
        router.add("PATCH", "/{queue}", self.configure_queue, api.CONFIGURE_QUEUE)
        router.add("DELETE", "/{queue}", self.delete_queue, api.DELETE_QUEUE)
        router.add("GET", "/{queue}/messages", self.claim, api.CLAIM)
        router.add("POST", "/{queue}/messages", self.post, api.POST)
        router.add("DELETE", "/{queue}/messages", self.purge, api.PURGE)
        router.add("GET", "/{queue}/messages/{id}", self.show, api.SHOW_MESSAGE)
        router.add("HEAD", "/{queue}/messages/{id}", self.show, api.SHOW_MESSAGE)
        router.add("PATCH", "/{queue}/messages/{id}", self.change, api.CHANGE)
        router.add("DELETE", "/{queue}/messages/{id}", self.remove, api.REMOVE)

    # -- queues ----------------------------------------------------------------------------------

    async def list_queues(self, call: Call) -> StreamResponse:
        identity = call.identify_bearer()
        call.expect()
        names = await self._service.names(call, self._spool.queues, identity.visible)
        return listed('{"queues": [', names, "]}\n")

    async def show_queue(self, call: Call) -> StreamResponse:
        queue = call.queue()
        call.expect()
        settings = self._spool.settings(queue)
        counts = await self._service.sizes.counts(queue)
        return json_answer(
            200,
            {"queue": queue, "messages": counts._asdict(), "settings": settings.as_dict()},
        )

    async def create_queue(self, call: Call) -> StreamResponse:
        queue = call.queue("admin")
        call.expect()
        await call.discard_body(self._service.read_timeout)
        created = await self._service.in_thread(self._spool.create_queue, queue)
        return json_answer(201 if created else 200, {"queue": queue, "created": created})

    async def configure_queue(self, call: Call) -> StreamResponse:
        queue = call.queue("admin")
        call.expect()
        body = await call.body(MAX_SETTINGS_BYTES, self._service.read_timeout)
        try:
            changes = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise UnreadableBody(f"the settings are not JSON: {error}") from None
        if not isinstance(changes, dict):
            raise UnreadableBody("the settings are not a JSON object")
        _require_dead_letters(call, changes)
        settings = await self._service.in_thread(self._spool.configure, queue, changes)
        return json_answer(200, {"queue": queue, "settings": settings.as_dict()})

    async def delete_queue(self, call: Call) -> StreamResponse:
        queue = call.queue("admin")
        call.expect()
        await self._service.listing(self._spool.delete_queue, queue)
        return json_answer(200, {"queue": queue, "deleted": True})

    # -- messages --------------------------------------------------------------------------------

    async def post(self, call: Call) -> StreamResponse:
        queue = call.queue("send")
        call.expect("delay", "priority", "ttl", "id")
        priority = call.number("priority") or 0
        delay, ttl, own_id = call.seconds("delay"), call.seconds("ttl"), call.text("id")
        settings = self._spool.settings(queue)
        body = await call.body(self._service.body_limit(settings), self._service.read_timeout)
        content_type, attributes = kept_headers(call.request.headers)
        message = NewMessage(body, delay, priority, ttl, own_id, content_type, attributes)
        [message_id] = await self._service.put(queue, [message], settings)
        name = quote_id(message_id)  # whose characters stand for themselves in JSON, too
        return Response(
            status=201,
            body=f'{{"id": "{name}"}}\n'.encode(),
            headers={
                "Content-Type": "application/json",
                "Location": f"/{queue}/messages/{name}",
                "X-Message-Id": name,
            },
        )

    async def claim(self, call: Call) -> StreamResponse:
        queue = call.queue("receive")
        call.expect("visibility", "wait", "count")
        visibility = call.seconds("visibility")
        wait = check_seconds("wait", call.seconds("wait") or 0.0, MAX_WAIT_S)
        count = call.number("count")
        if count is not None:
            check_number("count", count, 1, MAX_COUNT)
        call.in_json = count is not None or call.wants_json
        messages = await self._service.receiver.claim(call, queue, count or 1, visibility, wait)
        if not messages:
            return Response(status=204)
        if call.in_json:
            return bodies.in_json(messages, bodies.tell, MESSAGES)
        return bodies.raw(messages[0], _headers(messages[0]))

    async def show(self, call: Call) -> StreamResponse:
        queue, message_id = self._target(call)
        call.expect("json")
        if call.text("json") not in (None, "true"):
            raise InvalidValue("json", "can only be true")
        call.in_json = call.text("json") is not None or call.wants_json
        message = await self._service.receiver.find(call, queue, message_id)
        if message is None:
            raise NoSuchMessage(queue, message_id, "in any state")
        if call.in_json:
            return bodies.in_json([message], bodies.tell, (b"", b"", b"\n"))
        return bodies.raw(message, {"X-Message-State": message.state, **_headers(message)})

    async def change(self, call: Call) -> StreamResponse:
        """Renew, release or bury."""
        queue, message_id = self._target(call)
        call.expect("visibility", "release", "bury")
        await call.discard_body(self._service.read_timeout)
        visibility, delay = call.seconds("visibility"), call.seconds("release")
        bury = call.text("bury")
        if sum(value is not None for value in (visibility, delay, bury)) > 1:
            raise InvalidValue("visibility", "release and bury exclude each other: give one")
        if bury is not None:
            if bury != "true":
                raise InvalidValue("bury", "can only be true")
            await self._service.complete(self._spool.unsynced.bury(queue, message_id))
        elif delay is not None or visibility == 0:
            delay = check_seconds("release", delay or 0.0, MAX_DELAY_S)
            await self._service.complete(self._spool.unsynced.release(queue, message_id, delay))
        else:
            renewal = self._spool.unsynced.renew(queue, message_id, visibility)
            deadline = await self._service.complete(renewal)
            return Response(status=204, headers={"X-Message-Deadline": moment(deadline)})
        return Response(status=204)

    async def remove(self, call: Call) -> StreamResponse:
        queue, message_id = self._target(call)
        call.expect()
        [found] = await self._service.complete(self._spool.unsynced.remove(queue, [message_id]))
        if not found:
            raise NoSuchMessage(queue, message_id, "in new, queues or delay")
        return Response(status=202)

    async def purge(self, call: Call) -> StreamResponse:
        queue = call.queue("receive")
        call.expect()
        await self._service.listing(self._spool.queue(queue).purge)
        return json_answer(200, {"queue": queue, "purged": True})

    def _target(self, call: Call) -> tuple[str, str]:
        """The queue and the id of the path; what is done with one message needs receive."""
        queue = call.queue("receive")
        return queue, check_id(queue, call.names["id"])


def _require_dead_letters(call: Call, changes: Mapping[str, object]) -> None:
    # Else an admin of one queue could put messages into any other.
    target = changes.get("dead_letter_queue")
    if isinstance(target, str) and call.identity is not None:
        call.identity.require("admin", check_queue(target, "dead_letter_queue"))


def _headers(message: Message) -> dict[str, str]:
    headers = {"X-Message-Id": quote_id(message.id)}
    if message.deliveries is not None:
        headers["X-Message-Deliveries"] = str(message.deliveries)
    if message.deadline is not None:
        headers["X-Message-Deadline"] = moment(message.deadline)
    if message.priority:
        headers["X-Message-Priority"] = str(message.priority)
    for name, value in message.attributes.items():
        headers[ATTRIBUTE + name] = _one_line(value)
    headers[hdrs.CONTENT_TYPE] = _one_line(message.content_type or "application/octet-stream")
    return headers


def _one_line(value: str) -> str:
    # A file that someone wrote by hand can hold anything.
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else " " for c in value)
