"""Moves over HTTP: all messages of a queue in the background, or some of them at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import islice
from operator import add
from typing import Any

from fsmq.spool.errors import InvalidValue, NoSuchQueue, Unavailable
from fsmq.spool.layout.duty_cycle import MAX_RATE, check_rate
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.spool.layout.settings import check_number
from fsmq.spool.layout.steps import portions
from fsmq.spool.moves.order import MAX_CHOSEN, MAX_LISTED, Move, moved_and
from fsmq.spool.verbs.moves.move import Moved
from fsmq.spool.verbs.moves.redrive import Redriven
from fsmq.wire import move_from_json, quote_id

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Pause, Verb
from .incoming import member, parsed
from .queue_verbs import MAX_COUNT, Verbs

# When the progress of a move is first asked for; later after each tenth of the time so far.
_FIRST_LOOK_S = 0.02
_LONGEST_PAUSE_S = 1.0


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
        rate: float | None = None,
    ) -> Verb[Moved]:
        """A retry after a lost answer does not count messages that the first try moved."""
        check_queue(target, "target")
        if source == target:
            raise InvalidValue("target", "is the source itself")
        path = f"/{check_queue(source)}/move"
        parameters = {
            "to": target,
            "in_flight": "true" if in_flight else None,
            "delayed": "true" if delayed else None,
            "count": None if count is None else str(count),
            "rate": _rate(rate),
        }
        if only is not None and rate is None:
            return Moved(*(yield from self._in_parts(source, path, parameters, only, progress)))
        done = Moved()
        for portion in _parts(only):
            answer = yield from self._verbs.done("POST", path, parameters, _body(source, portion))
            report = moved_and(done.moved, progress)
            move = yield from self._end(str(member(answer, "move")), report)
            if move.error is not None and not (yield from self._verbs.has_queue(target)):
                raise NoSuchQueue(target)
            if move.error is not None and not move.conflicts:
                raise Unavailable(f"the move stopped: {move.error}")
            done = Moved(*map(add, done, (move.moved, move.conflicts)))
        return done

    def redrive(
        self,
        dead: str,
        only: Sequence[str] | None,
        to: str | None,
        rate: float | None,
        progress: Callable[[int], None],
    ) -> Verb[Redriven]:
        """A retry after a lost answer does not count messages that the first try moved."""
        if only is not None and rate is None:
            path, parameters = _redrive(dead, to, None)
            return Redriven(*(yield from self._in_parts(dead, path, parameters, only, progress)))
        done = Redriven()
        for portion in _parts(only):
            order = yield from self.begin_redrive(dead, to, rate, portion)
            move = yield from self._end(order.ref, moved_and(done.moved, progress))
            is_to_blame = move.error is not None and to is not None
            if is_to_blame and not (yield from self._verbs.has_queue(to or "")):
                raise NoSuchQueue(to or "")
            done = Redriven(*map(add, done, (move.moved, move.conflicts, move.no_origin)))
        return done

    def begin_redrive(
        self, dead: str, to: str | None, rate: float | None, only: Sequence[str] | None = None
    ) -> Verb[Move]:
        """A retry after a lost answer orders another move, of the messages that are left."""
        if only is not None and rate is None:
            rate = MAX_RATE  # without a rate a server redrives ids before it answers
        path, parameters = _redrive(dead, to, rate)
        answer = yield from self._verbs.done("POST", path, parameters, _body(dead, only))
        ref = str(member(answer, "move"))
        shown = yield from self._verbs.done("GET", f"/_moves/{quote_id(ref)}")
        return _move(parsed(shown), shown.status)

    def find_move(self, ref: str) -> Verb[Move | None]:
        outcome = yield from self._verbs.outcome("GET", f"/_moves/{quote_id(ref)}")
        if outcome.answer.status == 404:
            return None
        if outcome.answer.status != 200:
            raise error_of(outcome.answer)
        return _move(parsed(outcome.answer), outcome.answer.status)

    def moves(self, count: int) -> Verb[list[Move]]:
        check_number("count", count, 1, MAX_LISTED)
        answer = yield from self._verbs.done("GET", "/_moves", {"count": count})
        return [_move(found, answer.status) for found in member(answer, "moves")]

    def stop_move(self, ref: str) -> Verb[Move | None]:
        """A retry after a lost answer finds it stopped."""
        outcome = yield from self._verbs.outcome("DELETE", f"/_moves/{quote_id(ref)}")
        if outcome.answer.status == 404:
            return None
        if outcome.answer.status not in (200, 202):
            raise error_of(outcome.answer)
        return _move(parsed(outcome.answer), outcome.answer.status)

    def _in_parts(
        self,
        source: str,
        path: str,
        parameters: dict[str, str | None],
        only: Sequence[str],
        progress: Callable[[int], None],
    ) -> Verb[list[int]]:
        """The counts of all answers, added up, in the order of an answer's members."""
        waiting = iter([quote_id(check_id(source, one)) for one in dict.fromkeys(only)])
        counts: dict[str, int] = {"moved": 0, "conflicts": 0}
        while part := list(islice(waiting, MAX_COUNT)):
            body = json.dumps({"ids": part}).encode()
            answer = yield from self._verbs.done("POST", path, parameters, body)
            for name in parsed(answer):
                counts[name] = counts.get(name, 0) + member(answer, name)
            progress(counts["moved"])
        return list(counts.values())

    def _end(self, ref: str, progress: Callable[[Move], None]) -> Verb[Move]:
        """Wait for the end of a move."""
        started = time.monotonic()
        while True:
            answer = yield from self._verbs.done("GET", f"/_moves/{quote_id(ref)}")
            move = _move(parsed(answer), answer.status)
            progress(move)
            if move.status != "in_progress":
                return move
            tenth = (time.monotonic() - started) / 10
            yield Pause(min(max(tenth, _FIRST_LOOK_S), _LONGEST_PAUSE_S))


def _parts(only: Sequence[str] | None) -> Sequence[Sequence[str] | None]:
    """Ids in portions that a server takes; None, which means all messages, as one portion."""
    return [None] if only is None else list(portions(dict.fromkeys(only), MAX_CHOSEN))


def _body(queue: str, only: Sequence[str] | None) -> bytes:
    """The body of a request to move ids; empty for all messages. Raises InvalidValue."""
    if only is None:
        return b""
    ids = [quote_id(check_id(queue, one)) for one in dict.fromkeys(only)]
    return json.dumps({"ids": ids}).encode()


def _rate(rate: float | None) -> str | None:
    return None if rate is None else str(check_rate(rate))


def _redrive(dead: str, to: str | None, rate: float | None) -> tuple[str, dict[str, str | None]]:
    path = f"/{check_queue(dead)}/redrive"
    if to is not None:
        check_queue(to, "to")
        if to == dead:
            raise InvalidValue("to", "is the same queue as the source")
    return path, {"to": to, "rate": _rate(rate)}


def _move(found: Any, status: int) -> Move:
    try:
        return move_from_json(found)
    except (KeyError, TypeError) as error:
        raise UnexpectedAnswer(status, f"no move of fsmq: {error!r}") from error
