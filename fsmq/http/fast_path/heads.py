"""Parses heads of requests for the fast path: a strict subset of HTTP/1.1.

A head that is not read here is not an error: aiohttp reads it, and decides. So a rule can be
stricter than HTTP, but never more lenient. Clients send nearly the same head again and again, so
results are cached, and most heads cost one lookup.
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
from ..routing.headers import KEY, kept_headers, named_claim, prefers_json, wants_events
from .request import Fields, Line

# How many different lines and heads are cached; the cache is cleared when it is full.
_MAX_KNOWN = 2048
MAX_HEAD_BYTES = 4096
END = b"\r\n\r\n"
# Nothing in a path or a query that needs decoding, and only names that are always valid.
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
    """Reads heads of one dialect, whose subclass interprets their lines and fields.

    origins: checks where requests come from. own: headers that it takes besides the usual ones.
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
        """What a request line asks for, which can be cached in ``_lines``; None to leave it."""

    @abstractmethod
    def _fields_of(self, headers: CIMultiDict[str], length: int | None) -> Fields | None:
        """What the headers mean; each occurs once. None, or an FsmqError, to leave the request."""

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
        key = headers.get(KEY)
        return Fields(length, token, prefers_json(accepted), kept, claim, key=key)


def remember(known: dict[bytes, T], key: bytes, value: T) -> T:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value
    return value
