"""Backoffs, limits and pauses against the model of test_model.py, in a busy queue."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.spool.machines import machine_settings
from tests.spool.test_model import HOLDS, SpoolMachine


class LimitedMachine(SpoolMachine):
    """One queue, in which claims end early, late and not at all."""

    # Rules that the other machines test.
    subscribe = unsubscribe = publish = create_queue = delete_queue = purge = move = redrive = None
    shell_adds_a_file = shell_moves_a_message = reap = put_own_id = set_priority = None

    ends = 0  # in all runs: claims that ended and whose messages wait for a backoff
    restricted = 0  # in all runs: claims that got fewer messages than they asked for
    existing = st.just("a")

    @initialize(
        first=st.sampled_from([None, 2.003, 4.004]),
        most=st.sampled_from([None, 1, 2]),
        limit=st.sampled_from([None, None, 2]),
    )
    def open(self, first: float | None, most: int | None, limit: int | None) -> None:
        super().open(is_ahead=False)
        self.configure(limit=limit)
        self.restrict_claims(first=first, most=most, pause=None)
        self.refill()
        self.claim_some(count=2, visibility=2.001)
        self.let_claims_end(3)  # in each run, so that the counts below do not depend on chance
        self.claim_some(count=3, visibility=2.001)

    @rule()
    def refill(self) -> None:
        for _ in range(3):
            self.put("a", b"more", (None, {}), None, ttl=None, priority=0)
        self.deliver()

    @rule(count=st.integers(1, 3), visibility=st.sampled_from(HOLDS))
    def claim_some(self, count: int, visibility: float) -> None:
        LimitedMachine.restricted += self.models.may_be_claimed("a") < count
        self.claim(name="a", count=count, visibility=visibility)

    @rule(seconds=st.sampled_from([1, 2, 3]))
    def let_claims_end(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.deliver()
        waiting = [fact for fact in self.model("a").messages.values() if fact.waits]
        LimitedMachine.ends += len(waiting)


def test_backoffs_limits_and_pauses_agree_with_the_model() -> None:
    run_state_machine_as_test(LimitedMachine, settings=machine_settings(15, 25, steps=30))
    assert LimitedMachine.ends > 10, "too few messages waited"
    assert LimitedMachine.restricted > 10, "too few claims were restricted"
