"""FIFO queues: their attributes, and what their messages need.

They are the spool's fifo queues, in which the messages of a group keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsmq.spool import QueueSettings
from fsmq.spool.on_disk import sequence_of

from .errors import SqsError, StaleReceipt, invalid, missing

FLAG = "FifoQueue"
CONTENT_BASED = "ContentBasedDeduplication"
SCOPE = "DeduplicationScope"
_LIMIT = "FifoThroughputLimit"
# The values of each attribute; the first is the default.
VALUES: Mapping[str, tuple[str, str]] = {
    CONTENT_BASED: ("false", "true"),
    SCOPE: ("queue", "messageGroup"),
    _LIMIT: ("perQueue", "perMessageGroupId"),
}
_NOT_HERE = "The request include parameter that is not valid for this queue type."
# Sequence numbers have 20 digits.
_FIRST_SEQUENCE = 10**19


def checked(name: str, value: str, is_fifo: bool) -> dict[str, str]:
    """What to store for an attribute of FIFO queues in a request. Raises SqsError."""
    if name == FLAG:
        if not is_fifo:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {FLAG}.")
        if value != "true":
            raise _bad_value(FLAG, "Modifying queue type is not supported.")
        return {}
    if not is_fifo and name == CONTENT_BASED:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    if not is_fifo:
        words = f"You can specify the {name} only when FifoQueue is set to true."
        raise SqsError("InvalidAttributeName", words)
    if value not in VALUES[name]:
        raise SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    return {name: value}


def check_together(kept: Mapping[str, str | None]) -> None:
    """Check that the attributes of a queue are compatible. Raises SqsError."""
    now = described(kept)
    if now[_LIMIT] != VALUES[_LIMIT][0] and now[SCOPE] == VALUES[SCOPE][0]:
        raise _bad_value(_LIMIT, f"It needs {SCOPE} messageGroup.")


def described(kept: Mapping[str, str | None]) -> dict[str, str]:
    """The attributes that only FIFO queues have."""
    return {FLAG: "true", **{name: kept.get(name) or of[0] for name, of in VALUES.items()}}


def first_settings_of(kept: Mapping[str, str | None]) -> dict[str, Any]:
    """The settings with which a queue is created. As in SQS, its scope never changes."""
    scope = "group" if kept.get(SCOPE) == VALUES[SCOPE][1] else "queue"
    return {"fifo": True, "dedup_scope": scope}


def kept_of(settings: QueueSettings, kept: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a queue, with settings that another dialect may have changed."""
    by_content = VALUES[CONTENT_BASED][settings.dedup_by_content]
    scope = VALUES[SCOPE][settings.dedup_scope == "group"]
    return {SCOPE: scope, **kept, CONTENT_BASED: by_content}


def check_order(given: Mapping[str, Any], settings: QueueSettings, *, in_batch: bool) -> None:
    """Check that a message has a group, and a deduplication id or one from its content.

    Raises SqsError.
    """
    if given.get("MessageGroupId") is None:
        error = missing("MessageGroupId")
        raise SqsError("InvalidParameterValueException", error.words) if in_batch else error
    if given.get("MessageDeduplicationId") is None and not settings.dedup_by_content:
        raise SqsError(
            "InvalidParameterValueException",
            "The queue should either have ContentBasedDeduplication enabled or"
            " MessageDeduplicationId provided explicitly",
        )


def check_delay(given: Mapping[str, Any]) -> None:
    """Check that a message has no delay of its own. Raises SqsError."""
    if delay := given.get("DelaySeconds"):
        raise invalid("DelaySeconds", delay, _NOT_HERE)


def check_standard(given: Mapping[str, Any]) -> None:
    """Check that a message has nothing that is only for FIFO queues. Raises SqsError."""
    if (dedup_id := given.get("MessageDeduplicationId")) is not None:
        raise invalid("MessageDeduplicationId", dedup_id, _NOT_HERE)


def sequence_number(message_id: str) -> str:
    """The sequence number of a message, which rises within its queue; empty if it has none."""
    place = sequence_of(message_id)
    return "" if place is None else str(_FIRST_SEQUENCE + place)


def expired(handle: str) -> SqsError:
    """The error for a receipt of a claim that has ended."""
    return StaleReceipt(handle, "The receipt handle has expired")


def _bad_value(name: str, reason: str) -> SqsError:
    words = f"Invalid value for the parameter {name}. Reason: {reason}"
    return SqsError("InvalidAttributeValue", words)
