"""The history of own ids that are reused, and a check that it is linearizable.

An id has one message after another, each with its own content, which identifies its put. Several
clients put, take and remove them concurrently. There must be an order of all operations, within
their times, in which every answer is right: a delivered message was stored and not held, a put
found the id free, and the message that is stored in the end is the last that was put and not
removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fsmq.spool.layout.names import new_id, siblings
from tests.power.ops import ACCURACY_S, DONE, NEVER, Op
from tests.power.order import Step, first_unexplained

# Own ids that all clients share. A UUIDv7 gets a suffix for a message with attributes.
PLAIN = tuple(f"own-{n}" for n in range(4))
CARRYING = tuple(f"01890a5d-ac96-774b-bcce-b302099a800{n}" for n in range(4))
_POOL = frozenset((*PLAIN, *CARRYING))


def bare(message_id: str) -> str:
    """The own id of the put of a message id."""
    return siblings(message_id)[0]


def is_reused(message_id: str) -> bool:
    return bare(message_id) in _POOL


class State(NamedTuple):
    """The message of an own id. until: Unix seconds until which it must be hidden."""

    id: str = ""
    content: str = ""
    until: float = 0.0


NOTHING = State()
Place = tuple[str, str]  # a queue and a bare own id


@dataclass
class _Operations:
    """The operations on one own id in one queue, and the inspections."""

    puts: list[Op] = field(default_factory=list)
    removals: list[Op] = field(default_factory=list)
    changes: list[Op] = field(default_factory=list)  # renewals and releases
    fetches: list[tuple[Op, State]] = field(default_factory=list)
    looks: list[tuple[float, State]] = field(default_factory=list)  # when all had ended


class Reuse:
    """The operations of one round on own ids.

    answer_counts: whether an operation's answer counts.
    find: reports the kind and the story of a broken promise.
    gone: contents of earlier rounds, all of which were removed.
    is_excused: whether a removal may have been done though its answer was 404.
    """

    def __init__(
        self,
        ops: Iterable[Op],
        answer_counts: Callable[[Op], bool],
        find: Callable[[str, str], None],
        gone: set[str],
        is_excused: Callable[[Op], bool] = lambda op: False,
    ) -> None:
        self._answer_counts = answer_counts
        self._find = find
        self._gone = gone
        self._is_excused = is_excused
        self._operations: dict[Place, _Operations] = defaultdict(_Operations)
        self._ends: dict[str, list[Op]] = defaultdict(list)  # purges, by queue
        self._put: dict[str, Place] = {}  # where each content was put
        found = list(ops)
        for op in found:
            if op.verb == "post" and op.own:
                place = (op.queue, bare(op.own))
                self._operations[place].puts.append(op)
                self._put[op.content] = place
        for op in found:
            self._add(op)

    @property
    def contents(self) -> set[str]:
        return set(self._put)

    def _add(self, op: Op) -> None:
        if op.verb in ("purge", "delete_queue"):
            self._ends[op.queue].append(op)
        elif op.verb == "fetch":
            for message_id, found, deadline, fault, *_ in op.got:
                if is_reused(message_id):
                    self.add_delivery(op, message_id, found, deadline, fault)
        elif op.verb in ("delete", "renew", "release") and is_reused(op.ids[0]):
            operations = self._operations[op.queue, bare(op.ids[0])]
            (operations.removals if op.verb == "delete" else operations.changes).append(op)

    def add_delivery(
        self, op: Op, message_id: str, found: str | None, deadline: float, fault: str
    ) -> None:
        """Record that a message was delivered."""
        operations = self._identify(op.queue, message_id, found, fault)
        if operations is not None:
            operations.fetches.append((op, State(message_id, found or "", deadline)))

    def add_stored(
        self,
        when: float,
        queue: str,
        message_id: str,
        deadline: float,
        found: str | None,
        fault: str,
    ) -> None:
        """Record a message that is stored when all operations have ended."""
        operations = self._identify(queue, message_id, found, fault)
        if operations is not None:
            operations.looks.append((when, State(message_id, found or "", deadline)))

    def check(self, looked: float | None = None) -> None:
        """Check all own ids. looked: the time of the inspection after all operations."""
        for place, operations in self._operations.items():
            if looked is not None and not operations.looks:
                operations.looks.append((looked, NOTHING))
            steps = list(self._steps(place, operations))
            wrong = first_unexplained(steps, NOTHING)
            if wrong is None:
                continue
            patient = list(self._steps(place, operations, holds=False))
            is_held = first_unexplained(patient, NOTHING) is None
            self._find("held twice" if is_held else wrong.kind, _story(place, wrong, steps))

    def _identify(
        self, queue: str, message_id: str, found: str | None, fault: str
    ) -> _Operations | None:
        """The operations on the id of a message; an unknown message is a finding."""
        place = (queue, bare(message_id))
        what = f"{queue}:{message_id}"
        if found is None:
            self._find("torn", f"{what}: {fault}")
        elif found in self._gone:
            self._find("resurrected", f"{what} is {found} of an earlier round")
        elif found not in self._put:
            self._find("foreign", f"{what} is {found}, which no one has put")
        elif self._put[found] != place:
            self._find("mixed", f"{what} is {found}, which was put as {':'.join(self._put[found])}")
        else:
            return self._operations[place]
        return None

    def _steps(
        self, place: Place, operations: _Operations, holds: bool = True
    ) -> Iterator[Step[State]]:
        """holds: whether a held message must not be delivered."""
        for op in operations.puts:
            yield self._put_step(op, operations.puts)
        for op in operations.removals:
            yield from self._removal_steps(op)
        for op in self._ends[place[0]]:
            yield from self._purge_steps(op, operations.puts)
        for op in operations.changes:
            yield from self._change_steps(op)
        for op, given in operations.fetches:
            if self._answer_counts(op):
                yield _fetch_step(op, given, holds)
        for when, found in operations.looks:
            yield _look_step(when, found, holds)

    def _put_step(self, op: Op, puts: Sequence[Op]) -> Step[State]:
        stored = State(new_id(own=op.own, headed=bool(op.attempt)), op.content)
        if not self._answer_counts(op):
            # An interrupted put may be completed later, but not after the answer of a later put of
            # the same id.
            after = [p.answered for p in puts if self._answer_counts(p) and p.called > op.over]
            latest = min(after, default=NEVER)
            return Step(op.called, latest, False, _stored(stored), "", _text(op))
        if op.status == 409:
            there = _if(lambda state: state != NOTHING)
            return Step(op.called, op.answered, True, there, "resurrected", _text(op))
        if op.delay:
            stored = stored._replace(until=op.called_wall + op.delay)
        return Step(op.called, op.answered, True, _stored(stored), "duplicated", _text(op))

    def _removal_steps(self, op: Op) -> Iterator[Step[State]]:
        message_id = op.ids[0]

        def gone(state: State) -> State:
            return NOTHING if state.id == message_id else state

        if not self._answer_counts(op):
            yield Step(op.called, op.over, False, gone, "", _text(op))
        elif op.status in DONE or (op.status == 404 and self._is_excused(op)):
            yield Step(op.called, op.answered, True, gone, "", _text(op))
        elif op.status == 404:
            not_there = _if(lambda state: state.id != message_id)
            yield Step(op.called, op.answered, True, not_there, "lost", _text(op))

    def _purge_steps(self, op: Op, puts: Sequence[Op]) -> Iterator[Step[State]]:
        """A purge goes from folder to folder, and may remove messages that are put meanwhile."""
        counts = self._answer_counts(op)
        if counts and op.status not in DONE:
            return
        end = op.answered if counts else op.over
        if counts:
            yield Step(op.called, end, True, lambda state: NOTHING, "", _text(op))
        for put in puts:
            if put.called < end and not (self._answer_counts(put) and put.answered < op.called):
                yield Step(op.called, end, False, lambda state: NOTHING)
        if not counts:
            yield Step(op.called, end, False, lambda state: NOTHING, "", _text(op))

    def _change_steps(self, op: Op) -> Iterator[Step[State]]:
        """Renewals and releases, which act on the message that has the id."""
        message_id = op.ids[0]
        counts = self._answer_counts(op)

        def changed(state: State) -> State | None:
            return state._replace(until=op.deadline) if state.id == message_id else None

        if not counts:
            yield Step(op.called, op.over, False, changed, "", _text(op))
        elif op.status in DONE:
            yield Step(op.called, op.answered, True, changed, "resurrected", _text(op))


def _stored(stored: State) -> Callable[[State], State | None]:
    return lambda state: stored if state == NOTHING else None


def _if(holds: Callable[[State], bool]) -> Callable[[State], State | None]:
    """A step that changes nothing, with an answer that is possible only in such a state."""
    return lambda state: state if holds(state) else None


def _fetch_step(op: Op, given: State, holds: bool) -> Step[State]:
    def taken(state: State) -> State | None:
        if state[:2] != given[:2] or (holds and op.answered_wall < state.until):
            return None
        return given

    return Step(op.called, op.answered, True, taken, "resurrected", _text(op, given))


def _look_step(when: float, found: State, holds: bool) -> Step[State]:
    def seen(state: State) -> bool:
        is_early = holds and found.until < state.until - ACCURACY_S
        return state[:2] == found[:2] and not is_early

    kind = "lost" if found == NOTHING else "resurrected"
    what = f"{found.content} is stored" if found.id else "nothing is stored"
    return Step(when, when, True, _if(seen), kind, f"{what} {when:.4f}")


def _text(op: Op, given: State | None = None) -> str:
    what = op.own or " ".join(op.ids)
    if given is not None:
        what = f"{given.id} of {given.content} until {given.until:.3f}"
    elif op.own:
        what += f" of {op.content}"
    elif op.deadline:
        what += f" until {op.deadline:.3f}"
    end = op.answered if op.answered < NEVER else op.over
    return f"{op.verb} {what} by {op.client} {op.called:.4f}..{end:.4f} ({op.status})"


def _story(place: Place, wrong: Step[State], steps: Sequence[Step[State]]) -> str:
    texts = [step.what for step in sorted(steps, key=lambda step: step.called) if step.what]
    return f"{':'.join(place)}: nothing explains [{wrong.what}]; all: {', '.join(texts)}"
