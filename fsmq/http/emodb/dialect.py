"""The dialect: which paths there are, and in which order a request is judged."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool.errors import FsmqError
from fsmq.spool.message import Message

from ..access import Identity
from ..answers import inert
from ..dialect import Dialect
from ..problems import MethodNotAllowed
from ..request import Call
from ..router import Handler, Router
from ..service import Service
from . import api, ids, references
from .access import identify, is_known, may_move, may_receive, may_see, may_send, require_send
from .dedup import DedupQueues
from .errors import EmptyBody, IllegalArgument, NotJson, UnknownMove, compact, problem
from .plain import PlainQueues
from .requests import (
    DEFAULT_LIMIT,
    DEFAULT_TTL_S,
    LONG_BITS,
    Query,
    check_acceptable,
    check_consumable,
    check_limit,
    check_limit_bound,
    check_queue,
    check_ttl,
    check_ttl_bound,
    normal_path,
)
from .stored import as_payload, parse, store, store_all

MAX_POLL, MAX_PEEK = 1000, 5000
MAX_BODY_BYTES = 64 * 1024 * 1024
_SUCCESS = b'{"success":true}'
_ROOTS = frozenset(("/queue/1", "/dedupq/1"))
# Of two patterns the one with more literal characters wins: here the one that begins with a queue.
_QUEUE_FIRST = re.compile(r"(/(?:queue|dedupq)/1)/_move/(claimcount|sendbatch|unclaimall)")
_NO_LIMIT = 2**63 - 1


class EmoDb(Dialect):
    """``/queue/1`` and ``/dedupq/1``, which have the same endpoints, and ``/ping``."""

    name = "emodb"
    prefixes = frozenset(("queue", "dedupq", "ping"))

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        for method in ("GET", "HEAD"):
            self.router.add(method, "/ping", _ping, api.PING)
        _Queues(self.router, "queue", service, PlainQueues(service))
        _Queues(self.router, "dedupq", service, DedupQueues(service))

    def find(self, method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
        path = _QUEUE_FIRST.sub(r"\1/%5Fmove/\2", normal_path(path))
        try:
            if path in _ROOTS:
                raise MethodNotAllowed(method, [])
            return self.router.find(method, path)
        except MethodNotAllowed as error:
            error.allowed = sorted([*error.allowed, "OPTIONS"])
            if method != "OPTIONS":
                raise
            return _options(error.allowed), {}

    def problem(self, error: FsmqError) -> Response:
        return problem(error)


class _Queues:
    """The endpoints of one of the two services."""

    def __init__(self, router: Router, prefix: str, service: Service, queues: PlainQueues) -> None:
        self._service = service
        self._router = router
        self._prefix = prefix
        self._queues = queues
        self._add("POST", "/{queue}/send", self.send, may_send, consumes=True)
        self._add("POST", "/{queue}/sendbatch", self.send_batch, may_send, consumes=True)
        self._add("POST", "/_sendbatch", self.send_batches, is_known, consumes=True)
        self._add("GET", "/{queue}/poll", self.poll, may_receive)
        self._add("GET", "/{queue}/peek", self.peek, may_receive)
        self._add("POST", "/{queue}/renew", self.renew, may_receive, consumes=True)
        self._add("POST", "/{queue}/ack", self.acknowledge, may_receive, consumes=True)
        self._add("GET", "/{queue}/size", self.size, may_see)
        self._add("GET", "/{queue}/claimcount", self.claim_count, may_see)
        self._add("POST", "/{queue}/unclaimall", self.unclaim_all, may_receive)
        self._add("DELETE", "/{queue}", self.purge, may_receive)
        self._add("POST", "/_move", self.move, may_move)
        self._add("GET", "/_move/{reference}", self.show_move, is_known)

    def _add(
        self,
        method: str,
        path: str,
        handler: Callable[[Call], Awaitable[Any]],
        allow: Callable[[Call, Identity], None],
        *,
        consumes: bool = False,
    ) -> None:
        async def judged(call: Call) -> StreamResponse:
            if consumes:
                check_consumable(call.request.headers)
            check_acceptable(call.request.headers)
            allow(call, identify(call))
            answer: StreamResponse = await handler(call)
            return answer

        operation = api.operation(self._prefix, method, path)
        for one in (method, "HEAD") if method == "GET" else (method,):
            self._router.add(one, f"/{self._prefix}/1{path}", judged, operation)

    # -- sending ---------------------------------------------------------------------------------

    async def send(self, call: Call) -> StreamResponse:
        message = await self._parsed(call)
        queue = self._name(call)
        await self._queues.send({queue: [store(message)]})
        return _success()

    async def send_batch(self, call: Call) -> StreamResponse:
        messages = _list(await self._parsed(call))
        queue = self._name(call)
        stored = await self._service.beside(_much(messages), store_all, messages)
        await self._queues.send({queue: stored} if messages else {})
        return _success()

    async def send_batches(self, call: Call) -> StreamResponse:
        batches = await self._parsed(call)
        if batches is None:
            raise EmptyBody
        if not isinstance(batches, dict):
            raise NotJson("an object of queues and their messages is expected")
        for messages in batches.values():
            if messages is not None:
                _list(messages)
        require_send(identify(call), batches)
        for queue, messages in batches.items():
            check_queue(queue, self._queues.longest_name)
            if messages is None:
                raise IllegalArgument(f"the messages of queue {queue!r} are null")
        stored = {queue: store_all(messages) for queue, messages in batches.items() if messages}
        await self._queues.send(stored)
        return _success()

    # -- receiving -------------------------------------------------------------------------------

    async def poll(self, call: Call) -> StreamResponse:
        query = Query(call)
        query.check_partitioned()
        ttl = query.integer("ttl", DEFAULT_TTL_S)
        limit = query.integer("limit", DEFAULT_LIMIT)
        queue = self._name(call)
        check_ttl(ttl)
        check_limit(limit)
        check_ttl_bound(ttl)
        check_limit_bound(limit, MAX_POLL)
        messages = await self._queues.poll(call, queue, ttl, limit)
        return await self._messages(call, queue, messages)

    async def peek(self, call: Call) -> StreamResponse:
        query = Query(call)
        if self._queues.is_dedup:
            query.check_partitioned()
        limit = query.integer("limit", DEFAULT_LIMIT)
        queue = self._name(call)
        check_limit(limit)
        check_limit_bound(limit, MAX_PEEK)
        return await self._messages(call, queue, await self._queues.peek(queue, limit))

    async def renew(self, call: Call) -> StreamResponse:
        query = Query(call)
        query.check_partitioned()
        ttl = query.integer("ttl", DEFAULT_TTL_S)
        told = _list(await self._parsed(call))
        queue = self._name(call)
        check_ttl(ttl)
        check_ttl_bound(ttl)
        await self._queues.renew(queue, self._ids(queue, told), ttl)
        return _success()

    async def acknowledge(self, call: Call) -> StreamResponse:
        Query(call).check_partitioned()
        told = _list(await self._parsed(call))
        queue = self._name(call)
        await self._queues.acknowledge(queue, self._ids(queue, told))
        return _success()

    # -- administration --------------------------------------------------------------------------

    async def size(self, call: Call) -> StreamResponse:
        query = Query(call)
        if self._queues.is_dedup:
            query.check_partitioned()
        limit = query.integer("limit", _NO_LIMIT, LONG_BITS)
        queue = self._name(call)
        check_limit(limit)
        return _json(b"%d" % await self._queues.size(queue))

    async def claim_count(self, call: Call) -> StreamResponse:
        Query(call).check_partitioned()
        return _json(b"%d" % await self._queues.claim_count(self._name(call)))

    async def unclaim_all(self, call: Call) -> StreamResponse:
        Query(call).check_partitioned()
        await self._queues.unclaim_all(self._name(call))
        return _success()

    async def purge(self, call: Call) -> StreamResponse:
        Query(call).check_partitioned()
        await self._queues.purge(self._name(call))
        return _success()

    async def move(self, call: Call) -> StreamResponse:
        query = Query(call)
        for name in ("from", "to"):
            if not query.text(name) or query.is_repeated(name):
                raise IllegalArgument(f"{name}: one queue has to be given")
        source, target = query.text("from"), query.text("to")
        if source == target:
            raise IllegalArgument(f"to: {target[:300]!r} is the queue to move from")
        for queue in (source, target):
            check_queue(queue, self._queues.longest_name)
        move = await self._queues.move(source, target)
        told = {"id": references.encode(move.ref, self._queues.is_dedup)}
        return _json(compact(told))

    async def show_move(self, call: Call) -> StreamResponse:
        reference = call.names["reference"]
        ref = references.decode(reference, self._queues.is_dedup)
        move = None if ref is None else await self._queues.find_move(ref)
        if move is None:
            raise UnknownMove(reference)
        told = {"from": move.source, "to": move.target, "status": move.status.upper()}
        return _json(compact(told))

    # -- parts -----------------------------------------------------------------------------------

    def _name(self, call: Call) -> str:
        return check_queue(call.names["queue"], self._queues.longest_name)

    async def _parsed(self, call: Call) -> Any:
        body = await call.json_body(MAX_BODY_BYTES, self._service.read_timeout)
        return await self._service.beside(len(body), parse, body)

    def _ids(self, queue: str, told: list[Any]) -> list[str]:
        channel = self._queues.channel(queue)
        return [ids.decode(channel, one) for one in told]

    async def _messages(self, call: Call, queue: str, messages: list[Message]) -> Response:
        size = sum(len(message.body) for message in messages)
        body = await self._service.beside(size, self._told, queue, messages)
        call.answer_with(len(body))
        return inert(_json(body))

    def _told(self, queue: str, messages: list[Message]) -> bytes:
        channel = self._queues.channel(queue)
        parts = [
            b'{"id":"%s","payload":%s}' % (ids.encode(channel, m.id).encode(), as_payload(m.body))
            for m in messages
        ]
        return b"[" + b",".join(parts) + b"]"


def _much(messages: list[Any]) -> int:
    """About how many bytes messages have: that decides where they are worked on."""
    return len(messages) * 1024


def _list(value: Any) -> list[Any]:
    if value is None:
        raise EmptyBody
    if not isinstance(value, list):
        raise NotJson("a JSON array is expected")
    return value


def _json(body: bytes) -> Response:
    return Response(body=body, content_type="application/json")


def _success() -> Response:
    return _json(_SUCCESS)


def _options(allowed: list[str]) -> Handler:
    async def options(call: Call) -> StreamResponse:
        return Response(status=204, headers={"Allow": ",".join(allowed)})

    return options


async def _ping(call: Call) -> StreamResponse:
    return Response(text="pong")
