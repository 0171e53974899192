"""Messages of EmoDB's plain queues, many requests at a time: the verbs of the lane.

What requests mean and what answers hold, the modules of the handlers say. What equal messages of
dedup queues become is theirs: those have no lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from fsmq.spool.context import Pending
from fsmq.spool.layout.message import Message, NewMessage
from fsmq.spool.layout.steps import FEW, LARGE_BYTES

from ..describe import Operation
from ..lane.claims import QuickClaims
from ..lane.group_verbs import GroupVerbs
from ..lane.groups import by_queue, each, fail_all, in_turns, read_each
from ..lane.heads import Verbs
from ..lane.json_bodies import json_body
from ..lane.request import Request, Verb
from ..service.service import Service
from . import api, heads, ids
from .answers import JSON, SUCCESS, answered, polled
from .batches import elements, parse_any, stored_batch
from .errors import problem
from .plain import AT_ONCE, LOOK_AGAIN_S
from .requests import Poll
from .stored import store

# The things that a body is about; None if they are more than is done on the loop.
_Read: TypeAlias = Callable[[bytes], list[Any] | None]


class Quick:
    """The verbs."""

    def __init__(self, service: Service) -> None:
        self._admission = service.admission
        self._spool = service.spool
        self._group = GroupVerbs(service, problem)
        polls = _Polls(service, self._group.fail)
        send, send_batch = partial(self._send, _one), partial(self._send, _few(stored_batch))
        some = FEW // 2  # of which each may be about many messages
        self.verbs: Verbs = {
            ("POST", heads.SEND): Verb(_of("POST", "send"), "send", send, True, told=problem),
            ("POST", heads.SEND_BATCH): Verb(
                _of("POST", "sendbatch"), "send", send_batch, True, some, problem
            ),
            ("GET", heads.POLL): Verb(_of("GET", "poll"), "receive", polls.claim, told=problem),
            ("POST", heads.ACK): Verb(
                _of("POST", "ack"), "receive", self._ack, True, some, problem
            ),
        }

    # -- send --------------------------------------------------------------------------------------

    def _send(self, read: _Read, requests: list[Request]) -> None:
        good = read_each(requests, partial(self._read, read))
        for some in by_queue(good).values():
            in_turns(some, _number, self._put)

    def _put(self, requests: list[Request]) -> None:
        queue = requests[0].queue

        def begin() -> Pending[list[str]]:
            messages = [NewMessage(body) for request in requests for body in request.given]
            return self._spool.unsynced.put(queue, messages, self._spool.settings(queue))

        self._group.put(requests, begin, partial(_succeed, requests))

    # -- ack ---------------------------------------------------------------------------------------

    def _ack(self, requests: list[Request]) -> None:
        def read(request: Request) -> list[str] | None:
            given = self._read(_few(elements), request)
            return None if given is None else ids.decode_all(request.queue, given)

        for some in by_queue(read_each(requests, read)).values():
            in_turns(some, _number, self._remove)

    def _remove(self, requests: list[Request]) -> None:
        of_all = [message_id for request in requests for message_id in request.given]
        begin = partial(self._spool.unsynced.remove, requests[0].queue, of_all)
        self._group.remove(requests, begin, partial(_succeed, requests))

    def _read(self, read: _Read, request: Request) -> list[Any] | None:
        return read(json_body(request, self._admission)) or None


class _Polls(QuickClaims):
    """Polls. The ``given`` of their requests is what they ask for."""

    def count_of(self, request: Request) -> int:
        return _poll(request).limit

    def visibility_of(self, request: Request) -> float | None:
        return _poll(request).ttl

    def wait_of(self, request: Request) -> float:
        return LOOK_AGAIN_S

    def is_in_json(self, request: Request) -> bool:
        return True

    def give(self, request: Request, claimed: list[Message]) -> None:
        if any(len(message.body) > LARGE_BYTES for message in claimed):
            request.spawn(self._give_large(request, claimed))
        else:
            request.respond(polled(request.queue, claimed))

    async def _give_large(self, request: Request, claimed: Sequence[Message]) -> None:
        try:
            request.respond(await answered(self._service, request.queue, claimed))
        except Exception:
            fail_all([request])


def _of(method: str, place: str) -> Operation:
    return api.operation("queue", method, f"/{{queue}}/{place}")


def _few(read: Callable[[bytes], list[Any]]) -> _Read:
    """Reads arrays of few elements: of commas there are as many between them."""
    return lambda body: None if body.count(b",") >= AT_ONCE else read(body)


def _one(body: bytes) -> list[bytes]:
    return [store(parse_any(body))]


def _number(request: Request) -> int:
    return len(request.given)


def _poll(request: Request) -> Poll:
    return request.given  # type: ignore[no-any-return]


def _succeed(requests: list[Request], _: object) -> None:
    each(requests, _confirm)


def _confirm(request: Request) -> None:
    request.answer(200, JSON, SUCCESS)
