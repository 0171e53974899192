"""Errors of Amazon SQS: each has one name in JSON, an older one in Query, and both in headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fsmq.spool.errors import (
    FsmqError,
    InvalidValue,
    MessageTooLarge,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)

from ..problems import (
    CrossSite,
    Forbidden,
    HttpError,
    TooManyRequests,
    Unauthorized,
    UnknownHost,
    UnreadableBody,
)

_OLD = "AWS.SimpleQueueService."
_SQS, _CORAL = "com.amazonaws.sqs#", "com.amazon.coral.service#"


class Kind(NamedTuple):
    """What belongs to the name of an error in JSON.

    legacy: its code in Query. space: the prefix of its name in JSON.
    """

    legacy: str
    status: int = 400
    space: str = _SQS


def _old(*names: str) -> dict[str, Kind]:
    return {name: Kind(_OLD + name) for name in names}


def _same(status: int, *names: str, space: str = _SQS) -> dict[str, Kind]:
    return {name: Kind(name, status, space) for name in names}


KINDS: Mapping[str, Kind] = {
    "QueueDoesNotExist": Kind(_OLD + "NonExistentQueue"),
    "QueueNameExists": Kind("QueueAlreadyExists"),
    **_old(
        "BatchEntryIdsNotDistinct",
        "BatchRequestTooLong",
        "EmptyBatchRequest",
        "InvalidBatchEntryId",
        "TooManyEntriesInBatchRequest",
        "UnsupportedOperation",
    ),
    **_same(
        400,
        "ReceiptHandleIsInvalid",
        "InvalidMessageContents",
        "InvalidAttributeName",
        "InvalidAttributeValue",
    ),
    # boto3 in its default configuration retries these only if the status is 403.
    **_same(403, "OverLimit", "RequestThrottled"),
    "ResourceNotFoundException": Kind("ResourceNotFoundException", 404),
    "InvalidParameterValueException": Kind("InvalidParameterValue"),
    "MissingRequiredParameterException": Kind("MissingParameter"),
    "AccessDeniedException": Kind("AccessDenied", 403, _CORAL),
    "UnrecognizedClientException": Kind("InvalidClientTokenId", 403, _CORAL),
    "InvalidSignatureException": Kind("SignatureDoesNotMatch", 403, _CORAL),
    "MissingAuthenticationTokenException": Kind("MissingAuthenticationToken", 403, _CORAL),
    "IncompleteSignatureException": Kind("IncompleteSignature", 400, _CORAL),
    "UnknownOperationException": Kind("InvalidAction", 400, _CORAL),
    **_same(400, "SerializationException", "MalformedRequest", space=_CORAL),
    "InternalFailure": Kind("InternalFailure", 500, _CORAL),
    "ServiceUnavailable": Kind("ServiceUnavailable", 503, _CORAL),
}


class SqsError(FsmqError):
    """An error by its name in JSON.

    old_words: its text in Query, if that differs. status: if it is not that of its kind.
    """

    def __init__(
        self,
        name: str,
        words: str,
        *,
        old_words: str | None = None,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(words)
        self.name = name
        self.kind = KINDS[name]
        self.words = words
        self.old_words = words if old_words is None else old_words
        self.status = self.kind.status if status is None else status
        self.retry_after = retry_after

    @property
    def is_ours(self) -> bool:
        """Whether it is the server's fault, so that another try can succeed."""
        return self.status >= 500


def invalid(parameter: str, value: object, reason: str = "") -> SqsError:
    """The error for an invalid value of a parameter."""
    shown = f"{value}"[:256]
    words = f"Value {shown} for parameter {parameter} is invalid."
    return SqsError(
        "InvalidParameterValueException", f"{words} Reason: {reason}" if reason else words
    )


class StaleReceipt(SqsError):
    """A receipt whose claim has ended. in_batch: the error in a batch, which differs as in SQS."""

    def __init__(self, handle: str, reason: str) -> None:
        named = invalid("ReceiptHandle", handle, f"{reason}.")
        super().__init__(named.name, named.words)
        self.in_batch = SqsError("ReceiptHandleIsInvalid", reason)


def missing(parameter: str) -> SqsError:
    """The error for a missing parameter."""
    words = f"The request must contain the parameter {parameter}."
    return SqsError("MissingRequiredParameterException", words)


def no_such_queue() -> SqsError:
    """The error for a queue that does not exist."""
    words = "The specified queue does not exist."
    old = "The specified queue does not exist for this wsdl version."
    return SqsError("QueueDoesNotExist", words, old_words=old)


def denied(name: str, action: str, resource: str) -> SqsError:
    """The error for a key that lacks a right."""
    words = f"User: {name} is not authorized to perform: sqs:{action} on resource: {resource}"
    return SqsError("AccessDeniedException", words)


def translated(error: FsmqError) -> SqsError:
    """An error of the spool or of HTTP as an error of SQS."""
    if isinstance(error, SqsError):
        return error
    if isinstance(error, NoSuchQueue):
        return no_such_queue()
    if isinstance(error, InvalidValue):
        return SqsError(
            "InvalidParameterValueException",
            f"Value for parameter {error.field} is invalid. Reason: {error.problem}.",
        )
    if isinstance(error, Unauthorized):
        return _unauthorized(error)
    if isinstance(error, Forbidden | CrossSite | UnknownHost):
        return SqsError("AccessDeniedException", str(error))
    if isinstance(error, TooManyRequests | QueueFull):
        # SDKs wait, and send the request again.
        return SqsError("RequestThrottled", str(error), retry_after=error.retry_after)
    if isinstance(error, Unavailable):
        return SqsError("ServiceUnavailable", str(error), retry_after=error.retry_after)
    return _of_http(error)


def _unauthorized(error: Unauthorized) -> SqsError:
    if error.unknown:
        words = "The security token included in the request is invalid."
        return SqsError("UnrecognizedClientException", words)
    return SqsError(
        "MissingAuthenticationTokenException", "Request is missing Authentication Token"
    )


def _of_http(error: FsmqError) -> SqsError:
    if isinstance(error, UnreadableBody):
        return SqsError("SerializationException", str(error))
    if isinstance(error, MessageTooLarge):
        return SqsError("MalformedRequest", str(error), status=413)
    if isinstance(error, HttpError) and error.status < 500:
        return SqsError("MalformedRequest", str(error), status=error.status)
    return SqsError(
        "InternalFailure", "The request processing has failed because of an unknown error."
    )
