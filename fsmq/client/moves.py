"""Moves over HTTP: a server moves all messages of a queue in the background, or some at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from fsmq.spool.errors import InvalidValue, NoSuchQueue, Unavailable
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.spool.verbs.move import Moved
from fsmq.wire import quote_id

from .exchange import Pause, Verb
from .incoming import member
from .verbs import MAX_COUNT, Verbs

# How soon a move is asked how far it has come; later it is asked after a tenth of its time.
_FIRST_LOOK_S = 0.02
_LONGEST_PAUSE_S = 1.0


class MoveState(NamedTuple):
    """How far a move has come. ``status``: in_progress, complete or error."""

    status: str
    moved: int
    conflicts: int
    error: str | None


class MoveVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def move(
        self,
        source: str,
        target: str,
        only: Sequence[str] | None,
        in_flight: bool,
        progress: Callable[[int], None],
        delayed: bool = False,
        count: int | None = None,
    ) -> Verb[Moved]:
        """A second try after a lost answer does not find, nor count, what the first has moved."""
        check_queue(target, "target")
        if source == target:
            raise InvalidValue("target", "is the source itself")
        path = f"/{check_queue(source)}/move"
        parameters = {
            "to": target,
            "in_flight": "true" if in_flight else None,
            "delayed": "true" if delayed else None,
            "count": None if count is None else str(count),
        }
        if only is not None:
            ids = [quote_id(check_id(source, message_id)) for message_id in dict.fromkeys(only)]
            return (yield from self._some(path, parameters, ids, progress))
        answer = yield from self._verbs.done("POST", path, parameters)
        state = yield from self._end(str(member(answer, "move")), progress)
        if state.error is not None and not (yield from self._verbs.has_queue(target)):
            raise NoSuchQueue(target)
        if state.error is not None and not state.conflicts:
            raise Unavailable(f"the move stopped: {state.error}")
        return Moved(state.moved, state.conflicts)

    def _some(
        self,
        path: str,
        parameters: dict[str, str | None],
        ids: list[str],
        progress: Callable[[int], None],
    ) -> Verb[Moved]:
        waiting = iter(ids)
        moved = conflicts = 0
        while part := list(islice(waiting, MAX_COUNT)):
            body = json.dumps({"ids": part}).encode()
            answer = yield from self._verbs.done("POST", path, parameters, body)
            moved += member(answer, "moved")
            conflicts += member(answer, "conflicts")
            progress(moved)
        return Moved(moved, conflicts)

    def _end(self, ref: str, progress: Callable[[int], None]) -> Verb[MoveState]:
        """Wait for a move's end."""
        started = time.monotonic()
        while True:
            answer = yield from self._verbs.done("GET", f"/_moves/{quote_id(ref)}")
            state = MoveState(*(member(answer, name) for name in MoveState._fields))
            progress(state.moved)
            if state.status != "in_progress":
                return state
            tenth = (time.monotonic() - started) / 10
            yield Pause(min(max(tenth, _FIRST_LOOK_S), _LONGEST_PAUSE_S))
