"""Heads of requests of the JSON protocol, parsed for the fast path: a strict subset.

The heads of SDKs differ with each request, in its time, signature and id. So single lines are
cached instead of heads, and only lines that a client sends again and again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiohttp import hdrs

from fsmq.spool.errors import FsmqError

from ..describe import Values
from ..fast_path.heads import END, MAX_HEAD_BYTES, remember
from ..fast_path.request import FastRoute, Fields, Line, Signer
from ..guard.origin import Origins
from .ask import TRACE_HEADER
from .protocol import sigv4
from .protocol.protocol import TARGET
from .protocol.signatures import Signatures

_LINE = re.compile(
    rb"POST (/(?:[0-9]{12}/([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)/?)?) HTTP/1\.1"
)
_PRINTABLE = bytes(range(0x20, 0x7F))
_DIGITS = re.compile(rb"0|[1-9][0-9]{0,6}")
_HOST, _TARGET, _LENGTH = hdrs.HOST.lower(), TARGET.lower(), hdrs.CONTENT_LENGTH.lower()
_CONNECTION, _TRACE = hdrs.CONNECTION.lower(), TRACE_HEADER.lower()
# Headers that are the same in all requests of an SDK, and those that differ in each.
_USUAL = frozenset(
    (
        _HOST,
        _TARGET,
        _CONNECTION,
        "user-agent",
        "accept",
        "accept-encoding",
        "accept-language",
        "content-type",
        "x-amz-user-agent",
        "x-amzn-query-mode",
    )
)
_VARYING: Mapping[bytes, str] = {
    name.encode(): name
    for name in (
        _LENGTH,
        "authorization",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-content-sha256",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        _TRACE,
        "traceparent",
        "tracestate",
    )
}
_KEPT: tuple[str | None, dict[str, str]] = (None, {})
_UNKNOWN = "", ""


class SqsHeads:
    """Reads heads of SQS requests. routes: by action."""

    def __init__(
        self, routes: Mapping[str, FastRoute], signatures: Signatures, origins: Origins
    ) -> None:
        self._lines = {
            f"AmazonSQS.{action}": Line(route, "", "", Values()) for action, route in routes.items()
        }
        self._signer: Signer | None = None  # of the previous request
        self._signatures = signatures
        self._origins = origins
        self._paths: dict[bytes, tuple[str, str]] = {}
        self._fields: dict[bytes, tuple[str, str]] = {}

    def read(self, data: bytes) -> tuple[Line, Fields, int] | None:
        """A head at the beginning of ``data``, and its size in bytes; None for any other head.

        The queue of the line is that of the path, if it names one.
        """
        end = data.find(END, 0, MAX_HEAD_BYTES)
        if end < 0:
            return None
        head = data[:end]
        first, *rest = head.split(b"\r\n")
        if head.translate(None, _PRINTABLE) != b"\r\n" * len(rest):
            return None
        path, queue = self._paths.get(first) or self._path(first)
        if not path:
            return None
        read = self._read_fields(rest)
        if read is None:
            return None
        usual, varying = read
        line_of = self._lines.get(usual.get(_TARGET, ""))
        length = varying.get(_LENGTH, b"").strip(b" ")
        if line_of is None or _HOST not in usual or not _DIGITS.fullmatch(length):
            return None
        try:
            request = sigv4.Request(hdrs.METH_POST, path, "", _Found(usual, varying))
            identity, proof = self._signatures.sender(request)
        except FsmqError:
            return None
        signer = self._signer
        if signer is None or signer.identity is not identity or proof is not None:
            signer = Signer(identity, None if proof is None else proof.check)
            self._signer = signer if proof is None else None
        trace = varying.get(_TRACE)
        kept = _KEPT if trace is None else (None, {TRACE_HEADER: trace.strip(b" ").decode("ascii")})
        fields = Fields(int(length), None, True, kept, None, signer)
        return line_of._replace(queue=queue) if queue else line_of, fields, end + len(END)

    def _read_fields(self, lines: list[bytes]) -> tuple[dict[str, str], dict[str, bytes]] | None:
        """The usual and the varying fields by name; None if one is unknown or occurs twice."""
        usual: dict[str, str] = {}
        varying: dict[str, bytes] = {}
        for line in lines:
            field = self._fields.get(line)
            if field is None:
                called, colon, value = line.partition(b":")
                name = _VARYING.get(called) or _VARYING.get(called.lower())
                if name is not None and colon and name not in varying:
                    varying[name] = value
                    continue
                field = self._field(line, called, value)
            if field is None or field[0] in usual:
                return None
            usual[field[0]] = field[1]
        return usual, varying

    def _path(self, line: bytes) -> tuple[str, str]:
        """The path of a request line, and its queue; empty texts for any other line."""
        match = _LINE.fullmatch(line)
        if match is None:
            return _UNKNOWN
        found = match[1].decode("ascii"), (match[2] or b"").decode("ascii")
        return remember(self._paths, line, found)

    def _field(self, line: bytes, called: bytes, text: bytes) -> tuple[str, str] | None:
        """The name, in lower case, and the value of a usual line; None for any other line."""
        name, value = called.decode("ascii").lower(), text.strip(b" ").decode("ascii")
        if name not in _USUAL or not value:
            return None
        if name == _CONNECTION and value.lower() != "keep-alive":
            return None
        if name == _HOST:
            try:
                self._origins.check({hdrs.HOST: value})
            except FsmqError:
                return None
        return remember(self._fields, line, (name, value))


class _Found:
    """The headers of a request as `sigv4` needs them."""

    __slots__ = ("_usual", "_varying")

    def __init__(self, usual: Mapping[str, str], varying: Mapping[str, bytes]) -> None:
        self._usual = usual
        self._varying = varying

    def get(self, key: str) -> str | None:
        name = key.lower()
        value = self._varying.get(name)
        return self._usual.get(name) if value is None else value.strip(b" ").decode("ascii")

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        value = self.get(key)
        return default if value is None else (value,)
