"""Bodies of requests of the fast path that are parsed as JSON."""

from __future__ import annotations

from ..guard.admission import Admission
from ..problems import Overloaded
from ..routing.json_room import room_of_json
from .request import Request

# What the values of a request take that is not counted: about as much as all else of it.
_LITTLE = 2048


def json_body(request: Request, admission: Admission) -> bytes:
    """The body of a request, with room for the values that it is parsed into.

    Raises Overloaded, TooManyRequests.
    """
    body = request.body
    room = room_of_json(body)
    if room > admission.limits.memory:
        raise Overloaded("the JSON has more values than there is memory for")
    if room > _LITTLE:
        request.hold(room, sure=False)
    return body
