"""Inspection over HTTP: searches, where a message is, its life, the cluster, the history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.spool.records.history import Figures, Moment
from fsmq.spool.records.life import Life, LifeStep, in_order
from fsmq.spool.views.places import Place
from fsmq.spool.views.wanted import Found
from fsmq.wire import moment, quote_id, seconds, unquote_id

from ..errors import UnexpectedAnswer
from ..exchange import Answer, Verb
from . import incoming as answers
from .queue_verbs import MAX_COUNT, Verbs


class InspectionVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def search(
        self,
        queue: str,
        count: int,
        state: str,
        after: str,
        attributes: Mapping[str, str] | None,
        contains: str | bytes | None,
        older_than: float | None,
        budget: float,
    ) -> Verb[Found]:
        if not 1 <= count <= MAX_COUNT:
            raise InvalidValue("count", f"must be 1 to {MAX_COUNT}")
        parameters: dict[str, Any] = {
            "state": state,
            "count": count,
            "after": quote_id(after) or None,
            "contains": contains,
            "older_than": older_than,
            "budget": budget,
            **{f"attribute.{name}": value for name, value in (attributes or {}).items()},
        }
        path = f"/{check_queue(queue)}/peek"
        answer = yield from self._verbs.done("GET", path, parameters, wait=budget)
        following = answers.member(answer, "next")
        return Found(
            answers.messages(queue, answer), None if following is None else unquote_id(following)
        )

    def find(self, message_id: str) -> Verb[list[Place]]:
        path = f"/_messages/{quote_id(check_id('', message_id))}"
        answer = yield from self._verbs.done("GET", path)
        try:
            return [_place(found) for found in answers.member(answer, "places")]
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(answer.status, f"no places of fsmq: {error!r}") from error

    def cluster(self) -> Verb[dict[str, Any]]:
        answer = yield from self._verbs.done("GET", "/_cluster")
        found = answers.parsed(answer)
        try:
            for program in found["programs"]:
                since = program["since"]
                program["since"] = None if since is None else seconds(since)
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(answer.status, f"no cluster of fsmq: {error!r}") from error
        return dict(found)

    def history(
        self, queue: str | None, since: float | None, step: float | None
    ) -> Verb[dict[str, list[Moment]]]:
        parameters = {
            "queue": None if queue is None else check_queue(queue),
            "from": None if since is None else moment(since),
            "step": None if step is None else round(step),
        }
        answer = yield from self._verbs.done("GET", "/_history", parameters)
        try:
            return {
                name: [Moment(at / 1000, Figures.from_json(row)) for at, *row in rows]
                for name, rows in answers.member(answer, "queues").items()
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(answer.status, f"no history of fsmq: {error!r}") from error

    def life(self, queue: str, message_id: str, after: str, budget: float) -> Verb[Life]:
        quoted = quote_id(check_id(queue, message_id))
        path = f"/{check_queue(queue)}/messages/{quoted}/life"
        parameters = {"after": after or None, "budget": budget}
        answer = yield from self._verbs.done("GET", path, parameters, wait=budget)
        return _life(answer)


def _place(found: dict[str, Any]) -> Place:
    deadline = found["deadline"]
    return Place(
        found["queue"],
        unquote_id(found["id"]),
        found["state"],
        found["deliveries"],
        None if deadline is None else seconds(deadline),
    )


def _life(answer: Answer) -> Life:
    steps, following = [], None
    try:
        for line in answer.body.splitlines():
            found = json.loads(line)
            if "next" in found:
                following = found["next"]
            else:
                steps.append(LifeStep.from_json(found))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnexpectedAnswer(answer.status, f"no steps of fsmq: {error!r}") from error
    return Life(in_order(steps), following)
