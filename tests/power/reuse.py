"""Own ids that are used again: what a load has done to each, and whether one order explains it.

Under such an id stands one message after the other, each with content of its own, by which it is
known whose put came out. Several clients put, take and remove them at the same time, so it is asked
whether there is an order of all that was told, within the times at which it can have been done, in
which each answer is true: what came out stood there then and nobody held it, what was put came
where nothing stood, and what stands in the end is the last that was put and not removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fsmq.spool.layout.names import new_id, siblings
from tests.power.ops import ACCURACY_S, DONE, NEVER, Op
from tests.power.order import Step, first_unexplained

# All clients share them. A UUIDv7 stays as it is whatever it carries; others are marked then.
PLAIN = tuple(f"own-{n}" for n in range(4))
CARRYING = tuple(f"01890a5d-ac96-774b-bcce-b302099a800{n}" for n in range(4))
_POOL = frozenset((*PLAIN, *CARRYING))


def bare(message_id: str) -> str:
    """The own id that a put was asked for whose message has this one."""
    return siblings(message_id)[0]


def is_reused(message_id: str) -> bool:
    return bare(message_id) in _POOL


class Standing(NamedTuple):
    """What stands under an own id; until: Unix seconds until which it is promised to be hidden."""

    id: str = ""
    content: str = ""
    until: float = 0.0


NOTHING = Standing()
Place = tuple[str, str]  # a queue and a bare own id


@dataclass
class _Asked:
    """What was asked of one own id in one queue, and what was seen of it."""

    puts: list[Op] = field(default_factory=list)
    removals: list[Op] = field(default_factory=list)
    changes: list[Op] = field(default_factory=list)  # renewals and releases
    fetches: list[tuple[Op, Standing]] = field(default_factory=list)
    looks: list[tuple[float, Standing]] = field(default_factory=list)  # when all had ended


class Reuse:
    """The operations of one round on own ids.

    is_told: whether an operation's answer counts.
    find: takes the kind and the story of what is wrong.
    gone: contents of earlier rounds, all of which were removed.
    is_excused: whether "not there" may be the answer to who has removed it.
    """

    def __init__(
        self,
        ops: Iterable[Op],
        is_told: Callable[[Op], bool],
        find: Callable[[str, str], None],
        gone: set[str],
        is_excused: Callable[[Op], bool] = lambda op: False,
    ) -> None:
        self._is_told = is_told
        self._find = find
        self._gone = gone
        self._is_excused = is_excused
        self._asked: dict[Place, _Asked] = defaultdict(_Asked)
        self._ends: dict[str, list[Op]] = defaultdict(list)  # purges, by queue
        self._put: dict[str, Place] = {}  # where each content was put
        found = list(ops)
        for op in found:
            if op.verb == "post" and op.own:
                place = (op.queue, bare(op.own))
                self._asked[place].puts.append(op)
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
                    self.came_out(op, message_id, found, deadline, fault)
        elif op.verb in ("delete", "renew", "release") and is_reused(op.ids[0]):
            asked = self._asked[op.queue, bare(op.ids[0])]
            (asked.removals if op.verb == "delete" else asked.changes).append(op)

    def came_out(
        self, op: Op, message_id: str, found: str | None, deadline: float, fault: str
    ) -> None:
        """Note that a message was handed out."""
        asked = self._identify(op.queue, message_id, found, fault)
        if asked is not None:
            asked.fetches.append((op, Standing(message_id, found or "", deadline)))

    def stands(
        self,
        when: float,
        queue: str,
        message_id: str,
        deadline: float,
        found: str | None,
        fault: str,
    ) -> None:
        """Note that a message stands when all operations have ended."""
        asked = self._identify(queue, message_id, found, fault)
        if asked is not None:
            asked.looks.append((when, Standing(message_id, found or "", deadline)))

    def check(self, looked: float | None = None) -> None:
        """What must hold; ``looked``: when it was looked at all that stands, after everything."""
        for place, asked in self._asked.items():
            if looked is not None and not asked.looks:
                asked.looks.append((looked, NOTHING))
            steps = list(self._steps(place, asked))
            wrong = first_unexplained(steps, NOTHING)
            if wrong is None:
                continue
            patient = list(self._steps(place, asked, holds=False))
            is_held = first_unexplained(patient, NOTHING) is None
            self._find("held twice" if is_held else wrong.kind, _story(place, wrong, steps))

    def _identify(
        self, queue: str, message_id: str, found: str | None, fault: str
    ) -> _Asked | None:
        """What was asked of a message that stands or came out; what is no one's is a finding."""
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
            return self._asked[place]
        return None

    # -- what was done, as steps -----------------------------------------------------------------

    def _steps(self, place: Place, asked: _Asked, holds: bool = True) -> Iterator[Step[Standing]]:
        """holds: whether what is held must not come out."""
        for op in asked.puts:
            yield self._put_step(op, asked.puts)
        for op in asked.removals:
            yield from self._removal_steps(op)
        for op in self._ends[place[0]]:
            yield from self._purge_steps(op, asked.puts)
        for op in asked.changes:
            yield from self._change_steps(op)
        for op, given in asked.fetches:
            if self._is_told(op):
                yield _fetch_step(op, given, holds)
        for when, found in asked.looks:
            yield _look_step(when, found, holds)

    def _put_step(self, op: Op, puts: Sequence[Op]) -> Step[Standing]:
        standing = Standing(new_id(own=op.own, headed=bool(op.attempt)), op.content)
        if not self._is_told(op):
            # Killed in the middle it may be stored later; but not any more when a later put of
            # the same id has been answered.
            after = [p.answered for p in puts if self._is_told(p) and p.called > op.over]
            latest = min(after, default=NEVER)
            return Step(op.called, latest, False, _stored(standing), "", _told(op))
        if op.status == 409:
            there = _if(lambda state: state != NOTHING)
            return Step(op.called, op.answered, True, there, "resurrected", _told(op))
        if op.delay:
            standing = standing._replace(until=op.called_wall + op.delay)
        return Step(op.called, op.answered, True, _stored(standing), "duplicated", _told(op))

    def _removal_steps(self, op: Op) -> Iterator[Step[Standing]]:
        message_id = op.ids[0]

        def gone(state: Standing) -> Standing:
            return NOTHING if state.id == message_id else state

        if not self._is_told(op):
            yield Step(op.called, op.over, False, gone, "", _told(op))
        elif op.status in DONE or (op.status == 404 and self._is_excused(op)):
            yield Step(op.called, op.answered, True, gone, "", _told(op))
        elif op.status == 404:
            not_there = _if(lambda state: state.id != message_id)
            yield Step(op.called, op.answered, True, not_there, "lost", _told(op))

    def _purge_steps(self, op: Op, puts: Sequence[Op]) -> Iterator[Step[Standing]]:
        """A purge goes from folder to folder, and may meet what is put meanwhile, each time."""
        is_told = self._is_told(op)
        if is_told and op.status not in DONE:
            return
        end = op.answered if is_told else op.over
        if is_told:
            yield Step(op.called, end, True, lambda state: NOTHING, "", _told(op))
        for put in puts:
            if put.called < end and not (self._is_told(put) and put.answered < op.called):
                yield Step(op.called, end, False, lambda state: NOTHING)
        if not is_told:
            yield Step(op.called, end, False, lambda state: NOTHING, "", _told(op))

    def _change_steps(self, op: Op) -> Iterator[Step[Standing]]:
        """Renewals and releases, which act on whatever stands there."""
        message_id = op.ids[0]
        is_told = self._is_told(op)

        def changed(state: Standing) -> Standing | None:
            return state._replace(until=op.deadline) if state.id == message_id else None

        if not is_told:
            yield Step(op.called, op.over, False, changed, "", _told(op))
        elif op.status in DONE:
            yield Step(op.called, op.answered, True, changed, "resurrected", _told(op))


