"""The dialect: its paths, and the order in which a request is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp.web import Response, StreamResponse

from fsmq.spool import Message
from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import LARGE_BYTES

from ..describe import UNKNOWN
from ..dialect import Dialect
from ..fast_path.fast_path import Reader
from ..guard.access import Identity
from ..guard.origin import Origins
from ..guard.sight import may_see_move
from ..problems import MethodNotAllowed
from ..routing import needs
from ..routing.call import Call
from ..routing.needs import Need
from ..routing.router import Endpoint, Handler, Router
from ..service.service import Service
from . import api, ids, references
from .access import MAY_MOVE, MAY_RECEIVE, MAY_SEE, MAY_SEND, identify, require_send
from .admin import Admin
from .answers import SUCCESS, answered, in_json
from .batches import elements, parse_any, store_any, stored_batch, stored_batches
from .dedup import DedupQueues
from .errors import IllegalArgument, UnknownMove, compact, problem
from .fast_routes import EmoRoutes
from .heads import EmoHeads
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
    check_poll,
    check_queue,
    check_ttl,
    check_ttl_bound,
    normal_path,
    read_poll,
)
from .stored import store

T = TypeVar("T")
MAX_PEEK = 5000
MAX_BODY_BYTES = 64 * 1024 * 1024
# Reading a value takes about as long as reading this many bytes.
_WORK_A_PART = 256
_ROOTS = frozenset(("/queue/1", "/dedupq/1"))
# In EmoDB, of two matching patterns the one with more literal characters wins. For these paths that
# is the one that begins with a queue.
_QUEUE_FIRST = re.compile(r"(/(?:queue|dedupq)/1)/_move/(claimcount|sendbatch|unclaimall)")
_NO_LIMIT = 2**63 - 1


class EmoDb(Dialect):
    """``/queue/1`` and ``/dedupq/1``, which have the same endpoints, and ``/ping``."""

    name = "emodb"
    prefixes = frozenset(("queue", "dedupq", "ping"))
    admin_port = "admin_port"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._service = service
        for method in ("GET", "HEAD"):
            self.router.add(method, "/ping", _ping, api.PING)
        _Queues(self.router, "queue", service, PlainQueues(service))
        _Queues(self.router, "dedupq", service, DedupQueues(service))

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        path = _QUEUE_FIRST.sub(r"\1/%5Fmove/\2", normal_path(path))
        try:
            if path in _ROOTS:
                raise MethodNotAllowed(method, [])
            return self.router.find(method, path)
        except MethodNotAllowed as error:
            error.allowed = sorted([*error.allowed, "OPTIONS"])
            if method != "OPTIONS":
                raise
            return Endpoint(_options(error.allowed), UNKNOWN), {}

    def admin(self) -> Admin:
        return Admin(self._service)

    def reader(self, origins: Origins) -> Reader:
        return EmoHeads(EmoRoutes(self._service).routes, origins)

    async def identify(self, call: Call) -> Identity:
        headers = call.request.headers
        if call.operation.body is not None:
            check_consumable(headers)
        check_acceptable(headers)
        return identify(call)

    def problem(self, error: FsmqError) -> Response:
        return problem(error)


class _Queues:
    """The endpoints of one of the two services."""

    def __init__(self, router: Router, prefix: str, service: Service, queues: PlainQueues) -> None:
        self._service = service
        self._router = router
        self._prefix = prefix
        self._queues = queues
        self._add("POST", "/{queue}/send", self.send, MAY_SEND)
        self._add("POST", "/{queue}/sendbatch", self.send_batch, MAY_SEND)
        self._add("POST", "/_sendbatch", self.send_batches, needs.anybody)
        self._add("GET", "/{queue}/poll", self.poll, MAY_RECEIVE)
        self._add("GET", "/{queue}/peek", self.peek, MAY_RECEIVE)
        self._add("POST", "/{queue}/renew", self.renew, MAY_RECEIVE)
        self._add("POST", "/{queue}/ack", self.acknowledge, MAY_RECEIVE)
        self._add("GET", "/{queue}/size", self.size, MAY_SEE)
        self._add("GET", "/{queue}/claimcount", self.claim_count, MAY_SEE)
        self._add("POST", "/{queue}/unclaimall", self.unclaim_all, MAY_RECEIVE)
        self._add("DELETE", "/{queue}", self.purge, MAY_RECEIVE)
        self._add("POST", "/_move", self.move, MAY_MOVE)
        self._add("GET", "/_move/{reference}", self.show_move, needs.anybody)

    def _add(
        self,
        method: str,
        path: str,
        handler: Handler,
        need: Need,
    ) -> None:
        operation = api.operation(self._prefix, method, path)
        for one in (method, "HEAD") if method == "GET" else (method,):
            self._router.add(one, f"/{self._prefix}/1{path}", handler, operation, need)

    # -- sending ---------------------------------------------------------------------------------

    async def send(self, call: Call) -> StreamResponse:
        body = await self._body(call)
        message = await self._beside(body, parse_any)
        queue = self._name(call)
        stored = store if len(body) <= LARGE_BYTES else store_any
        await self._queues.send({queue: [await self._service.beside(len(body), stored, message)]})
        return _success()

    async def send_batch(self, call: Call) -> StreamResponse:
        messages = await self._beside(await self._body(call), stored_batch)
        queue = self._name(call)
        await self._queues.send({queue: messages} if messages else {})
        return _success()

    async def send_batches(self, call: Call) -> StreamResponse:
        batches = await self._beside(await self._body(call), stored_batches)
        identity = call.sender
        await self._service.gently(batches.stored, lambda queue: require_send(identity, queue))
        await self._service.gently(batches.stored.items(), self._check_batch)
        if batches.fault is not None:
            raise batches.fault
        stored = {queue: messages for queue, messages in batches.stored.items() if messages}
        await self._queues.send(stored)
        return _success()

    # -- receiving -------------------------------------------------------------------------------

    async def poll(self, call: Call) -> StreamResponse:
        query = Query(call.raw_query)
        poll = read_poll(query)
        queue = self._name(call)
        check_poll(poll)
        messages = await self._queues.poll(call, queue, poll.ttl, poll.limit)
        return await self._messages(queue, messages)

    async def peek(self, call: Call) -> StreamResponse:
        query = Query(call.raw_query)
        if self._queues.is_dedup:
            query.check_partitioned()
        limit = query.integer("limit", DEFAULT_LIMIT)
        queue = self._name(call)
        check_limit(limit)
        check_limit_bound(limit, MAX_PEEK)
        return await self._messages(queue, await self._queues.peek(call, queue, limit))

    async def renew(self, call: Call) -> StreamResponse:
        query = Query(call.raw_query)
        query.check_partitioned()
        ttl = query.integer("ttl", DEFAULT_TTL_S)
        given = await self._beside(await self._body(call), elements)
        queue = self._name(call)
        check_ttl(ttl)
        check_ttl_bound(ttl)
        await self._queues.renew(queue, await self._ids(queue, given), ttl)
        return _success()

    async def acknowledge(self, call: Call) -> StreamResponse:
        Query(call.raw_query).check_partitioned()
        given = await self._beside(await self._body(call), elements)
        queue = self._name(call)
        await self._queues.acknowledge(queue, await self._ids(queue, given))
        return _success()

    # -- administration --------------------------------------------------------------------------

    async def size(self, call: Call) -> StreamResponse:
        query = Query(call.raw_query)
        if self._queues.is_dedup:
            query.check_partitioned()
        limit = query.integer("limit", _NO_LIMIT, LONG_BITS)
        queue = self._name(call)
        check_limit(limit)
        return in_json(b"%d" % await self._queues.size(queue))

    async def claim_count(self, call: Call) -> StreamResponse:
        Query(call.raw_query).check_partitioned()
        return in_json(b"%d" % await self._queues.claim_count(self._name(call)))

    async def unclaim_all(self, call: Call) -> StreamResponse:
        Query(call.raw_query).check_partitioned()
        await self._queues.unclaim_all(self._name(call))
        return _success()

    async def purge(self, call: Call) -> StreamResponse:
        Query(call.raw_query).check_partitioned()
        await self._queues.purge(self._name(call))
        return _success()

    async def move(self, call: Call) -> StreamResponse:
        query = Query(call.raw_query)
        for name in ("from", "to"):
            if not query.text(name) or query.is_repeated(name):
                raise IllegalArgument(f"{name}: one queue has to be given")
        source, target = query.text("from"), query.text("to")
        if source == target:
            raise IllegalArgument(f"to: {target[:300]!r} is the queue to move from")
        for queue in (source, target):
            check_queue(queue, self._queues.longest_name)
        move = await self._queues.move(call, source, target)
        answer = {"id": references.encode(move.ref, self._queues.is_dedup)}
        return in_json(compact(answer))

    async def show_move(self, call: Call) -> StreamResponse:
        reference = call.names["reference"]
        ref = references.decode(reference, self._queues.is_dedup)
        move = None if ref is None else await self._queues.find_move(ref)
        if move is None or not may_see_move(call.sender, move):
            raise UnknownMove(reference)
        answer = {"from": move.source, "to": move.target, "status": move.status.upper()}
        return in_json(compact(answer))

    # -- parts -----------------------------------------------------------------------------------

    def _name(self, call: Call) -> str:
        return check_queue(call.names["queue"], self._queues.longest_name)

    def _check_batch(self, batch: tuple[str, list[bytes] | None]) -> None:
        queue, messages = batch
        check_queue(queue, self._queues.longest_name)
        if messages is None:
            raise IllegalArgument(f"the messages of queue {queue!r} are null")

    async def _body(self, call: Call) -> bytes:
        return await call.json_body(MAX_BODY_BYTES, self._service.read_timeout)

    async def _beside(self, body: bytes, read: Callable[[bytes], T]) -> T:
        """Make something of a body; in a thread if it is large, or has many parts."""
        work = len(body) + _WORK_A_PART * body.count(b",", 0, LARGE_BYTES)
        return await self._service.beside(work, read, body)

    async def _ids(self, queue: str, given: list[Any]) -> list[str]:
        channel = self._queues.channel(queue)
        return await self._service.beside(len(given) * _WORK_A_PART, ids.decode_all, channel, given)

    async def _messages(self, queue: str, messages: list[Message]) -> Response:
        return await answered(self._service, self._queues.channel(queue), messages)


def _success() -> Response:
    return in_json(SUCCESS)


def _options(allowed: list[str]) -> Handler:
    async def options(call: Call) -> StreamResponse:
        return Response(status=204, headers={"Allow": ",".join(allowed)})

    return options


async def _ping(call: Call) -> StreamResponse:
    return Response(text="pong")
