"""Claims, many requests at a time: those of the lane in any dialect, and their waiting.

All that ask for a queue in one turn of the loop share one claim. Who comes up short waits in line.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fsmq.spool.context import Pending
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.message import Message
from fsmq.spool.layout.steps import FEW, LARGE_BYTES, Steps, finish
from fsmq.spool.verbs.receive import claim_in

from ..connection.pieces import FORM_BYTES, JSON_FACTOR
from ..guard.admission import Admission
from ..service.deliveries import LOOK_S, Delivery
from ..service.service import Service
from .groups import by_queue, each, fail_all
from .request import Request


class QuickClaims(ABC):
    """The claims of the lane in one dialect, which says what its requests ask for.

    refuse: answers requests with an error.
    """

    def __init__(
        self, service: Service, refuse: Callable[[list[Request], FsmqError], None]
    ) -> None:
        self._service = service
        self._spool = service.spool
        self._refuse_all = refuse
        self._listing: dict[str, list[Request]] = {}
        self._expecting: dict[str, list[Request]] = {}
        self._waiting: dict[Request, _Waiting] = {}
        self._woken: list[Request] = []

    @abstractmethod
    def count_of(self, request: Request) -> int:
        """How many messages a request asks for."""

    @abstractmethod
    def visibility_of(self, request: Request) -> float | None:
        """For how many seconds; None: as its queue has it."""

    @abstractmethod
    def wait_of(self, request: Request) -> float:
        """How many seconds it waits for the first of them."""

    @abstractmethod
    def is_in_json(self, request: Request) -> bool:
        """Whether it is answered in JSON."""

    @abstractmethod
    def give(self, request: Request, claimed: list[Message]) -> None:
        """Answer it with its messages, or with none."""

    def claim(self, requests: list[Request]) -> None:
        """Claim for requests, whose queue is known to be one that the sender may take from."""
        for queue, some in by_queue(requests).items():
            if (before := self._listing.get(queue)) is not None:
                before += some
            elif self._spool.context.ready.is_due(queue):
                self._listing[queue] = some
                some[0].spawn(self._list(queue))
            else:
                self._claim_now(self._those_served(queue, some))

    async def _list(self, queue: str) -> None:
        """List a queue for those that ask for it meanwhile; nobody overtakes them."""
        try:
            await self._service.receiver.load(queue)
        except FsmqError:
            self._hand_over(self._listing.pop(queue))
        except BaseException:
            fail_all(self._listing.pop(queue))
            raise
        else:
            self._claim_now(self._those_served(queue, self._listing.pop(queue)))

    def _claim_now(self, requests: list[Request]) -> None:
        groups: dict[tuple[str, float | None, str | None], list[Request]] = defaultdict(list)
        for request in requests:
            visibility = self.visibility_of(request)
            groups[request.queue, visibility, request.account].append(request)
        for (queue, visibility, account), some in groups.items():
            for few in self._portions(some):
                self._claim_for(few, queue, visibility, account)

    def _those_served(self, queue: str, requests: list[Request]) -> list[Request]:
        """Those for which it is time; the others expect messages that are about to be delivered."""
        ready = self._spool.context.ready.count(queue)
        for at, request in enumerate(requests):
            ready -= self.count_of(request)
            if ready < 0:
                return requests[:at] + self._those_short(queue, requests[at:])
        return requests

    def _those_short(self, queue: str, requests: list[Request]) -> list[Request]:
        """Those for which there are too few, and which expect no more; the others wait."""
        served: list[Request] = []
        expecting: list[Request] = []
        now: Delivery | None = None  # those that come together have it in common
        due: dict[Delivery, bool] = {}
        for request in requests:
            delivery = request.delivery
            if delivery is None:
                delivery = request.delivery = now = now or self._service.receiver.delivery(queue)
            if delivery not in due:
                due[delivery] = delivery.is_due
            (expecting if due[delivery] else served).append(request)
        if expecting:
            self._expect(queue, expecting)
        return served

    def _expect(self, queue: str, requests: list[Request]) -> None:
        if queue not in self._expecting:
            asyncio.get_running_loop().call_later(LOOK_S, self._look_again, queue)
        self._expecting.setdefault(queue, []).extend(requests)

    def _look_again(self, queue: str) -> None:
        requests = self._expecting.pop(queue)
        try:
            self.claim(requests)
        except Exception:
            fail_all(requests)

    def _claim_for(
        self, requests: list[Request], queue: str, visibility: float | None, account: str | None
    ) -> None:
        forms = FORM_BYTES * sum(map(self.is_in_json, requests))
        room = _Room(self._service.admission, account, forms)
        count = sum(map(self.count_of, requests))
        steps = claim_in(self._spool.context, queue, count, visibility, room)
        try:
            self._service.admission.check(account)
            next(steps)
        except StopIteration as end:
            self._give(requests, room, end.value)
        except FsmqError:
            room.close()
            self._hand_over(requests)
        except BaseException:
            room.close()
            raise
        else:
            requests[0].spawn(self._claim_in_thread(requests, room, steps))

    async def _claim_in_thread(
        self, requests: list[Request], room: _Room, steps: Steps[Pending[list[Message]]]
    ) -> None:
        try:
            pending = await self._service.threads.run_once(finish, steps)
        except FsmqError:
            room.close()
            self._hand_over(requests)
        except Exception:
            room.close()
            fail_all(requests)
        else:
            self._give(requests, room, pending)

    def _give(self, requests: list[Request], room: _Room, pending: Pending[list[Message]]) -> None:
        def done(claimed: list[Message]) -> None:
            room.close()
            rest = iter(claimed)
            shares = [list(islice(rest, self.count_of(request))) for request in requests]
            served = sum(map(bool, shares)) if claimed else len(requests)
            fills: list[float] = []
            each(requests[:served], partial(self._give_one, fills), shares[:served])
            for fill, times in Counter(fills).items():
                self._service.receiver.note_fill(requests[0].queue, fill, times)
            if short := requests[served:]:
                # That there were no more for them is certain when a claim gets nothing at all.
                self.claim(short)

        def failed(error: FsmqError) -> None:
            room.close()
            self._refuse(requests, error)

        self._service.then(pending, done, failed)

    def _give_one(self, fills: list[float], request: Request, claimed: list[Message]) -> None:
        queue = request.queue
        if request.may_be_gone:
            for message in claimed:
                self._release(message)
            self._wait_no_more(request)
            request.hang_up()
            return
        if not claimed and not self._spool.context.ready.is_loaded(queue):
            self.claim([request])  # its folder was made, or replaced, just now
            return
        if not claimed and self.wait_of(request) and self._wait(request):
            return
        self._wait_no_more(request)
        fills.append(len(claimed) / self.count_of(request))
        size = sum([len(message.body) for message in claimed])
        if self.is_in_json(request):
            request.hold(size + _form(size))
        elif size > LARGE_BYTES:  # what is smaller is written at once
            request.hold(size)
        self.give(request, claimed)

    # -- wait --------------------------------------------------------------------------------------

    def _wait(self, request: Request) -> bool:
        """Let a request wait that has got nothing; False if its time is over."""
        receiver, queue = self._service.receiver, request.queue
        waiting = self._waiting.get(request)
        again = waiting is not None
        try:
            if waiting is None:
                wait = min(self.wait_of(request), request.identity.seconds_left)
                until = time.monotonic() + wait
                place = self._service.admission.waiting(request.account)
                place.__enter__()
                waiting = self._waiting[request] = _Waiting(until, place)
            left = waiting.until - time.monotonic()
            if left <= 0 or request.is_over:
                return False
            ended = partial(self._end_pause, request)
            pause = receiver.pause_of(queue, left)
            waiter = receiver.waiters.enter(queue, pause, ended, again=again)
        except FsmqError:
            self._hand_over([request])
        else:
            request.on_gone = waiter.end
        return True

    def _end_pause(self, request: Request, woken: bool) -> None:
        request.on_gone = None
        self._waiting[request].woken = woken
        if not self._woken:
            request.soon(self._claim_woken)
        self._woken.append(request)

    def _claim_woken(self) -> None:
        woken, self._woken = self._woken, []
        requests = []
        for request in woken:
            if request.is_gone or request.is_over:
                self._wait_no_more(request, in_vain=True)
                self.give(request, [])
            else:
                requests.append(request)
        try:
            self.claim(requests)
        except Exception:
            fail_all(requests)

    def _wait_no_more(self, request: Request, *, in_vain: bool = False) -> None:
        """A request is about to be answered. in_vain: what woke it is for the next in line."""
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            waiting.place.__exit__(None, None, None)
            if in_vain and waiting.woken:
                self._service.receiver.waiters.wake(request.queue, 1)

    def _portions(self, requests: list[Request]) -> Iterator[list[Request]]:
        """The requests in parts that each ask for a few messages."""
        part: list[Request] = []
        asked = 0
        for request in requests:
            count = self.count_of(request)
            asked += count
            if part and asked >= FEW:
                yield part
                part, asked = [], count
            part.append(request)
        if part:
            yield part

    def _hand_over(self, requests: list[Request]) -> None:
        for request in requests:
            self._wait_no_more(request, in_vain=True)
            request.hand_over()

    def _release(self, message: Message) -> None:
        try:
            pending = self._spool.unsynced.release_unseen(message)
        except FsmqError:
            return  # its timer brings it back
        self._service.then(pending, lambda _: None, lambda _: None)

    def _refuse(self, requests: list[Request], error: FsmqError) -> None:
        for request in requests:
            self._wait_no_more(request, in_vain=True)
        self._refuse_all(requests, error)


@dataclass(slots=True)
class _Waiting:
    """A claim that waits. until: in monotonic seconds. place: among those that may wait of its key.

    woken: by an arrival, which may be for it.
    """

    until: float
    place: AbstractContextManager[None]
    woken: bool = False


class _Room:
    """The memory of messages that are claimed for several requests, until those hold it.

    forms: the most that goes with them for what they become in JSON.
    """

    def __init__(self, admission: Admission, account: str | None, forms: int) -> None:
        self._admission = admission
        self._account = account
        self._forms = forms
        self._held = 0

    def take(self, size: int, *, is_first: bool) -> None:
        """Hold bytes of a message. Raises NoRoom."""
        sure = is_first and size <= LARGE_BYTES
        form = min(_form(size), self._forms)
        self._admission.hold(self._account, size + form, sure=sure)
        self._forms -= form
        self._held += size + form

    def free(self, size: int) -> None:
        """Hold so many bytes less."""
        self._admission.free(self._account, size)
        self._held -= size

    def close(self) -> None:
        """Hold nothing any more."""
        self.free(self._held)


def _form(size: int) -> int:
    """What bodies of so many bytes take in JSON beside themselves, at a time."""
    return min((JSON_FACTOR - 1) * size, FORM_BYTES)
