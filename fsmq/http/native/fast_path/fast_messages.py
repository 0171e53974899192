"""Messages of the native dialect on the fast path.

`forms.py` defines the parameters of requests and the content of answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fsmq.spool import Message
from fsmq.spool.checks import Renewal
from fsmq.spool.errors import ClaimEnded
from fsmq.spool.prepare import LARGE_BYTES, Acked

from ...fast_path.request import FastRoute, FastRoutes, Request
from ...routing.bodies import INERT
from ...service.service import Service
from ...service.wanted import Wanted
from .. import forms
from ..messages.messages import Messages
from . import heads


class FastMessages:
    """The routes of the fast path for messages."""

    def __init__(self, service: Service) -> None:
        self._changes = service.changes
        self._queues = service.queues
        self.routes: FastRoutes = {
            ("POST", heads.ALL): FastRoute(Messages.POST, "send", self._put, has_body=True),
            ("GET", heads.ALL): FastRoute(Messages.CLAIM, "receive", self._claim),
            ("DELETE", heads.ONE): FastRoute(Messages.REMOVE, "receive", self._remove),
            ("PATCH", heads.ONE): FastRoute(Messages.CHANGE, "receive", self._change),
        }

    def _put(self, request: Request) -> None:
        message = forms.new_message(request.body, request.values, request.fields.kept)
        self._queues.begin_put(request.queue, [message], partial(request.answer_by, _stored))

    def _claim(self, request: Request) -> None:
        values = request.values
        count = values[forms.COUNT]
        in_json = count is not None or request.fields.in_json
        wanted = Wanted(
            (request.queue,), count or 1, values[forms.VISIBILITY], values[forms.WAIT], in_json
        )
        answer = partial(_claimed, in_json)
        self._queues.begin_claim(request, wanted, partial(request.answer_by, answer))

    def _remove(self, request: Request) -> None:
        ids, claims = (request.message_id,), (request.fields.claim,)
        self._queues.begin_ack(request.queue, ids, claims, partial(request.answer_by, _removed))

    def _change(self, request: Request) -> None:
        if request.values[forms.NEW_PRIORITY] is not None:
            request.fall_back()
            return
        change = forms.change_of(
            self._changes,
            request.queue,
            request.message_id,
            request.values,
            request.fields.claim,
        )
        self._queues.begin(change, partial(request.answer_by, _changed))


def _stored(request: Request, ids: Sequence[str]) -> None:
    request.answer(201, *forms.stored(ids[0]))


def _claimed(in_json: bool, request: Request, claimed: list[Message]) -> None:
    if not claimed:
        request.answer(204, {}, b"")
    elif in_json:
        request.respond(forms.in_json(claimed))
    elif len(claimed[0].body) > LARGE_BYTES:
        request.respond(forms.as_posted(claimed[0]))
    else:
        request.answer(200, {**INERT, **forms.headers_of(claimed[0])}, claimed[0].body)


def _removed(request: Request, outcomes: Sequence[Acked]) -> None:
    if outcomes[0] == "ended":
        raise ClaimEnded(request.queue, request.message_id)
    if outcomes[0] == "missing":
        raise forms.nowhere(request.queue, request.message_id)
    request.answer(202, {}, b"")


def _changed(request: Request, renewal: Renewal | None) -> None:
    request.answer(204, forms.changed(renewal), b"")
