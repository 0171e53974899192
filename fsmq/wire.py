"""How ids, moments, messages and errors are written in HTTP.

It needs no HTTP library, so clients share it.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from fsmq.spool.errors import (
    ClaimEnded,
    ClaimVoid,
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    LogFull,
    MessageTooLarge,
    NoSuchChannel,
    NoSuchLog,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSchedule,
    NoSuchSubscription,
    NoSuchTopic,
    NotInFlight,
    OffsetGone,
    OtherWriter,
    QueueFull,
    Unavailable,
)
from fsmq.spool.layout.messages.dead_letter import DeadLetter
from fsmq.spool.layout.messages.message import Message, OwnLines, public
from fsmq.spool.layout.names import MAX_FILE_NAME_BYTES
from fsmq.spool.log.segment.record import LogMessage, entry
from fsmq.spool.moves.order import Move

# The longest wait of one request; clients that want to wait longer ask again.
MAX_WAIT_S = 20.0
# The longest body of a batch: it fits a message of 16 MiB, the usual limit, in base64 and others.
MAX_BATCH_BYTES = 32 * 1024 * 1024
# The longest body of a request about messages by the ids that producers gave.
MAX_BY_ID_BYTES = 64 * 1024


class ProblemType(NamedTuple):
    """What all errors of one class have in common; ``kind`` is a stable name for programs."""

    status: int
    kind: str
    title: str


# The type of a problem is this and its kind (RFC 9457).
PROBLEM_PREFIX = "urn:fsmq:problem:"
# What the errors of the spool, which knows nothing of HTTP, are in HTTP.
SPOOL_PROBLEMS: Mapping[type[FsmqError], ProblemType] = {
    InvalidValue: ProblemType(400, "invalid-value", "Invalid value"),
    NoSuchQueue: ProblemType(404, "no-such-queue", "No such queue"),
    NoSuchSchedule: ProblemType(404, "no-such-schedule", "No such schedule"),
    NoSuchTopic: ProblemType(404, "no-such-topic", "No such topic"),
    NoSuchSubscription: ProblemType(404, "no-such-subscription", "No such subscription"),
    NoSuchMessage: ProblemType(404, "no-such-message", "No such message"),
    NoSuchLog: ProblemType(404, "no-such-log", "No such log"),
    NoSuchChannel: ProblemType(404, "no-such-channel", "No such channel"),
    ClaimEnded: ProblemType(409, "claim-ended", "The claim has ended"),
    NotInFlight: ProblemType(404, "not-in-flight", "The message is not in flight"),
    ClaimVoid: ProblemType(409, "claim-void", "The channel went elsewhere since this claim"),
    OtherWriter: ProblemType(409, "other-writer", "Another host writes this log"),
    OffsetGone: ProblemType(410, "offset-gone", "Retention has removed this"),
    DuplicateMessage: ProblemType(
        409, "duplicate-message", "A message with this id exists already"
    ),
    MessageTooLarge: ProblemType(413, "message-too-large", "The message is too large"),
    QueueFull: ProblemType(503, "queue-full", "The queue is full"),
    LogFull: ProblemType(503, "log-full", "The log is full"),
    Unavailable: ProblemType(503, "unavailable", "Temporarily unavailable"),
}
# Attributes of an error that its problem details repeat, if the error has them.
ERROR_FIELDS = (
    "index",
    "queue",
    "topic",
    "message_id",
    "log",
    "channel",
    "offset",
    "first",
    "host",
    "schedule",
    "field",
    "limit",
)
_END_OF_TIME_S = 253_402_300_799
_plain = re.compile(r"[A-Za-z0-9._-]+")
# Of an id: quoted, a byte of a file's name takes three characters.
MOST_QUOTED = 3 * MAX_FILE_NAME_BYTES


def quote_id(message_id: str) -> str:
    """An id quoted for headers and paths."""
    if _plain.fullmatch(message_id):
        return message_id
    return quote(message_id.encode("utf-8", "surrogateescape"), safe="@+=~,;!$&'()*")


def unquote_id(quoted: str) -> str:
    """The id that :func:`quote_id` wrote; a text that is longer than any of them stays as it is."""
    if "%" not in quoted or len(quoted) > MOST_QUOTED:
        return quoted
    # File names are bytes: an id that is not UTF-8 must find its file, too.
    return os.fsdecode(unquote_to_bytes(os.fsencode(quoted)))


@lru_cache(64)  # messages claimed together have the same deadline
def moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the millisecond; at most the end of the year 9999."""
    # A UUIDv7 reaches to the year 10889.
    if seconds >= _END_OF_TIME_S:
        return "9999-12-31T23:59:59.999Z"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def as_json(message: Message, *, with_queue: bool = False) -> dict[str, Any]:
    """A message for a JSON answer: ``body`` if it is text, ``body_base64`` otherwise.

    with_queue: name its queue, because the request does not.
    """
    result: dict[str, Any] = {"queue": message.queue} if with_queue else {}
    result["id"] = quote_id(message.id)
    try:
        result["body"] = message.body.decode()
    except UnicodeDecodeError:
        result["body_base64"] = base64.b64encode(message.body).decode()
    result["content_type"] = message.content_type
    result["attributes"] = public(message.attributes)
    result["state"] = message.state
    result["priority"] = message.priority
    result["deliveries"] = message.deliveries
    result["claim"] = message.claim
    for name in ("deadline", "created_at", "expires_at"):
        seconds = getattr(message, name)
        result[name] = None if seconds is None else moment(seconds)
    for name in OwnLines._fields:
        if (value := getattr(message, name)) is not None:
            result[name] = value
    if "@" in message.id and message.own_id != message.id:
        result["own_id"] = quote_id(message.own_id)
    if message.dead_letter is not None:
        result["dead_letter"] = {
            **message.dead_letter._asdict(),
            "at": moment(message.dead_letter.at),
        }
    return result


