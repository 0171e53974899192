"""Verbs of schedules that are stopped before each of their calls while others act.

Each outcome (all results, the messages of each scheduled time, the final schedule) must be that of
some order of the verbs.
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
from tests.interleave.gate import Gate
from tests.interleave.orders import BUSY, check_orders
from tests.spool.helpers import Clock

JOBS, NAME, LINE = "jobs", "nightly", "*/10 * * * *"
# Two scheduled times are due; a third one comes at the end.
DUE_S, LATER_S = 1200.0, 600.0


def a_spool(root: Path, clock: Callable[[], float]) -> Spool:
    """A spool that lists at every claim, so that results do not depend on the machine."""
    spool = Spool(root, sync="none", clock=clock, watch="poll")
    spool.context.ready._polling = DutyCycle(math.inf)
    return spool


class Place:
    """A spool with a queue, two movers, and maybe a schedule with two due times."""

    def __init__(self, root: Path, gate: Gate | None = None) -> None:
        self.root = root
        self.clock = Clock()
        self.clock.now -= self.clock.now % 3600  # near the times of files, as old ones are removed
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
        spool._delivery.rescan()  # list new/ as well
        while messages := spool.queue(JOBS).claim(9):
            begin = self.clock() - DUE_S
            self.found.update(((m.created_at or 0) - begin, m.body) for m in messages)
            spool.queue(JOBS).ack(*messages)

    def act(self, verb: str, spool: Spool) -> object:
        try:
            return VERBS[verb](self, spool)
        except Unavailable:
            return BUSY
        except FsmqError as error:
            return type(error).__name__

    def left(self) -> object:
        """All messages of the schedule, including one of a later time, and its state."""
        with a_spool(self.root, self.clock) as spool:
            spool.run_schedules()  # as a mover that was busy before does
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


@pytest.mark.parametrize(("verb", "is_there", "others"), PLANS)
def test_every_outcome_is_that_of_some_order(
    scratch: Path, verb: str, is_there: bool, others: Sequence[str]
) -> None:
    numbers = count(1)
    calls = check_orders(
        verb, others, lambda gate: a_place(scratch / str(next(numbers)), is_there, gate)
    )
    assert calls > 10
