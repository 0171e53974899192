"""Attributes of queues: some are settings of the queue, others are stored for this dialect only.

The latter are in the member ``sqs`` of the file of settings. Programs that do not know it ignore
it, and write it back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from fsmq.spool import QueueSettings
from fsmq.spool.checks import MAX_DELIVERIES
from fsmq.spool.errors import InvalidValue

from . import fifo
from .errors import SqsError, invalid
from .names import queue_of_arn

MEMBER: Final = "sqs"
MAX_MESSAGE_BYTES = 1_048_576
DEFAULT_RETENTION_S = 345_600
_MAX_RETENTION_S = 1_209_600
MAX_VISIBILITY_S = 43_200
MAX_WAIT_S = 20
MAX_DELAY_S = 900
_MAX_RECEIVES = 1000
_INTEGER = re.compile(r"[0-9]{1,18}")
# A file of settings cannot be longer. Parsed, a text can take a hundred bytes per character.
_MAX_OBJECT = 64 * 1024
WAIT = "ReceiveMessageWaitTimeSeconds"
REDRIVE, REDRIVE_ALLOW, POLICY = "RedrivePolicy", "RedriveAllowPolicy", "Policy"
_SSE = "SqsManagedSseEnabled"
_KEY, _KEY_PERIOD, _DEFAULT_KEY_PERIOD = "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "300"
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
# The minimum and maximum of each attribute that is a whole number.
_RANGES: Mapping[str, tuple[int, int]] = {
    "DelaySeconds": (0, MAX_DELAY_S),
    "MaximumMessageSize": (1024, MAX_MESSAGE_BYTES),
    "MessageRetentionPeriod": (60, _MAX_RETENTION_S),
    WAIT: (0, MAX_WAIT_S),
    "VisibilityTimeout": (0, MAX_VISIBILITY_S),
    _KEY_PERIOD: (60, 86_400),
}
_SETTINGS = {
    "DelaySeconds": "default_delay",
    "MaximumMessageSize": "max_message_bytes",
    "MessageRetentionPeriod": "retention",
    "VisibilityTimeout": "visibility_timeout",
}
# Stored as they were sent, and of these, those that are shown only if they are set.
_KEPT = (WAIT, REDRIVE, REDRIVE_ALLOW, POLICY, _KEY, _SSE)
_TOLD = (REDRIVE, REDRIVE_ALLOW, POLICY, _KEY)
_SETTABLE = frozenset((*_RANGES, *_KEPT))
_EVERY = (
    *_COUNTS,
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
    *_SETTINGS,
    WAIT,
    _SSE,
    *_TOLD,
    _KEY_PERIOD,
    fifo.FLAG,
    *fifo.VALUES,
)


class Redrive(NamedTuple):
    """A redrive policy."""

    target: str
    receives: int


class Change(NamedTuple):
    """Changes by attributes: of settings, and of what is stored besides (None: removed)."""

    settings: dict[str, Any]
    kept: dict[str, str | None]
    redrive: Redrive | None


def read_change(given: Mapping[str, str], is_fifo: bool) -> Change:
    """The changes by the attributes of a request. Raises SqsError."""
    change = Change({}, {}, None)
    _check_encryption(given)
    for name, value in given.items():
        if name == fifo.FLAG or name in fifo.VALUES:
            change.kept.update(fifo.checked(name, value, is_fifo))
        elif name not in _SETTABLE:
            raise _unknown(name)
        elif name in _RANGES:
            number = _number(name, value)
            if name in _SETTINGS:
                change.settings[_SETTINGS[name]] = number
            else:
                change.kept[name] = str(number)
        else:
            change.kept[name] = _CHECKS[name](name, value) or None
    # One kind of encryption replaces the other.
    if given.get(_KEY):
        change.kept[_SSE] = "false"
    elif given.get(_SSE) == "true":
        change.kept[_KEY] = None
    if fifo.CONTENT_BASED in change.kept:
        change.settings["dedup_by_content"] = change.kept[fifo.CONTENT_BASED] == "true"
    if REDRIVE in given:
        redrive = _redrive(given[REDRIVE]) if given[REDRIVE] else None
        change.settings["dead_letter_queue"] = redrive.target if redrive else None
        receives = min(redrive.receives, MAX_DELIVERIES) if redrive else None
        change.settings["max_deliveries"] = receives
        return change._replace(redrive=redrive)
    return change


def _check_encryption(given: Mapping[str, str]) -> None:
    if given.get(_KEY) and given.get(_SSE) == "true":
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either"
            " enable KMS SSE or SQS SSE.",
        )


def check_names(names: Iterable[str]) -> list[str]:
    """The names of the attributes that are requested. Raises SqsError."""
    asked = list(names)
    for name in asked:
        if name not in ("All", *_EVERY):
            raise _unknown(name)
    return list(_EVERY) if "All" in asked else asked


def described(
    settings: QueueSettings,
    member: Mapping[str, Any],
    limit: int,
    redrive_of: Callable[[QueueSettings], str | None],
) -> dict[str, str]:
    """The attributes of a queue, without its counts and its ARN.

    limit: the largest body that the server takes. redrive_of: makes the policy from the settings,
    if clients of SQS have set none.
    """
    kept = kept_in(member)
    retention = _MAX_RETENTION_S if settings.retention is None else settings.retention
    size = min(settings.max_message_bytes or MAX_MESSAGE_BYTES, limit, MAX_MESSAGE_BYTES)
    found = {
        "CreatedTimestamp": _moment(member, "created"),
        "LastModifiedTimestamp": _moment(member, "modified"),
        "DelaySeconds": _whole(settings.default_delay, MAX_DELAY_S),
        "MaximumMessageSize": str(size),
        "MessageRetentionPeriod": _whole(retention, _MAX_RETENTION_S),
        WAIT: kept.get(WAIT, "0"),
        "VisibilityTimeout": _whole(settings.visibility_timeout, MAX_VISIBILITY_S),
        _SSE: kept.get(_SSE, "false"),
    }
    found.update({name: kept[name] for name in _TOLD if name in kept})
    if _KEY in kept:
        found[_KEY_PERIOD] = kept.get(_KEY_PERIOD, _DEFAULT_KEY_PERIOD)
    if settings.fifo:
        found.update(fifo.described(fifo.kept_of(settings, kept)))
    redrive = redrive_of(settings)
    if not _still_holds(found.get(REDRIVE), settings):
        found.pop(REDRIVE, None)
        if redrive is not None:
            found[REDRIVE] = redrive
    return found


def counted(waiting: int, in_flight: int, delayed: int) -> dict[str, str]:
    """The attributes that count messages."""
    return dict(zip(_COUNTS, map(str, (waiting, in_flight, delayed)), strict=True))


def asks_for_counts(names: Iterable[str]) -> bool:
    return any(name in _COUNTS for name in names)


def kept_in(member: Mapping[str, Any]) -> dict[str, str]:
    """The attributes that are stored besides the settings; ignores what was written by hand."""
    kept = member.get("attributes")
    if not isinstance(kept, dict):
        return {}
    return {name: value for name, value in kept.items() if isinstance(value, str)}


def tags_in(member: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a queue."""
    tags = member.get("tags")
    return {k: str(v) for k, v in tags.items()} if isinstance(tags, dict) else {}


