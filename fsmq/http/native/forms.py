"""Parameters of requests for one message, and headers of their answers, in the native dialect.

Used by the handlers in `messages/`, and by `fast_path/` for many requests at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import hdrs
from aiohttp.web import Response
from multidict import CIMultiDictProxy

from fsmq.spool import Message, NewMessage
from fsmq.spool.checks import (
    CLAIM_PATTERN,
    MAX_DEDUP_BYTES,
    MAX_DELAY_S,
    MAX_DELIVERIES,
    MAX_FILE_NAME_BYTES,
    MAX_GROUP_BYTES,
    MAX_OWN_ID_BYTES,
    MAX_PRIORITY,
    MAX_REASON_BYTES,
    MAX_TTL_S,
    MAX_VISIBILITY_S,
    Renewal,
    check_reason,
)
from fsmq.spool.errors import (
    InvalidValue,
    NoSuchMessage,
)
from fsmq.spool.on_disk import public
from fsmq.spool.prepare import KEPT_MS, MAX_CLAIMS

from ...wire import MAX_WAIT_S, moment, quote_id
from ..describe import (
    JSON,
    MESSAGE_ID,
    TRUE,
    Component,
    Header,
    Kind,
    Parameter,
    QueryParameter,
    Values,
    as_it_is,
    integer,
    or_null,
    query,
    record,
    seconds,
    text,
    utf8,
    whole,
)
from ..routing import bodies
from ..routing.headers import ATTRIBUTE, CLAIM, own_headers
from ..service.changes import Change, Changes

# The text around messages in JSON.
MESSAGES = (b'{"messages": [', b", ", b"]}\n")

# -- parameters of requests ------------------------------------------------------------------------

ID = Parameter(
    "id",
    "the id as an answer gave it: already percent-encoded where needed."
    f" Queue and id have at most {MAX_FILE_NAME_BYTES - 1} bytes together",
    text(r"[^./:\u0000][^/:\u0000]*", minLength=1, maxLength=MAX_FILE_NAME_BYTES - 2),
    "path",
)

DELAY = query(
    "delay",
    "for how long it is hidden",
    seconds(MAX_DELAY_S),
    otherwise="the queue's `default_delay`",
)
PRIORITY = query("priority", "lower numbers come first", whole(0, MAX_PRIORITY), 0)
TTL = query(
    "ttl",
    "time from its creation until it expires, rounded up to a whole second",
    seconds(MAX_TTL_S),
    otherwise="never",
)
OWN_ID = query(
    "id",
    "an id chosen by the caller",
    as_it_is(
        text(r"[A-Za-z0-9_@+=~-][A-Za-z0-9._@+=~-]*", minLength=1, maxLength=MAX_OWN_ID_BYTES),
        f"1 to {MAX_OWN_ID_BYTES} characters",
    ),
    otherwise="made by the server",
)

GROUP = query(
    "group",
    "its group, whose messages keep their order in a fifo queue; there, each needs one",
    utf8(MAX_GROUP_BYTES),
    otherwise="none",
)

DEDUP_ID = query(
    "dedup_id",
    f"for fifo queues: within {KEPT_MS // 1000} seconds a repeated one stores nothing, and is"
    " answered with the id of the first message",
    utf8(MAX_DEDUP_BYTES),
    otherwise="none",
)

IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "as `id`, in a fifo queue as `dedup_id`; while the message exists, sending it again is answered"
    " with 201 and the same id",
    text(minLength=1),
    "header",
)

VISIBILITY = query(
    "visibility",
    "how long the claim holds",
    seconds(MAX_VISIBILITY_S),
    otherwise="the queue's `visibility_timeout`",
)
WAIT: QueryParameter[float] = query(
    "wait", "how long to wait for the first message", seconds(MAX_WAIT_S), 0
)
COUNT = query(
    "count",
    "claim up to this many messages, answered as JSON",
    whole(1, MAX_CLAIMS),
    otherwise="one, as it was posted",
)
IN_JSON = query("json", "answer JSON instead of the message itself", TRUE)

RENEWAL = query(
    "visibility",
    "**renew**, also without any of these: the claim lasts this time from now; 0 releases",
    seconds(MAX_VISIBILITY_S),
    otherwise="the queue's `visibility_timeout`",
)
RELEASE = query(
    "release",
    "**release**: the message can be claimed again after this time (a backoff); 0, like"
    " `visibility=0`, is at once, or what the queue's `retry_backoff` says",
    seconds(MAX_DELAY_S),
)
BURY = query(
    "bury",
    "**bury**: move it to the dead-letter queue now, where its deliveries count from 0 again",
    TRUE,
)
NEW_PRIORITY = query(
    "priority",
    "give a ready message another priority; its id changes, and the answer has the new one",
    whole(0, MAX_PRIORITY),
)
REASON = query(
    "reason",
    "with `bury` or `release`: why; shown with the dead letter. Control characters become spaces",
    Kind(
        text(maxLength=MAX_REASON_BYTES),
        lambda name, value: check_reason(value) or "",
        f"up to {MAX_REASON_BYTES} bytes of UTF-8",
    ),
)

CLAIM_NAME = Parameter(
    CLAIM,
    "the name of the claim, from its answer: if that claim has ended, nothing is done",
    text(CLAIM_PATTERN),
    "header",
)

# -- content of answers ----------------------------------------------------------------------------

MOMENT = text(format="date-time", description="RFC 3339 in UTC, with milliseconds")
STATE = text(enum=["new", "ready", "in_flight", "delayed"])
_FACTS = {
    "content_type": or_null(text()),
    "attributes": {"type": "object", "additionalProperties": text()},
    "state": STATE,
    "priority": integer(0, MAX_PRIORITY),
    "deliveries": or_null(integer(0, MAX_DELIVERIES)),
    "claim": or_null(
        text(CLAIM_PATTERN, description="the name of the claim; null if it was only looked at")
    ),
    "deadline": or_null(MOMENT),
    "created_at": or_null(MOMENT),
    "expires_at": or_null(MOMENT),
}
DEAD_LETTER = record(
    {
        "queue": text(description="the queue from which it was buried"),
        "reason": or_null(text(description="max_deliveries: why, or the reason given with `bury`")),
        "deliveries": or_null(integer(1, MAX_DELIVERIES)),
        "at": MOMENT,
    },
    description="how it last became a dead letter; missing if it never did, and in answers to"
    " claims",
)
MESSAGE = Component(
    "Message",
    record(
        {
            "queue": text(description="its queue; missing where the request names it"),
            "id": MESSAGE_ID,
            "body": text(description="the body, if it is UTF-8"),
            "body_base64": text(
                contentEncoding="base64", description="the body, if it is not UTF-8"
            ),
            **_FACTS,
            "group": text(description="its group; missing if it has none"),
            "dedup_id": text(description="its deduplication id; missing if it has none"),
            "given_id": text(
                description="the id that its producer gave, in a queue with an index; else missing"
            ),
            "own_id": text(description="the own id that it was put with, if its id tells more"),
            "dead_letter": DEAD_LETTER,
        },
        required=["id", *_FACTS],
        oneOf=[{"required": ["body"]}, {"required": ["body_base64"]}],
    ),
)
MESSAGE_HEADERS = {
    "X-Message-Id": Header(
        "the id, for DELETE (ack) and PATCH (renew, release, bury)", MESSAGE_ID, always=True
    ),
    "X-Message-Deliveries": Header(
        f"claims so far; {MAX_DELIVERIES} means this many or more; missing if the filesystem cannot"
        " keep the count",
        integer(0, MAX_DELIVERIES),
    ),
    CLAIM: Header("the name of the claim, which renewals do not change", text(CLAIM_PATTERN)),
    "X-Message-Deadline": Header("when the claim or the delay ends, if there is one", MOMENT),
    "X-Message-Priority": Header("if it is not 0", integer(1, MAX_PRIORITY)),
    "X-Message-Group": Header("its group, if it has one", text()),
    "X-Message-Dedup-Id": Header("its deduplication id, if it has one", text()),
    "X-Message-Given-Id": Header(
        "the id that its producer gave, percent-encoded, in a queue with an index", text()
    ),
    "X-Message-Own-Id": Header("the own id that it was put with, if its id tells more", text()),
}
RENEWED_HEADERS = {
    "X-Message-Deadline": Header("the new deadline, if renewed", MOMENT),
    CLAIM: Header("the claim that was renewed, or a new one if it was ready", text(CLAIM_PATTERN)),
}
ATTRIBUTES = (
    "Each attribute is a header `X-Message-Attribute-{name}`; a name has 1 to 128 characters of"
    " `A-Z a-z 0-9 _ . -` and does not begin with one of the last three, or with `fsmq.`."
    " `traceparent`, `tracestate` and CloudEvents' `ce-*` are attributes under their own names,"
    " too."
)


# -- from requests to verbs, and from verbs to answers ---------------------------------------------


def new_message(body: bytes, given: Values, kept: tuple[str | None, dict[str, str]]) -> NewMessage:
    """The message of a POST, from its body, its query and its headers."""
    content_type, attributes = kept
    return NewMessage(
        body,
        given[DELAY],
        given[PRIORITY],
        given[TTL],
        given[OWN_ID],
        content_type,
        attributes,
        given[GROUP],
        given[DEDUP_ID],
    )


def idempotency_key(headers: CIMultiDictProxy[str], given: str | None) -> str | None:
    """The key of a POST, without the quotes of a structured field; ``given``: its own id.

    Raises InvalidValue.
    """
    values = headers.getall(IDEMPOTENCY_KEY.name, ())
    if not values:
        return None
    key = values[0].strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(values) > 1 or not key or given not in (None, key):
        raise InvalidValue(
            IDEMPOTENCY_KEY.name, "is given twice, or is empty, or is not the id that is given, too"
        )
    return key


def stored(message_id: str, folder: str = "messages/") -> tuple[dict[str, str], bytes]:
    """The headers and the body of the answer to a request that gives a message its id.

    folder: the path of messages, relative to that of the request; by default for a POST of one.
    """
    name = quote_id(message_id)  # needs no escapes in JSON
    headers = {
        "Content-Type": JSON,
        "Location": folder + name,
        "X-Message-Id": name,
    }
    return headers, f'{{"id": "{name}"}}\n'.encode()


def in_json(claimed: Sequence[Message], *, with_queue: bool = False) -> Response:
    """The answer with messages in JSON; with_queue: each has the name of its queue."""
    return bodies.in_json(claimed, partial(bodies.encode, with_queue=with_queue), MESSAGES)


def as_posted(message: Message, *, with_queue: bool = False) -> Response:
    """The answer with a message as it was posted; with_queue: and with the name of its queue."""
    of = {"X-Message-Queue": message.queue} if with_queue else {}
    return bodies.raw(message, {**of, **headers_of(message)})


def change_of(
    changes: Changes, queue: str, message_id: str, given: Values, claim: str | None
) -> Change[Any]:
    """What a PATCH asks for: a renewal; or a release or burial, which have no result.

    Raises InvalidValue.
    """
    visibility, delay, bury = given[RENEWAL], given[RELEASE], given[BURY]
    if sum(value is not None for value in (visibility, delay, bury)) > 1:
        raise InvalidValue("visibility", "release and bury exclude each other: give one")
    releases = delay is not None or visibility == 0
    check_reason_is_used(given[REASON], bury or releases)
    if given[NEW_PRIORITY] is not None:
        raise InvalidValue("priority", "is of ready messages: give it alone, and no claim")
    if bury:
        return changes.bury(queue, message_id, given[REASON], claim)
    if releases:
        return changes.release(queue, message_id, delay or 0.0, claim, given[REASON])
    return changes.renew(queue, message_id, visibility, claim)


def check_reason_is_used(reason: str | None, is_used: bool) -> None:
    """Raises InvalidValue for a reason that nothing would keep."""
    if reason is not None and not is_used:
        raise InvalidValue("reason", "goes with bury=true or with release")


def changed(renewal: Renewal | None) -> dict[str, str]:
    """The headers of the answer to a PATCH."""
    if renewal is None:
        return {}
    headers = {"X-Message-Deadline": moment(renewal.deadline)}
    if renewal.claim is not None:
        headers[CLAIM] = renewal.claim
    return headers


def nowhere(queue: str, message_id: str) -> NoSuchMessage:
    """The error if a message is in no state from which it can be removed."""
    return NoSuchMessage(queue, message_id, "in new, queues or delay")


def headers_of(message: Message) -> dict[str, str]:
    """The headers that describe a message."""
    headers = {"X-Message-Id": quote_id(message.id)}
    if message.deliveries is not None:
        headers["X-Message-Deliveries"] = str(message.deliveries)
    if message.claim is not None:
        headers[CLAIM] = message.claim
    if message.deadline is not None:
        headers["X-Message-Deadline"] = moment(message.deadline)
    if message.priority:
        headers["X-Message-Priority"] = str(message.priority)
    if message.attributes:
        headers.update(_headers_of_attributes(message.attributes))
    if message.group is not None:
        headers["X-Message-Group"] = one_line(message.group)
    if message.dedup_id is not None:
        headers["X-Message-Dedup-Id"] = one_line(message.dedup_id)
    if message.given_id is not None:
        headers["X-Message-Given-Id"] = one_line(quote_id(message.given_id))
    if "@" in message.id and message.own_id != message.id:
        headers["X-Message-Own-Id"] = quote_id(message.own_id)
    headers[hdrs.CONTENT_TYPE] = one_line(message.content_type or "application/octet-stream")
    return headers


def _headers_of_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    headers = {ATTRIBUTE + name: one_line(value) for name, value in public(attributes).items()}
    for name, value in own_headers(attributes).items():
        headers[name] = one_line(value)
    return headers


def one_line(value: str) -> str:
    # A file that someone wrote by hand can contain anything.
    if value.isprintable():
        return value
    return "".join(c if c.isprintable() else " " for c in value)
