"""Moves: of whole queues in the background, or of some messages. Part of the native dialect."""

from __future__ import annotations

from aiohttp.web import StreamResponse

from fsmq.spool.errors import InvalidValue, NoSuchQueue
from fsmq.spool.layout.names import check_queue
from fsmq.spool.views.browse import Moved

from ...wire import MAX_BATCH_BYTES, unquote_id
from ..answers import json_answer
from ..problems import NotFound
from ..routing.call import Call
from ..routing.router import Router
from ..service.service import Service
from . import moves_api as api
from .batch import some_ids


class Moves:
    """Translates requests into verbs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._spool = service.spool

    def add_routes(self, router: Router) -> None:
        router.add("POST", "/{queue}/move", self.begin, api.MOVE)
        router.add("GET", "/_moves/{ref}", self.show, api.SHOW_MOVE)

    async def begin(self, call: Call) -> StreamResponse:
        source = call.queue("receive")
        call.expect("to", "in_flight")
        target = check_queue(call.text("to") or "", "to")
        call.identify_bearer().require("send", target)
        in_flight = call.text("in_flight") or "false"
        if in_flight not in ("true", "false"):
            raise InvalidValue("in_flight", "is true or false")
        if source == target:
            raise InvalidValue("to", "is the same queue")
        for queue in (source, target):
            if not self._spool.has_queue(queue):
                raise NoSuchQueue(queue)
        if call.request.can_read_body:
            return await self._some(call, source, target, in_flight == "true")
        move = await self._service.moves.begin(source, target, in_flight=in_flight == "true")
        answer = json_answer(202, {"move": move.ref})
        answer.headers["Location"] = f"/_moves/{move.ref}"
        return answer

    async def _some(self, call: Call, source: str, target: str, in_flight: bool) -> StreamResponse:
        """Move some messages, and answer when they have been moved."""
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        ids = await self._service.beside(len(body), some_ids, body)
        only = [unquote_id(message_id) for message_id in ids]

        def move() -> Moved:
            return self._spool.queue(source).move_to(target, only=only, in_flight=in_flight)

        moved = await self._service.listing(move)
        return json_answer(200, {"moved": moved.moved, "conflicts": moved.conflicts})

    async def show(self, call: Call) -> StreamResponse:
        identity = call.identify_bearer()
        identity.visible(())  # refuses who has no key where one is needed
        call.expect()
        ref = call.names["ref"]
        move = await self._service.in_thread(self._spool.find_move, ref)
        if move is None or not (identity.may_see(move.source) or identity.may_see(move.target)):
            raise NotFound(f"/_moves/{ref}")
        return json_answer(
            200,
            {
                "move": move.ref,
                "from": move.source,
                "to": move.target,
                "in_flight": move.in_flight,
                "status": move.status,
                "total": move.total,
                "moved": move.moved,
                "conflicts": move.conflicts,
                "error": move.error,
            },
        )
