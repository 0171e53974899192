"""Work: moves and redrives, consumers, and what people did last at these pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp.web import StreamResponse

from fsmq.spool.errors import InvalidValue
from fsmq.spool.moves.order import Move, holders

from ...guard.access import Identity
from ...guard.sight import may_see_move
from ...problems import NotFound
from ..acts import Act, Acts, Done, Form, Note, Question
from ..commands import curl, fsmq
from ..streams import Streams
from ..visit import Visit

_MOVES = 50


class WorkPages:
    """The handlers."""

    def __init__(self, streams: Streams, acts: Acts, *, may_act: bool) -> None:
        self._streams = streams
        self._acts = acts
        self._may_act = may_act
        self._on_work: Mapping[str, Act] = {"stop": Act("receive", _stop, _ask_stop)}

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "work", self.work, "Moves, consumers and the last acts")
        if self._may_act:
            add("POST", "work", self.act, "Stop a move")

    async def work(self, visit: Visit) -> StreamResponse:
        return await self._streams.page_or_stream(
            visit, "work.html", "work_live.html", lambda: self._work(visit)
        )

    async def _work(self, visit: Visit) -> dict[str, object]:
        moves = await visit.service.in_thread(visit.spool.moves, _MOVES)
        going = [move for move in moves if move.status == "in_progress"]
        held = await visit.service.in_thread(holders, visit.spool.context, going)
        consumers = await visit.service.surveys.consumers()
        staged = [
            (job, sum(seen.values()))
            for job in await visit.service.surveys.staged()
            if (seen := {q: n for q, n in job.messages.items() if visit.identity.may_see(q)})
            or visit.identity.account is None
        ]
        shown = {
            name: {queue: one for queue, one in behind.items() if visit.identity.may_see(queue)}
            for name, behind in consumers.items()
        }
        return {
            "moves": [move for move in moves if may_see_move(visit.identity, move)],
            "holders": held,
            "staged": staged,
            "consumers": {name: behind for name, behind in shown.items() if behind},
            "notes": [one for one in self._acts.last if _may_note(visit.identity, one)],
        }

    async def act(self, visit: Visit) -> StreamResponse:
        form = await visit.form()
        move = await _found(visit, form.get("ref", [""])[0])
        return await self._acts.answer(visit, self._on_work, move.source)


def _may_note(identity: Identity, note: Note) -> bool:
    return all(identity.may_see(queue) for queue in (note.queue, note.to) if queue)


async def _found(visit: Visit, ref: str) -> Move:
    if not ref:
        raise InvalidValue("ref", "expected the reference of a move")
    move = await visit.service.in_thread(visit.spool.find_move, ref)
    if move is None or not may_see_move(visit.identity, move):
        raise NotFound("the move")
    return move


async def _ask_stop(visit: Visit, form: Form) -> Question:
    move = await _found(visit, form.text("ref"))
    where = move.target or "where they were buried"
    return Question(
        f"Stop the move from {move.source}?",
        (f"What has moved to {where} stays there; the others stay in {move.source}.",),
        "Stop the move",
        command=fsmq("moves", "--stop", move.ref),
        curl=curl(visit, "DELETE", "_moves", move.ref),
    )


async def _stop(visit: Visit, form: Form) -> Done:
    move = await _found(visit, form.text("ref"))
    await visit.service.in_thread(visit.spool.stop_move, move.ref)
    return Done("move_stopped", move.moved, visit.url("work"))
