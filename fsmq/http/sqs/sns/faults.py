"""Errors of Amazon SNS."""

from __future__ import annotations

from collections.abc import Mapping

from fsmq.spool.errors import FsmqError, InvalidValue, MessageTooLarge, NoSuchTopic

from ..errors import SqsError, translated

_STATUS: Mapping[str, int] = {
    "NotFound": 404,
    "AuthorizationError": 403,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Throttled": 429,
    "MissingAuthenticationToken": 403,
    "InvalidClientTokenId": 403,
    "SignatureDoesNotMatch": 403,
}
# Errors that have another name in SQS.
_RENAMED: Mapping[str, str] = {
    "AccessDenied": "AuthorizationError",
    "InternalFailure": "InternalError",
    "InvalidParameterValue": "InvalidParameter",
    "MissingParameter": "InvalidParameter",
    "RequestThrottled": "Throttled",
}


class SnsError(FsmqError):
    """An error by its code."""

    def __init__(
        self, code: str, words: str, *, status: int | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(words)
        self.code = code
        self.words = words
        self.status = _STATUS.get(code, 400) if status is None else status
        self.retry_after = retry_after


def invalid(words: str) -> SnsError:
    """The error for a parameter that is missing or invalid."""
    return SnsError("InvalidParameter", f"Invalid parameter: {words}")


def no_such_topic() -> SnsError:
    """The error for a topic that does not exist."""
    return SnsError("NotFound", "Topic does not exist")


def no_such_subscription() -> SnsError:
    """The error for a subscription that does not exist."""
    return SnsError("NotFound", "Subscription does not exist")


def as_sns(error: FsmqError) -> SnsError:
    """Any error as an error of SNS."""
    if isinstance(error, SnsError):
        return error
    if isinstance(error, NoSuchTopic):
        return no_such_topic()
    if isinstance(error, MessageTooLarge):
        return invalid("Message too long")
    if isinstance(error, InvalidValue):
        return invalid(f"{error.field}: {error.problem}")
    one: SqsError = translated(error)
    code = _RENAMED.get(one.kind.legacy, one.kind.legacy)
    words = f"Invalid parameter: {one.words}" if code == "InvalidParameter" else one.words
    status = None if code == "Throttled" else one.status
    return SnsError(code, words, status=status, retry_after=one.retry_after)
