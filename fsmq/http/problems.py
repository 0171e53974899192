"""Errors as the native dialect answers them: problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError, NoRoom, NoSuchQueue, Unavailable
from fsmq.wire import ERROR_FIELDS, PROBLEM_PREFIX, SPOOL_PROBLEMS, ProblemType

# The content codings of bodies that are supported.
ENCODINGS = ("gzip", "deflate")


class HttpError(FsmqError):
    """An error of HTTP rather than of the spool.

    status, kind, title: see :class:`ProblemType`. An error of another dialect has a status alone.
    """

    status = 400
    kind: ClassVar[str]
    title: ClassVar[str]


class Unauthorized(HttpError):
    """No key was sent where one is needed, or (``unknown``) one that does not exist."""

    status = 401
    kind = "unauthorized"
    title = "A key is needed"

    def __init__(self, reason: str, *, unknown: bool = False) -> None:
        super().__init__(reason)
        self.unknown = unknown


class Forbidden(HttpError):
    """The key lacks the right that the request needs."""

    status = 403
    kind = "forbidden"
    title = "The key lacks this right"


class NotFound(HttpError):
    """No route has this path."""

    status = 404
    kind = "no-such-path"
    title = "Unknown path"

    def __init__(self, path: str, near: str = "") -> None:
        super().__init__(f"nothing is served at {path[:200]!r}{near and f'; {near}'}")


class MethodNotAllowed(HttpError):
    """The path exists, but not with this method."""

    status = 405
    kind = "method-not-allowed"
    title = "Method not allowed"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method[:50]} is not allowed here; allowed: {', '.join(allowed)}")
        self.allowed = allowed


class PreconditionFailed(HttpError):
    """The settings are not those of the entity tag in ``If-Match``."""

    status = 412
    kind = "precondition-failed"
    title = "The settings have changed"

    def __init__(self, current: str) -> None:
        super().__init__(f"the settings have changed: their ETag is now {current}; read them again")


class KeyReused(HttpError):
    """An idempotency key was used before, for another message."""

    status = 422
    kind = "idempotency-key-reused"
    title = "The idempotency key was used for another message"

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(
            f"the message {message_id!r} of this Idempotency-Key has another body or content type:"
            " take a new key for a new message"
        )
        self.queue = queue
        self.message_id = message_id


class UnreadableBody(HttpError):
    """The body ended too early, is not encoded as declared, or is not what the route needs."""

    kind = "unreadable-body"
    title = "The body cannot be read"


class UnsupportedEncoding(HttpError):
    """The body has a content coding that is not supported."""

    status = 415
    kind = "unsupported-encoding"
    title = "Unsupported encoding"

    def __init__(self, encoding: str) -> None:
        known = ", ".join(ENCODINGS)
        super().__init__(f"unknown encoding {encoding[:50]!r}; expected one of: {known}")


class MalformedRequest(HttpError):
    """The request is not valid HTTP, or exceeds a limit on header fields."""

    kind = "malformed-request"
    title = "Malformed HTTP request"


class SlowHead(HttpError):
    """The client took too long to send the head of a request."""

    status = 408
    kind = "slow-head"
    title = "The request did not arrive in time"


class CrossSite(HttpError):
    """A page of another site made a browser send the request."""

    status = 403
    kind = "cross-site"
    title = "Request from another site refused"


class UnknownHost(HttpError):
    """The request's Host is not a name of this server."""

    status = 421
    kind = "unknown-host"
    title = "Unknown host name"


class Overloaded(HttpError, Unavailable, NoRoom):
    """A limit of the server is reached; the request was not begun."""

    status = 503
    kind = "overloaded"
    title = "The server is overloaded"


class InternalError(HttpError):
    """A bug of the server; its log has the details."""

    status = 500
    kind = "internal-error"
    title = "Internal error"

    def __init__(self) -> None:
        super().__init__("see the log of the server")


class SlowBody(HttpError):
    """The client took too long to send the body."""

    status = 408
    kind = "slow-body"
    title = "The body did not arrive in time"


class ExpectationFailed(HttpError):
    """The request expects something other than 100-continue."""

    status = 417
    kind = "expectation-failed"
    title = "The expectation cannot be met"


class TooManyRequests(HttpError, NoRoom):
    """A limit of one client is reached. ``retry_after`` is in whole seconds."""

    status = 429
    kind = "too-many-requests"
    title = "Too many requests"

    def __init__(self, reason: str, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


# The errors of the spool, and those of HTTP.
PROBLEM_TYPES: Mapping[type[FsmqError], ProblemType] = {
    **SPOOL_PROBLEMS,
    **{
        error: ProblemType(error.status, error.kind, error.title)
        for error in HttpError.__subclasses__()
    },
}
# Paths that other servers have, and ours: there they are names of queues.
_MISTAKEN = {
    "health": "/_health/ready",
    "healthz": "/_health/live",
    "metrics": "/_metrics",
    "openapi.json": "/_openapi.json",
    "queues": "/",
    "ui": "/_ui",
}
_FIELDS = (*ERROR_FIELDS, "retry_after", "allowed")


def problem_type(error: FsmqError) -> ProblemType:
    """The type of an error: that of its class, or of the nearest base class that has one."""
    known = (PROBLEM_TYPES.get(one) for one in type(error).__mro__)
    return next(filter(None, known), PROBLEM_TYPES[InternalError])


def problem(error: FsmqError) -> Response:
    """The answer to an error."""
    status, kind, title = problem_type(error)
    details: dict[str, Any] = {
        "type": PROBLEM_PREFIX + kind,
        "title": title,
        "status": status,
        "detail": str(error),
    }
    if isinstance(error, NoSuchQueue) and error.queue in _MISTAKEN:
        details["detail"] += f"; did you mean {_MISTAKEN[error.queue]}?"
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
