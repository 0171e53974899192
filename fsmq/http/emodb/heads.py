"""Heads of requests to EmoDB's plain queues, parsed for the fast path."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from aiohttp import hdrs
from multidict import CIMultiDict

from fsmq.spool.errors import FsmqError

from ..describe import Values
from ..fast_path.heads import QUERY, Heads, remember
from ..fast_path.request import FastRoutes, Fields, Line
from ..guard.origin import Origins
from .access import HEADER, PARAMETER, key_of
from .plain import PlainQueues
from .requests import (
    Query,
    check_acceptable,
    check_consumable,
    check_poll,
    check_queue,
    read_poll,
)

SEND, SEND_BATCH, POLL, ACK = "send", "sendbatch", "poll", "ack"
_LINE = re.compile(
    rb"(?P<method>GET|POST) /queue/1/(?P<queue>[a-z0-9][a-z0-9.:@_-]{0,179})"
    rb"/(?P<place>send|sendbatch|poll|ack)(?:\?(?P<query>%(query)s))? HTTP/1\.1\r\n"
    % {b"query": QUERY}
)
_NO_QUERY = Query("")
_Kept: TypeAlias = tuple[str | None, dict[str, str]]
_JSON: _Kept = ("application/json", {})
_NO_JSON: _Kept = (None, {})


class EmoHeads(Heads):
    """Reads heads of EmoDB's requests. routes: of the plain queues."""

    def __init__(self, routes: FastRoutes, origins: Origins) -> None:
        super().__init__(origins, (HEADER,))
        self._routes = routes

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""
        read = super().read(data)
        if read is not None and read[0].route.has_body and read[1].kept is _NO_JSON:
            return None
        return read

    def _line(self, named: bytes) -> Line | None:
        match = _LINE.fullmatch(named)
        if match is None:
            return None
        method, queue, place, raw_query = (part.decode("ascii") for part in match.groups(b""))
        route = self._routes.get((method, place))
        if route is None:
            return None
        try:
            query = Query(raw_query)
            given = _read(place, query)
            check_queue(queue, PlainQueues.longest_name)
        except FsmqError:
            return None
        # A key in the query, or a poll with a ttl of 0, is not for the fast path.
        if query.text(PARAMETER) or (place == POLL and not given.ttl):
            return None
        return remember(self._lines, named, Line(route, queue, "", Values(), given))

    def _fields_of(self, headers: CIMultiDict[str], length: int | None) -> Fields | None:
        check_acceptable(headers)
        if hdrs.CONTENT_TYPE in headers:
            check_consumable(headers)
            kept = _JSON
        else:
            kept = _NO_JSON
        return Fields(length, key_of(headers, _NO_QUERY), True, kept, None)


def _read(place: str, query: Query) -> Any:
    """Read and check the query. Raises BadParameter, IllegalArgument."""
    if place == POLL:
        poll = read_poll(query)
        check_poll(poll)
        return poll
    if place == ACK:
        query.check_partitioned()
    return None
