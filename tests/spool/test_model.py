"""The spool against a dictionary: any sequence of verbs leaves what a simple model predicts.

Two opened spools take turns on one tree, as two processes would, and a shell user moves files
beside them. After every step the tree, the counts and a check by fsck must agree with the model.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fsmq.spool import DuplicateMessage, NoSuchMessage, NoSuchQueue, Queue, Spool, State, names
from fsmq.spool.fsck import check
from tests.spool.helpers import Clock

NEW, READY, DELAY = State.NEW, State.READY, State.DELAY
QUEUES = ("a", "a:b", "dead")
TOPIC = "news"
# The model's clock runs ahead of the kernel's, so that no file looks freshly made.
AHEAD_S = 1000.0


@dataclass
class Fact:
    """What the model knows of one message."""

    body: bytes
    state: State = NEW
    deliveries: int = 0
    deadline: float | None = None  # Unix seconds; None: no stamp was set
    headers: tuple[str | None, dict[str, str]] = (None, {})


@dataclass
class Model:
    """One queue of the model."""

    messages: dict[str, Fact] = field(default_factory=dict)
    max_deliveries: int | None = None

    def ids(self, state: State) -> list[str]:
        return sorted(i for i, fact in self.messages.items() if fact.state is state)


class SpoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name) / "mq"
        self.clock = Clock()
        self.clock.advance(AHEAD_S)
        self.spools: list[Spool] = []
        self.turn = 0
        self.named = 0
        self.queues: dict[str, Model] = {}
        self.subscribed: set[str] = set()  # queues of the one topic

    @initialize()
    def open(self) -> None:
        self.spools = [self.opened(), self.opened()]
        self.spool.create_queue("a")
        self.queues["a"] = Model()
        self.spool.create_topic(TOPIC)

    def opened(self) -> Spool:
        return Spool(self.root, sync="none", clock=self.clock)

    def teardown(self) -> None:
        for spool in self.spools:
            spool.close()
        self.folder.cleanup()

    # -- helpers -----------------------------------------------------------------------------

    @property
    def spool(self) -> Spool:
        """The spool whose turn it is."""
        self.turn = 1 - self.turn
        return self.spools[self.turn]

    def queue(self, name: str) -> Queue:
        return Queue(self.spool, name)

    def model(self, name: str) -> Model:
        return self.queues[name]

    def some_id(self, which: int, name: str) -> str:
        ids = [*sorted(self.model(name).messages), "no-such-id"]
        return ids[which % len(ids)]

    def is_expired(self, message_id: str) -> bool:
        expires = names.facts(message_id).expires_s
        return expires is not None and expires <= self.clock.now

    def fresh_name(self) -> str:
        self.named += 1
        return f"own-{self.named}"

    def bury(self, name: str, message_id: str) -> None:
        fact = self.model(name).messages.pop(message_id)
        dead = self.queues.setdefault("dead", Model())
        dead.messages[message_id] = fact
        fact.state, fact.deliveries, fact.deadline = READY, 0, self.clock.now

    def is_used_up(self, name: str, fact: Fact) -> bool:
        limit = self.model(name).max_deliveries
        return limit is not None and fact.deliveries >= limit

    existing = st.sampled_from(QUEUES)
    # Of how many there are now. What is drawn must not hang on that: a process that dies at its
    # n-th call may have come to another one in the run before.
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

    @precondition(lambda self: "a" in self.queues)
    @rule(limit=st.none() | st.integers(1, 3))
    def configure(self, limit: int | None) -> None:
        dead = None if limit is None else "dead"
        self.queue("a").configure(max_deliveries=limit, dead_letter_queue=dead)
        self.model("a").max_deliveries = limit
        if limit is not None:
            self.queues.setdefault("dead", Model())

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
        ids = [i for s in states for i in self.model(source).ids(s)]
        assert self.queue(source).move_to(to, in_flight=in_flight) == (len(ids), 0)
        for message_id in ids:
            fact = self.model(source).messages.pop(message_id)
            self.model(to).messages[message_id] = fact
            fact.state = READY if fact.state is DELAY else fact.state

    # -- messages ----------------------------------------------------------------------------

    @rule(
        name=existing,
        body=st.binary(max_size=20),
        priority=st.sampled_from([0, 0, 1, 99]),
        delay=st.sampled_from([None, None, 0, 3]),
        ttl=st.sampled_from([None, None, AHEAD_S + 5]),
        headers=st.sampled_from([(None, {}), ("text/plain", {"Trace": "1"})]),
    )
    def put(self, name: str, body: bytes, headers: Any, delay: float | None, **more: Any) -> None:
        queue = self.queue(name)
        arguments = {"content_type": headers[0], "attributes": headers[1], "delay": delay, **more}
        if name not in self.queues:
            with pytest.raises(NoSuchQueue):
                queue.put(body, **arguments)
            return
        message_id = queue.put(body, **arguments)
        deadline = self.clock.now + delay if delay else None
        self.model(name).messages[message_id] = Fact(body, deadline=deadline, headers=headers)

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
        copies = self.spool.topic(TOPIC, create=False).publish(body)
        assert set(copies) == self.subscribed
        for name, message_id in copies.items():
            self.model(name).messages[message_id] = Fact(body)

    @precondition(lambda self: "a" in self.queues)
    @rule(which=which, again=st.booleans(), body=st.binary(max_size=5))
    def put_own_id(self, which: int, again: bool, body: bytes) -> None:
        own = sorted(i for i in self.model("a").messages if i.startswith("own-"))
        if own and again:
            with pytest.raises(DuplicateMessage):
                self.queue("a").put(body, id=own[which % len(own)])
        else:
            name = self.fresh_name()
            assert self.queue("a").put(body, id=name) == name
            self.model("a").messages[name] = Fact(body)

    @rule(name=existing, count=st.integers(1, 3), visibility=st.sampled_from([0, 2, 30]))
    def claim(self, name: str, count: int, visibility: int) -> None:
        spool = self.spool
        if name not in self.queues:
            with pytest.raises(NoSuchQueue):
                spool.claim(name)
            return
        claimed = spool.complete(spool.claim(name, count, visibility))
        expected: list[str] = []
        for message_id in self.model(name).ids(READY):
            if len(expected) == count:
                break
            if self.is_expired(message_id):
                del self.model(name).messages[message_id]
                continue
            fact = self.model(name).messages[message_id]
            fact.state, fact.deadline = DELAY, self.clock.now + visibility
            fact.deliveries += 1
            expected.append(message_id)
        assert [m.id for m in claimed] == expected
        for message in claimed:
            fact = self.model(name).messages[message.id]
            assert (message.body, message.deliveries) == (fact.body, fact.deliveries)
            assert (message.content_type, message.attributes) == fact.headers
            assert message.deadline == fact.deadline

    @rule(name=existing, which=which, visibility=st.sampled_from([0, 2, 30]))
    def renew(self, name: str, which: int, visibility: int) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        fact = self.model(name).messages.get(message_id)
        if fact is None or fact.state is NEW:
            with pytest.raises(NoSuchMessage):
                self.queue(name).renew(message_id, visibility)
            return
        assert self.queue(name).renew(message_id, visibility) == self.clock.now + visibility
        fact.deadline = self.clock.now + visibility
        fact.deliveries += fact.state is READY
        fact.state = DELAY

    @rule(name=existing, which=which, delay=st.sampled_from([0, 2]))
    def release(self, name: str, which: int, delay: int) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        fact = self.model(name).messages.get(message_id)
        if fact is None or fact.state is not DELAY:
            with pytest.raises(NoSuchMessage):
                self.queue(name).release(message_id, delay)
            return
        self.queue(name).release(message_id, delay)
        if delay:
            fact.deadline = self.clock.now + delay
        elif self.is_used_up(name, fact):
            self.bury(name, message_id)
        else:
            fact.state = READY

    @rule(name=existing, which=which)
    def remove(self, name: str, which: int) -> None:
        if name not in self.queues:
            return
        message_id = self.some_id(which, name)
        there = self.model(name).messages.pop(message_id, None) is not None
        assert self.queue(name).remove(message_id) == there

    # -- the mover's work, time, restarts ------------------------------------------------------

    @rule()
    def deliver(self) -> None:
        self.spool.deliver()
        self.deliver_in_the_model()

    def deliver_in_the_model(self) -> None:
        for name, model in list(self.queues.items()):
            for message_id in model.ids(NEW):
                self.deliver_new(model, message_id)
            for message_id in model.ids(DELAY):
                self.deliver_delayed(name, message_id)

    def deliver_new(self, model: Model, message_id: str) -> None:
        fact = model.messages[message_id]
        if self.is_expired(message_id):
            del model.messages[message_id]
        else:
            ahead = fact.deadline is not None and fact.deadline > self.clock.now
            fact.state = DELAY if ahead else READY

    def deliver_delayed(self, name: str, message_id: str) -> None:
        fact = self.model(name).messages[message_id]
        if fact.deadline is not None and fact.deadline > self.clock.now:
            return
        if self.is_expired(message_id):
            del self.model(name).messages[message_id]
        elif self.is_used_up(name, fact):
            self.bury(name, message_id)
        else:
            fact.state = READY

    @rule(seconds=st.sampled_from([1, 2, 3, 30]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        self.spool.reap()
        assert list((self.root / "remove").iterdir()) == []

    @rule()
    def reopen(self) -> None:
        self.spools.pop(0).close()
        self.spools.append(self.opened())

    # -- a shell user --------------------------------------------------------------------------

    @precondition(lambda self: "a" in self.queues)
    @rule(state=st.sampled_from([NEW, READY, DELAY]), body=st.binary(max_size=5))
    def shell_moves_a_file_in(self, state: State, body: bytes) -> None:
        name = self.fresh_name()
        file = self.root.parent / name
        file.write_bytes(body)
        os.utime(file, (self.clock.now, self.clock.now))  # whole seconds are never a stamp
        file.rename(self.root / self.spool.tree.path(state, "a", name))
        self.model("a").messages[name] = Fact(body, state)

    @precondition(lambda self: "a" in self.queues)
    @rule(which=which, state=st.sampled_from([NEW, READY, DELAY]))
    def shell_moves_a_message(self, which: int, state: State) -> None:
        message_id = self.some_id(which, "a")
        fact = self.model("a").messages.get(message_id)
        if fact is None or (state is NEW and fact.deliveries):
            return  # back to new/ its count would start again; see test_delivery
        tree = self.spool.tree
        old = self.root / tree.path(fact.state, "a", message_id)
        if fact.deadline is None:
            # One time in 10,000 is taken for a stamp; the mover sees to that, a shell does not.
            os.utime(old, (self.clock.now, self.clock.now))
        old.rename(self.root / tree.path(state, "a", message_id))
        fact.state = state

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def the_tree_agrees(self) -> None:
        if not self.spools:
            return
        spool = self.spool
        assert spool.queues() == sorted(self.queues)
        standing = {p.name for f in ("new", "delay") for p in (self.root / f).iterdir()}
        expected = set()
        for name, model in self.queues.items():
            queue = Queue(spool, name)
            for state in (NEW, READY, DELAY):
                peeked = queue.peek(1000, state=state)
                assert [m.id for m in peeked] == model.ids(state)
                for message in peeked:
                    fact = model.messages[message.id]
                    assert (message.body, message.deliveries) == (fact.body, fact.deliveries)
            delays = [model.messages[i] for i in model.ids(DELAY)]
            delayed = sum(
                f.deliveries == 0 and f.deadline is not None and f.deadline > self.clock.now
                for f in delays
            )
            counted = (len(model.ids(NEW)), len(model.ids(READY)), len(delays) - delayed, delayed)
            assert queue.counts() == counted
            expected |= {f"{name}:{i}" for i in model.ids(NEW) + model.ids(DELAY)}
        assert standing == expected

    @invariant()
    def fsck_finds_nothing(self) -> None:
        if self.spools:
            report = check(self.root, offline=True, clock=self.clock)
            assert [f for f in report.findings if f.severity.value == "error"] == []


SpoolMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_any_sequence_of_verbs_agrees_with_the_model = SpoolMachine.TestCase
