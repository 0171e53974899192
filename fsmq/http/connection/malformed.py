"""Recognizes and answers what is not an HTTP request that can be handled."""

from __future__ import annotations

from aiohttp import HttpVersion11, hdrs, http_exceptions
from aiohttp.web import BaseRequest

from fsmq.spool.errors import FsmqError

from ..problems import (
    HttpError,
    InternalError,
    MalformedRequest,
    Overloaded,
    UnreadableBody,
    problem,
)
from .render import head


def head_size(request: BaseRequest) -> int:
    """The size of a request's head in bytes, as it was most likely sent."""
    around = len(": \r\n")
    line = len(request.method) + len(request.raw_path) + len("  HTTP/1.1\r\n")
    fields = sum([len(name) + len(value) + around for name, value in request.raw_headers])
    return line + fields + len("\r\n")


def too_long(limit: int) -> MalformedRequest:
    return MalformedRequest(f"the head has more than {limit} bytes")


def other_version(version: str) -> MalformedRequest:
    return MalformedRequest(f"the request line is one of HTTP/{version}; expected HTTP/1.1")


def no_room() -> Overloaded:
    return Overloaded("the memory for bytes that clients send ahead is used up")


def ends_in_doubt(request: BaseRequest) -> bool:
    """Whether it is unclear where a request that was answered ends and the next one begins."""
    headers = request.headers
    if not request.content.is_eof() and (hdrs.EXPECT in headers or hdrs.UPGRADE in headers):
        return True  # the body may follow or not; or aiohttp expects another protocol next
    if request.method == hdrs.METH_CONNECT:
        return True
    # RFC 9112, section 6.1: a proxy on the way may have parsed it differently.
    return request.version < HttpVersion11 and hdrs.TRANSFER_ENCODING in headers


def last_words(error: FsmqError) -> bytes:
    """The answer to an error as bytes, where aiohttp has no request to answer."""
    answer = problem(error)
    assert isinstance(answer.body, bytes)
    size = len(answer.body)
    return head(answer.status, answer.headers, size, closing=True) + answer.body


def error_for(status: int, exc: BaseException | None, message: str | None) -> HttpError:
    if status >= 500:
        return InternalError()
    # Further lines of the parser's message point at the place of the error, which one line cannot.
    reason = (message or "").split("\n")[0].rstrip(": ")[:200] or "unknown reason"
    if isinstance(exc, http_exceptions.PayloadEncodingError):
        return UnreadableBody(f"the body cannot be read: {reason}")
    return MalformedRequest(f"the request cannot be parsed: {reason}")
