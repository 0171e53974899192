"""Messages in the native dialect, many requests at a time: the verbs of the lane.

`messages.py` says what the requests mean and what the answers hold. Here is only what takes less
for many than for each: one look at a queue, one verb, one sync.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from aiohttp.web import Response

from fsmq.spool.context import Pending
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.message import Message, NewMessage
from fsmq.spool.layout.steps import FEW, LARGE_BYTES, Steps, finish
from fsmq.spool.verbs.receive import claim_in

from ..guard.admission import Admission
from ..lane.heads import Verbs
from ..lane.lane import Request, Verb
from ..routing.bodies import INERT
from ..service.service import Service
from . import messages
from .messages import Messages

# How often is looked whether a message that was just stored has been delivered.
_LOOK_S = 0.002


class Quick:
    """The verbs. problem: tells an error of a request whose verb has done something."""

    def __init__(self, service: Service, problem: Callable[[FsmqError], Response]) -> None:
        self._service = service
        self._spool = service.spool
        self._problem = problem
        self._expecting: dict[str, list[Request]] = {}
        self.verbs: Verbs = {
            ("POST", False): Verb(Messages.POST, "send", self._put, has_body=True),
            ("GET", False): Verb(Messages.CLAIM, "receive", self._claim),
            ("DELETE", True): Verb(Messages.REMOVE, "receive", self._remove),
        }

    # -- put ---------------------------------------------------------------------------------------

    def _put(self, requests: list[Request]) -> None:
        own = [request for request in requests if request.values[messages.OWN_ID] is not None]
        if own:
            _hand_over(own)  # a name that is taken concerns one request alone
            requests = [request for request in requests if request not in own]
        for queue, some in _by_queue(requests).items():
            try:
                settings = self._spool.settings(queue)
                pending = self._spool.unsynced.put(queue, list(map(_message, some)), settings)
            except FsmqError:
                # Whose fault it is, each of them finds out alone.
                _hand_over(some)
                continue
            self._service.then(pending, partial(_stored, queue, some), partial(self._fail, some))

    # -- claim -------------------------------------------------------------------------------------

    def _claim(self, requests: list[Request]) -> None:
        groups: dict[tuple[str, float | None, str | None], list[Request]] = defaultdict(list)
        for request in requests:
            visibility = request.values[messages.VISIBILITY]
            groups[request.queue, visibility, request.account].append(request)
        for (queue, visibility, account), some in groups.items():
            if self._spool.context.ready.is_due(queue):
                _hand_over(some)  # it has to be listed first
                continue
            for few in _portions(self._those_served(queue, some)):
                self._claim_for(few, queue, visibility, account)

    def _those_served(self, queue: str, requests: list[Request]) -> list[Request]:
        """Those for which it is time; the others expect messages that are about to be delivered."""
        ready, coming = self._spool.context.ready.count(queue), self._spool.context.coming
        for at, request in enumerate(requests):
            ready -= _count(request)
            if ready < 0:
                if coming is None or coming.last(queue) is None:
                    break
                self._expect(queue, requests[at:])
                return requests[:at]
        return requests

    def _expect(self, queue: str, requests: list[Request]) -> None:
        if queue not in self._expecting:
            asyncio.get_running_loop().call_later(_LOOK_S, self._look_again, queue)
        self._expecting.setdefault(queue, []).extend(requests)

    def _look_again(self, queue: str) -> None:
        self._claim(self._expecting.pop(queue))

    def _claim_for(
        self, requests: list[Request], queue: str, visibility: float | None, account: str | None
    ) -> None:
        room = _Room(self._service.admission, account)
        count = sum(map(_count, requests))
        steps = claim_in(self._spool.context, queue, count, visibility, room)
        try:
            self._service.admission.check(account)
            next(steps)
        except StopIteration as end:
            self._give(requests, room, end.value)
        except FsmqError:
            room.close()
            _hand_over(requests)
        else:
            requests[0].spawn(self._claim_in_thread(requests, room, steps))

    async def _claim_in_thread(
        self, requests: list[Request], room: _Room, steps: Steps[Pending[list[Message]]]
    ) -> None:
        try:
            pending = await self._service.in_thread(finish, steps)
        except FsmqError:
            room.close()
            _hand_over(requests)
        else:
            self._give(requests, room, pending)

    def _give(self, requests: list[Request], room: _Room, pending: Pending[list[Message]]) -> None:
        def done(claimed: list[Message]) -> None:
            room.close()
            rest = iter(claimed)
            for request in requests:
                self._give_one(request, list(islice(rest, _count(request))))

        def failed(error: FsmqError) -> None:
            room.close()
            self._fail(requests, error)

        self._service.then(pending, done, failed)

    def _give_one(self, request: Request, claimed: list[Message]) -> None:
        queue, asked = request.queue, request.values[messages.COUNT]
        if request.is_gone:
            for message in claimed:
                self._release(message)
            request.answer(204, {}, b"")
            return
        if not claimed and (
            request.values[messages.WAIT] or not self._spool.context.ready.is_loaded(queue)
        ):
            request.hand_over()  # to wait, or to list
            return
        self._service.receiver.note_fill(queue, len(claimed), asked or 1)
        request.hold(sum(len(message.body) for message in claimed))
        if not claimed:
            request.answer(204, {}, b"")
        elif asked is not None or request.fields.in_json:
            request.respond(messages.in_json(claimed))
        elif len(claimed[0].body) > LARGE_BYTES:
            request.respond(messages.as_posted(claimed[0]))
        else:
            headers = {**INERT, **messages.headers_of(claimed[0])}
            request.answer(200, headers, claimed[0].body)

    def _release(self, message: Message) -> None:
        try:
            pending = self._spool.unsynced.release_unseen(message)
        except FsmqError:
            return  # its timer brings it back
        self._service.then(pending, lambda _: None, lambda _: None)

    # -- remove ------------------------------------------------------------------------------------

    def _remove(self, requests: list[Request]) -> None:
        for queue, some in _by_queue(requests).items():
            try:
                ids = [request.message_id for request in some]
                pending = self._spool.unsynced.remove(queue, ids)
            except FsmqError:
                _hand_over(some)
                continue
            self._service.then(pending, partial(self._removed, some), partial(self._fail, some))

    def _removed(self, requests: list[Request], found: list[bool]) -> None:
        for request, was_there in zip(requests, found, strict=True):
            if was_there:
                request.answer(202, {}, b"")
            else:
                request.respond(self._problem(messages.nowhere(request.queue, request.message_id)))

    def _fail(self, requests: list[Request], error: FsmqError) -> None:
        for request in requests:
            request.respond(self._problem(error))


class _Room:
    """The memory of messages that are claimed for several requests, until those hold it."""

    def __init__(self, admission: Admission, account: str | None) -> None:
        self._admission = admission
        self._account = account
        self._held = 0

    def take(self, size: int, *, is_first: bool) -> None:
        """Hold bytes of a message. Raises NoRoom."""
        sure = is_first and size <= LARGE_BYTES
        self._admission.hold(self._account, size, sure=sure)
        self._held += size

    def free(self, size: int) -> None:
        """Hold so many bytes less."""
        self._admission.free(self._account, size)
        self._held -= size

    def close(self) -> None:
        """Hold nothing any more."""
        self.free(self._held)


def _by_queue(requests: list[Request]) -> Mapping[str, list[Request]]:
    groups: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        groups[request.queue].append(request)
    return groups


def _portions(requests: list[Request]) -> Iterator[list[Request]]:
    """The requests in parts that each ask for a few messages."""
    part: list[Request] = []
    asked = 0
    for request in requests:
        asked += _count(request)
        if part and asked >= FEW:
            yield part
            part, asked = [], _count(request)
        part.append(request)
    if part:
        yield part


def _hand_over(requests: list[Request]) -> None:
    for request in requests:
        request.hand_over()


def _count(request: Request) -> int:
    return request.values[messages.COUNT] or 1


def _message(request: Request) -> NewMessage:
    return messages.new_message(request.body, request.values, request.fields.kept)


def _stored(queue: str, requests: list[Request], ids: list[str]) -> None:
    for request, message_id in zip(requests, ids, strict=True):
        request.answer(201, *messages.stored(queue, message_id))
