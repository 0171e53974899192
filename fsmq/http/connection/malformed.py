"""What is no HTTP request that may be handled: how it is known, and what it is answered."""

from __future__ import annotations

from aiohttp import http_exceptions
from aiohttp.web import BaseRequest, Response

from ..problems import HttpError, InternalError, MalformedRequest, Overloaded, UnreadableBody


def head_size(request: BaseRequest) -> int:
    """Bytes of the head of a request, as it was most likely written."""
    around = len(": \r\n")
    line = len(request.method) + len(request.raw_path) + len("  HTTP/1.1\r\n")
    fields = sum([len(name) + len(value) + around for name, value in request.raw_headers])
    return line + fields + len("\r\n")


def too_long(limit: int) -> MalformedRequest:
    return MalformedRequest(f"the head has more than {limit} bytes")


def no_room() -> Overloaded:
    return Overloaded("what others have sent ahead uses all the memory for that")


def bare(answer: Response) -> bytes:
    """An answer as bytes, for where no request is that aiohttp could answer."""
    body = answer.body
    assert isinstance(body, bytes)
    head = [
        f"HTTP/1.1 {answer.status} {answer.reason}",
        *(f"{name}: {value}" for name, value in answer.headers.items()),
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def error_for(status: int, exc: BaseException | None, message: str | None) -> HttpError:
    if status >= 500:
        return InternalError()
    # The parser draws the place of the error below it: of no use in one line.
    reason = (message or "").split("\n")[0].rstrip(": ")[:200] or "unknown reason"
    if isinstance(exc, http_exceptions.PayloadEncodingError):
        return UnreadableBody(f"the body cannot be read: {reason}")
    return MalformedRequest(f"the request cannot be parsed: {reason}")
