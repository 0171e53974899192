"""The spool against a dictionary, with processes that die between any two system calls.

After a crash and a restart the tree must be one that the model allows: the verb has happened, or it
has not, or it stopped at one of the few places that docs/format.md names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from fsmq.spool import Queue, Spool, State
from tests.spool.crashing import run_and_die
from tests.spool.test_model import DELAY, READY, Fact, Model, SpoolMachine

Queues = dict[str, Model]
VISIBILITY_S = 30


class CrashingMachine(SpoolMachine):
    """Verbs may be done by processes that die at them."""

    crashes = 0  # in all runs
    # They leave little to die at; test_crash.py has them one by one.
    delete_queue = purge = move = None

    @initialize(limit=st.sampled_from([None, 1, 2]))
    def open(self, limit: int | None) -> None:
        """Some messages, so that there is something to die at."""
        super().open()
        self.configure(limit=limit)
        for _ in range(3):
            self.put("a", b"first", (None, {}), None, priority=0, ttl=None)
        self.deliver()
        self.claim(name="a", count=1, visibility=VISIBILITY_S)

    @rule(name=SpoolMachine.existing, at=st.integers(0, 9), body=st.binary(max_size=9))
    def die_at_a_put(self, name: str, at: int, body: bytes) -> None:
        if name not in self.queues:
            return
        own = self.fresh_name()

        def stored() -> None:
            self.model(name).messages[own] = Fact(body)

        self.die(lambda spool: Queue(spool, name).put(body, id=own), at, [stored])

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7))
    def die_at_a_claim(self, name: str, at: int) -> None:
        ready = self.model(name).ids(READY) if name in self.queues else []
        if not ready or any(self.is_expired(message_id) for message_id in ready):
            return
        self.die_at_taking(
            lambda spool: spool.complete(spool.claim(name, 1, VISIBILITY_S)), name, ready[0], at
        )

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_renewal(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, (READY, DELAY))
        if message_id is None:
            return
        self.die_at_taking(
            lambda spool: Queue(spool, name).renew(message_id, VISIBILITY_S), name, message_id, at
        )

    def die_at_taking(
        self, verb: Callable[[Spool], object], name: str, message_id: str, at: int
    ) -> None:
        def stamped() -> None:
            fact = self.model(name).messages[message_id]
            fact.deliveries += fact.state is READY
            fact.deadline = self.clock.now + VISIBILITY_S

        def taken() -> None:
            stamped()
            self.model(name).messages[message_id].state = DELAY

        self.die(verb, at, [taken, stamped])

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_release(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, (DELAY,))
        if message_id is None:
            return
        is_buried = self.is_used_up(name, self.model(name).messages[message_id])

        def released() -> None:
            if is_buried:
                self.bury(name, message_id)
            else:
                self.model(name).messages[message_id].state = READY

        def half_buried() -> None:
            """The count has been set to 0, and the message has not gone yet."""
            self.queues.setdefault("dead", Model())
            fact = self.model(name).messages[message_id]
            fact.deliveries, fact.deadline = 0, self.clock.now

        def dead_letters_made() -> None:
            self.queues.setdefault("dead", Model())

        outcomes = [released, half_buried, dead_letters_made] if is_buried else [released]
        self.die(lambda spool: Queue(spool, name).release(message_id), at, outcomes)

    @rule(name=SpoolMachine.existing, at=st.integers(0, 7), which=SpoolMachine.which)
    def die_at_a_removal(self, name: str, at: int, which: int) -> None:
        message_id = self.pick(name, which, tuple(State))
        if message_id is None:
            return

        def removed() -> None:
            del self.model(name).messages[message_id]

        self.die(lambda spool: Queue(spool, name).remove(message_id), at, [removed])

    # -- helpers -----------------------------------------------------------------------------

    def pick(self, name: str, which: int, states: tuple[object, ...]) -> str | None:
        """Some message in one of the states; None if there is none."""
        if name not in self.queues:
            return None
        facts = self.model(name).messages
        ids = sorted(i for i, fact in facts.items() if fact.state in states)
        return ids[which % len(ids)] if ids else None

    def die(
        self, verb: Callable[[Spool], object], at: int, outcomes: list[Callable[[], None]]
    ) -> None:
        """Let a verb die at a system call; the tree must show one of the outcomes afterwards.

        outcomes: what the verb makes of the model, the whole of it first. If it was acknowledged,
        nothing else will do.
        """
        acknowledged = run_and_die(self.root, verb, at, self.clock)
        CrashingMachine.crashes += acknowledged is not None
        for spool in self.spools:
            spool.close()
        self.spools = [self.opened(), self.opened()]
        self.spool.deliver()
        if acknowledged is None or acknowledged:
            outcomes = outcomes[:1]
        else:
            outcomes = [*outcomes, lambda: None]
        self.queues = next(self.agreeing(self.queues, outcomes))

    def agreeing(self, before: Queues, outcomes: list[Callable[[], None]]) -> Iterator[Queues]:
        told = []
        for outcome in outcomes:
            self.queues = copy.deepcopy(before)
            outcome()
            self.deliver_in_the_model()
            try:
                self.the_tree_agrees()
            except AssertionError as error:
                told.append(str(error))
            else:
                yield self.queues
        raise AssertionError("no outcome agrees:\n" + "\n".join(told))


def test_any_sequence_of_verbs_and_crashes_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        CrashingMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert CrashingMachine.crashes > 10, "hardly anything has died"
