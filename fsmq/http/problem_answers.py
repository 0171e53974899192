"""Descriptions of the native dialect's errors, made from the table of their types."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fsmq.spool.errors import FsmqError, InvalidValue, MessageTooLarge, Unavailable
from fsmq.wire import PROBLEM_PREFIX

from .describe import Answer, Component, Header, array, integer, record, text
from .problems import (
    ENCODINGS,
    PROBLEM_TYPES,
    ExpectationFailed,
    Forbidden,
    InternalError,
    MalformedRequest,
    SlowBody,
    TooManyRequests,
    Unauthorized,
    UnreadableBody,
    UnsupportedEncoding,
)

# The errors of routes that read a body.
OF_BODIES = (UnreadableBody, SlowBody, MessageTooLarge, UnsupportedEncoding, ExpectationFailed)
CONTENT_TYPE = "application/problem+json"
PROBLEM = Component(
    "Problem",
    record(
        {
            "type": text(
                enum=[PROBLEM_PREFIX + kind for _, kind, _ in PROBLEM_TYPES.values()],
                description="for programs: a stable name of the error",
            ),
            "title": text(description="the type in words"),
            "status": integer(400, 599),
            "detail": text(description="what happened, for people"),
            "index": integer(0, description="which message of a batch, from 0"),
            "queue": text(description="the queue"),
            "topic": text(description="the topic"),
            "message_id": text(description="the message"),
            "log": text(description="the log"),
            "channel": text(description="the channel"),
            "schedule": text(description="the schedule"),
            "offset": integer(0, description="the offset that is not in flight"),
            "first": integer(0, description="the first offset that is left"),
            "host": text(description="the host that writes the log"),
            "field": text(description="the parameter, header or field that is not valid"),
            "limit": integer(1, description="the limit, in bytes"),
            "retry_after": integer(1, description="seconds to wait"),
            "allowed": array(text(), description="methods that the path allows"),
        },
        required=["type", "title", "status", "detail"],
        description="An error (RFC 9457)",
    ),
)
RETRY_AFTER = Header("whole seconds to wait before the next try", integer(1), always=True)
_ACCEPT_ENCODING = Header(
    "the encodings that are supported", text(enum=[", ".join(ENCODINGS)]), always=True
)
_WWW_AUTHENTICATE = Header(
    "how to send a key; with `error`, the key that was sent is not valid",
    text(enum=["Bearer", 'Bearer error="invalid_token"']),
    always=True,
)


def problems(*errors: type[FsmqError]) -> dict[int, Answer]:
    """Answers for these errors, and for those of any route."""
    kinds: dict[int, list[type[FsmqError]]] = {}
    for error in (InvalidValue, MalformedRequest, *errors, InternalError):
        kinds.setdefault(PROBLEM_TYPES[error].status, []).append(error)
    return {status: _answer(status, of) for status, of in kinds.items()}


def keyed(*errors: type[FsmqError]) -> dict[int, Answer]:
    """Answers for these errors, and for those of a route that needs a key with any rights."""
    return problems(Unauthorized, TooManyRequests, *errors)


def guarded(*errors: type[FsmqError]) -> dict[int, Answer]:
    """Answers for these errors, and for those of a route that needs a key with certain rights."""
    return keyed(Forbidden, *errors)


def _answer(status: int, errors: list[type[FsmqError]]) -> Answer:
    types = ", ".join(f"`{PROBLEM_TYPES[error].kind}`" for error in dict.fromkeys(errors))
    headers: Mapping[str, Header] = {}
    if any(issubclass(error, Unavailable | TooManyRequests) for error in errors):
        headers = {"Retry-After": RETRY_AFTER}
    if Unauthorized in errors:
        headers = {"WWW-Authenticate": _WWW_AUTHENTICATE}
    if UnsupportedEncoding in errors:
        headers = {"Accept-Encoding": _ACCEPT_ENCODING}
    return Answer(f"{HTTPStatus(status).phrase}: {types}", {CONTENT_TYPE: PROBLEM}, headers)
