"""Heads of requests that the fast path is sure of: a strict part of HTTP/1.1, and nothing else.

What is not read here is no error: aiohttp reads it then, and decides. So each rule may be narrower
than HTTP, and never wider. Clients send nearly the same head again and again; so what was read is
remembered, and most heads cost one look into a table.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import TypeVar

from aiohttp import hdrs
from multidict import CIMultiDict

from fsmq.spool.errors import FsmqError

from ..guard.access import bearer
from ..guard.origin import Origins
from ..routing.headers import kept_headers, named_claim, prefers_json, wants_events
from .request import Fields, Line

# So many different lines and heads are remembered; then all are forgotten, for others to be.
_MAX_KNOWN = 2048
MAX_HEAD_BYTES = 4096
END = b"\r\n\r\n"
# Nothing in a path or a query that would have to be decoded, and no name that a rule could refuse.
NAME = rb"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
QUERY = rb"[A-Za-z0-9=&._-]{1,200}"
_FIELD = re.compile(rb"([A-Za-z-]{1,40}):[ \t]*([!-~](?:[ -~]*[!-~])?)[ \t]*\r\n")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,6}")
_TAKEN = frozenset(
    (
        hdrs.HOST,
        hdrs.USER_AGENT,
        hdrs.ACCEPT,
        hdrs.ACCEPT_ENCODING,
        hdrs.ACCEPT_LANGUAGE,
        hdrs.AUTHORIZATION,
        hdrs.CONNECTION,
        hdrs.CONTENT_LENGTH,
        hdrs.CONTENT_TYPE,
    )
)

T = TypeVar("T")


class Heads(ABC):
    """Reads heads of one dialect, which says what its lines and fields mean.

    origins: who may send requests here. own: headers that it takes beside the usual ones.
    """

    def __init__(self, origins: Origins, own: Collection[str] = ()) -> None:
        self._origins = origins
        self._taken = _TAKEN | {name.title() for name in own}
        self._lines: dict[bytes, Line] = {}
        self._fields: dict[bytes, Fields | None] = {}

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""
        end = data.find(END, 0, MAX_HEAD_BYTES)
        if end < 0:
            return None
        begin = data.find(b"\n") + 1
        named = data[:begin]
        line = self._lines.get(named) or self._line(named)
        if line is None:
            return None
        rest = data[begin : end + 2]
        try:
            fields = self._fields[rest]
        except KeyError:
            fields = remember(self._fields, rest, self._read_fields(rest))
        return None if fields is None else (line, fields, end + 4)

    @abstractmethod
    def _line(self, named: bytes) -> Line | None:
        """What a request line asks for, which may be remembered in ``_lines``; None to leave it."""

    @abstractmethod
    def _fields_of(self, headers: CIMultiDict[str], length: int | None) -> Fields | None:
        """What headers mean, each of which is there once; None, or an FsmqError, to leave it."""

    def _read_fields(self, rest: bytes) -> Fields | None:
        headers: CIMultiDict[str] = CIMultiDict()
        at = 0
        while at < len(rest):
            match = _FIELD.match(rest, at)
            if match is None:
                return None
            name, value = match[1].decode("ascii"), match[2].decode("ascii")
            if name.title() not in self._taken or name in headers:
                return None
            headers[name] = value
            at = match.end()
        length = headers.get(hdrs.CONTENT_LENGTH)
        if (
            hdrs.HOST not in headers
            or headers.get(hdrs.CONNECTION, "keep-alive").lower() != "keep-alive"
            or (length is not None and not _LENGTH.fullmatch(length))
        ):
            return None
        try:
            self._origins.check(headers)
            return self._fields_of(headers, None if length is None else int(length))
        except FsmqError:
            return None


class BearerHeads(Heads):
    """Reads heads of a dialect that takes keys as ``Authorization: Bearer``."""

    def __init__(self, origins: Origins, needs_keys: bool, own: Collection[str] = ()) -> None:
        super().__init__(origins, own)
        self._needs_keys = needs_keys

    def _fields_of(self, headers: CIMultiDict[str], length: int | None) -> Fields | None:
        accepted = headers.get(hdrs.ACCEPT)
        if wants_events(accepted):
            return None
        token = bearer(headers.getall(hdrs.AUTHORIZATION, ())) if self._needs_keys else None
        kept, claim = kept_headers(headers), named_claim(headers)
        return Fields(length, token, prefers_json(accepted), kept, claim)


def remember(known: dict[bytes, T], key: bytes, value: T) -> T:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value
    return value
