"""Messages in the dialect of SQS on the fast path.

`sending.py`, `receiving.py` and `claims.py` define the meaning of requests and answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from aiohttp.web import Response

from fsmq.spool import Message
from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import LARGE_BYTES, Acked

from ..describe import Operation
from ..fast_path.json_bodies import json_body
from ..fast_path.request import FastRoute, Request
from ..guard.keys import Right
from ..service.service import Service
from .actions.claims import Claims, Deletes
from .actions.receiving import Receiving, Wanted, work_of
from .actions.sending import Sending, Sends
from .ask import TRACE_HEADER, Ask, Result
from .errors import translated
from .names import SqsOptions
from .protocol import protocol

T = TypeVar("T")


class SqsRoutes:
    """The routes of the fast path, by action. operations: as which requests are counted."""

    def __init__(
        self,
        service: Service,
        options: SqsOptions,
        operations: Mapping[str, Operation],
        sending: Sending,
        receiving: Receiving,
        claims: Claims,
    ) -> None:
        self._service = service
        self._queues = service.queues
        self._options = options
        self._claims = claims
        self._receiving = receiving

        def route(
            action: str, right: Right, read: Callable[[Ask], T], do: Callable[[Request, T], None]
        ) -> FastRoute:
            of_one = partial(self._run, action, read, do)
            return FastRoute(operations[action], right, of_one, has_body=True, error_answer=refusal)

        routes = [
            route("SendMessage", "send", sending.read_one, self._send),
            route("SendMessageBatch", "send", sending.read_batch, self._send),
            route("ReceiveMessage", "receive", receiving.read, self._receive),
            route("DeleteMessage", "receive", claims.read_delete, self._delete),
            route("DeleteMessageBatch", "receive", claims.read_delete_batch, self._delete),
        ]
        self.routes = {one.operation.summary: one for one in routes}

    def _run(
        self,
        action: str,
        read: Callable[[Ask], T],
        do: Callable[[Request, T], None],
        request: Request,
    ) -> None:
        body, signer = request.body, request.fields.signer
        assert signer is not None
        if signer.check is not None:
            signer.check(body)
        json_body(request, self._service.admission)
        members = protocol.read_members(action, body, request.queue or None)
        trace = request.fields.kept[1].get(TRACE_HEADER)
        ask = Ask(None, signer.identity, action, members, self._options, trace=trace)
        do(request, read(ask))

    def _send(self, request: Request, sends: Sends) -> None:
        tell = partial(request.answer_by, lambda _, ids: answer(request, sends.result(ids)))
        if messages := sends.messages:
            self._queues.begin_put(sends.queue, messages, tell)
        else:
            tell([])  # no entry of the batch is valid

    def _receive(self, request: Request, wanted: Wanted) -> None:
        if wanted.fifo or not wanted.hides:
            # Claims of whole groups, and receives that hide nothing, are not on the fast path.
            request.fall_back()
            return
        answered = partial(request.answer_by, partial(self._received, wanted))
        self._queues.begin_claim(request, wanted.claim, answered)

    def _received(self, wanted: Wanted, request: Request, claimed: list[Message]) -> None:
        now_ms = int(time.time() * 1000)
        if work_of(claimed) > LARGE_BYTES:
            request.spawn(self._receive_large(wanted, request, claimed, now_ms))
        else:
            answer(request, self._receiving.result(wanted, claimed, now_ms))

    async def _receive_large(
        self, wanted: Wanted, request: Request, claimed: list[Message], now_ms: int
    ) -> None:
        outcome: Result | Exception
        try:
            outcome = await self._receiving.large_result(wanted, claimed, now_ms)
        except Exception as error:
            outcome = error
        request.answer_by(_respond, outcome)

    def _delete(self, request: Request, deletes: Deletes) -> None:
        answered = partial(request.answer_by, partial(self._removed, deletes))
        if deletes.ids:
            self._queues.begin_ack(deletes.queue, deletes.ids, deletes.claims, answered)
        else:
            answered([])

    def _removed(self, deletes: Deletes, request: Request, outcomes: Sequence[Acked]) -> None:
        ended = deletes.ended(outcomes)
        if not ended:
            answer(request, deletes.result(outcomes))
            return
        tell = partial(request.answer_by, lambda _, __: answer(request, deletes.result(outcomes)))
        self._queues.begin(self._service.changes.remove_ready(deletes.queue, ended), tell)


def refusal(error: FsmqError) -> Response:
    """The answer with an error."""
    return protocol.refuse_json(translated(error), protocol.new_request_id())


def _respond(request: Request, result: Result) -> None:
    request.respond(protocol.answer_json(result, protocol.new_request_id()))


def answer(request: Request, result: Result) -> None:
    """Answer a request with the result of its action."""
    headers = protocol.json_headers(protocol.new_request_id())
    request.answer(200, headers, protocol.json_body(result))
