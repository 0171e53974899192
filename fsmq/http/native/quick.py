"""Messages in the native dialect, many requests at a time: the verbs of the lane.

`forms.py` says what the requests mean and what the answers hold. Here is only what takes less
for many than for each: one look at a queue, one verb, one sync.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import ClaimEnded, FsmqError
from fsmq.spool.layout.claim_names import Renewal
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.verbs.remove_if import Acked

from ..lane.group_verbs import GroupVerbs
from ..lane.groups import by_queue, each
from ..lane.heads import Verbs
from ..lane.request import Request, Verb
from ..service.service import Service
from . import forms, heads
from .claims import NativeClaims
from .messages import Messages


class Quick:
    """The verbs. problem: tells an error of a request whose verb has done something."""

    def __init__(self, service: Service, problem: Callable[[FsmqError], Response]) -> None:
        self._spool = service.spool
        self._problem = problem
        self._group = GroupVerbs(service, problem)
        self.verbs: Verbs = {
            ("POST", heads.ALL): Verb(Messages.POST, "send", self._put, has_body=True),
            ("GET", heads.ALL): Verb(
                Messages.CLAIM, "receive", NativeClaims(service, self._group.fail).claim
            ),
            ("DELETE", heads.ONE): Verb(Messages.REMOVE, "receive", self._remove),
            ("PATCH", heads.ONE): Verb(Messages.CHANGE, "receive", self._change),
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
        def begin() -> Pending[list[str]]:
            settings = self._spool.settings(queue)
            return self._spool.unsynced.put(queue, list(map(_message, requests)), settings)

        self._group.put(requests, begin, partial(each, requests, _stored))

    # -- remove ------------------------------------------------------------------------------------

    def _remove(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            begin = partial(self._removal, queue, some)
            self._group.remove(some, begin, partial(each, some, self._removed))

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
        for request in requests:
            begin = partial(
                forms.begin_change,
                self._spool.unsynced,
                request.queue,
                request.message_id,
                request.values,
                request.fields.claim,
            )
            self._group.change(request, begin, partial(_changed, request))


def _message(request: Request) -> NewMessage:
    return forms.new_message(request.body, request.values, request.fields.kept)


def _stored(request: Request, message_id: str) -> None:
    request.answer(201, *forms.stored(message_id))


def _changed(request: Request, renewal: Renewal | None) -> None:
    request.answer(204, forms.changed(renewal), b"")
