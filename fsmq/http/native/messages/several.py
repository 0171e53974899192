"""Claims from several queues in the native dialect."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from aiohttp import hdrs
from aiohttp.web import Response, StreamResponse

from fsmq.spool import Message
from fsmq.spool.checks import MAX_QUEUE_BYTES
from fsmq.spool.errors import NoSuchQueue, Unavailable
from fsmq.spool.prepare import (
    MAX_PARTS,
    MAX_QUEUES,
    MAX_WEIGHT,
    Choice,
    Found,
    Prepared,
    Room,
    Steps,
    Turns,
    claim_several_in,
    flat,
    has_more,
)

from ...describe import OTHERS, QUEUE_NAME, Header, Operation, QueryParameter, text
from ...dialect import Handlers
from ...problem_answers import guarded
from ...routing import needs
from ...routing.call import Call
from ...routing.headers import wants_events
from ...routing.router import Router
from ...service.batcher import Batcher
from ...service.service import Service
from ...service.wanted import Wanted
from ..forms import COUNT, VISIBILITY, WAIT, as_posted, in_json
from . import events
from .messages import Messages

# For how many choices it is remembered whose turn it is, and how many characters these have in all:
# with its compiled patterns, one can take twenty times its text.
_KEPT, _KEPT_CHARACTERS = 1000, 512 * 1024
_PART = r"[A-Za-z0-9._:@*?-]+"
QUEUES = QueryParameter(
    "queues",
    "names and patterns (`*`, `?`) of queues, each with an optional `:` and weight from 1 to"
    f" {MAX_WEIGHT}; without weights the first that has messages is served first. At most"
    f" {MAX_QUEUES} queues",
    text(f"{_PART}(,{_PART})*", maxLength=MAX_PARTS * (MAX_QUEUE_BYTES + 6)),
    required=True,
    values=f"1 to {MAX_PARTS} parts with commas between them",
    parse=lambda name, value: Choice(value),
    default=Choice("*"),
)


_CLAIMED = Messages.CLAIM.answers[200]


class _Queues(NamedTuple):
    """The queues of a claim, by its parts and together. changes: see `Receiver.names`."""

    found: Found
    all: tuple[str, ...]
    changes: int


class SeveralQueues(Handlers):
    """Handler for claims from several queues; afterwards each message belongs to its own queue."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._turns: OrderedDict[tuple[str | None, str], Turns] = OrderedDict()
        self._characters = 0  # of the choices in it
        self._finding: Batcher[Hashable, Several, _Queues] = Batcher(self._find)

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/_claim", self.claim, self.CLAIM, self.NEED)

    # The queues are in the query, so the handler checks the right.
    NEED = needs.anybody.then("`receive` on each queue that is named or that matches a pattern")
    CLAIM = Operation(
        id="claim_several",
        tag="Messages",
        summary="Claim messages from several queues",
        description="Each message is then acknowledged, renewed and released in its own queue."
        f" {Messages.CLAIM.description}",
        parameters=(QUEUES, VISIBILITY, WAIT, COUNT),
        again=OTHERS,
        answers={
            **Messages.CLAIM.answers,
            200: replace(
                _CLAIMED,
                headers={"X-Message-Queue": Header("its queue", QUEUE_NAME), **_CLAIMED.headers},
            ),
            **guarded(NoSuchQueue, Unavailable),
        },
    )

    async def claim(self, call: Call) -> StreamResponse:
        given = call.read()
        for queue in given[QUEUES].names:
            call.sender.require("receive", queue)
        turns = self._turns_of(call, given[QUEUES])
        several = Several(self._service, self._finding, turns, call)
        count = given[COUNT]
        as_events = wants_events(call.request.headers.get(hdrs.ACCEPT))
        call.in_json = as_events or count is not None or call.wants_json
        begin = partial(several.begin, count or 1, given[VISIBILITY])
        wanted = Wanted(
            (), count or 1, wait=given[WAIT], in_json=call.in_json, begin=begin, several=several
        )
        messages = await self._service.queues.claim(call, wanted)
        if not messages:
            return Response(status=204)
        if as_events:
            return events.in_events(messages, with_queue=True)
        if call.in_json:
            return in_json(messages, with_queue=True)
        return as_posted(messages[0], with_queue=True)

    async def _find(self, _: Hashable, asked: Sequence[Several]) -> Sequence[_Queues]:
        """The queues of patterns, once for all requests with the same patterns and rights."""
        names, changes = await self._service.receiver.names()
        found = await self._service.listing(asked[0].choose, names)
        return [_Queues(found, tuple(flat(found)), changes)] * len(asked)

    def _turns_of(self, call: Call, choice: Choice) -> Turns:
        key = (call.account, str(choice))
        turns = self._turns.pop(key, None)
        if turns is None:
            turns = Turns(choice)
            self._characters += len(key[1])
        self._turns[key] = turns
        while len(self._turns) > _KEPT or self._characters > _KEPT_CHARACTERS:
            (_, oldest), _ = self._turns.popitem(last=False)
            self._characters -= len(oldest)
        return turns


class Several:
    """The queues of one request, for the engine: see `fsmq.http.service.wanted.Several`.

    Queues that its sender may not receive from are treated as if they did not exist.
    """

    def __init__(
        self,
        service: Service,
        finding: Batcher[Hashable, Several, _Queues],
        turns: Turns,
        call: Call,
    ) -> None:
        self._receiver = service.receiver
        self._context = service.spool.context
        self._finding = finding
        self._choice = turns.choice  # one for all that are alike: it is compiled once
        self.alike = (call.account, call.sender.rights, str(self._choice))
        self._turns = turns
        self._may: Callable[[str], bool] = partial(call.sender.may, "receive")
        self._found: Found = ()
        self._seen: dict[str, int] = {}
        self._changes = 0

    async def find(self) -> tuple[str, ...]:
        if self._choice.has_patterns:
            self._found, queues, self._changes = await self._finding.ask(self.alike, self)
            return queues
        self._found = self._choice.find(self._context)
        return tuple(flat(self._found))

    def choose(self, names: Iterable[str]) -> Found:
        """Which of all queues each part matches."""
        return self._choice.find(self._context, self._may, names)

    def fits(self, queue: str) -> bool:
        return self._choice.fits(queue) and self._may(queue)

    def has_more(self) -> bool:
        if self._choice.has_patterns and self._changes != self._receiver.changes:
            return True
        return has_more(self._context, self._found, self._seen)

    def begin(
        self, count: int, visibility: float | None, room: Room
    ) -> Steps[Prepared[list[Message]]]:
        """Claim once."""
        return claim_several_in(
            self._context, self._turns, self._found, count, visibility, room, self._seen
        )
