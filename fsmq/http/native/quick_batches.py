"""Batches of few messages in the native dialect, many requests at a time: verbs of the lane.

What many messages cost is theirs, and not the request's: those are left to aiohttp, and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.steps import FEW
from fsmq.spool.verbs.remove_if import Acked

from ...wire import unquote_id
from ..lane.group_verbs import GroupVerbs
from ..lane.groups import by_queue, each, in_turns, read_each, shares
from ..lane.heads import Verbs
from ..lane.json_bodies import json_body
from ..lane.request import Request, Verb
from ..routing.headers import wants_events
from ..service.service import Service
from . import heads
from .acks import Acks, acked, ids_and_claims
from .batch import Batches, new_messages, stored


class _Acks(NamedTuple):
    """What an acknowledgement is about."""

    ids: list[str]
    claims: list[str | None]


class QuickBatches:
    """The verbs. problem: tells an error of a request whose verb has done something."""

    def __init__(self, service: Service, problem: Callable[[FsmqError], Response]) -> None:
        self._admission = service.admission
        self._spool = service.spool
        self._group = GroupVerbs(service, problem)
        self.verbs: Verbs = {
            ("POST", heads.BATCH): Verb(
                Batches.BATCH, "send", self._put, has_body=True, at_once=FEW // 2
            ),
            ("POST", heads.ACK): Verb(
                Acks.ACK, "receive", self._ack, has_body=True, at_once=FEW // 2
            ),
        }

    # -- put ---------------------------------------------------------------------------------------

    def _put(self, requests: list[Request]) -> None:
        for some in by_queue(read_each(requests, self._messages)).values():
            # An own id that is taken concerns one request alone.
            own = [request for request in some if any(one.id is not None for one in _new(request))]
            for request in own:
                self._put_together([request])
            if plain := [request for request in some if request not in own]:
                in_turns(plain, _number_of_new, self._put_together)

    def _messages(self, request: Request) -> list[NewMessage] | None:
        body = json_body(request, self._admission)
        # Each message has such a member. To read many here would be in vain.
        if wants_events(request.fields.kept[0]) or body.count(b'"body') > FEW:
            return None
        messages = new_messages(body)
        return messages if len(messages) <= FEW else None

    def _put_together(self, requests: list[Request]) -> None:
        queue = requests[0].queue

        def begin() -> Pending[list[str]]:
            messages = [one for request in requests for one in _new(request)]
            return self._spool.unsynced.put(queue, messages, self._spool.settings(queue))

        def done(ids: list[str]) -> None:
            each(requests, _stored, shares(ids, map(_number_of_new, requests)))

        self._group.put(requests, begin, done)

    # -- ack ---------------------------------------------------------------------------------------

    def _ack(self, requests: list[Request]) -> None:
        for some in by_queue(read_each(requests, self._acks)).values():
            in_turns(some, _number_of_acks, self._ack_together)

    def _acks(self, request: Request) -> _Acks | None:
        body = json_body(request, self._admission)
        if body.count(b",") - body.count(b'"claim"') >= FEW:
            return None  # of commas there are as many between ids
        acks = _Acks(*ids_and_claims(body))
        return acks if len(acks.ids) <= FEW else None

    def _ack_together(self, requests: list[Request]) -> None:
        queue = requests[0].queue

        def begin() -> Pending[list[Acked]]:
            ids = [unquote_id(one) for request in requests for one in _given(request).ids]
            claims = [one for request in requests for one in _given(request).claims]
            return self._spool.unsynced.remove_if(queue, ids, claims)

        def done(outcomes: list[Acked]) -> None:
            each(requests, self._acked, shares(outcomes, map(_number_of_acks, requests)))

        self._group.remove(requests, begin, done)

    def _acked(self, request: Request, outcomes: Sequence[Acked]) -> None:
        try:
            answer = acked(self._spool, request.queue, *_given(request), outcomes)
        except FsmqError as error:
            self._group.fail([request], error)
        else:
            request.respond(answer)


def _new(request: Request) -> list[NewMessage]:
    return request.given  # type: ignore[no-any-return]


def _number_of_new(request: Request) -> int:
    return len(_new(request))


def _stored(request: Request, ids: Sequence[str]) -> None:
    request.respond(stored(ids))


def _given(request: Request) -> _Acks:
    return request.given  # type: ignore[no-any-return]


def _number_of_acks(request: Request) -> int:
    return len(_given(request).ids)
