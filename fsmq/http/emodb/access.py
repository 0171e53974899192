"""Keys as EmoDB's clients send them, and the rights that correspond to EmoDB's permissions.

``post`` is the right send, ``poll`` is receive, and ``get_status`` any right on the queue. The
first send creates a queue, without another right.
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
    """Identify the sender of a request. Raises Unauthorized, TooManyRequests."""
    return call.identify(key_of(call.request.headers, Query(call.raw_query)))


def key_of(headers: Mapping[str, str], query: Query) -> str | None:
    """The key in a request; None if it has none."""
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
    """A name whose rights can be checked. A name with a slash is refused, whatever the rights."""
    if "/" in queue:
        identity.require_any()  # a missing key is reported first
        check_queue(queue, len(queue))
    return queue


def require_send(identity: Identity, queue: str) -> None:
    """Check the right to send to one queue of a batch. Raises QueueForbidden."""
    if not identity.may("send", queue):
        raise QueueForbidden(queue)
