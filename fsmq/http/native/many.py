"""Many messages with one request: peek, batch and ack. Part of the native dialect."""

from __future__ import annotations

from aiohttp.web import StreamResponse

from fsmq.spool.errors import DuplicateMessage, InvalidValue, MessageTooLarge
from fsmq.spool.layout.settings import check_number
from fsmq.spool.layout.transitions import State
from fsmq.spool.views import browse
from fsmq.spool.views.reading import MAX_ANSWER_BYTES

from ...wire import MAX_BATCH_BYTES, quote_id, unquote_id
from ..answers import json_answer
from ..routing import bodies
from ..routing.call import Call
from ..routing.router import Router
from ..service.service import MAX_COUNT, Service
from . import many_api as api
from .batch import new_messages, some_ids
from .messages import MESSAGES


class Many:
    """Translates requests into verbs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/{queue}/peek", self.peek, api.PEEK)
        router.add("POST", "/{queue}/batch", self.post, api.BATCH)
        router.add("POST", "/{queue}/ack", self.remove, api.ACK)

    async def peek(self, call: Call) -> StreamResponse:
        queue = call.queue("receive")
        call.expect("state", "count", "after")
        state = call.text("state") or State.READY.value
        if state == State.REMOVE.value:
            raise InvalidValue("state", "what was removed cannot be looked at")
        count = call.number("count")
        count = api.PEEK_COUNT if count is None else check_number("count", count, 1, MAX_COUNT)
        after = unquote_id(call.text("after") or "")
        call.admit()
        if state == State.READY.value:
            await self._service.receiver.load(queue)
        messages = await self._service.listing(
            browse.peek, self._spool.context, queue, state, count, after, MAX_ANSWER_BYTES, call
        )
        return bodies.in_json(messages, bodies.tell, MESSAGES)

    async def post(self, call: Call) -> StreamResponse:
        queue = call.queue("send")
        call.expect()
        settings = self._spool.settings(queue)
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        messages = await self._service.beside(len(body), new_messages, body)
        try:
            ids = await self._service.put(queue, messages, settings)
        except (InvalidValue, MessageTooLarge, DuplicateMessage) as error:
            if len(messages) == 1:
                error.index = 0
            raise
        return json_answer(201, {"ids": [quote_id(message_id) for message_id in ids]})

    async def remove(self, call: Call) -> StreamResponse:
        queue = call.queue("receive")
        call.expect()
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        ids = await self._service.beside(len(body), some_ids, body)
        found = await self._service.remove(queue, [unquote_id(i) for i in ids])
        if not any(found):
            self._spool.settings(queue)  # that there is no such queue explains it
        answer: dict[str, list[str]] = {"removed": [], "missing": []}
        for message_id, was_there in zip(ids, found, strict=True):
            answer["removed" if was_there else "missing"].append(message_id)
        return json_answer(200, answer)