def wait_of(member: Mapping[str, Any]) -> int:
    """The default wait of a receive, in seconds."""
    wait = kept_in(member).get(WAIT, "0")
    return min(int(wait), MAX_WAIT_S) if _INTEGER.fullmatch(wait) else 0


def keep(member: dict[str, Any], kept: Mapping[str, str | None]) -> None:
    """Change what is stored besides the settings of a queue; None: removed."""
    attributes = {**kept_in(member), **kept}
    member["attributes"] = {name: of for name, of in attributes.items() if of is not None}


def redrive_allows(allow: str | None, arn: str) -> bool:
    """Whether a dead-letter queue with this RedriveAllowPolicy takes a source."""
    policy = as_object(allow) if allow else {}
    permission = policy.get("redrivePermission", "allowAll")
    if permission == "byQueue":
        sources = policy.get("sourceQueueArns")
        return isinstance(sources, list) and arn in sources
    return bool(permission != "denyAll")


def check_number(name: str, value: int, low: int, high: int) -> int:
    """Return a number of a request if it is within its range. Raises SqsError."""
    if not low <= value <= high:
        words = f"Must be between {low} and {high}, if provided."
        raise invalid(name, value, words)
    return value


def check_wait(value: int) -> int:
    """Return the seconds of a long poll if they are within their range. Raises SqsError."""
    if not 0 <= value <= MAX_WAIT_S:
        words = f"Must be >= 0 and <= {MAX_WAIT_S}, if provided."
        raise invalid("WaitTimeSeconds", value, words)
    return value


