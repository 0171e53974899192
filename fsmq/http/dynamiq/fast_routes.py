"""Messages of Dynamiq's clients on the fast path.

`queues.py` defines the meaning of requests and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fsmq.spool import Message
from fsmq.spool.errors import NoSuchQueue
from fsmq.spool.prepare import Acked

from ...wire import quote_id
from ..fast_path.request import FastRoute, FastRoutes, Request
from ..service.service import Service
from ..service.wanted import Wanted
from . import api, heads
from .answers import JSON, PLAIN, plain, problem, written
from .queues import fetched, new_message


class DynamiqRoutes:
    """The routes of the fast path, with each prefix that paths can have."""

    def __init__(self, service: Service) -> None:
        self._spool = service.spool
        self._queues = service.queues
        self.routes: FastRoutes = {}
        remove_one, remove_many = partial(self._remove, _removed), self._remove_many
        for prefix in api.PREFIXES:
            put, messages, one = (
                f"/queues/{{queue}}/{place}"
                for place in ("message", "messages/{number}", "message/{id}")
            )
            of = partial(api.operation, prefix=prefix)
            self.routes |= {
                ("PUT", f"{prefix} {heads.MESSAGE}"): FastRoute(
                    of("PUT", put), "send", self._put, has_body=True, error_answer=problem
                ),
                ("GET", f"{prefix} {heads.MESSAGES}"): FastRoute(
                    of("GET", messages), "receive", self._fetch, error_answer=problem
                ),
                ("DELETE", f"{prefix} {heads.MESSAGES}"): FastRoute(
                    of("DELETE", messages), "receive", remove_many, error_answer=problem
                ),
                ("DELETE", f"{prefix} {heads.ONE}"): FastRoute(
                    of("DELETE", one), "receive", remove_one, error_answer=problem
                ),
            }

    def _put(self, request: Request) -> None:
        message = new_message(request.body, request.fields.kept)
        self._queues.begin_put(request.queue, [message], partial(_put, request))

    def _fetch(self, request: Request) -> None:
        wanted = Wanted((request.queue,), request.given)
        self._queues.begin_claim(request, wanted, partial(_fetched, request))

    def _remove_many(self, request: Request) -> None:
        self._spool.settings(request.queue)  # raises NoSuchQueue
        self._remove(_removed_some, request)

    def _remove(self, answer: Callable[[Request, Sequence[Acked]], None], request: Request) -> None:
        ids: Sequence[str] = request.given
        self._queues.begin_ack(request.queue, ids, (), partial(request.answer_by, answer))


def _put(request: Request, outcome: Sequence[str] | Exception) -> None:
    if isinstance(outcome, NoSuchQueue):
        request.respond(plain(""))
    else:
        request.answer_by(_stored, outcome)


def _stored(request: Request, ids: Sequence[str]) -> None:
    request.answer(200, PLAIN, quote_id(ids[0]).encode())


def _fetched(request: Request, outcome: list[Message] | Exception) -> None:
    if isinstance(outcome, NoSuchQueue):
        request.fall_back()
    else:
        request.answer_by(lambda _, claimed: request.respond(fetched(claimed)), outcome)


def _removed(request: Request, outcomes: Sequence[Acked]) -> None:
    request.answer(200, JSON, written(outcomes[0] == "removed"))


def _removed_some(request: Request, outcomes: Sequence[Acked]) -> None:
    request.answer(200, JSON, written({"deleted": outcomes.count("removed")}))
