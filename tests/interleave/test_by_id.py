"""Verbs by id that are stopped before each of their calls while others act on the same id.

Each outcome (all results and the final state) must be that of some order of the verbs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import NewMessage, Spool, Unavailable
from fsmq.spool.fsck import Severity, check
from tests.interleave.gate import Gate
from tests.interleave.orders import BUSY, Outcome, act_stopped, in_order
from tests.spool.helpers import Clock, back_to_new

HOLD_S = 60.0
ID = "x"


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process does not continue while others wait."""
    monkeypatch.setattr("fsmq.spool.durability.ids.PATIENCE_S", 0.0)
    monkeypatch.setattr("fsmq.spool.durability.ids._LATCH_PATIENCE_S", 0.0)


class Place:
    """A spool of two processes and a mover, with two queues that have an index."""

    def __init__(self, root: Path, gate: Gate | None = None) -> None:
        self.root = root
        self.clock = Clock()
        # Reading the clock is a call before which an actor can be stopped.
        seen = gate.watched("clock", self.clock) if gate is not None else self.clock
        self.one, self.other, self.mover = (
            Spool(root, sync="none", clock=seen, delivers=delivers, watch="poll")
            for delivers in (False, False, True)
        )
        self.one.create_queue("jobs", index=True)
        self.one.create_queue("more", index=True)

    def close(self) -> None:
        for spool in (self.one, self.other, self.mover):
            spool.close()
        shutil.rmtree(self.root)

    def act(self, verb: str, spool: Spool) -> object:
        try:
            return VERBS[verb](self, spool)
        except (Unavailable, BlockingIOError):
            return BUSY

    def left(self) -> object:
        """The messages of the id, and those that are delivered in the end."""
        states = []
        for queue in ("jobs", "more"):
            found = self.other.indexed(queue).find(ID)
            state = found and ("ready" if found.state == "new" else found.state)
            states.append(found and (state, _label(found.body), found.deliveries))
        bodies = []
        for _ in range(2):
            with Spool(self.root, sync="none", clock=self.clock, watch="poll") as spool:
                for queue in ("jobs", "more"):
                    claimed = spool.queue(queue).claim(9, visibility=100 * HOLD_S)
                    assert all(m.given_id == ID for m in claimed)
                    bodies += [_label(m.body) for m in claimed]
            self.clock.advance(3 * HOLD_S)
        errors = [
            finding
            for finding in check(self.root, offline=True, clock=self.clock).findings
            if finding.severity is Severity.ERROR
        ]
        assert not errors, errors
        return states, sorted(bodies)


def _label(body: bytes) -> str:
    return body.decode()


Act = Callable[[Place, Spool], object]


def _message(s: Spool, p: Place, delay: float = 0.0) -> NewMessage:
    return NewMessage(b"one" if s is p.one else b"other", id=ID, delay=delay)


VERBS: dict[str, Act] = {
    "upsert": lambda p, s: len(s.indexed("jobs").upsert([_message(s, p)])),
    "ensure": lambda p, s: s.indexed("jobs").ensure(_message(s, p)),
    "claim": lambda p, s: _body(s.indexed("jobs").claim(ID, HOLD_S)),
    "ack": lambda p, s: s.indexed("jobs").ack(ID),
    "remove": lambda p, s: s.indexed("jobs").remove(ID),
    "renew": lambda p, s: s.indexed("jobs").renew(ID, 2 * HOLD_S),
    "release": lambda p, s: s.indexed("jobs").renew(ID, 0.0),
    "postpone": lambda p, s: s.indexed("jobs").postpone(ID, HOLD_S),
    "pop": lambda p, s: [_label(m.body) for m in s.queue("jobs").claim(1, visibility=HOLD_S)],
    "move": lambda p, s: s.queue("jobs").move_to("more").moved,
    "reap": lambda p, s: s.reap() * 0,
    "deliver": lambda p, s: p.mover.deliver() * 0,
    "start": lambda p, s: start(p),
}


def start(p: Place) -> None:
    """Start a program, which takes unfinished work for that of a dead one, and end it."""
    with Spool(p.root, sync="none", clock=p.clock, watch="poll") as another:
        another.deliver()


def _body(message: Any) -> str | None:
    return None if message is None else _label(message.body)


def ready(p: Place) -> None:
    p.mover.indexed("jobs").upsert([NewMessage(b"first", id=ID)])


def new(p: Place) -> None:
    ready(p)
    back_to_new(p.root)


