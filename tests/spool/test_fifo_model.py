"""A fifo queue against a simple model: order, claims, and deduplication ids.

Two spools take turns on one tree, as two processes would. Senders die, and the clock is set back.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fsmq.spool import Claimed, NewMessage, Queue, Spool
from fsmq.spool.fsck import check
from tests.harness.rounds import part_of
from tests.replay.place import scratch
from tests.spool.crashing import begin_sends
from tests.spool.helpers import Clock

QUEUE, GROUPS, KEPT_S = "orders", "abc", 300.0
DEDUP_IDS = (None, None, "1", "2", "3")


@dataclass
class Fact:
    """A message, and the time until which it is hidden."""

    id: str
    group: str
    until: float = 0.0


class FifoMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=scratch())
        self.root = Path(self.folder.name) / "mq"
        self.clock = Clock()
        self.spools: list[Spool] = []
        self.turn = 0
        self.most = 1
        self.messages: list[Fact] = []  # in their order
        self.known: dict[str, tuple[str, float]] = {}  # by deduplication id: the message, and when
        self.claimed: list[Claimed] = []

    @initialize(most=st.sampled_from([1, 1, 2]))
    def open(self, most: int) -> None:
        self.spools = [Spool(self.root, sync="none", clock=self.clock) for _ in range(2)]
        self.spools[0].create_queue(QUEUE, fifo=True)
        self.most = most
        if most > 1:
            self.queue.configure(max_in_flight_per_group=most)

    def teardown(self) -> None:
        for spool in self.spools:
            spool.close()
        found = check(self.root, offline=True, clock=self.clock).findings if self.spools else []
        self.folder.cleanup()
        assert [f for f in found if f.severity.value == "error"] == []

    @property
    def queue(self) -> Queue:
        """The queue in the next of the two spools."""
        self.turn = 1 - self.turn
        return self.spools[self.turn].queue(QUEUE)

    # -- puts ------------------------------------------------------------------------------------

    batches = st.lists(
        st.tuples(st.sampled_from(GROUPS), st.sampled_from(DEDUP_IDS)), min_size=1, max_size=3
    )

    @rule(batch=batches)
    def put(self, batch: list[tuple[str, str | None]]) -> None:
        self.stored(batch, self.queue.put_many(list(map(new, batch))))

    def stored(self, batch: list[tuple[str, str | None]], ids: list[str]) -> None:
        for (group, dedup_id), message_id in zip(batch, ids, strict=True):
            before = self.known.get(dedup_id or "")
            if before is not None and abs(self.clock() - before[1]) <= KEPT_S:
                assert message_id == before[0]
                continue
            assert all(message_id > fact.id for fact in self.messages)
            self.messages.append(Fact(message_id, group))
            if dedup_id is not None:
                self.known[dedup_id] = message_id, self.clock()

    @rule(batch=batches, torn=st.booleans())
    def die_in_a_put(self, batch: list[tuple[str, str | None]], torn: bool) -> None:
        """The next put sends what was written whole, and not what is torn."""
        batch = [one for one in batch if one[1] not in self.known] or [(GROUPS[0], None)]
        seen: set[str | None] = set()
        batch = [b for b in batch if b[1] is None or not (b[1] in seen or seen.add(b[1]))]  # type: ignore[func-returns-value]
        child = os.fork()
        if not child:
            try:
                with Spool(self.root, sync="none", clock=self.clock, delivers=False) as dying:
                    begin_sends(dying, QUEUE, *map(new, batch))
                    for path in (self.root / "new").iterdir() if torn else ():
                        path.write_bytes(b"torn")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        left = sorted(path.name for path in (self.root / "new").iterdir())
        ids = [name.rpartition(":")[0].rpartition(":")[2] for name in left]
        self.put([("c", None)]) if torn else self.put_after(batch, ids)

    def put_after(self, batch: list[tuple[str, str | None]], ids: list[str]) -> None:
        self.stored(batch, ids)
        self.put([("c", None)])

    # -- claims ----------------------------------------------------------------------------------

    def may_be_claimed(self, group: str) -> Fact | None:
        """The first ready message of a group, unless hidden messages hold it back."""
        hidden = 0
        for fact in self.messages:
            if fact.group == group and fact.until > self.clock():
                hidden += 1
        for fact in self.messages:
            if fact.group != group:
                continue
            if fact.until <= self.clock():
                return fact if hidden < self.most else None
            if self.most == 1:
                return None
        return None

    @rule(count=st.integers(1, 5), hold=st.sampled_from([5.0, 600.0]))
    def claim(self, count: int, hold: float) -> None:
        messages = self.queue.claim(count, visibility=hold)
        for message in messages:
            fact = self.may_be_claimed(str(message.group))
            assert fact is not None
            assert fact.id == message.id
            fact.until = self.clock() + hold
        if len(messages) < count:
            assert not any(map(self.may_be_claimed, GROUPS))
        self.claimed += messages

    @rule(which=st.integers(0, 9), verb=st.sampled_from(["ack", "ack", "release", "delay"]))
    def settle(self, which: int, verb: str) -> None:
        held = [m for m in self.claimed if (m.deadline or 0) > self.clock()]
        if not held:
            return
        message = held[which % len(held)]
        self.claimed.remove(message)
        [fact] = [fact for fact in self.messages if fact.id == message.id]
        queue = self.queue
        if verb == "ack":
            queue.ack(message)
            self.messages.remove(fact)
        else:
            delay = 0.0 if verb == "release" else 5.0
            queue.release(message, delay)
            fact.until = self.clock() + delay

    # -- time, and purges ------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 6.0, 130.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.spools[0].deliver()

    @rule()
    def set_back(self) -> None:
        """The clock does not change the order, and after 2 seconds no id is forgotten."""
        if not any(fact.until > self.clock() - 2 for fact in self.messages):
            self.clock.advance(-2)

    @rule()
    def purge(self) -> None:
        self.queue.purge()
        self.messages, self.known, self.claimed = [], {}, []

    @invariant()
    def the_tree_agrees(self) -> None:
        if self.spools:
            ready = {path.name for path in (self.root / "queues" / QUEUE).iterdir()}
            hidden = {path.name.partition(":")[2] for path in (self.root / "delay").iterdir()}
            assert ready | hidden == {fact.id for fact in self.messages}
            assert not ready & hidden


def new(one: tuple[str, str | None]) -> NewMessage:
    return NewMessage(b"x", group=one[0], dedup_id=one[1])


TestFifo = FifoMachine.TestCase
TestFifo.settings = settings(
    max_examples=part_of(20, 30),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