def _stored(standing: Standing) -> Callable[[Standing], Standing | None]:
    return lambda state: standing if state == NOTHING else None


def _if(holds: Callable[[Standing], bool]) -> Callable[[Standing], Standing | None]:
    """What changes nothing, and can only have been told where this holds."""
    return lambda state: state if holds(state) else None


def _fetch_step(op: Op, given: Standing, holds: bool) -> Step[Standing]:
    def taken(state: Standing) -> Standing | None:
        if state[:2] != given[:2] or (holds and op.answered_wall < state.until):
            return None
        return given

    return Step(op.called, op.answered, True, taken, "resurrected", _told(op, given))


def _look_step(when: float, found: Standing, holds: bool) -> Step[Standing]:
    def seen(state: Standing) -> bool:
        is_early = holds and found.until < state.until - ACCURACY_S
        return state[:2] == found[:2] and not is_early

    kind = "lost" if found == NOTHING else "resurrected"
    what = f"{found.content} stands there" if found.id else "nothing stands there"
    return Step(when, when, True, _if(seen), kind, f"{what} {when:.4f}")


def _told(op: Op, given: Standing | None = None) -> str:
    what = op.own or " ".join(op.ids)
    if given is not None:
        what = f"{given.id} of {given.content} until {given.until:.3f}"
    elif op.own:
        what += f" of {op.content}"
    elif op.deadline:
        what += f" until {op.deadline:.3f}"
    end = op.answered if op.answered < NEVER else op.over
    return f"{op.verb} {what} by {op.client} {op.called:.4f}..{end:.4f} ({op.status})"


def _story(place: Place, wrong: Step[Standing], steps: Sequence[Step[Standing]]) -> str:
    told = [step.what for step in sorted(steps, key=lambda step: step.called) if step.what]
    return f"{':'.join(place)}: nothing explains [{wrong.what}]; all: {', '.join(told)}"
