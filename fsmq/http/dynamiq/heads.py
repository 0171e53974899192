"""Heads of requests of Dynamiq's clients, parsed for the fast path."""

from __future__ import annotations

import re
from typing import Any

from fsmq.spool.errors import FsmqError
from fsmq.spool.prepare import FEW

from ..describe import Values
from ..fast_path.heads import NAME, BearerHeads, remember
from ..fast_path.request import FastRoutes, Line
from ..guard.origin import Origins
from .queues import can_be, count_of, ids_of

# The part of the path after the queue, by which, with the prefix, a route is found.
MESSAGE, MESSAGES, ONE = "message", "messages", "message/{id}"
_LINE = re.compile(
    rb"(?P<method>GET|PUT|DELETE) (?P<prefix>|/v1)/queues/(?P<queue>%(name)s)"
    rb"/(?P<place>messages?)(?:/(?P<named>[A-Za-z0-9][A-Za-z0-9.,_-]{0,2000}))? HTTP/1\.1\r\n"
    % {b"name": NAME}
)


class DynamiqHeads(BearerHeads):
    """Reads heads. routes: by the method, and by the prefix and the part after the queue."""

    def __init__(self, routes: FastRoutes, origins: Origins, needs_keys: bool) -> None:
        super().__init__(origins, needs_keys)
        self._routes = routes

    def _line(self, named: bytes) -> Line | None:
        match = _LINE.fullmatch(named)
        if match is None:
            return None
        method, prefix, queue, place, name = (part.decode("ascii") for part in match.groups(b""))
        if place == MESSAGE and name:
            place = ONE
        route = self._routes.get((method, f"{prefix} {place}"))
        if route is None or bool(name) != (place != MESSAGE):
            return None
        try:
            given = _read(method, place, queue, name)
        except FsmqError:
            return None
        if given is None:
            return None
        line = Line(route, queue, "", Values(), given)
        return line if method == "DELETE" else remember(self._lines, named, line)


def _read(method: str, place: str, queue: str, name: str) -> Any:
    """What follows the queue: a number of messages, or a few ids; None to leave the request."""
    if method == "GET":
        return count_of(name)
    if method == "PUT":
        return 1
    ids = [name] if place == ONE and can_be(queue, name) else ids_of(queue, name)
    return ids if 1 <= len(ids) <= FEW else None
