"""What is no HTTP request that may be handled: how it is known, and what it is answered."""

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
    """Bytes of the head of a request, as it was most likely written."""
    around = len(": \r\n")
    line = len(request.method) + len(request.raw_path) + len("  HTTP/1.1\r\n")
    fields = sum([len(name) + len(value) + around for name, value in request.raw_headers])
    return line + fields + len("\r\n")


def too_long(limit: int) -> MalformedRequest:
    return MalformedRequest(f"the head has more than {limit} bytes")


def no_room() -> Overloaded:
    return Overloaded("what others have sent ahead uses all the memory for that")


def ends_in_doubt(request: BaseRequest) -> bool:
    """Whether nobody can tell where a request that was answered ends, and the next one begins."""
    headers = request.headers
    if not request.content.is_eof() and (hdrs.EXPECT in headers or hdrs.UPGRADE in headers):
        return True  # a body follows now, or none; or aiohttp waits for another protocol behind it
    if request.method == hdrs.METH_CONNECT:
        return True
    # RFC 9112, section 6.1: whoever has handed it on may have read it in another way.
    return request.version < HttpVersion11 and hdrs.TRANSFER_ENCODING in headers


def last_words(error: FsmqError) -> bytes:
    """The answer to an error as bytes, for where no request is that aiohttp could answer."""
    answer = problem(error)
    assert isinstance(answer.body, bytes)
    size = len(answer.body)
    return head(answer.status, answer.headers, size, closing=True) + answer.body


def error_for(status: int, exc: BaseException | None, message: str | None) -> HttpError:
    if status >= 500:
        return InternalError()
    # The parser draws the place of the error below it: of no use in one line.
    reason = (message or "").split("\n")[0].rstrip(": ")[:200] or "unknown reason"
    if isinstance(exc, http_exceptions.PayloadEncodingError):
        return UnreadableBody(f"the body cannot be read: {reason}")
    return MalformedRequest(f"the request cannot be parsed: {reason}")
