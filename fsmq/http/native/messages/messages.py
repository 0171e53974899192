"""Messages in the native dialect, one by one; docs/http.md is the specification."""

from __future__ import annotations

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse

from fsmq.spool import NewMessage
from fsmq.spool.checks import check_id
from fsmq.spool.errors import (
    ClaimEnded,
    DuplicateMessage,
    NoSuchMessage,
    NoSuchQueue,
    QueueFull,
    Unavailable,
)
from fsmq.spool.prepare import MAX_CLAIMS

from ...describe import (
    BYTES,
    JSON,
    MESSAGE_ID,
    OTHERS,
    QUEUE,
    REMOVED,
    Answer,
    Body,
    Header,
    Operation,
    Values,
    array,
    record,
    text,
)
from ...dialect import Handlers
from ...problem_answers import OF_BODIES, guarded
from ...problems import KeyReused, SlowBody, UnreadableBody
from ...routing import bodies, needs
from ...routing.call import Call
from ...routing.headers import EVENTS, kept_headers, named_claim, wants_events
from ...routing.router import Router
from ...service.wanted import Wanted
from ..forms import (
    ATTRIBUTES,
    BURY,
    CLAIM_NAME,
    COUNT,
    DEDUP_ID,
    DELAY,
    GROUP,
    ID,
    IDEMPOTENCY_KEY,
    IN_JSON,
    MESSAGE,
    MESSAGE_HEADERS,
    NEW_PRIORITY,
    OWN_ID,
    PRIORITY,
    REASON,
    RELEASE,
    RENEWAL,
    RENEWED_HEADERS,
    STATE,
    TTL,
    VISIBILITY,
    WAIT,
    as_posted,
    change_of,
    changed,
    headers_of,
    idempotency_key,
    in_json,
    new_message,
    nowhere,
    stored,
)
from . import events


