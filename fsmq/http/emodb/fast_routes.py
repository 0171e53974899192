"""Messages of EmoDB's plain queues on the fast path.

The meaning of requests and answers is defined in the modules of the handlers. Dedup queues have no
fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from fsmq.spool import Message, NewMessage
from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.prepare import LARGE_BYTES

from ..describe import Operation
from ..fast_path.json_bodies import json_body
from ..fast_path.request import FastRoute, FastRoutes, Request
from ..service.service import Service
from ..service.wanted import Wanted
from . import api, heads, ids
from .answers import JSON, SUCCESS, answered, polled
from .batches import elements, parse_any, stored_batch
from .errors import problem
from .plain import AT_ONCE
from .stored import store

# Reads the messages or ids of a body.
_Read: TypeAlias = Callable[[bytes], list[Any]]


class EmoRoutes:
    """The routes of the fast path for plain queues."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._queues = service.queues
        send, send_batch = partial(self._send, _one), partial(self._send, stored_batch)
        self.routes: FastRoutes = {
            ("POST", heads.SEND): FastRoute(_of("POST", "send"), "send", send, True, problem),
            ("POST", heads.SEND_BATCH): FastRoute(
                _of("POST", "sendbatch"), "send", send_batch, True, problem
            ),
            ("GET", heads.POLL): FastRoute(
                _of("GET", "poll"), "receive", self._poll, error_answer=problem
            ),
            ("POST", heads.ACK): FastRoute(_of("POST", "ack"), "receive", self._ack, True, problem),
        }

    def _send(self, read: _Read, request: Request) -> None:
        bodies = self._read(read, request)
        if not bodies:
            request.fall_back()
            return
        messages = [NewMessage(body) for body in bodies]
        self._queues.begin_put(request.queue, messages, partial(_sent, request))

    def _ack(self, request: Request) -> None:
        given = self._read(elements, request)
        if not given:
            request.fall_back()
            return
        names = ids.decode_all(request.queue, given)
        self._queues.begin_ack(request.queue, names, (), partial(request.answer_by, _confirm))

    def _read(self, read: _Read, request: Request) -> list[Any]:
        """The elements of a body; none if there may be many, which take long to read."""
        body = json_body(request, self._service.admission)
        # There are at least as many commas between elements.
        return [] if read is not _one and body.count(b",") >= AT_ONCE else read(body)

    def _poll(self, request: Request) -> None:
        poll = request.given
        wanted = Wanted((request.queue,), poll.limit, poll.ttl)
        self._queues.begin_claim(request, wanted, partial(self._polled, request))

    def _polled(self, request: Request, outcome: list[Message] | Exception) -> None:
        if isinstance(outcome, NoSuchQueue):
            outcome = []  # EmoDB's queues are never missing
        request.answer_by(self._give, outcome)

    def _give(self, request: Request, claimed: Sequence[Message]) -> None:
        if any(len(message.body) > LARGE_BYTES for message in claimed):
            request.spawn(self._give_large(request, claimed))
        else:
            request.respond(polled(request.queue, claimed))

    async def _give_large(self, request: Request, claimed: Sequence[Message]) -> None:
        try:
            response = await answered(self._service, request.queue, claimed)
        except Exception as error:
            request.answer_by(_confirm, error)
        else:
            request.respond(response)


def _of(method: str, place: str) -> Operation:
    return api.operation("queue", method, f"/{{queue}}/{place}")


def _one(body: bytes) -> list[bytes]:
    return [store(parse_any(body))]


def _sent(request: Request, outcome: Sequence[str] | Exception) -> None:
    if isinstance(outcome, NoSuchQueue):
        request.fall_back()  # queues appear on the first send
    else:
        request.answer_by(_confirm, outcome)


def _confirm(request: Request, _: object) -> None:
    request.answer(200, JSON, SUCCESS)
