"""Heads of requests of the native dialect, parsed for the fast path."""

from __future__ import annotations

import re

from fsmq.spool.errors import FsmqError

from ...fast_path.heads import NAME, QUERY, BearerHeads, remember
from ...fast_path.request import FastRoutes, Line
from ...guard.access import channel, log
from ...guard.origin import Origins
from ...routing.headers import CLAIM, KEY

# The part of the path by which, with the method, a route is found.
ALL, ONE, BATCH, ACK = "messages", "messages/{id}", "batch", "ack"
_LINE = re.compile(
    rb"(?P<method>GET|POST|PATCH|DELETE)"
    rb" /(?P<queue>%(name)s|_logs/%(name)s(?:/channels/%(name)s)?)/(?P<place>messages|batch|ack)"
    rb"(?:/(?P<id>%(name)s))?(?:\?(?P<query>%(query)s))? HTTP/1\.1\r\n"
    % {b"name": NAME, b"query": QUERY}
)
_ONCE = re.compile(rb"[?&](?:dedup_)?id=")


class NativeHeads(BearerHeads):
    """Reads heads of the native dialect.

    routes: of queues. of_logs: of logs. of_channels: of their channels. reserved: first segments of
    paths that belong to other dialects.
    """

    def __init__(
        self,
        routes: FastRoutes,
        of_logs: FastRoutes,
        of_channels: FastRoutes,
        reserved: frozenset[str],
        origins: Origins,
        needs_keys: bool,
    ) -> None:
        super().__init__(origins, needs_keys, (CLAIM, KEY))
        self._routes = routes
        self._of_logs = of_logs
        self._of_channels = of_channels
        self._reserved = reserved

    def _line(self, named: bytes) -> Line | None:
        match = _LINE.fullmatch(named)
        if match is None:
            return None
        method, queue, place, message_id, query = [
            part.decode("ascii") for part in match.groups(b"")
        ]
        routes = self._routes
        if queue.startswith("_"):
            _, name, *of_channel = queue.split("/")
            queue, routes = log(name), self._of_logs
            if of_channel:
                queue, routes = channel(name, of_channel[1]), self._of_channels
        route = routes.get((method, f"{place}/{{id}}" if message_id else place))
        if route is None or queue in self._reserved:
            return None
        try:
            values = route.operation.read(query)
        except FsmqError:
            return None
        line = Line(route, queue, message_id, values)
        # A line with an id, in the path or in the query of a post, will not be seen again.
        is_usual = not message_id and not _ONCE.search(named)
        return remember(self._lines, named, line) if is_usual else line
