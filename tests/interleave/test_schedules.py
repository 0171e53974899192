"""Movers that are stopped before any of their calls while others put, change, delete and consume.

Each outcome must be one that some order of the verbs gives: what each was told, which message came
for which moment, and how the schedule stands.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, Spool, Unavailable
from fsmq.spool.fsck import check
from fsmq.spool.layout.duty_cycle import DutyCycle
from tests.interleave.gate import Actor, Gate
from tests.spool.helpers import Clock

JOBS, NAME, LINE = "jobs", "nightly", "*/10 * * * *"
# Two moments are due, and a third one comes at the end.
DUE_S, LATER_S = 1200.0, 600.0
BUSY = "another process acts on it"


def a_spool(root: Path, clock: Callable[[], float]) -> Spool:
    """One that lists at every claim: else the machine's load decides what it finds."""
    spool = Spool(root, sync="none", clock=clock, watch="poll")
    spool.context.ready._polling = DutyCycle(math.inf)
    return spool


class Place:
    """A spool with a queue and a schedule, of which two moments are due; and two movers."""

    def __init__(self, root: Path, gate: Gate | None = None) -> None:
        self.root = root
        self.clock = Clock()
        self.clock.now -= self.clock.now % 3600  # near the time of files: what is old is removed
        seen = gate.watched("clock", self.clock) if gate is not None else self.clock
        self.one, self.other = (a_spool(root, seen) for _ in range(2))
        self.one.create_queue(JOBS)
        self.found: Counter[tuple[float, bytes]] = Counter()

    def close(self) -> None:
        self.one.close()
        self.other.close()
        shutil.rmtree(self.root)

    def consume(self, spool: Spool) -> None:
        assert spool._delivery is not None
        spool._delivery.rescan()  # new/ too, for the same reason
        while messages := spool.queue(JOBS).claim(9):
            begin = self.clock() - DUE_S
            self.found.update(((m.created_at or 0) - begin, m.body) for m in messages)
            spool.queue(JOBS).ack(*messages)

    def left(self) -> object:
        """All messages of the schedule, those of a later moment too, and how it stands."""
        with a_spool(self.root, self.clock) as spool:
            spool.run_schedules()  # a mover that was kept out before comes again
            states = [(s.settings, s.last and s.last - self.clock()) for s in spool.schedules()]
            self.consume(spool)
            found = sorted(self.found.items())
            self.found.clear()
            self.clock.advance(LATER_S)
            spool.run_schedules()
            self.consume(spool)
            found += sorted(self.found.items())
        assert {f.kind.value for f in check(self.root, offline=True).findings} <= {"leftover"}
        return repr((states, found))


Act = Callable[[Place, Spool], object]


def define(p: Place, s: Spool, line: str = LINE) -> object:
    body = "of one" if s is p.one else "of the other"
    return s.schedule(NAME).define(line, JOBS, body, catch_up="all")


VERBS: dict[str, Act] = {
    "put": lambda p, s: s.run_schedules(),
    "consume": lambda p, s: p.consume(s),
    "define": define,
    "define another": lambda p, s: define(p, s, "*/5 * * * *"),
    "pause": lambda p, s: s.schedule(NAME).configure(paused=True).paused,
    "delete": lambda p, s: s.schedule(NAME).delete(),
}
PLANS: list[tuple[str, bool, Sequence[str]]] = [
    ("put", True, ["put", "consume"]),
    ("put", True, ["consume", "put", "consume"]),
    ("put", True, ["define"]),
    ("put", True, ["define another", "put"]),
    ("put", True, ["pause", "put"]),
    ("put", True, ["delete", "put"]),
    ("put", True, ["delete", "define", "put"]),
    ("define", True, ["put", "consume"]),
    ("define", True, ["delete"]),
    ("define", False, ["define", "put"]),
    ("define another", True, ["put", "consume"]),
    ("pause", True, ["define"]),
    ("pause", True, ["delete", "put"]),
    ("delete", True, ["put", "consume"]),
    ("delete", True, ["delete"]),
    ("delete", True, ["define another", "put"]),
]


@contextmanager
def a_place(root: Path, is_there: bool, gate: Gate | None = None) -> Iterator[Place]:
    place = Place(root, gate)
    try:
        if is_there:
            define(place, place.one)
        place.clock.advance(DUE_S)
        yield place
    finally:
        place.close()


def act(verb: str, p: Place, s: Spool) -> object:
    """What a verb tells; BUSY if the other process was stopped while it held the schedule."""
    try:
        return VERBS[verb](p, s)
    except Unavailable:
        return BUSY
    except FsmqError as error:
        return type(error).__name__


def in_order(root: Path, verb: str, is_there: bool, others: Sequence[str], at: int) -> object:
    """What comes of the verb after so many of the others."""
    with a_place(root, is_there) as p:
        before = [act(other, p, p.other) for other in others[:at]]
        told = act(verb, p, p.one)
        after = [act(other, p, p.other) for other in others[at:]]
        return told, before + after, p.left()


@pytest.mark.parametrize(("verb", "is_there", "others"), PLANS)
def test_every_outcome_is_that_of_some_order(
    scratch: Path, verb: str, is_there: bool, others: Sequence[str]
) -> None:
    numbers = count(1)

    def allowed(some: Sequence[str]) -> list[object]:
        return [
            in_order(scratch / str(next(numbers)), verb, is_there, some, at)
            for at in range(len(some) + 1)
        ]

    orders: dict[tuple[str, ...], list[object]] = {}
    gate = Gate()
    stops = 0
    with gate.open():
        for stop in count():
            with a_place(scratch / str(next(numbers)), is_there, gate) as p:
                told: list[object] = []
                others_told: list[object] = []
                one = Actor(gate, lambda: told.append(act(verb, p, p.one)))  # noqa: B023
                if one.run(stop):
                    break
                story = Actor(
                    gate,
                    lambda: others_told.extend([act(o, p, p.other) for o in others]),  # noqa: B023
                )
                story.run(None)
                one.run(None)
                assert (one.error, story.error) == (None, None)
                # Who was kept out has done nothing: what others came to is an order of the rest.
                done = [(o, t) for o, t in zip(others, others_told, strict=True) if t != BUSY]
                some = tuple(o for o, _ in done)
                outcome = told[0], [t for _, t in done], p.left()
            if some not in orders:
                orders[some] = allowed(some)
            assert outcome in orders[some], f"stopped before {stop}"
            stops += 1
    assert stops > 10
