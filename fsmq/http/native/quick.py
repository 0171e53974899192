"""Messages in the native dialect, many requests at a time: the verbs of the lane.

`forms.py` says what the requests mean and what the answers hold. Here is only what takes less
for many than for each: one look at a queue, one verb, one sync.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import ClaimEnded, FsmqError, Unavailable
from fsmq.spool.layout.claim_names import Renewal
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.verbs.remove_if import Acked

from ..lane.groups import by_queue, each
from ..lane.heads import Verbs
from ..lane.request import Request, Verb
from ..service.service import Service
from . import forms
from .claims import NativeClaims
from .messages import Messages

log = logging.getLogger(__name__)


class Quick:
    """The verbs. problem: tells an error of a request whose verb has done something."""

    def __init__(self, service: Service, problem: Callable[[FsmqError], Response]) -> None:
        self._service = service
        self._spool = service.spool
        self._problem = problem
        self.verbs: Verbs = {
            ("POST", False): Verb(Messages.POST, "send", self._put, has_body=True),
            ("GET", False): Verb(
                Messages.CLAIM, "receive", NativeClaims(service, self._fail).claim
            ),
            ("DELETE", True): Verb(Messages.REMOVE, "receive", self._remove),
            ("PATCH", True): Verb(Messages.CHANGE, "receive", self._change),
        }

    # -- put ---------------------------------------------------------------------------------------

    def _put(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            plain = [request for request in some if request.values[forms.OWN_ID] is None]
            if plain:
                self._put_together(queue, plain)
            if len(plain) < len(some):
                # An own id that is taken concerns one request alone.
                for request in some:
                    if request.values[forms.OWN_ID] is not None:
                        self._put_together(queue, [request])

    def _put_together(self, queue: str, requests: list[Request]) -> None:
        try:
            settings = self._spool.settings(queue)
            pending = self._spool.unsynced.put(queue, list(map(_message, requests)), settings)
        except FsmqError as error:
            if type(error) is Unavailable and len(requests) == 1:
                self._fail(requests, error)  # a disk that refuses is not asked twice
            else:
                # Whose fault it is, each of them finds out alone.
                _hand_over(requests)
            return
        self._service.then(pending, partial(each, requests, _stored), partial(self._fail, requests))

    # -- remove ------------------------------------------------------------------------------------

    def _remove(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            try:
                pending = self._removal(queue, some)
            except Unavailable as error:
                self._fail(some, error)  # another try would not find those that are removed
                continue
            except FsmqError:
                _hand_over(some)
                continue
            done = partial(each, some, self._removed)
            self._service.then(pending, done, partial(self._fail, some))

    def _removal(self, queue: str, requests: list[Request]) -> Pending[Any]:
        """What removes the messages; it tells of each whether it has, see `_removed`."""
        ids = [request.message_id for request in requests]
        claims = [request.fields.claim for request in requests]
        if any(claims):
            return self._spool.unsynced.remove_if(queue, ids, claims)
        return self._spool.unsynced.remove(queue, ids)

    def _removed(self, request: Request, outcome: bool | Acked) -> None:
        if outcome is True or outcome == "removed":
            request.answer(202, {}, b"")
        elif outcome == "ended":
            request.respond(self._problem(ClaimEnded(request.queue, request.message_id)))
        else:
            request.respond(self._problem(forms.nowhere(request.queue, request.message_id)))

    # -- change ------------------------------------------------------------------------------------

    def _change(self, requests: list[Request]) -> None:
        unsynced = self._spool.unsynced
        for request in requests:
            queue, message_id = request.queue, request.message_id
            try:
                pending = forms.begin_change(
                    unsynced, queue, message_id, request.values, request.fields.claim
                )
            except FsmqError:
                request.hand_over()
                continue
            self._service.then(pending, partial(_changed, request), partial(self._fail, [request]))

    def _fail(self, requests: list[Request], error: FsmqError) -> None:
        if isinstance(error, Unavailable):
            log.warning("%d requests to queue %r: %s", len(requests), requests[0].queue, error)
        for request in requests:
            if request.is_open:
                request.respond(self._problem(error))


def _hand_over(requests: list[Request]) -> None:
    for request in requests:
        request.hand_over()


def _message(request: Request) -> NewMessage:
    return forms.new_message(request.body, request.values, request.fields.kept)


def _stored(request: Request, message_id: str) -> None:
    request.answer(201, *forms.stored(request.queue, message_id))


def _changed(request: Request, renewal: Renewal | None) -> None:
    request.answer(204, forms.changed(renewal), b"")
