"""Keys as EmoDB's clients send them, and what EmoDB's permissions are here.

``post`` is the right send, ``poll`` is receive, and ``get_status`` any right on the queue. A queue
is made by the first send, so that needs no other right.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..guard.access import Identity
from ..guard.sight import targets
from ..routing import needs
from ..routing.call import Call
from ..routing.needs import Need
from .errors import QueueForbidden
from .requests import Query, check_queue

HEADER, PARAMETER = "X-BV-API-Key", "APIKey"
_ANONYMOUS = "anonymous"


def identify(call: Call) -> Identity:
    """Tell who sends a request. Raises Unauthorized, TooManyRequests."""
    return call.identify(key_of(call.request.headers, Query(call.raw_query)))


def key_of(headers: Mapping[str, str], query: Query) -> str | None:
    """The key that a request has."""
    key = headers.get(HEADER, "") or query.text(PARAMETER)
    return None if key in ("", _ANONYMOUS) else key


def _send(call: Call, identity: Identity) -> None:
    identity.require("send", _name(call.names["queue"], identity))


def _receive(call: Call, identity: Identity) -> None:
    identity.require("receive", _name(call.names["queue"], identity))


def _see(call: Call, identity: Identity) -> None:
    identity.require_sight(_name(call.names["queue"], identity))


def _move(call: Call, identity: Identity) -> None:
    query = Query(call.raw_query)
    identity.require("receive", _name(query.text("from"), identity))
    targets(identity, _name(query.text("to"), identity))


MAY_SEND = Need(_send, needs.queue("send").rights)
MAY_RECEIVE = Need(_receive, needs.queue("receive").rights)
MAY_SEE = Need(_see, needs.queue().rights)
MAY_MOVE = Need(_move).then("`receive` on `from`, `send` on `to`")


def _name(queue: str, identity: Identity) -> str:
    """A name that a right may be asked about. No right is for names with a slash, not even all."""
    if "/" in queue:
        identity.require_any()  # without a key that is all there is to say
        check_queue(queue, len(queue))
    return queue


def require_send(identity: Identity, queue: str) -> None:
    """Make sure that one queue of a batch may be sent to. Raises QueueForbidden."""
    if not identity.may("send", queue):
        raise QueueForbidden(queue)
