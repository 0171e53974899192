"""What the native dialect's routes take and answer; docs/http.md says what it means."""

from __future__ import annotations

from fsmq.kinds import Choice, Number, Whole
from fsmq.spool.errors import (
    DuplicateMessage,
    MessageTooLarge,
    NoSuchMessage,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)
from fsmq.spool.layout import settings
from fsmq.spool.layout.names import (
    MAX_FILE_NAME_BYTES,
    MAX_OWN_ID_BYTES,
    MAX_PRIORITY,
)
from fsmq.spool.layout.settings import DEFAULTS, MAX_DELAY_S, MAX_TTL_S, MAX_VISIBILITY_S, Setting
from fsmq.spool.layout.stamps import MAX_COUNT
from fsmq.spool.verbs.receive import MAX_CLAIMS

from ...wire import MAX_WAIT_S
from ..describe import (
    BYTES,
    JSON,
    MAX_SETTINGS_BYTES,
    MESSAGE_ID,
    QUEUE,
    QUEUE_NAME,
    Answer,
    Body,
    Component,
    Header,
    Operation,
    Parameter,
    Schema,
    array,
    integer,
    number,
    or_null,
    record,
    text,
)
from ..problem_answers import guarded
from ..problems import ExpectationFailed, SlowBody, UnreadableBody, UnsupportedEncoding

# -- what requests name ----------------------------------------------------------------------------

ID = Parameter(
    "id",
    "the id as an answer gave it: already percent-encoded where needed."
    f" Queue and id have at most {MAX_FILE_NAME_BYTES - 1} bytes together",
    text(r"[^./:\u0000][^/:\u0000]*", minLength=1, maxLength=MAX_FILE_NAME_BYTES - 2),
    "path",
)
VISIBILITY = Parameter(
    "visibility",
    "seconds that the claim holds; default: the queue's `visibility_timeout`",
    number(0, MAX_VISIBILITY_S),
)

NEW_MESSAGE = (
    Parameter(
        "delay",
        "seconds that it is hidden; default: the queue's `default_delay`",
        number(0, MAX_DELAY_S),
    ),
    Parameter("priority", "lower numbers come first", integer(0, MAX_PRIORITY, default=0)),
    Parameter("ttl", "seconds until it expires; default: never", number(0, MAX_TTL_S)),
    Parameter(
        "id",
        "an id that the caller chooses; default: the server makes one. Only a bare UUIDv7 can carry"
        " a priority, a ttl, a content type or attributes",
        text(r"[A-Za-z0-9_@+=~-][A-Za-z0-9._@+=~-]*", minLength=1, maxLength=MAX_OWN_ID_BYTES),
    ),
)

# -- what answers hold -----------------------------------------------------------------------------

MOMENT = text(format="date-time", description="RFC 3339 in UTC, with milliseconds")
STATE = text(enum=["new", "ready", "in_flight", "delayed"])


def _schema(name: str, setting: Setting) -> Schema:
    match setting.kind:
        case Whole() as kind:
            schema = integer(kind.low, kind.high)
        case Number() as kind:
            schema = number(kind.low, kind.high)
        case Choice() as kind:
            schema = text(enum=[*kind.words, None] if setting.null else list(kind.words))
        case _:
            schema = QUEUE_NAME
    default = getattr(DEFAULTS, name)
    schema = {**schema, "description": setting.means}
    return or_null(schema) if setting.null else {**schema, "default": default}


