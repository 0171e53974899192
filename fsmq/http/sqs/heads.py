"""Heads of requests of the JSON protocol that the lane is sure of: a strict part, as ever there.

Those of SDKs differ with each request: its moment, its signature, its id. So what is remembered is
not a head but a line, and only of those that a client sends again and again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiohttp import hdrs

from fsmq.spool.errors import FsmqError

from ..describe import Values
from ..guard.origin import Origins
from ..lane.heads import END, LENGTH, MAX_HEAD_BYTES, Fields, Line, Signer, remember
from ..lane.request import Verb
from . import sigv4
from .protocol import TARGET
from .signatures import Signatures

_LINE = re.compile(
    rb"POST (/(?:[0-9]{12}/([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)/?)?) HTTP/1\.1"
)
_NAME = re.compile(rb"[A-Za-z0-9-]{1,40}")
_HOST, _TARGET, _LENGTH = hdrs.HOST.lower(), TARGET.lower(), hdrs.CONTENT_LENGTH.lower()
_CONNECTION = hdrs.CONNECTION.lower()
# What an SDK says in all its requests, and what it says anew in each.
_USUAL = frozenset(
    (
        *(_HOST, _TARGET, _CONNECTION, "user-agent", "accept", "accept-encoding"),
        *("accept-language", "content-type", "x-amz-user-agent", "x-amzn-query-mode"),
    )
)
_VARYING = frozenset(
    (
        *(_LENGTH, "authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"),
        *("amz-sdk-invocation-id", "amz-sdk-request", "x-amzn-trace-id"),
        *("traceparent", "tracestate"),
    )
)
_KEPT: tuple[str | None, dict[str, str]] = (None, {})
_NO_VALUES = Values()
_UNKNOWN = ("", "")


class SqsHeads:
    """Reads heads. verbs: by action."""

    def __init__(self, verbs: Mapping[str, Verb], signatures: Signatures, origins: Origins) -> None:
        self._verbs = {f"AmazonSQS.{action}": verb for action, verb in verbs.items()}
        self._signatures = signatures
        self._origins = origins
        self._paths: dict[bytes, tuple[str, str]] = {}
        self._names: dict[bytes, str] = {}
        self._fields: dict[bytes, tuple[str, str]] = {}

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head.

        The queue of the line is that of the path, if there is one.
        """
        end = data.find(END, 0, MAX_HEAD_BYTES)
        if end < 0:
            return None
        first, *rest = data[:end].split(b"\r\n")
        path, queue = self._paths.get(first) or self._path(first)
        if not path:
            return None
        found: dict[str, str] = {}
        for line in rest:
            name, value = self._fields.get(line) or self._field(line)
            if not name or name in found:
                return None
            found[name] = value
        verb = self._verbs.get(found.get(_TARGET, ""))
        if verb is None or _HOST not in found:
            return None
        length = found.get(_LENGTH)
        if length is None or not LENGTH.fullmatch(length):
            return None
        try:
            request = sigv4.Request(hdrs.METH_POST, path, "", _Found(found))
            identity, proof = self._signatures.sender(request)
        except FsmqError:
            return None
        signer = Signer(identity, None if proof is None else proof.check)
        fields = Fields(int(length), None, True, _KEPT, None, signer)
        return Line(verb, queue, "", _NO_VALUES), fields, end + len(END)

    def _path(self, line: bytes) -> tuple[str, str]:
        """The path of a request line, and its queue; empty texts for another line."""
        match = _LINE.fullmatch(line)
        if match is None:
            return _UNKNOWN
        found = match[1].decode("ascii"), (match[2] or b"").decode("ascii")
        return remember(self._paths, line, found)

    def _field(self, line: bytes) -> tuple[str, str]:
        """The name, in small letters, and the value of a line; empty texts for another line."""
        called, _, rest = line.partition(b":")
        name = self._names.get(called)
        if name is None:
            if not _NAME.fullmatch(called):
                return _UNKNOWN
            name = remember(self._names, called, called.decode("ascii").lower())
        value = rest.strip(b" \t").decode("latin-1")
        if not value or not value.isascii() or not value.isprintable():
            return _UNKNOWN
        if name in _VARYING:
            return name, value
        if name not in _USUAL or (name == _CONNECTION and value.lower() != "keep-alive"):
            return _UNKNOWN
        if name == _HOST:
            try:
                self._origins.check({hdrs.HOST: value})
            except FsmqError:
                return _UNKNOWN
        return remember(self._fields, line, (name, value))


class _Found:
    """The headers of a request as `sigv4` asks for them."""

    __slots__ = ("_found",)

    def __init__(self, found: Mapping[str, str]) -> None:
        self._found = found

    def get(self, key: str) -> str | None:
        return self._found.get(key.lower())

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        value = self._found.get(key.lower())
        return default if value is None else (value,)