def held(p: Place) -> None:
    ready(p)
    p.mover.indexed("jobs").claim(ID, HOLD_S)


def delayed(p: Place) -> None:
    p.mover.indexed("jobs").upsert([NewMessage(b"first", id=ID, delay=HOLD_S)])
    p.mover.deliver()


def removed(p: Place) -> None:
    ready(p)
    p.mover.indexed("jobs").remove(ID)


FIRST: dict[str, Callable[[Place], None]] = {
    "nothing": lambda p: None,
    "new": new,
    "ready": ready,
    "held": held,
    "delayed": delayed,
    "removed": removed,
}
PLANS: list[tuple[str, str, Sequence[str]]] = [
    ("ensure", "nothing", ["ensure"]),
    ("ensure", "removed", ["ensure"]),
    ("ensure", "removed", ["reap"]),
    ("ensure", "nothing", ["ensure", "deliver", "claim", "ack"]),
    ("ensure", "held", ["ack", "ensure"]),
    ("ensure", "ready", ["remove", "reap"]),
    ("ensure", "nothing", ["upsert"]),
    ("ensure", "ready", ["upsert"]),
    ("upsert", "nothing", ["upsert"]),
    ("upsert", "ready", ["upsert"]),
    ("upsert", "ready", ["ensure"]),
    ("upsert", "ready", ["remove"]),
    ("upsert", "ready", ["remove", "ensure"]),
    ("upsert", "removed", ["ensure", "deliver"]),
    ("ack", "held", ["release"]),
    ("ack", "held", ["ack", "ensure"]),
    ("ack", "held", ["release", "claim"]),
    ("remove", "ready", ["claim", "ack", "ensure"]),
    ("remove", "new", ["deliver", "claim"]),
    ("renew", "held", ["ack"]),
    ("renew", "held", ["release", "claim"]),
    ("release", "held", ["ack", "ensure"]),
    ("claim", "ready", ["claim"]),
    ("claim", "new", ["deliver", "claim"]),
    ("claim", "delayed", ["claim"]),
    ("claim", "delayed", ["remove", "ensure"]),
    ("claim", "ready", ["upsert"]),
    ("postpone", "ready", ["claim"]),
    ("postpone", "ready", ["remove"]),
    ("postpone", "ready", ["pop"]),
    ("postpone", "delayed", ["claim", "ack"]),
    ("postpone", "ready", ["remove", "ensure"]),
    ("pop", "ready", ["upsert"]),
    ("pop", "ready", ["remove", "ensure", "deliver"]),
    ("reap", "removed", ["ensure"]),
    ("reap", "removed", ["ensure", "deliver", "remove"]),
    ("ensure", "nothing", ["start"]),
    ("ensure", "removed", ["start", "ensure"]),
    ("upsert", "nothing", ["start", "claim"]),
    ("upsert", "ready", ["start"]),
    ("upsert", "ready", ["start", "claim"]),
    ("upsert", "delayed", ["start", "ensure"]),
    ("postpone", "ready", ["start"]),
    ("ack", "held", ["start", "ensure"]),
    ("move", "ready", ["start"]),
    ("move", "ready", ["claim"]),
    ("move", "ready", ["remove", "ensure"]),
]


@contextmanager
def a_place(root: Path, first: str, gate: Gate | None = None) -> Iterator[Place]:
    place = Place(root, gate)
    try:
        FIRST[first](place)
        yield place
    finally:
        place.close()


@pytest.mark.parametrize(("verb", "first", "others"), PLANS)
def test_every_outcome_is_that_of_some_order(
    scratch: Path, verb: str, first: str, others: Sequence[str]
) -> None:
    numbers = count(1)
    allowed: list[Outcome] = []
    for at in range(len(others) + 1):
        with a_place(scratch / str(next(numbers)), first) as p:
            allowed.append(in_order(p, verb, others, at))
    assert BUSY not in [result for told, rest, _ in allowed for result in (told, *rest)]
    if verb == "pop" and others == ["upsert"]:
        # A claim at the instant between the old message and the new one finds neither.
        allowed.append(([], *allowed[0][1:]))
    gate = Gate()
    with gate.open():
        for stop in count():
            with a_place(scratch / str(next(numbers)), first, gate) as p:
                results = act_stopped(gate, p, verb, others, stop)
                if results is None:
                    return
                left = p.left()
                if BUSY not in (results[0], *results[1]):
                    assert (*results, left) in allowed, f"stopped before {stop}"