QUEUE_SETTINGS = {name: _schema(name, setting) for name, setting in settings.SETTINGS.items()}
SETTINGS = Component("QueueSettings", record(QUEUE_SETTINGS))
COUNTS = Component(
    "Counts", record({state: integer(0) for state in STATE["enum"]}, description="by state")
)
MESSAGE = Component(
    "Message",
    record(
        {
            "id": MESSAGE_ID,
            "body": text(description="the body, if it is UTF-8"),
            "body_base64": text(
                contentEncoding="base64", description="the body, if it is not UTF-8"
            ),
            "content_type": or_null(text()),
            "attributes": {"type": "object", "additionalProperties": text()},
            "state": STATE,
            "priority": integer(0, MAX_PRIORITY),
            "deliveries": or_null(integer(0, MAX_COUNT)),
            "deadline": or_null(MOMENT),
            "created_at": or_null(MOMENT),
            "expires_at": or_null(MOMENT),
        },
        required=[
            "id",
            "content_type",
            "attributes",
            "state",
            "priority",
            "deliveries",
            "deadline",
            "created_at",
            "expires_at",
        ],
        oneOf=[{"required": ["body"]}, {"required": ["body_base64"]}],
    ),
)
MESSAGE_HEADERS = {
    "X-Message-Id": Header(
        "the id, for DELETE (ack) and PATCH (renew, release, bury)", MESSAGE_ID, always=True
    ),
    "X-Message-Deliveries": Header(
        f"claims so far; {MAX_COUNT} means this many or more; missing if the filesystem cannot"
        " keep the count",
        integer(0, MAX_COUNT),
    ),
    "X-Message-Deadline": Header("when the claim or the delay ends, if there is one", MOMENT),
    "X-Message-Priority": Header("if it is not 0", integer(1, MAX_PRIORITY)),
}
_ATTRIBUTES = (
    "Each attribute is a header `X-Message-Attribute-{name}`; a name has 1 to 128 characters of"
    " `A-Z a-z 0-9 _ . -` and does not begin with one of the last three."
)

# -- queues ----------------------------------------------------------------------------------------

LIST_QUEUES = Operation(
    id="list_queues",
    tag="Queues",
    summary="The names of all queues, sorted",
    answers={
        200: Answer("The names", {JSON: record({"queues": array(QUEUE_NAME)})}),
        **guarded(Unavailable),
    },
)
SHOW_QUEUE = Operation(
    id="show_queue",
    tag="Queues",
    summary="A queue's counts and settings",
    parameters=(QUEUE,),
    answers={
        200: Answer(
            "Counts, which may be 0.2 seconds old, and settings",
            {JSON: record({"queue": QUEUE_NAME, "messages": COUNTS, "settings": SETTINGS})},
        ),
        **guarded(NoSuchQueue, Unavailable),
    },
)
_CREATED = {JSON: record({"queue": QUEUE_NAME, "created": {"type": "boolean"}})}
CREATE_QUEUE = Operation(
    id="create_queue",
    tag="Queues",
    summary="Create a queue",
    description="A body is ignored.",
    parameters=(QUEUE,),
    answers={
        200: Answer("It existed already", _CREATED),
        201: Answer("It was created, durably", _CREATED),
        **guarded(UnreadableBody, SlowBody, Unavailable),
    },
)
CONFIGURE_QUEUE = Operation(
    id="configure_queue",
    tag="Queues",
    summary="Change settings of a queue",
    description="All changes are made, or none. `null` restores a default."
    " Set both of `max_deliveries` and `dead_letter_queue`, or neither.",
    parameters=(QUEUE,),
    body=Body(
        f"the settings to be changed, at most {MAX_SETTINGS_BYTES} bytes",
        {
            JSON: Component(
                "QueueSettingsChange",
                record(QUEUE_SETTINGS, required=[], additionalProperties=False),
            )
        },
        required=True,
    ),
    answers={
        200: Answer("All settings", {JSON: record({"queue": QUEUE_NAME, "settings": SETTINGS})}),
        **guarded(
            NoSuchQueue,
            UnreadableBody,
            SlowBody,
            MessageTooLarge,
            UnsupportedEncoding,
            ExpectationFailed,
            Unavailable,
        ),
    },
)
DELETE_QUEUE = Operation(
    id="delete_queue",
    tag="Queues",
    summary="Delete a queue, its settings and all its messages",
    parameters=(QUEUE,),
    answers={
        200: Answer(
            "It was deleted", {JSON: record({"queue": QUEUE_NAME, "deleted": {"const": True}})}
        ),
        **guarded(NoSuchQueue, Unavailable),
    },
)
PURGE = Operation(
    id="purge",
    tag="Queues",
    summary="Remove all messages of a queue",
    parameters=(QUEUE,),
    answers={
        200: Answer(
            "They were removed", {JSON: record({"queue": QUEUE_NAME, "purged": {"const": True}})}
        ),
        **guarded(NoSuchQueue, Unavailable),
    },
)

