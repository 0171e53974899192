"""Errors in EmoDB's form: the status, the exception header and the body that clients expect.

A 400 with the header becomes the Java client's IllegalArgumentException, with our text; it must
not be labelled as JSON. Invalid input must never be answered with 5xx, after which that client
considers the server dead.
"""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

from aiohttp import hdrs
from aiohttp.web import Response

from fsmq.spool.errors import FsmqError, InvalidValue, MessageTooLarge, NoSuchQueue, Unavailable

from ..problems import (
    Forbidden,
    HttpError,
    InternalError,
    MethodNotAllowed,
    TooManyRequests,
    Unauthorized,
    UnreadableBody,
)

log = logging.getLogger(__name__)
EXCEPTION = "X-BV-Exception"
_ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
_COMMON = "com.bazaarvoice.emodb.common.api"
_UNAUTHORIZED = f"{_COMMON}.UnauthorizedException"
_UNAVAILABLE = f"{_COMMON}.ServiceUnavailableException"
_UNKNOWN_MOVE = "com.bazaarvoice.emodb.queue.api.UnknownMoveException"


class IllegalArgument(HttpError):
    """A value that the service refuses."""


class BadParameter(HttpError):
    """A query parameter that is not of its type, or an invalid Content-Type."""


class NotJson(HttpError):
    """The body is not JSON, or not of the expected form."""


class EmptyBody(HttpError):
    """The body has no value, or null instead of a list."""

    status = 422


class NotConsumable(HttpError):
    """The Content-Type is not application/json."""

    status = 415


class NotAcceptable(HttpError):
    """The client does not accept JSON."""

    status = 406


class QueueForbidden(HttpError):
    """The key may send to some of a batch's queues, but not to this one."""

    status = 403

    def __init__(self, queue: str) -> None:
        super().__init__(f"the key may not send to queue {queue!r}")
        self.queue = queue


class UnknownMove(HttpError):
    """No move has this reference."""

    status = 404

    def __init__(self, reference: str) -> None:
        super().__init__(f"Unknown move: {reference}")
        self.reference = reference


def problem(error: FsmqError) -> Response:  # noqa: C901  a table in the form of tests
    """The answer to an error."""
    if isinstance(error, IllegalArgument | InvalidValue | MessageTooLarge):
        return _text(400, str(error), _ILLEGAL_ARGUMENT)
    if isinstance(error, NotJson | UnreadableBody):
        return _json(400, {"message": str(error)})
    if isinstance(error, EmptyBody):
        return _json(422, {"errors": []})
    if isinstance(error, Unauthorized | Forbidden):
        return _json(403, {"reason": "not authorized"}, _UNAUTHORIZED)
    if isinstance(error, QueueForbidden):
        return _json(403, {"queue": error.queue})
    if isinstance(error, UnknownMove):
        body = {"id": error.reference, "message": str(error), "suppressed": []}
        return _json(404, body, _UNKNOWN_MOVE)
    if isinstance(error, Unavailable | NoSuchQueue):
        return _unavailable(error)
    if isinstance(error, InternalError) or not isinstance(error, HttpError):
        return _internal(error)
    answer = _text(error.status, str(error))
    if isinstance(error, MethodNotAllowed):
        answer.headers[hdrs.ALLOW] = ",".join(error.allowed)
    if isinstance(error, TooManyRequests):
        answer.headers[hdrs.RETRY_AFTER] = str(error.retry_after)
    return answer


def _unavailable(error: Unavailable | NoSuchQueue) -> Response:
    # A queue that was deleted during the request is created again by the next one.
    seconds = error.retry_after if isinstance(error, Unavailable) else 1
    body = {"message": str(error), "retryAfterSeconds": seconds, "suppressed": []}
    answer = _json(503, body, _UNAVAILABLE)
    answer.headers[hdrs.RETRY_AFTER] = str(seconds)
    return answer


def _internal(error: FsmqError) -> Response:
    number = secrets.token_hex(8)
    log.error("internal error (ID %s): %r", number, error)
    message = "There was an error processing your request. It has been logged"
    return _json(500, {"message": f"{message} (ID {number})."})


def compact(content: dict[str, Any]) -> bytes:
    """JSON as EmoDB writes it."""
    return json.dumps(content, separators=(",", ":")).encode()


def _text(status: int, text: str, exception: str = "") -> Response:
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    answer = Response(status=status, body=line.encode(), content_type="text/plain")
    return _named(answer, exception)


def _json(status: int, content: dict[str, Any], exception: str = "") -> Response:
    answer = Response(status=status, body=compact(content), content_type="application/json")
    return _named(answer, exception)


def _named(answer: Response, exception: str) -> Response:
    if exception:
        answer.headers[EXCEPTION] = exception
    return answer
