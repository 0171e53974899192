"""Reused ids, claims without a client, and late consumers against the model of test_model.py.

A late process finds its own message, or leaves the message alone that has its id now.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from fsmq.spool import Message, NoSuchMessage, NoSuchQueue, Spool, prepare
from fsmq.spool.consumers.batches import finish_abandoned, take_lock
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.consumers.manifest import DONE, folder_of, path_of
from fsmq.spool.context import Prepared
from fsmq.spool.durability.locks import Lock
from fsmq.spool.layout import names
from tests.spool.machines import machine_settings
from tests.spool.model import DELAY, NEW, READY, Fact, Model
from tests.spool.test_model import HEADERS, HOLDS, PLAIN, QUEUES, SpoolMachine

CONSUMER, STREAM = "spark", "stream"
# Longer than a test takes, so that batches are not renewed in real time.
KEPT_S = 300.003


class Given(NamedTuple):
    """A claim as its consumer remembers it."""

    id: str
    fact: Fact
    deadline: float
    deliveries: int


class Unanswered(NamedTuple):
    """A claim that has not been answered."""

    spool: Spool
    queue: str
    prepared: Prepared[list[Message]]
    given: list[Given]


class ReusingMachine(SpoolMachine):
    """Few ids, and many late processes."""

    # Rules that the other machines test.
    subscribe = unsubscribe = publish = create_queue = delete_queue = configure = purge = None
    put = restrict_claims = shell_adds_a_file = shell_moves_a_message = reap = None

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: list[Unanswered] = []
        self.batches: list[tuple[str, list[Given]]] = []  # of the consumer, with their queues
        self.stalled: Lock | None = None  # of the consumer, between commit and removal
        self.doomed: list[tuple[str, list[Given]]] = []  # batches that it is about to remove

    @initialize(is_ahead=st.booleans(), has_batch=st.booleans())
    def open(self, is_ahead: bool, has_batch: bool) -> None:
        super().open(is_ahead)
        for name in QUEUES[1:]:
            self.spool.create_queue(name)
            self.queues[name] = Model()
        for own in PLAIN:
            self.put_own_id("a", own, b"first", None, HEADERS[0])
        self.deliver()
        if has_batch:
            self.take_batch("a", 1)

    def teardown(self) -> None:
        for one in self.unanswered:
            one.prepared.dirty.close()
        if self.stalled is not None:
            self.stalled.free()
        super().teardown()

    @rule()
    def reopen(self) -> None:
        """Like a process that died: nobody releases its claims."""
        for one in [one for one in self.unanswered if one.spool is self.spools[0]]:
            one.prepared.dirty.close()
            self.unanswered.remove(one)
        super().reopen()

    def given(self, name: str, ids: list[str]) -> list[Given]:
        facts = ((i, self.model(name).messages[i]) for i in ids)
        return [Given(i, fact, fact.deadline or 0.0, fact.deliveries) for i, fact in facts]

    def is_same(self, name: str, given: Given) -> bool:
        """Whether the message that was claimed is still in its queue."""
        return name in self.queues and self.model(name).messages.get(given.id) is given.fact

    @rule(
        which=SpoolMachine.which,
        body=st.binary(max_size=5),
        delay=st.sampled_from([None, None, 3]),
        is_claimed=st.booleans(),
        visibility=st.sampled_from(HOLDS),
    )
    def replace(
        self, which: int, body: bytes, delay: float | None, is_claimed: bool, visibility: float
    ) -> None:
        """Remove a message, and put another one with its id, which may be claimed."""
        batches = [*self.batches, *self.doomed]
        of_batches = [(name, claim.id) for name, given in batches for claim in given]
        others = [("a", message_id) for message_id in sorted(self.model("a").messages)]
        existing = [(name, i) for name, i in of_batches + others if i in self.model(name).messages]
        if not existing:
            return
        name, message_id = existing[which % len(existing)]
        self.remove(name, sorted(self.model(name).messages).index(message_id))
        self.put_own_id(name, names.siblings(message_id)[0], body, delay, HEADERS[0])
        if is_claimed:
            self.deliver()
            self.claim(name, 3, visibility)

    # -- a client that hangs up --------------------------------------------------------------------

    @rule(name=SpoolMachine.existing, count=st.integers(1, 2), visibility=st.sampled_from(HOLDS))
    def claim_slowly(self, name: str, count: int, visibility: float) -> None:
        """Claim, and leave the answer for later."""
        if name not in self.queues:
            return
        spool = self.spool
        prepared = prepare.claim(spool.context, name, count, visibility)
        given = self.given(name, self.models.claim(name, count, visibility))
        self.unanswered.append(Unanswered(spool, name, prepared, given))

    @precondition(lambda self: self.unanswered)
    @rule(which=SpoolMachine.which, failed=st.booleans())
    def hang_up(self, which: int, failed: bool) -> None:
        """A claim is not answered: its sync has failed, or its client has gone."""
        spool, name, prepared, given = self.unanswered.pop(which % len(self.unanswered))
        self.clock.advance(0.125)
        if failed:
            prepared.dirty.close()
            prepared.abort()
        else:
            for message in spool.complete(prepared):
                with suppress(NoSuchMessage, NoSuchQueue):
                    spool.complete(prepare.release_unseen(spool.context, message))
        for claim in given:
            if self.models.is_claim(name, *claim):
                self.models.end_claim(claim.fact)
                claim.fact.state = READY
                claim.fact.deliveries -= 1

    # -- a consumer --------------------------------------------------------------------------------

    def consumer(self) -> Consumer:
        return Consumer(self.spool, CONSUMER, visibility=KEPT_S)

    @precondition(lambda self: self.stalled is None)
    @rule(name=SpoolMachine.existing, count=st.integers(1, 2))
    def take_batch(self, name: str, count: int) -> None:
        with self.consumer() as consumer:
            batch = consumer.claim(STREAM, 0, [name], count)
        if name not in self.queues:
            assert batch is None
            return
        expected = self.models.claim(name, count, KEPT_S)
        claims = [] if batch is None else batch.claims[name]
        assert [claim.id for claim in claims] == expected
        if expected:
            self.batches.append((name, self.given(name, expected)))

    @precondition(lambda self: self.stalled is None and self.batches)
    @rule(which=SpoolMachine.which)
    def keep_batch(self, which: int) -> None:
        """The consumer returns, and renews the rest of a batch."""
        which %= len(self.batches)
        name, given = self.batches[which]
        with self.consumer() as consumer:
            kept = consumer.renew_batch(consumer.batches(STREAM, 0)[which])
        expected = [claim for claim in given if self.keep(name, claim)]
        assert [claim.id for claim in kept.claims.get(name, [])] == [claim.id for claim in expected]
        self.batches[which] = (name, self.given(name, [claim.id for claim in expected]))

    def keep(self, name: str, claim: Given) -> bool:
        """Renew a message in the model, and return whether it is still in the batch."""
        if not self.is_same(name, claim):
            # A new message of this id is delivered: a crash might have brought it back.
            if claim.id in self.model(name).ids(NEW):
                self.models.deliver_new(name, claim.id)
            return False
        is_others = claim.fact.state is DELAY and claim.fact.deliveries != claim.deliveries
        if not is_others:
            is_renewal = claim.fact.state is DELAY
            self.models.take(name, claim.id, KEPT_S)
            if is_renewal:  # batches do not use the names of claims
                claim.fact.deadline = self.models.deadline(KEPT_S)
        return not is_others

    @precondition(lambda self: self.stalled is None and self.batches)
    @rule()
    def commit_batches(self) -> None:
        with self.consumer() as consumer:
            removed = consumer.commit(STREAM, 99)
        batches, self.batches = self.batches, []
        assert removed == self.remove_batches(batches)

    def remove_batches(self, batches: list[tuple[str, list[Given]]]) -> int:
        """Remove the messages of batches, but not later ones with their ids."""
        removed = 0
        for name, given in batches:
            for claim in given:
                if self.is_same(name, claim):
                    del self.model(name).messages[claim.id]
                    removed += 1
        return removed

    @precondition(lambda self: self.stalled is None and self.batches)
    @rule()
    def stop_at_commit(self) -> None:
        """The consumer is stopped after it has renamed its batches, before it removes messages."""
        tree = self.spools[0].tree
        self.stalled = take_lock(tree, CONSUMER)
        for name in tree.names(folder_of(tree, CONSUMER)):
            if name.endswith(".json"):
                batch = name.removesuffix(".json")
                source, done = path_of(tree, CONSUMER, batch), path_of(tree, CONSUMER, batch, DONE)
                os.rename(self.root / source, self.root / done)
        self.doomed, self.batches = self.batches, []

    @precondition(lambda self: self.stalled is not None)
    @rule(by_mover=st.booleans())
    def finish_commit(self, by_mover: bool) -> None:
        """The consumer is killed, and a mover or the next consumer of its name does the rest."""
        assert self.stalled is not None
        self.stalled.free()
        self.stalled = None
        doomed, self.doomed = self.doomed, []
        if by_mover:
            assert finish_abandoned(self.spool.context) == self.remove_batches(doomed)
        else:
            self.consumer().close()
            self.remove_batches(doomed)


def test_late_processes_act_only_on_their_own_messages() -> None:
    run_state_machine_as_test(ReusingMachine, settings=machine_settings(15, 25, steps=40))