# -- messages --------------------------------------------------------------------------------------

POST = Operation(
    id="post",
    tag="Messages",
    summary="Store a message",
    description=f"{_ATTRIBUTES} `Content-Encoding` may be gzip or deflate.",
    parameters=(
        QUEUE,
        *NEW_MESSAGE,
    ),
    body=Body("the message: any bytes, kept with the Content-Type of the request", BYTES),
    answers={
        201: Answer(
            "It is on stable media",
            {JSON: record({"id": MESSAGE_ID})},
            {
                "X-Message-Id": Header("its id", MESSAGE_ID, always=True),
                "Location": Header("the path of the message", text(), always=True),
            },
        ),
        **guarded(
            UnreadableBody,
            NoSuchQueue,
            SlowBody,
            DuplicateMessage,
            MessageTooLarge,
            UnsupportedEncoding,
            ExpectationFailed,
            QueueFull,
            Unavailable,
        ),
    },
)
CLAIM = Operation(
    id="claim",
    tag="Messages",
    summary="Claim messages: hide them from others until a deadline",
    description=_ATTRIBUTES,
    parameters=(
        QUEUE,
        VISIBILITY,
        Parameter(
            "wait", "seconds to wait for the first message", number(0, MAX_WAIT_S, default=0)
        ),
        Parameter(
            "count",
            "claim up to this many messages and answer JSON; default: one message, as"
            " it was posted",
            integer(1, MAX_CLAIMS),
        ),
    ),
    answers={
        200: Answer(
            "One message as it was posted, with any content type; or, with `count` or"
            " `Accept: application/json`, JSON with 1 to `count` messages and without"
            " these headers",
            {
                **BYTES,
                "*/*": {},
                JSON: record({"messages": array(MESSAGE, minItems=1, maxItems=MAX_CLAIMS)}),
            },
            {
                name: Header(header.description, header.schema)
                for name, header in MESSAGE_HEADERS.items()
            },
        ),
        204: Answer("No message can be claimed"),
        **guarded(NoSuchQueue, Unavailable),
    },
)
SHOW_MESSAGE = Operation(
    id="show_message",
    tag="Messages",
    summary="Look at a message without claiming it",
    description=_ATTRIBUTES,
    parameters=(
        QUEUE,
        ID,
        Parameter("json", "answer JSON instead of the message itself", text(enum=["true"])),
    ),
    answers={
        200: Answer(
            "The message as it was posted; or, with `json` or `Accept: application/json`, JSON"
            " without these headers",
            {**BYTES, "*/*": {}, JSON: MESSAGE},
            {
                **{n: Header(h.description, h.schema) for n, h in MESSAGE_HEADERS.items()},
                "X-Message-State": Header("its state", STATE),
            },
        ),
        **guarded(NoSuchQueue, NoSuchMessage, Unavailable),
    },
)
CHANGE = Operation(
    id="change",
    tag="Messages",
    summary="Renew a claim, release it, or bury its message",
    description="Give at most one parameter; without one the claim is renewed.",
    parameters=(
        QUEUE,
        ID,
        Parameter("visibility", f"{VISIBILITY.description}; 0 releases", VISIBILITY.schema),
        Parameter(
            "release",
            "end the claim; the message can be claimed again after this many seconds",
            number(0, MAX_DELAY_S),
        ),
        Parameter("bury", "move it to the dead-letter queue now", text(enum=["true"])),
    ),
    answers={
        204: Answer(
            "Done", headers={"X-Message-Deadline": Header("the new deadline, if renewed", MOMENT)}
        ),
        **guarded(UnreadableBody, NoSuchQueue, NoSuchMessage, SlowBody, Unavailable),
    },
)
REMOVE = Operation(
    id="remove",
    tag="Messages",
    summary="Remove a message in any state; acknowledges a claimed one",
    parameters=(QUEUE, ID),
    answers={
        202: Answer("It will not be delivered again"),
        **guarded(NoSuchQueue, NoSuchMessage, Unavailable),
    },
)
