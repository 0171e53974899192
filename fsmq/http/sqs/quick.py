"""Messages in the dialect of SQS, many requests at a time: the verbs of the lane.

What requests mean and what answers hold, `sending.py`, `receiving.py` and `claims.py` say. Here is
only what takes less for many than for each. A request that is refused as a whole goes to aiohttp.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.message import Message
from fsmq.spool.layout.steps import FEW
from fsmq.spool.verbs.remove_if import Acked

from ..describe import Operation
from ..guard.keys import Right
from ..lane.claims import QuickClaims
from ..lane.group_verbs import GroupVerbs
from ..lane.groups import by_queue, each, read_each, shares
from ..lane.json_bodies import json_body
from ..lane.request import Request, Verb
from ..service.service import Service
from . import protocol
from .ask import TRACE_HEADER, Ask, Result, Shared
from .claims import Claims, Deletes
from .errors import translated
from .names import SqsOptions
from .receiving import Receiving, Wanted
from .sending import Sending, Sends

_Do = Callable[[list[Request]], None]


class Quick:
    """The verbs, by action. operations: what requests are counted as."""

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
        self._spool = service.spool
        self._group = GroupVerbs(service, refusal)
        self._options = options
        self._claims = claims
        self._receives = _Receives(service, self._group.fail, receiving)

        def verb(
            action: str, right: Right, read: Callable[[Ask], Any], do: _Do, at_once: int
        ) -> Verb:
            of_all = partial(self._run, action, read, do)
            return Verb(
                *(operations[action], right, of_all), has_body=True, at_once=at_once, told=refusal
            )

        some = [
            verb("SendMessage", "send", sending.read_one, self._send, 4 * FEW),
            verb("SendMessageBatch", "send", sending.read_batch, self._send, FEW // 2),
            verb("ReceiveMessage", "receive", receiving.read, self._receive, FEW),
            verb("DeleteMessage", "receive", claims.read_delete, self._delete, 4 * FEW),
            verb("DeleteMessageBatch", "receive", claims.read_delete_batch, self._delete, FEW // 2),
        ]
        self.verbs = {one.operation.summary: one for one in some}

    def _run(
        self, action: str, read: Callable[[Ask], Any], do: _Do, requests: list[Request]
    ) -> None:
        """Read requests, whose ``given`` is what ``read`` makes of them, and do the good ones."""
        shared: Shared = {}

        def read_one(request: Request) -> Any:
            given = read(self._ask(action, request, shared))
            request.queue = given.queue
            return given

        if good := read_each(requests, read_one):
            do(good)

    def _ask(self, action: str, request: Request, shared: Shared) -> Ask:
        body, signer = request.body, request.fields.signer
        assert signer is not None
        if signer.check is not None:
            signer.check(body)
        json_body(request, self._service.admission)
        members = protocol.read_members(action, body, request.queue or None)
        trace = request.fields.kept[1].get(TRACE_HEADER)
        return Ask(
            *(None, signer.identity, action, members, self._options), shared=shared, trace=trace
        )

    # -- send --------------------------------------------------------------------------------------

    def _send(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            messages = [one.message for request in some for one in _sends(request).checked]
            if not messages:
                self._stored(some, [])  # nothing in these batches is good
                continue
            settings = _sends(some[-1]).place.settings
            begin = partial(self._spool.unsynced.put, queue, messages, settings)
            self._group.put(some, begin, partial(self._stored, some))

    def _stored(self, requests: list[Request], ids: list[str]) -> None:
        each(requests, _sent, shares(ids, [len(_sends(one).checked) for one in requests]))

    # -- receive -----------------------------------------------------------------------------------

    def _receive(self, requests: list[Request]) -> None:
        good = []
        for request in requests:
            wanted = _wanted(request)
            if wanted.fifo or not wanted.hides:
                # Of a FIFO queue a group goes to one consumer; and what hides nothing comes back.
                request.hand_over()
            else:
                good.append(request)
        if good:
            self._receives.claim(good)

    # -- delete ------------------------------------------------------------------------------------

    def _delete(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            ids = [one for request in some for one in _deletes(request).ids]
            claims = [one for request in some for one in _deletes(request).claims]
            if not ids:
                self._removed(queue, some, [])
                continue
            begin = partial(self._spool.unsynced.remove_if, queue, ids, claims)
            self._group.remove(some, begin, partial(self._removed, queue, some))

    def _removed(self, queue: str, requests: list[Request], outcomes: list[Acked]) -> None:
        parts = shares(outcomes, [len(_deletes(one).receipts) for one in requests])
        ended = []
        for request, share in zip(requests, parts, strict=True):
            ended += _deletes(request).ended(share)
        if not ended:
            each(requests, self._deleted, parts)
            return
        pending = self._claims.remove_ended(queue, ended)
        done = partial(self._deleted_all, requests, parts)
        self._service.then(pending, done, partial(self._group.fail, requests))

    def _deleted_all(
        self, requests: list[Request], parts: list[list[Acked]], _removed: int
    ) -> None:
        each(requests, self._deleted, parts)

    def _deleted(self, request: Request, outcomes: list[Acked]) -> None:
        try:
            answer(request, _deletes(request).result(outcomes))
        except FsmqError as error:
            self._group.fail([request], error)


class _Receives(QuickClaims):
    """ReceiveMessage. The ``given`` of its requests is what they want."""

    def __init__(
        self,
        service: Service,
        refuse: Callable[[list[Request], FsmqError], None],
        receiving: Receiving,
    ) -> None:
        super().__init__(service, refuse)
        self._receiving = receiving

    def count_of(self, request: Request) -> int:
        return _wanted(request).most

    def visibility_of(self, request: Request) -> float | None:
        return _wanted(request).hides

    def wait_of(self, request: Request) -> float:
        return _wanted(request).wait

    def is_in_json(self, request: Request) -> bool:
        return True

    def give(self, request: Request, claimed: list[Message]) -> None:
        now_ms = int(time.time() * 1000)
        answer(request, self._receiving.result(_wanted(request), claimed, now_ms))


def refusal(error: FsmqError) -> Response:
    """The answer with an error."""
    return protocol.refuse_json(translated(error), protocol.new_request_id())


def answer(request: Request, result: Result) -> None:
    """Answer a request with what its action has come to."""
    headers = protocol.json_headers(protocol.new_request_id())
    request.answer(200, headers, protocol.json_body(result))


def _sent(request: Request, ids: Sequence[str]) -> None:
    answer(request, _sends(request).result(ids))


def _sends(request: Request) -> Sends:
    return request.given  # type: ignore[no-any-return]


def _wanted(request: Request) -> Wanted:
    return request.given  # type: ignore[no-any-return]


def _deletes(request: Request) -> Deletes:
    return request.given  # type: ignore[no-any-return]
