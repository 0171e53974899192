"""Messages of Dynamiq's clients, many requests at a time: the verbs of the lane.

What requests mean and what answers hold, `queues.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import FsmqError, NoSuchQueue
from fsmq.spool.layout.message import Message

from ...wire import quote_id
from ..lane.claims import QuickClaims
from ..lane.group_verbs import GroupVerbs
from ..lane.groups import by_queue, each, in_turns, shares
from ..lane.heads import Verbs
from ..lane.request import Request, Verb
from ..service.service import Service
from . import api, heads
from .answers import JSON, PLAIN, plain, problem, written
from .queues import fetched, new_message


class Quick:
    """The verbs, with each prefix that paths may have."""

    def __init__(self, service: Service) -> None:
        self._spool = service.spool
        self._puts = GroupVerbs(service, _not_put)
        self._group = GroupVerbs(service, problem)
        fetches = _Fetches(service, self._group.fail)
        self.verbs: Verbs = {}
        for prefix in api.PREFIXES:
            put, messages, one = (
                f"/queues/{{queue}}/{place}"
                for place in ("message", "messages/{number}", "message/{id}")
            )
            of = partial(api.operation, prefix=prefix)
            self.verbs |= {
                ("PUT", f"{prefix} {heads.MESSAGE}"): Verb(
                    of("PUT", put), "send", self._put, has_body=True, told=problem
                ),
                ("GET", f"{prefix} {heads.MESSAGES}"): Verb(
                    of("GET", messages), "receive", fetches.claim, told=problem
                ),
                ("DELETE", f"{prefix} {heads.MESSAGES}"): Verb(
                    of("DELETE", messages), "receive", self._remove_many, told=problem
                ),
                ("DELETE", f"{prefix} {heads.ONE}"): Verb(
                    of("DELETE", one), "receive", self._remove_one, told=problem
                ),
            }

    # -- put ---------------------------------------------------------------------------------------

    def _put(self, requests: list[Request]) -> None:
        for queue, some in by_queue(requests).items():
            begin = partial(self._begin_put, queue, some)
            self._puts.put(some, begin, partial(each, some, _stored))

    def _begin_put(self, queue: str, requests: list[Request]) -> Pending[list[str]]:
        messages = [new_message(request.body, request.fields.kept) for request in requests]
        return self._spool.unsynced.put(queue, messages, self._spool.settings(queue))

    # -- remove ------------------------------------------------------------------------------------

    def _remove_one(self, requests: list[Request]) -> None:
        self._remove(requests, _removed, must_be=False)

    def _remove_many(self, requests: list[Request]) -> None:
        self._remove(requests, _removed_some, must_be=True)

    def _remove(
        self,
        requests: list[Request],
        answer: Callable[[Request, Sequence[bool]], None],
        must_be: bool,
    ) -> None:
        """must_be: whether it is an error that there is no such queue."""
        for some in by_queue(requests).values():
            in_turns(some, _number, partial(self._remove_together, answer, must_be))

    def _remove_together(
        self,
        answer: Callable[[Request, Sequence[bool]], None],
        must_be: bool,
        requests: list[Request],
    ) -> None:
        queue = requests[0].queue

        def begin() -> Pending[list[bool]]:
            if must_be:
                self._spool.settings(queue)
            ids = [message_id for request in requests for message_id in request.given]
            return self._spool.unsynced.remove(queue, ids)

        def done(found: list[bool]) -> None:
            each(requests, answer, shares(found, map(_number, requests)))

        self._group.remove(requests, begin, done)


class _Fetches(QuickClaims):
    """Fetches. The ``given`` of their requests is how many messages they ask for."""

    def count_of(self, request: Request) -> int:
        return request.given  # type: ignore[no-any-return]

    def visibility_of(self, request: Request) -> float | None:
        return None

    def wait_of(self, request: Request) -> float:
        return 0.0

    def is_in_json(self, request: Request) -> bool:
        return True

    def give(self, request: Request, claimed: list[Message]) -> None:
        request.respond(fetched(claimed))


def _not_put(error: FsmqError) -> Response:
    return plain("") if isinstance(error, NoSuchQueue) else problem(error)


def _stored(request: Request, message_id: str) -> None:
    request.answer(200, PLAIN, quote_id(message_id).encode())


def _number(request: Request) -> int:
    return len(request.given)


def _removed(request: Request, found: Sequence[bool]) -> None:
    _answer(request, found[0])


def _removed_some(request: Request, found: Sequence[bool]) -> None:
    _answer(request, {"deleted": sum(found)})


def _answer(request: Request, content: Any) -> None:
    request.answer(200, JSON, written(content))
