"""Backoffs, limits and pauses against the same dictionary, in a queue that is worked at."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.harness.rounds import part_of
from tests.spool.test_model import HOLDS, SpoolMachine


class LimitedMachine(SpoolMachine):
    """One queue, in which claims end early, late and not at all."""

    # Of these the other machines know enough.
    subscribe = unsubscribe = publish = create_queue = delete_queue = purge = move = redrive = None
    shell_moves_a_file_in = shell_moves_a_message = reap = put_own_id = set_priority = None

    ends = 0  # of claims, in all runs, behind which a message waits
    kept_back = 0  # claims
    existing = st.just("a")

    @initialize(
        first=st.sampled_from([None, 2.003, 4.004]),
        most=st.sampled_from([None, 1, 2]),
        limit=st.sampled_from([None, None, 2]),
    )
    def open(self, first: float | None, most: int | None, limit: int | None) -> None:
        super().open(is_ahead=False)
        self.configure(limit=limit)
        self.keep_back(first=first, most=most, pause=None)
        self.refill()
        self.claim_some(count=2, visibility=2.001)
        self.let_claims_end(3)  # each run sees this: the counts below are not left to chance
        self.claim_some(count=3, visibility=2.001)

    @rule()
    def refill(self) -> None:
        for _ in range(3):
            self.put("a", b"more", (None, {}), None, ttl=None, priority=0)
        self.deliver()

    @rule(count=st.integers(1, 3), visibility=st.sampled_from(HOLDS))
    def claim_some(self, count: int, visibility: float) -> None:
        LimitedMachine.kept_back += self.models.may_be_claimed("a") < count
        self.claim(name="a", count=count, visibility=visibility)

    @rule(seconds=st.sampled_from([1, 2, 3]))
    def let_claims_end(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.deliver()
        waiting = [fact for fact in self.model("a").messages.values() if fact.waits]
        LimitedMachine.ends += len(waiting)


def test_what_keeps_claims_back_agrees_with_the_model() -> None:
    run_state_machine_as_test(
        LimitedMachine,
        settings=settings(
            max_examples=part_of(15, 25),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert LimitedMachine.ends > 10, "hardly anything has waited"
    assert LimitedMachine.kept_back > 10, "hardly a claim was kept back"
