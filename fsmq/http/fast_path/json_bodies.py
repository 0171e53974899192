"""JSON bodies of requests of the fast path."""

from __future__ import annotations

from ..guard.admission import Admission
from ..problems import Overloaded
from ..routing.json_room import room_of_json
from .request import Request

# Values that take no more memory than this are not counted: a request takes about as much anyway.
_LITTLE = 2048


def json_body(request: Request, admission: Admission) -> bytes:
    """The body of a request; reserves memory for the values that it is parsed into.

    Raises Overloaded, TooManyRequests.
    """
    body = request.body
    room = room_of_json(body)
    if room > admission.limits.memory:
        raise Overloaded("the JSON has more values than there is memory for")
    if room > _LITTLE:
        request.hold(room, sure=False)
    return body