def seconds(written: str) -> float:
    """Unix seconds from a moment as :func:`moment` writes it."""
    return datetime.fromisoformat(written).timestamp()


def from_json(queue: str | None, found: dict[str, Any]) -> Message:
    """The message that :func:`as_json` wrote. Raises KeyError, TypeError, ValueError.

    queue: that of the request; None: the message names its queue.
    """
    encoded = found.get("body_base64")
    body = found["body"].encode() if encoded is None else base64.b64decode(encoded)
    times = {
        name: None if found[name] is None else seconds(found[name])
        for name in ("deadline", "created_at", "expires_at")
    }
    dead = found.get("dead_letter")
    return Message(
        queue=found["queue"] if queue is None else queue,
        id=unquote_id(found["id"]),
        body=body,
        deliveries=found["deliveries"],
        content_type=found["content_type"],
        attributes=found["attributes"],
        priority=found["priority"],
        state=found["state"],
        dead_letter=None if dead is None else _dead_letter(dead),
        claim=found.get("claim"),
        deadline=times["deadline"],
        created_at=times["created_at"],
        expires_at=times["expires_at"],
        group=found.get("group"),
        dedup_id=found.get("dedup_id"),
        given_id=found.get("given_id"),
    )


def _dead_letter(found: dict[str, Any]) -> DeadLetter:
    return DeadLetter(found["queue"], found["reason"], found["deliveries"], seconds(found["at"]))


def move_as_json(move: Move) -> dict[str, Any]:
    """A move in the background for a JSON answer."""
    return {
        "move": move.ref,
        "from": move.source,
        "to": move.target or None,
        "redrive": move.redrive,
        "in_flight": move.in_flight,
        "rate": move.rate,
        "status": move.status,
        "total": move.total,
        "moved": move.moved,
        "conflicts": move.conflicts,
        "no_origin": move.no_origin,
        "error": move.error,
    }


def move_from_json(found: dict[str, Any]) -> Move:
    """The move that :func:`move_as_json` wrote. Raises KeyError, TypeError."""
    return Move(
        found["move"],
        found["from"],
        found["to"] or "",
        in_flight=found["in_flight"],
        redrive=found["redrive"],
        rate=found["rate"],
        status=found["status"],
        total=found["total"],
        moved=found["moved"],
        conflicts=found["conflicts"],
        no_origin=found["no_origin"],
        error=found["error"],
    )


# -- logs ------------------------------------------------------------------------------------------


def exact_moment(seconds: float) -> str:
    """Unix seconds as RFC 3339 in UTC, to the microsecond, so that it finds its log message."""
    if seconds >= _END_OF_TIME_S:
        return "9999-12-31T23:59:59.999999Z"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def log_facts(message: LogMessage) -> dict[str, Any]:
    """A message of a log for a JSON answer, without its body."""
    return {
        "offset": message.offset,
        "key": message.key,
        "id": message.id,
        "content_type": message.content_type,
        "attributes": dict(message.attributes),
        "published_at": exact_moment(message.published_at),
    }


def with_body(facts: dict[str, Any], body: bytes) -> dict[str, Any]:
    """``facts`` of a message and its body: as text if it is UTF-8, otherwise in base64."""
    try:
        return {**facts, "body": body.decode()}
    except UnicodeDecodeError:
        return {**facts, "body_base64": base64.b64encode(body).decode()}


def log_message(found: dict[str, Any]) -> LogMessage:
    """The message of a JSON answer. Raises KeyError, TypeError, ValueError, InvalidValue."""
    encoded = found.get("body_base64")
    body = found["body"].encode() if encoded is None else base64.b64decode(encoded)
    made = entry(body, found["key"], found["id"], found["content_type"], found["attributes"])
    time_us = round(seconds(found["published_at"]) * 1_000_000)
    return LogMessage(found["offset"], time_us, made.header, body)
