"""Many acknowledgements with one request, each in a claim or in any. Part of the native dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp.web import Response, StreamResponse

from fsmq.spool import Spool
from fsmq.spool.checks import CLAIM_PATTERN, check_claim
from fsmq.spool.errors import InvalidValue, NoSuchQueue, Unavailable
from fsmq.spool.prepare import MAX_BATCH, Acked

from ....wire import MAX_BATCH_BYTES, unquote_id
from ...answers import json_answer
from ...describe import (
    JSON,
    MESSAGE_ID,
    QUEUE,
    REMOVED,
    Answer,
    Body,
    Operation,
    array,
    or_null,
    record,
    text,
)
from ...dialect import Handlers
from ...problem_answers import OF_BODIES, guarded
from ...routing import needs
from ...routing.call import Call
from ...routing.router import Router
from .batch import IDS
from .batch_bodies import made_of

ACKED = array(
    {
        "oneOf": [
            MESSAGE_ID,
            record(
                {"id": MESSAGE_ID, "claim": or_null(text(CLAIM_PATTERN))},
                required=["id"],
                additionalProperties=False,
            ),
        ]
    },
    minItems=1,
    maxItems=MAX_BATCH,
)


class Acks(Handlers):
    """Handler that removes many messages with one request."""

    def add_routes(self, router: Router) -> None:
        router.add("POST", "/{queue}/ack", self.remove, self.ACK, needs.queue("receive"))

    ACK = Operation(
        id="ack",
        tag="Messages",
        summary="Remove many messages in any state; acknowledges claimed ones",
        parameters=(QUEUE,),
        body=Body(
            "their ids; or objects of an id and the name of its claim: if that claim has ended, the"
            " message stays",
            {JSON: record({"ids": ACKED}, additionalProperties=False)},
            required=True,
        ),
        again=REMOVED,
        answers={
            200: Answer(
                "Which of them were removed, and which were missing; if a claim was named, also"
                " those whose claims had ended",
                {
                    JSON: record(
                        {"removed": IDS, "missing": IDS, "ended": IDS},
                        required=["removed", "missing"],
                    )
                },
            ),
            **guarded(NoSuchQueue, *OF_BODIES, Unavailable),
        },
    )

    async def remove(self, call: Call) -> StreamResponse:
        queue = call.queue
        call.read()
        body = await call.json_body(MAX_BATCH_BYTES, self._service.read_timeout)
        ids, claims = await self._service.beside(len(body), ids_and_claims, body)
        outcomes = await self._service.queues.ack(queue, [unquote_id(i) for i in ids], claims)
        return acked(self._spool, queue, ids, claims, outcomes)


def acked(
    spool: Spool,
    queue: str,
    ids: Sequence[str],
    claims: Sequence[str | None],
    outcomes: Sequence[Acked],
) -> Response:
    """The answer to a ``POST /{queue}/ack``. Raises NoSuchQueue if that is why all are missing."""
    answer: dict[str, list[str]] = {"removed": [], "missing": []}
    if any(claims):
        answer["ended"] = []
    for message_id, outcome in zip(ids, outcomes, strict=True):
        answer[outcome].append(message_id)
    if len(answer["missing"]) == len(ids):
        spool.settings(queue)
    return json_answer(200, answer)


def ids_and_claims(body: bytes) -> tuple[list[str], list[str | None]]:
    """The ids in a ``POST /{queue}/ack``, and the names of their claims.

    Raises:
        UnreadableBody, InvalidValue
    """
    named = made_of(body, "ids", _id_and_claim, within="ids")
    return [message_id for message_id, _ in named], [claim for _, claim in named]


def _id_and_claim(given: Any) -> tuple[str, str | None]:
    if isinstance(given, str):
        return given, None
    if not isinstance(given, dict) or not isinstance(given.get("id"), str):
        raise InvalidValue("ids", "has an element that is neither a string nor an object of an id")
    unknown = sorted(given.keys() - {"id", "claim"})
    if unknown:
        raise InvalidValue(unknown[0][:100], "unknown field; expected one of: id, claim")
    claim = given.get("claim")
    return given["id"], None if claim is None else check_claim(str(claim))
