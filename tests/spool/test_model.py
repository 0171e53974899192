"""The spool against a dictionary: any sequence of verbs has the result that a model predicts.

Two spools take turns on one tree, like two processes, and a shell user moves files. After each step
the tree, the counts and a check by fsck must agree with the model.
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fsmq.spool import (
    ClaimEnded,
    DuplicateMessage,
    InvalidValue,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    State,
    Unavailable,
    prepare,
)
from fsmq.spool.fsck import Finding, check
from fsmq.spool.layout import names
from tests.replay.place import scratch
from tests.spool.helpers import Clock
from tests.spool.machines import machine_settings
from tests.spool.model import DEAD, DELAY, FACTOR, MOST_S, NEW, READY, Fact, Model, Models

QUEUES = ("a", "a:b", DEAD)
TOPIC = "news"
# The model's clock may run ahead of the kernel's, so that no file looks new.
AHEAD_S = 1000.0
# The time that each verb takes; a binary fraction is exact.
TICK_S = 0.125
# Own ids, which are reused: plain ones, and one that can carry a header block.
PLAIN = ("own-1", "own-2")
CARRYING = "01890a5d-ac96-774b-bcce-b302099a8057"
HEADERS = ((None, {}), ("text/plain", {"Trace": "1"}))
# No two of them end in the same millisecond, whenever they began.
HOLDS = (0.0, 2.001, 30.002)


class SpoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=scratch())
        self.root = Path(self.folder.name) / "mq"
        self.clock = Clock()
        self.ahead = 0.0  # seconds by which the clock runs ahead
        self.spools: list[Spool] = []
        # New messages from before a spool was open_spool: it had no event that they are complete.
        self.unseen: dict[Spool, set[tuple[str, str]]] = {}
        self.turn = 0
        self.models = Models(self.clock)
        self.subscribed: set[str] = set()  # queues of the one topic

    @initialize(is_ahead=st.booleans())
    def open(self, is_ahead: bool) -> None:
        self.ahead = AHEAD_S if is_ahead else 0.0
        self.clock.advance(self.ahead)
        self.spools = [self.open_spool(), self.open_spool()]
        self.spool.create_queue("a")
        self.models.queues["a"] = Model()
        self.spool.create_topic(TOPIC)

    def open_spool(self) -> Spool:
        spool = Spool(self.root, sync="none", clock=self.clock)
        entries = (names.split_entry(path.name) for path in (self.root / "new").iterdir())
        self.unseen[spool] = {entry for entry in entries if entry is not None}
        return spool

    def teardown(self) -> None:
        for spool in self.spools:
            spool.close()
        self.folder.cleanup()

    # -- helpers -----------------------------------------------------------------------------

    @property
    def spool(self) -> Spool:
        """The spool whose turn it is; some time passes."""
        self.turn = 1 - self.turn
        self.clock.advance(TICK_S)
        return self.spools[self.turn]

    @property
    def queues(self) -> dict[str, Model]:
        return self.models.queues

    def queue(self, name: str) -> Queue:
        return Queue(self.spool, name)

    def model(self, name: str) -> Model:
        return self.queues[name]

    def some_id(self, which: int, name: str) -> str:
        ids = [*sorted(self.model(name).messages), "no-such-id"]
        return ids[which % len(ids)]

    existing = st.sampled_from(QUEUES)
    # A number modulo the messages that exist. Draws must not depend on the state, so no rule has a
    # precondition either: a process that dies at its n-th call may reach different calls in two
    # runs, and runs with the same draws must continue to ask for the same.
    which = st.integers(0, 99)

    # -- queues ------------------------------------------------------------------------------

    @rule(name=existing)
    def create_queue(self, name: str) -> None:
        assert self.spool.create_queue(name) == (name not in self.queues)
        self.queues.setdefault(name, Model())

    @rule(name=existing)
    def delete_queue(self, name: str) -> None:
        if name in self.queues:
            self.spool.delete_queue(name)
            del self.queues[name]
            self.subscribed.discard(name)
        else:
            with pytest.raises(NoSuchQueue):
                self.spool.delete_queue(name)

    @rule(limit=st.none() | st.integers(1, 3))
    def configure(self, limit: int | None) -> None:
        if "a" not in self.queues:
            return
        dead = None if limit is None else DEAD
        self.queue("a").configure(max_deliveries=limit, dead_letter_queue=dead)
        self.model("a").max_deliveries = limit
        if limit is not None:
            self.queues.setdefault(DEAD, Model())

    @rule(
        first=st.sampled_from([None, 2.003, 4.004]),
        most=st.sampled_from([None, None, 1, 2]),
        pause=st.sampled_from([None, None, 2]),
    )
    def restrict_claims(self, first: float | None, most: int | None, pause: int | None) -> None:
        """Set a backoff, a limit and a pause."""
        if "a" not in self.queues:
            return
        queue, model = self.queue("a"), self.model("a")
        until = None if pause is None else datetime.fromtimestamp(self.clock.now + pause, UTC)
        queue.configure(
            retry_backoff=first,
            retry_jitter=0.0,
            retry_factor=FACTOR,
            retry_most=MOST_S,
            max_in_flight=most,
            paused=until and until.isoformat(),
        )
        model.retry_backoff, model.max_in_flight = first, most
        model.paused_until = 0.0 if until is None else until.timestamp()
        if model.max_deliveries is not None:
            self.queues.setdefault(DEAD, Model())  # created again if it was deleted

    @rule(name=existing)
    def purge(self, name: str) -> None:
        if name in self.queues:
            self.queue(name).purge()
            self.model(name).messages.clear()
        else:
            with pytest.raises(NoSuchQueue):
                self.queue(name).purge()

    @rule(source=existing, to=existing, in_flight=st.booleans())
    def move(self, source: str, to: str, in_flight: bool) -> None:
        if source == to or not {source, to} <= set(self.queues):
            return
        states = {NEW, READY} | ({DELAY} if in_flight else set())
        moved = self.queue(source).move_to(to, in_flight=in_flight)
        assert moved == self.models.move(source, to, states)

    @rule(name=existing, to=st.none() | existing)
    def redrive(self, name: str, to: str | None) -> None:
        if name not in self.queues or to == name or (to is not None and to not in self.queues):
            return
        assert self.queue(name).redrive(to=to) == self.models.redrive(name, to)

    # -- messages ----------------------------------------------------------------------------

    @rule(
        name=existing,
        body=st.binary(max_size=20),
        priority=st.sampled_from([0, 0, 1, 99]),
        delay=st.sampled_from([None, None, 0, 3]),
        ttl=st.sampled_from([None, None, 5]),
        headers=st.sampled_from(HEADERS),
    )
    def put(
        self,
        name: str,
        body: bytes,
        headers: Any,
        delay: float | None,
        ttl: float | None,
        priority: int,
    ) -> None:
        queue = self.queue(name)
        arguments = {"content_type": headers[0], "attributes": headers[1], "delay": delay}
        arguments |= {"priority": priority, "ttl": ttl and self.ahead + ttl}
        if name not in self.queues:
            with pytest.raises(NoSuchQueue):
                queue.put(body, **arguments)
            return
        message_id = queue.put(body, **arguments)
        self.model(name).messages[message_id] = self.models.put(body, delay, headers)

    @rule(name=existing)
    def subscribe(self, name: str) -> None:
        if name in self.queues:
            assert self.spool.subscribe(TOPIC, name) == (name not in self.subscribed)
            self.subscribed.add(name)
        else:
            with pytest.raises(NoSuchQueue):
                self.spool.subscribe(TOPIC, name)

    @rule(name=existing)
    def unsubscribe(self, name: str) -> None:
        assert self.spool.unsubscribe(TOPIC, name) == (name in self.subscribed)
        self.subscribed.discard(name)

    @rule(body=st.binary(max_size=5))
    def publish(self, body: bytes) -> None:
        copies = self.spool.topic(TOPIC).publish(body)
        assert set(copies) == self.subscribed
        for name, message_id in copies.items():
            self.model(name).messages[message_id] = Fact(body)

    @rule(
        name=existing,
        own=st.sampled_from((*PLAIN, CARRYING)),
        body=st.binary(max_size=5),
        delay=st.sampled_from([None, None, 3]),
        headers=st.sampled_from(HEADERS),
    )
    def put_own_id(
        self, name: str, own: str, body: bytes, delay: float | None, headers: Any
    ) -> None:
        if name not in self.queues:
            return
        arguments = {"id": own, "delay": delay}
        arguments |= {"content_type": headers[0], "attributes": headers[1]}
        if self.model(name).holds(own):
            with pytest.raises(DuplicateMessage):
                self.queue(name).put(body, **arguments)
            return
        message_id = self.queue(name).put(body, **arguments)
        assert names.siblings(message_id)[0] == own
        self.model(name).messages[message_id] = self.models.put(body, delay, headers)

    @rule(name=existing, count=st.integers(1, 3), visibility=st.sampled_from(HOLDS))
    def claim(self, name: str, count: int, visibility: float) -> None:
        spool = self.spool
        if name not in self.queues:
            with pytest.raises(NoSuchQueue):
                prepare.claim(spool.context, name)
            return
        claimed = spool.complete(prepare.claim(spool.context, name, count, visibility))
        assert [m.id for m in claimed] == self.models.claim(name, count, visibility)
        for message in claimed:
            fact = self.model(name).messages[message.id]
            assert (message.body, message.deliveries) == (fact.body, fact.deliveries)
            assert (message.content_type, message.attributes) == fact.headers
            assert message.deadline == fact.deadline

    @rule(name=existing, which=which, visibility=st.sampled_from(HOLDS))
    def renew(self, name: str, which: int, visibility: float) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        fact = self.model(name).messages.get(message_id)
        queue = self.queue(name)
        if fact is None or fact.state is NEW:
            with pytest.raises(NoSuchMessage):
                queue.renew(message_id, visibility)
            return
        deadline = queue.renew(message_id, visibility)
        assert deadline == self.models.take(name, message_id, visibility).deadline

    @rule(name=existing, which=which, delay=st.sampled_from([0, 2]))
    def release(self, name: str, which: int, delay: int) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        fact = self.model(name).messages.get(message_id)
        queue = self.queue(name)
        if fact is None or fact.state is not DELAY:
            with pytest.raises(NoSuchMessage):
                queue.release(message_id, delay)
        elif self.model(name).is_used_up(fact):
            if self.models.bury(name, message_id):
                queue.release(message_id, delay)
                return
            with pytest.raises(Unavailable):
                queue.release(message_id, delay)
        else:
            queue.release(message_id, delay)
            if delay:
                self.models.put_off(name, message_id, delay)
            else:
                self.models.end(name, message_id)

    @rule(name=existing, which=which, priority=st.sampled_from([0, 1, 99]))
    def set_priority(self, name: str, which: int, priority: int) -> None:
        if name not in self.queues:
            return
        queue = self.queue(name)
        message_id = self.some_id(which, name)
        new_id = names.with_priority(message_id, priority)
        error = self.models.set_priority(name, message_id, new_id or message_id)
        if new_id is None and message_id in self.model(name).messages:
            error = InvalidValue  # a file name that is not an id has no priority
        if error is None:
            assert queue.set_priority(message_id, priority) == new_id
        else:
            with pytest.raises(error):
                queue.set_priority(message_id, priority)

    @rule(
        name=existing,
        which=which,
        how=st.sampled_from(["ack", "renew", "release", "back off"]),
        mine=st.booleans(),
    )
    def act_in_a_claim(self, name: str, which: int, how: str, mine: bool) -> None:
        """Settle a message with the name of its claim, or of the claim before."""
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        fact = self.model(name).messages.get(message_id)
        deliveries, deadline = (fact.deliveries, fact.deadline) if fact else (0, None)
        digits = round((deadline or 0) * 1000) % 100
        is_held = fact is not None and fact.is_claimed() and mine
        claim = f"c{deliveries if mine else deliveries % 99 + 1}-{digits:02d}"
        queue = self.queue(name)
        if fact is None or not is_held:
            with pytest.raises(ClaimEnded if fact is not None else NoSuchMessage):
                queue.renew(message_id, claim=claim)
            [answer] = queue.ack_each([message_id], [claim])
            assert answer == ("missing" if fact is None else "ended")
        elif how == "ack":
            del self.model(name).messages[message_id]
            assert queue.ack(message_id, claim=claim) == 1
        elif how == "renew":
            renewed = self.models.take(name, message_id, 9.75).deadline
            assert queue.renew(message_id, 9.75, claim=claim) == renewed
        elif self.model(name).is_used_up(fact):
            return  # see `release` above
        elif how == "back off":
            queue.release(message_id, 2, claim=claim)
            self.models.put_off(name, message_id, 2)
        else:
            queue.release(message_id, claim=claim)
            self.models.end(name, message_id)

    @rule(name=existing, which=which)
    def remove(self, name: str, which: int) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        exists = self.model(name).messages.pop(message_id, None) is not None
        assert self.queue(name).remove(message_id) == exists

    # -- the mover's work, time, restarts ------------------------------------------------------

    @rule()
    def deliver(self) -> None:
        spool = self.spool
        self.deliver_by(spool)
        self.deliver_in_the_model(spool)

    def deliver_by(self, spool: Spool) -> None:
        spool.deliver()

    def deliver_in_the_model(self, spool: Spool) -> None:
        def is_left(name: str, message_id: str) -> bool:
            """A young file may be incomplete if no event said otherwise."""
            is_young = not self.ahead and names.facts(message_id).created_ms is None
            if not is_young or (name, message_id) not in self.unseen[spool]:
                return False
            return (self.root / spool.tree.path(NEW, name, message_id)).exists()

        self.models.deliver(is_left)

    @rule(seconds=st.sampled_from([1, 2, 3, 30]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        self.spool.reap()
        assert list((self.root / "remove").iterdir()) == []

    @rule()
    def reopen(self) -> None:
        self.spools.pop(0).close()
        self.spools.append(self.open_spool())

    # -- a shell user --------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(PLAIN),
        state=st.sampled_from([NEW, READY, DELAY]),
        body=st.binary(max_size=5),
    )
    def shell_adds_a_file(self, name: str, state: State, body: bytes) -> None:
        if "a" not in self.queues or self.model("a").holds(name):
            return  # the shell would replace it
        file = self.root.parent / name
        file.write_bytes(body)
        os.utime(file, (self.clock.now, self.clock.now))  # whole seconds are never a stamp
        file.rename(self.root / self.spools[0].tree.path(state, "a", name))
        self.model("a").messages[name] = Fact(body, state)

    @rule(which=which, state=st.sampled_from([NEW, READY, DELAY]))
    def shell_moves_a_message(self, which: int, state: State) -> None:
        if "a" not in self.queues:
            return
        message_id = self.some_id(which, "a")
        fact = self.model("a").messages.get(message_id)
        if fact is None or (state is NEW and fact.deliveries):
            return  # its count would start again in new/; see test_delivery
        tree = self.spools[0].tree
        old = self.root / tree.path(fact.state, "a", message_id)
        if fact.deadline is None:
            # One time in 10,000 looks like a stamp; the mover avoids that, a shell does not.
            os.utime(old, (self.clock.now, self.clock.now))
        old.rename(self.root / tree.path(state, "a", message_id))
        fact.state = state

    def entry_names(self) -> set[str]:
        return {p.name for f in ("new", "delay") for p in (self.root / f).iterdir()}

    # -- invariants ------------------------------------------------------------------------------

    @invariant()
    def the_tree_matches_the_model(self) -> None:
        if not self.spools:
            return
        spool = self.spool
        assert spool.queues() == sorted(self.queues)
        entry_names = self.entry_names()
        expected = set()
        for name, model in self.queues.items():
            queue = Queue(spool, name)
            for state in (NEW, READY, DELAY):
                peeked = queue.peek(1000, state=state)
                assert [m.id for m in peeked] == model.ids(state)
                for message in peeked:
                    fact = model.messages[message.id]
                    assert (message.body, message.deliveries) == (fact.body, fact.deliveries)
                    dead = message.dead_letter
                    assert (None if dead is None else dead.queue) == fact.buried_from
            delays = [model.messages[i] for i in model.ids(DELAY)]
            delayed = sum(self.models.is_hidden(f) and not f.is_claimed() for f in delays)
            counted = (len(model.ids(NEW)), len(model.ids(READY)), len(delays) - delayed, delayed)
            assert queue.counts() == counted
            expected |= {f"{name}:{i}" for i in model.ids(NEW) + model.ids(DELAY)}
        assert entry_names == expected

    @invariant()
    def fsck_finds_nothing(self) -> None:
        if self.spools:
            report = check(self.root, offline=True, clock=self.clock)
            errors = [f for f in report.findings if f.severity.value == "error"]
            assert [f for f in errors if not self.is_expected(f)] == []

    def is_expected(self, finding: Finding) -> bool:
        return False


SpoolMachine.TestCase.settings = machine_settings(30, 60, steps=40)
test_any_sequence_of_verbs_agrees_with_the_model = SpoolMachine.TestCase