class Messages(Handlers):
    """Handlers that store, claim, show, change or remove one message."""

    def add_routes(self, router: Router) -> None:
        all_of, one, receive = "/{queue}/messages", "/{queue}/messages/{id}", needs.queue("receive")
        router.add("GET", all_of, self.claim, self.CLAIM, receive)
        router.add("POST", all_of, self.post, self.POST, needs.queue("send"))
        for method in ("GET", "HEAD"):
            router.add(method, one, self.show, self.SHOW, needs.queue("look"))
        router.add("PATCH", one, self.change, self.CHANGE, receive)
        router.add("DELETE", one, self.remove, self.REMOVE, receive)

    POST = Operation(
        id="post",
        tag="Messages",
        summary="Store a message",
        description=f"{ATTRIBUTES} `Content-Encoding` may be gzip or deflate.",
        parameters=(QUEUE, DELAY, PRIORITY, TTL, OWN_ID, GROUP, DEDUP_ID, IDEMPOTENCY_KEY),
        body=Body("the message: any bytes, kept with the Content-Type of the request", BYTES),
        again="if all tries have the same `id`, as those of clients do, there is one message: 409"
        " on a later try means that the message arrived. On a first try it is an error. A message"
        " that was acknowledged between two tries is stored again",
        answers={
            201: Answer(
                "It is on stable media",
                {JSON: record({"id": MESSAGE_ID})},
                {
                    "X-Message-Id": Header("its id", MESSAGE_ID, always=True),
                    "Location": Header("its path, from that of the request", text(), always=True),
                },
            ),
            **guarded(NoSuchQueue, *OF_BODIES, DuplicateMessage, KeyReused, QueueFull, Unavailable),
        },
    )

    async def post(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        headers = call.request.headers
        settings = self._spool.settings(queue)
        names = DEDUP_ID if settings.fifo else OWN_ID
        key = idempotency_key(headers, given[names]) if IDEMPOTENCY_KEY.name in headers else None
        if key is not None:
            given = Values({**given, names: key})
        body = await call.body(self._service.body_limit(settings), self._service.read_timeout)
        message = new_message(body, given, kept_headers(headers))
        try:
            [message_id] = await self._service.queues.put(queue, [message])
        except DuplicateMessage as error:
            if key is None:
                raise
            message_id = await self._of_before(call, queue, message, error)
        answer_headers, answer = stored(message_id)
        return Response(status=201, body=answer, headers=answer_headers)

    async def _of_before(
        self, call: Call, queue: str, message: NewMessage, error: DuplicateMessage
    ) -> str:
        """The id of the message that an earlier try has stored.

        Raises:
            KeyReused: it is another message.
            DuplicateMessage: it has just been removed.
        """
        found = await self._service.receiver.find(call, queue, error.message_id)
        if found is None:
            raise error
        if (found.body, found.content_type) != (message.body, message.content_type):
            raise KeyReused(queue, error.message_id)
        return error.message_id

    CLAIM = Operation(
        id="claim",
        tag="Messages",
        summary="Claim messages: hide them from others until a deadline",
        description=ATTRIBUTES,
        parameters=(QUEUE, VISIBILITY, WAIT, COUNT),
        again=OTHERS,
        answers={
            200: Answer(
                "One message as it was posted, with any content type; or, with `count` or"
                " `Accept: application/json`, JSON with 1 to `count` messages and without"
                " these headers; with `Accept: application/cloudevents-batch+json` they are events",
                {
                    **BYTES,
                    "*/*": {},
                    JSON: record({"messages": array(MESSAGE, minItems=1, maxItems=MAX_CLAIMS)}),
                    EVENTS: {**events.SCHEMA, "maxItems": MAX_CLAIMS},
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

    async def claim(self, call: Call) -> StreamResponse:
        queue = call.queue
        given = call.read()
        count = given[COUNT]
        as_events = wants_events(call.request.headers.get(hdrs.ACCEPT))
        call.in_json = as_events or count is not None or call.wants_json
        wanted = Wanted((queue,), count or 1, given[VISIBILITY], given[WAIT], call.in_json)
        messages = await self._service.queues.claim(call, wanted)
        if not messages:
            return Response(status=204)
        if as_events:
            return events.in_events(messages)
        if call.in_json:
            return in_json(messages)
        return as_posted(messages[0])

    SHOW = Operation(
        id="show_message",
        tag="Messages",
        summary="Look at a message without claiming it",
        description=ATTRIBUTES,
        parameters=(QUEUE, ID, IN_JSON),
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

    async def show(self, call: Call) -> StreamResponse:
        queue, message_id = _target(call)
        call.in_json = call.read()[IN_JSON] or call.wants_json
        message = await self._service.receiver.find(call, queue, message_id)
        if message is None:
            raise NoSuchMessage(queue, message_id, "in any state")
        if call.in_json:
            return bodies.in_json([message], bodies.encode, (b"", b"", b"\n"))
        return bodies.raw(message, {"X-Message-State": message.state, **headers_of(message)})

    CHANGE = Operation(
        id="change",
        tag="Messages",
        summary="Renew a claim, release it, or bury its message; or change a priority",
        description="Give at most one of `visibility`, `release`, `bury` and `priority`; without"
        " one the claim is renewed.",
        parameters=(QUEUE, ID, RENEWAL, RELEASE, BURY, REASON, NEW_PRIORITY, CLAIM_NAME),
        again="a renewal is repeated. A release or a burial was done if the answer is 404, or 409"
        " for a named claim; a change of priority if the message has its new id",
        answers={
            200: Answer(
                "The priority has changed, and so has the id",
                {JSON: record({"id": MESSAGE_ID})},
                {
                    "X-Message-Id": Header("its id now", MESSAGE_ID, always=True),
                    "Location": Header("its path, from that of the request", text(), always=True),
                },
            ),
            204: Answer(
                "Done",
                headers=RENEWED_HEADERS,
            ),
            **guarded(
                UnreadableBody,
                NoSuchQueue,
                NoSuchMessage,
                DuplicateMessage,
                ClaimEnded,
                SlowBody,
                Unavailable,
            ),
        },
    )

    async def change(self, call: Call) -> StreamResponse:
        """Renew, release or bury; or change the priority."""
        queue, message_id = _target(call)
        given = call.read()
        await call.discard_body(self._service.read_timeout)
        claim = named_claim(call.request.headers)
        priority = given[NEW_PRIORITY]
        if priority is not None and claim is None and _is_alone(given):
            change = self._service.changes.set_priority(queue, message_id, priority)
            headers, answer = stored(await self._service.queues.do(change), "")
            return Response(status=200, body=answer, headers=headers)
        wanted = change_of(self._service.changes, queue, message_id, given, claim)
        return Response(status=204, headers=changed(await self._service.queues.do(wanted)))

    REMOVE = Operation(
        id="remove",
        tag="Messages",
        summary="Remove a message in any state; acknowledges a claimed one",
        parameters=(QUEUE, ID, CLAIM_NAME),
        again=REMOVED,
        answers={
            202: Answer("It will not be delivered again"),
            **guarded(NoSuchMessage, ClaimEnded, Unavailable),
        },
    )

    async def remove(self, call: Call) -> StreamResponse:
        queue, message_id = _target(call)
        call.read()
        claim = named_claim(call.request.headers)
        [outcome] = await self._service.queues.ack(queue, [message_id], [claim])
        if outcome == "ended":
            raise ClaimEnded(queue, message_id)
        if outcome == "missing":
            raise nowhere(queue, message_id)
        return Response(status=202)


def _target(call: Call) -> tuple[str, str]:
    """The queue and the id of the path. Raises InvalidValue."""
    queue = call.queue
    return queue, check_id(queue, call.names["id"])


def _is_alone(given: Values) -> bool:
    """Whether a PATCH gives nothing but a priority."""
    others = (given[RENEWAL], given[RELEASE], given[BURY], given[REASON])
    return all(value is None for value in others)