def begun_ms(member: Mapping[str, Any]) -> int:
    """When a queue was created, in ms; 0 if that is unknown."""
    moment = member.get("created_ms")
    return moment if type(moment) is int else 1000 * int(_moment(member, "created"))


def _moment(member: Mapping[str, Any], name: str) -> str:
    value = member.get(name)
    return str(value) if type(value) is int else "0"


def _whole(value: float, most: int) -> str:
    return str(min(math.ceil(value), most))


def _number(name: str, value: str) -> int:
    low, high = _RANGES[name]
    if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
        raise _bad_value(name)
    return int(value)


def _redrive(text: str) -> Redrive:
    policy = as_object(text)
    for member in ("deadLetterTargetArn", "maxReceiveCount"):
        if member not in policy:
            reason = f"Redrive policy does not contain mandatory attribute: {member}."
            raise invalid(REDRIVE, text, reason)
    receives = str(policy["maxReceiveCount"])
    if not _INTEGER.fullmatch(receives) or not 1 <= int(receives) <= _MAX_RECEIVES:
        reason = (
            f"Invalid value for maxReceiveCount: {receives[:50]}, valid values are from 1 to"
            f" {_MAX_RECEIVES} both inclusive."
        )
        raise invalid(REDRIVE, text, reason)
    return Redrive(queue_of_arn(str(policy["deadLetterTargetArn"]), REDRIVE), int(receives))


def _still_holds(text: str | None, settings: QueueSettings) -> bool:
    """Whether a policy still matches the settings, which other dialects can change."""
    if text is None:
        return False
    try:
        target, receives = _redrive(text)
    except SqsError:
        return False
    wanted = min(receives, MAX_DELIVERIES)
    return (target, wanted) == (settings.dead_letter_queue, settings.max_deliveries)


def object_in(text: str, most: int = _MAX_OBJECT) -> dict[str, Any] | None:
    """A text parsed as a JSON object; None for any other text, and for one that is too long."""
    try:
        found = json.loads(text) if len(text) <= most else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def as_object(text: str) -> dict[str, Any]:
    """The same; an empty object instead of None."""
    return object_in(text) or {}


def _check_policy(name: str, value: str) -> str:
    if value and object_in(value) is None:
        raise _bad_value(name)
    return value


def _check_allow(name: str, value: str) -> str:
    if not _check_policy(name, value):
        return value
    policy = as_object(value)
    permission = policy.get("redrivePermission")
    sources = policy.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue") or not isinstance(sources, list):
        raise invalid(name, value, "redrivePermission must be allowAll, denyAll or byQueue.")
    if (permission == "byQueue") != bool(sources) or len(sources) > 10:
        raise invalid(name, value, "sourceQueueArns, 1 to 10, go with byQueue.")
    return value


def _check_flag(name: str, value: str) -> str:
    if value not in ("true", "false"):
        raise _bad_value(name)
    return value


def _check_short(name: str, value: str) -> str:
    if len(value) > 2048:
        raise _bad_value(name)
    return value


_CHECKS: Mapping[str, Callable[[str, str], str]] = {
    REDRIVE: _check_policy,
    REDRIVE_ALLOW: _check_allow,
    POLICY: _check_policy,
    _KEY: _check_short,
    _SSE: _check_flag,
}


def _bad_value(name: str) -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def _unknown(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name[:256]}.")


@contextmanager
def storing() -> Iterator[None]:
    """Raise an SqsError for what the file of settings does not accept, or has no room for."""
    try:
        yield
    except InvalidValue as error:
        raise SqsError("InvalidAttributeValue", error.problem) from None
