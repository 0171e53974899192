"""Heads of requests that the lane is sure of: a strict part of HTTP/1.1, and nothing else.

What is not read here is no error: aiohttp reads it then, and decides. So each rule may be narrower
than HTTP, and never wider. Clients send nearly the same head again and again; so what was read is
remembered, and most heads cost one look into a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from aiohttp import hdrs
from multidict import CIMultiDict

from fsmq.spool.errors import FsmqError

from ..describe import Values
from ..guard.access import Identity, bearer, channel
from ..guard.origin import Origins
from ..routing.headers import CLAIM, kept_headers, named_claim, prefers_json, wants_events

if TYPE_CHECKING:
    from .request import Verb

# So many different lines and heads are remembered; then all are forgotten, for others to be.
_MAX_KNOWN = 2048
MAX_HEAD_BYTES = 4096
END = b"\r\n\r\n"
# Nothing in a path or a query that would have to be decoded, and no name that a rule could refuse.
_NAME = rb"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LINE = re.compile(
    rb"(?P<method>GET|POST|PATCH|DELETE)"
    rb" /(?P<queue>%(name)s|_logs/%(name)s/channels/%(name)s)/messages"
    rb"(?:/(?P<id>%(name)s))?(?:\?(?P<query>[A-Za-z0-9=&._-]{1,200}))? HTTP/1\.1\r\n"
    % {b"name": _NAME}
)
_FIELD = re.compile(rb"([A-Za-z-]{1,40}):[ \t]*([!-~](?:[ -~]*[!-~])?)[ \t]*\r\n")
_ONCE = re.compile(rb"[?&](?:dedup_)?id=")
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
        CLAIM,
    )
)

T = TypeVar("T")
Verbs: TypeAlias = "Mapping[tuple[str, bool], Verb]"


class Line(NamedTuple):
    """A request line: what it asks for.

    queue: its name, or that of a channel as rights are granted on it. message_id: empty where it
    names no message.
    """

    verb: Verb
    queue: str
    message_id: str
    values: Values


class Signer(NamedTuple):
    """Who sends a request, where a dialect tells that in its own way.

    check: raises an FsmqError if the body is not what was signed; None where nothing was.
    """

    identity: Identity
    check: Callable[[bytes], None] | None


class Fields(NamedTuple):
    """The other lines of a head.

    length: of the body; None where nothing says it. token: the key. in_json: whether messages are
    wanted so. kept: the content type and the attributes that a message keeps. claim: the one that
    it is about, by its name. signer: in the place of a token.
    """

    length: int | None
    token: str | None
    in_json: bool
    kept: tuple[str | None, dict[str, str]]
    claim: str | None
    signer: Signer | None = None


class Heads:
    """Reads heads.

    verbs: what may be asked for, by method and by whether a message is named; of_channels: of
    channels of logs. reserved: first segments of paths that belong to others. origins: who may send
    requests here.
    """

    def __init__(
        self,
        verbs: Verbs,
        of_channels: Verbs,
        reserved: frozenset[str],
        origins: Origins,
        needs_keys: bool,
    ) -> None:
        self._verbs = verbs
        self._of_channels = of_channels
        self._reserved = reserved
        self._origins = origins
        self._needs_keys = needs_keys
        self._lines: dict[bytes, Line | None] = {}
        self._fields: dict[bytes, Fields | None] = {}

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head."""
        end = data.find(END, 0, MAX_HEAD_BYTES)
        if end < 0:
            return None
        begin = data.find(b"\n") + 1
        named = data[:begin]
        try:
            line = self._lines[named]
        except KeyError:
            line = self._line(named)
        if line is None:
            return None
        rest = data[begin : end + 2]
        try:
            fields = self._fields[rest]
        except KeyError:
            fields = remember(self._fields, rest, self._read_fields(rest))
        return None if fields is None else (line, fields, end + 4)

    def _line(self, named: bytes) -> Line | None:
        match = _LINE.fullmatch(named)
        if match is None:
            return remember(self._lines, named, None)
        method, queue, message_id, query = (
            part.decode("ascii") if part is not None else "" for part in match.groups()
        )
        verbs = self._verbs
        if queue.startswith("_"):
            _, log, _, name = queue.split("/")
            queue, verbs = channel(log, name), self._of_channels
        verb = verbs.get((method, bool(message_id)))
        if verb is None or queue in self._reserved:
            return None
        try:
            values = verb.operation.read(query)
        except FsmqError:
            return None
        line = Line(verb, queue, message_id, values)
        # An id comes once: in the path, or of a post in the query.
        is_usual = not message_id and not _ONCE.search(named)
        return remember(self._lines, named, line) if is_usual else line

    def _read_fields(self, rest: bytes) -> Fields | None:
        headers: CIMultiDict[str] = CIMultiDict()
        at = 0
        while at < len(rest):
            match = _FIELD.match(rest, at)
            if match is None:
                return None
            name, value = match[1].decode("ascii"), match[2].decode("ascii")
            if name.title() not in _TAKEN or name in headers:
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
            token = bearer(headers.getall(hdrs.AUTHORIZATION, ())) if self._needs_keys else None
            kept = kept_headers(headers)
            claim = named_claim(headers)
        except FsmqError:
            return None
        if wants_events(headers.get(hdrs.ACCEPT)):
            return None
        in_json = prefers_json(headers.get(hdrs.ACCEPT))
        return Fields(None if length is None else int(length), token, in_json, kept, claim)


def remember(known: dict[bytes, T], key: bytes, value: T) -> T:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value
    return value
