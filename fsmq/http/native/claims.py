"""Claims in the native dialect that take the lane: what requests ask for, and how they are told."""

from __future__ import annotations

from fsmq.spool.layout.message import Message
from fsmq.spool.layout.steps import LARGE_BYTES

from ..lane.claims import QuickClaims
from ..lane.request import Request
from ..routing.bodies import INERT
from . import forms


class NativeClaims(QuickClaims):
    """GETs of messages."""

    def count_of(self, request: Request) -> int:
        return request.values[forms.COUNT] or 1

    def visibility_of(self, request: Request) -> float | None:
        return request.values[forms.VISIBILITY]

    def wait_of(self, request: Request) -> float:
        return request.values[forms.WAIT]

    def is_in_json(self, request: Request) -> bool:
        return request.fields.in_json or request.values[forms.COUNT] is not None

    def give(self, request: Request, claimed: list[Message]) -> None:
        if not claimed:
            request.answer(204, {}, b"")
        elif self.is_in_json(request):
            request.respond(forms.in_json(claimed))
        elif len(claimed[0].body) > LARGE_BYTES:
            request.respond(forms.as_posted(claimed[0]))
        else:
            headers = {**INERT, **forms.headers_of(claimed[0])}
            request.answer(200, headers, claimed[0].body)
