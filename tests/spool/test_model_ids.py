"""A queue with an index against a dictionary, with any sequence of verbs by id.

Messages move to another queue and back. Two spools take turns on one tree, like two processes.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fsmq.spool import NewMessage, Spool
from fsmq.spool.fsck import check
from tests.replay.place import scratch
from tests.spool.helpers import Clock
from tests.spool.machines import machine_settings

IDS = ("a", "b/ü", ".c")
# No two timers of the model end at the same time.
HOLD_S, DELAY_S, TICK_S = 30.25, 20.125, 0.125


@dataclass
class Fact:
    """A message of the model: its body, its timer and its claims."""

    body: bytes
    priority: int = 0
    until: float | None = None  # Unix seconds; hidden until then
    count: int = 0

    @property
    def is_claimed(self) -> bool:
        return self.until is not None and self.count > 0

    @property
    def state(self) -> str:
        return "ready" if self.until is None else "in_flight" if self.count else "delayed"


class IdMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=scratch())
        self.root = Path(self.folder.name) / "mq"
        self.clock = Clock()
        self.spools: list[Spool] = []
        self.facts: dict[str, Fact] = {}
        self.elsewhere: dict[str, Fact] = {}  # in the other queue
        self.turn = self.posted = 0

    @initialize()
    def open(self) -> None:
        self.spools = [Spool(self.root, sync="none", clock=self.clock) for _ in range(2)]
        for queue in ("jobs", "other"):
            self.spools[0].create_queue(queue, index=True)

    def teardown(self) -> None:
        for spool in self.spools:
            spool.close()
        self.folder.cleanup()

    @property
    def spool(self) -> Spool:
        """The spool whose turn it is; some time passes, and a mover delivers."""
        self.turn = 1 - self.turn
        self.clock.advance(TICK_S)
        self.spools[self.turn].deliver()
        for fact in (*self.facts.values(), *self.elsewhere.values()):
            if fact.until is not None and fact.until <= self.clock():
                fact.until = None
        return self.spools[self.turn]

    def message(self, one: str, delay: float, priority: int) -> tuple[NewMessage, Fact]:
        self.posted += 1
        body = b"%d" % self.posted
        until = self.clock() + delay if delay else None
        return NewMessage(body, delay, priority, id=one), Fact(body, priority, until)

    some = st.sampled_from(IDS)
    delays = st.sampled_from((0.0, DELAY_S))
    priorities = st.sampled_from((0, 5))

    @rule(one=some, delay=delays, priority=priorities)
    def upsert(self, one: str, delay: float, priority: int) -> None:
        spool = self.spool
        message, fact = self.message(one, delay, priority)
        spool.indexed("jobs").upsert([message])
        self.facts[one] = fact

    @rule(one=some, delay=delays, priority=priorities)
    def ensure(self, one: str, delay: float, priority: int) -> None:
        spool = self.spool
        message, fact = self.message(one, delay, priority)
        assert spool.indexed("jobs").ensure(message) == (one not in self.facts)
        self.facts.setdefault(one, fact)

    @rule(one=some)
    def claim(self, one: str) -> None:
        message = self.spool.indexed("jobs").claim(one, HOLD_S)
        fact = self.facts.get(one)
        if fact is None or fact.is_claimed:
            assert message is None
            return
        fact.until, fact.count = self.clock() + HOLD_S, fact.count + 1
        assert message is not None
        assert (message.body, message.deliveries) == (fact.body, fact.count)

    @rule()
    def claim_next(self) -> None:
        spool = self.spool
        ready = [fact for fact in self.facts.values() if fact.until is None]
        claimed = spool.queue("jobs").claim(1, visibility=HOLD_S)
        assert len(claimed) == min(1, len(ready))
        for message in claimed:
            fact = self.facts[message.given_id or ""]
            assert fact in ready
            assert fact.priority == min(one.priority for one in ready)
            fact.until, fact.count = self.clock() + HOLD_S, fact.count + 1

    @rule(one=some)
    def ack(self, one: str) -> None:
        [acked] = self.spool.indexed("jobs").ack(one)
        fact = self.facts.get(one)
        assert acked == (fact is not None and fact.is_claimed)
        if acked:
            del self.facts[one]

    @rule(one=some)
    def remove(self, one: str) -> None:
        assert self.spool.indexed("jobs").remove(one) == [self.facts.pop(one, None) is not None]

    @rule(one=some, seconds=st.sampled_from((0.0, 2 * HOLD_S)))
    def renew(self, one: str, seconds: float) -> None:
        renewed = self.spool.indexed("jobs").renew(one, seconds)
        fact = self.facts.get(one)
        assert renewed == (fact is not None and fact.is_claimed)
        if fact is not None and renewed:
            fact.until = self.clock() + seconds if seconds else None

    @rule(one=some, delay=delays)
    def postpone(self, one: str, delay: float) -> None:
        postponed = self.spool.indexed("jobs").postpone(one, delay)
        fact = self.facts.get(one)
        assert postponed == (fact is not None and not fact.is_claimed)
        if fact is not None and postponed:
            fact.until, fact.count = self.clock() + delay if delay else None, 0

    @rule(back=st.booleans(), count=st.sampled_from((1, 2, 9)))
    def move(self, back: bool, count: int) -> None:
        spool = self.spool
        source, target = ("other", "jobs") if back else ("jobs", "other")
        facts, moved = (self.elsewhere, self.facts) if back else (self.facts, self.elsewhere)
        # Claimed messages stay, and those whose id the target has.
        may = {one for one, fact in facts.items() if not fact.is_claimed and one not in moved}
        ref = spool.begin_move(source, target, in_flight=False, delayed=True, count=count).ref
        spool.make_moves()
        gone = {one for one in may if spool.indexed(source).find(one) is None}
        assert len(gone) == min(count, len(may))
        move = spool.find_move(ref)
        assert move is not None
        assert move.moved == len(gone)
        for one in gone:
            moved[one] = facts.pop(one)

    @rule(state=st.sampled_from(("ready", "in_flight", "delayed")))
    def scan(self, state: str) -> None:
        spool = self.spool
        found = spool.indexed("jobs").scan(state, sorted_by_name=True)
        names = {message.id: message.body for message in found}
        assert [*names] == sorted(names)
        wanted = {fact.body for fact in self.facts.values() if fact.state == state}
        assert {*names.values()} == wanted

    @rule(limit=st.sampled_from((1, 2)))
    def scan_some(self, limit: int) -> None:
        spool = self.spool
        left = [False] * limit
        found = [*spool.indexed("jobs").scan(is_over=lambda: not left or left.pop())]
        assert len(found) == min(limit, len(self.facts))

    @rule(seconds=st.sampled_from((1.0, DELAY_S, HOLD_S)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        self.spool.reap()

    @rule()
    def purge(self) -> None:
        self.spool.queue("jobs").purge()
        self.facts.clear()

    @invariant()
    def the_tree_matches_the_model(self) -> None:
        if not self.spools:
            return
        spool = self.spool
        for queue, facts in (("jobs", self.facts), ("other", self.elsewhere)):
            for one in IDS:
                found, fact = spool.indexed(queue).find(one), facts.get(one)
                assert (found is None) == (fact is None)
                if found is not None and fact is not None:
                    assert (found.body, found.state) == (fact.body, fact.state)
                    assert (found.deliveries, found.priority) == (fact.count, fact.priority)
            assert spool.counts(queue).total == len(facts)
        report = check(self.root, offline=True, clock=self.clock)
        assert [f for f in report.findings if f.kind.value != "stale-link"] == []


IdMachine.TestCase.settings = machine_settings(20, 40, steps=30)
test_any_sequence_of_verbs_by_id = IdMachine.TestCase
