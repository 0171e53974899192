"""Errors as the native dialect tells them: problem details (RFC 9457), one shape for all."""

from __future__ import annotations

import json
from typing import Any

from aiohttp.web import Response

from fsmq.spool.errors import (
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoRoom,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSubscription,
    NoSuchTopic,
    QueueFull,
    Unavailable,
)

# In what form a body may come.
ENCODINGS = ("gzip", "deflate")


class HttpError(FsmqError):
    """An error of the request itself rather than of the spool."""

    status = 400
    kind = "bad-request"


class NotFound(HttpError):
    """No route has this path."""

    status = 404
    kind = "no-such-path"

    def __init__(self, path: str) -> None:
        super().__init__(f"nothing is served at {path[:200]!r}")


class MethodNotAllowed(HttpError):
    """The path has no such method."""

    status = 405
    kind = "method-not-allowed"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method[:50]} is not allowed here; allowed: {', '.join(allowed)}")
        self.allowed = allowed


class UnreadableBody(HttpError):
    """The body ended too early, is not encoded as it says, or is not what the route needs."""

    kind = "unreadable-body"


class UnsupportedEncoding(HttpError):
    """The body is encoded in a way that nobody here can undo."""

    status = 415
    kind = "unsupported-encoding"

    def __init__(self, encoding: str) -> None:
        known = ", ".join(ENCODINGS)
        super().__init__(f"unknown encoding {encoding[:50]!r}; expected one of: {known}")


class MalformedRequest(HttpError):
    """The request is not valid HTTP, or exceeds a limit on header fields."""

    kind = "malformed-request"


class InternalError(HttpError):
    """A bug of the server; its log has the details."""

    status = 500
    kind = "internal-error"

    def __init__(self) -> None:
        super().__init__("see the log of the server")


class SlowBody(HttpError):
    """The client took too long to send the body."""

    status = 408
    kind = "slow-body"


class ExpectationFailed(HttpError):
    """The request expects something other than 100-continue."""

    status = 417
    kind = "expectation-failed"


class SlowHead(HttpError):
    """The client took too long to send the head of a request."""

    status = 408
    kind = "slow-head"


class CrossSite(HttpError):
    """A browser sends this for a page that comes from elsewhere."""

    status = 403
    kind = "cross-site"


class UnknownHost(HttpError):
    """The request calls this server by a name that nobody gave it."""

    status = 421
    kind = "unknown-host"


class Overloaded(Unavailable, NoRoom):
    """The server has more going on than it may; nothing was begun."""


class Unauthorized(HttpError):
    """No key was sent where one is needed, or (``unknown``) one that opens nothing."""

    status = 401
    kind = "unauthorized"

    def __init__(self, reason: str, *, unknown: bool = False) -> None:
        super().__init__(reason)
        self.unknown = unknown


class Forbidden(HttpError):
    """The key has not the right that this needs."""

    status = 403
    kind = "forbidden"


class TooManyRequests(HttpError, NoRoom):
    """One client has more going on than it may. ``retry_after`` is in whole seconds."""

    status = 429
    kind = "too-many-requests"

    def __init__(self, reason: str, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


# Of each error: status, type and title.
STATUS: dict[type[FsmqError], tuple[int, str, str]] = {
    InvalidValue: (400, "invalid-value", "Invalid value"),
    NoSuchQueue: (404, "no-such-queue", "No such queue"),
    NoSuchTopic: (404, "no-such-topic", "No such topic"),
    NoSuchSubscription: (404, "no-such-subscription", "No such subscription"),
    NoSuchMessage: (404, "no-such-message", "No such message"),
    DuplicateMessage: (409, "duplicate-message", "A message with this id exists already"),
    MessageTooLarge: (413, "message-too-large", "The message is too large"),
    QueueFull: (503, "queue-full", "The queue is full"),
    Unavailable: (503, "unavailable", "Temporarily unavailable"),
    Unauthorized: (401, Unauthorized.kind, "A key is needed"),
    Forbidden: (403, Forbidden.kind, "The key lacks this right"),
    NotFound: (404, NotFound.kind, "Unknown path"),
    MethodNotAllowed: (405, MethodNotAllowed.kind, "Method not allowed"),
    UnreadableBody: (400, UnreadableBody.kind, "The body cannot be read"),
    UnsupportedEncoding: (415, UnsupportedEncoding.kind, "Unsupported encoding"),
    MalformedRequest: (400, MalformedRequest.kind, "Malformed HTTP request"),
    SlowHead: (408, SlowHead.kind, "The request did not arrive in time"),
    CrossSite: (403, CrossSite.kind, "Request from another site refused"),
    UnknownHost: (421, UnknownHost.kind, "Unknown host name"),
    Overloaded: (503, "overloaded", "The server is overloaded"),
    InternalError: (500, InternalError.kind, "Internal error"),
    SlowBody: (408, SlowBody.kind, "The body did not arrive in time"),
    ExpectationFailed: (417, ExpectationFailed.kind, "The expectation cannot be met"),
    TooManyRequests: (429, TooManyRequests.kind, "Too many requests"),
}
_FIELDS = ("index", "queue", "topic", "message_id", "field", "limit", "retry_after", "allowed")


def problem(error: FsmqError) -> Response:
    """The answer that tells an error."""
    status, kind, title = STATUS.get(type(error), STATUS[InternalError])
    details: dict[str, Any] = {
        "type": f"urn:fsmq:problem:{kind}",
        "title": title,
        "status": status,
        "detail": str(error),
    }
    for name in _FIELDS:
        value = getattr(error, name, None)
        if value is not None:
            details[name] = value
    headers: dict[str, str] = {}
    if isinstance(error, Unauthorized):
        # RFC 6750, section 3: a reason is given only for a key that was sent.
        headers["WWW-Authenticate"] = 'Bearer error="invalid_token"' if error.unknown else "Bearer"
    if isinstance(error, Unavailable | TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, UnsupportedEncoding):
        headers["Accept-Encoding"] = ", ".join(ENCODINGS)
    body = json.dumps(details, ensure_ascii=True) + "\n"
    return Response(
        status=status,
        body=body.encode(),
        content_type="application/problem+json",
        headers=headers,
    )
