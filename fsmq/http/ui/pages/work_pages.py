"""Work: moves and redrives, consumers, and the last actions on these pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aiohttp.web import StreamResponse

from fsmq.spool.errors import InvalidValue, as_unavailable
from fsmq.spool.inspection import Act, Move, holders, latest

from ...guard.access import Identity
from ...guard.sight import may_see_move
from ...problems import NotFound
from ..actions import Action, Actions, Done, Form, Question
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..streams import Streams

_MOVES = 50
_ACTS = 100


class WorkPages:
    """Handlers of the page of work."""

    def __init__(self, streams: Streams, actions: Actions) -> None:
        self._streams = streams
        self._actions = actions
        self._on_work: Mapping[str, Action] = {"stop": Action("receive", _stop, _ask_stop)}

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "work", self.work, "Moves, consumers and the last actions")
        add("POST", "work", self.action, "Stop a move")

    async def work(self, request: PageRequest) -> StreamResponse:
        return await self._streams.page_or_stream(
            request, "work.html", "work_live.html", lambda: self._work(request)
        )

    async def _work(self, request: PageRequest) -> dict[str, object]:
        wanted = partial(may_see_move, request.identity)
        moves = await request.service.in_thread(latest, request.spool.context, _MOVES, wanted)
        going = [move for move in moves if move.status == "in_progress"]
        held = await request.service.in_thread(holders, request.spool.context, going)
        consumers = await request.service.surveys.consumers()
        staged = [
            (job, sum(seen.values()))
            for job in await request.service.surveys.staged()
            if (seen := {q: n for q, n in job.messages.items() if request.identity.may_see(q)})
            or request.identity.account is None
        ]
        shown = {
            name: {queue: one for queue, one in behind.items() if request.identity.may_see(queue)}
            for name, behind in consumers.items()
        }
        return {
            "moves": moves,
            "holders": held,
            "staged": staged,
            "consumers": {name: behind for name, behind in shown.items() if behind},
            "acts": await self._acts(request),
        }

    async def _acts(self, request: PageRequest) -> list[Act]:
        """The last acts that the visitor may see, the newest first."""
        with as_unavailable("cannot read the journal"):
            noted = await request.service.inspector.acts()
        known = sorted({*noted, *self._actions.last}, reverse=True)
        return [one for one in known if _may_note(request.identity, one)][:_ACTS]

    async def action(self, request: PageRequest) -> StreamResponse:
        move = await _found(request, await request.field("ref"))
        return await self._actions.answer(request, self._on_work, move.source)


def _may_note(identity: Identity, act: Act) -> bool:
    # The queue of a schedule decides who may see it.
    on = "" if act.to and act.on.startswith("schedules/") else act.on
    return all(identity.may_see(one) for one in (on, act.to) if one)


async def _found(request: PageRequest, ref: str) -> Move:
    if not ref:
        raise InvalidValue("ref", "expected the reference of a move")
    move = await request.service.in_thread(request.spool.find_move, ref)
    if move is None or not may_see_move(request.identity, move):
        raise NotFound("the move")
    return move


async def _ask_stop(request: PageRequest, form: Form) -> Question:
    move = await _found(request, form.text("ref"))
    where = move.target or "the queues from which they were buried"
    return Question(
        f"Stop the move from {move.source}?",
        (f"Messages that have moved to {where} stay there; others stay in {move.source}.",),
        "Stop the move",
        command=fsmq("move", "stop", move.ref),
        curl=curl(request, "DELETE", "_moves", move.ref),
    )


async def _stop(request: PageRequest, form: Form) -> Done:
    move = await _found(request, form.text("ref"))
    await request.service.moves.stop_move(move.ref)
    return Done("move_stopped", move.moved, request.url("work"))
