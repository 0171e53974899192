"""Small batches of the native dialect on the fast path.

Requests that take long to parse are left to aiohttp, whose handlers use threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import FEW, Acked

from ....wire import unquote_id
from ...fast_path.json_bodies import json_body
from ...fast_path.request import FastRoute, FastRoutes, Request
from ...routing.headers import wants_events
from ...service.service import Service
from ..messages.acks import Acks, acked, ids_and_claims
from ..messages.batch import Batches, indexed, new_messages, stored
from . import heads


class FastBatches:
    """The routes of the fast path for batches."""

    def __init__(self, service: Service) -> None:
        self._admission = service.admission
        self._spool = service.spool
        self._queues = service.queues
        self.routes: FastRoutes = {
            ("POST", heads.BATCH): FastRoute(Batches.BATCH, "send", self._put, has_body=True),
            ("POST", heads.ACK): FastRoute(Acks.ACK, "receive", self._ack, has_body=True),
        }

    def _put(self, request: Request) -> None:
        body = json_body(request, self._admission)
        # Each message has such a member: many are not parsed here, only to be left to aiohttp.
        if wants_events(request.fields.kept[0]) or body.count(b'"body') > FEW:
            request.fall_back()
            return
        messages = new_messages(body)
        if len(messages) > FEW:
            request.fall_back()
            return
        self._queues.begin_put(request.queue, messages, partial(_put, request, len(messages)))

    def _ack(self, request: Request) -> None:
        body = json_body(request, self._admission)
        # The number of commas between ids.
        if body.count(b",") - body.count(b'"claim"') >= FEW:
            request.fall_back()
            return
        ids, claims = ids_and_claims(body)
        answer = partial(self._acked, ids, claims)
        self._queues.begin_ack(
            request.queue, list(map(unquote_id, ids)), claims, partial(request.answer_by, answer)
        )

    def _acked(
        self,
        ids: list[str],
        claims: list[str | None],
        request: Request,
        outcomes: Sequence[Acked],
    ) -> None:
        request.respond(acked(self._spool, request.queue, ids, claims, outcomes))


def _put(request: Request, number: int, outcome: Sequence[str] | Exception) -> None:
    if isinstance(outcome, FsmqError):
        outcome = indexed(outcome, number)
    request.answer_by(_stored, outcome)


def _stored(request: Request, ids: Sequence[str]) -> None:
    request.respond(stored(ids))
