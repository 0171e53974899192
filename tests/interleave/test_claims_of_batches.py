"""A consumer is stopped before any call of a new claim while another claims the message."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

from fsmq.spool import Message, Spool
from fsmq.spool.consumers.claims import Claimed, claim_ids
from fsmq.spool.consumers.renewals import renew, renewals_until, until_of
from fsmq.spool.consumers.window import Window
from tests.interleave.gate import Actor, Gate
from tests.spool.helpers import Clock

SHORT_S, LONG_S = 5.0, 600.0


def let_pass(gate: Gate, clock: Clock, mover: Spool) -> None:
    """Short claims end."""
    gate.pass_time(SHORT_S + 1)
    clock.advance(SHORT_S + 1)
    mover.deliver()


def renew_again(spool: Spool, claims: list[Claimed]) -> None:
    until = until_of(spool.context, ["jobs"], SHORT_S)
    renewals = renewals_until(spool.context, until)
    renew(spool, "jobs", claims, until["jobs"], renewals, counts=False, unnoted=None)


def test_a_renewal_never_ends_the_claim_of_another(scratch: Path) -> None:
    gate = Gate()
    seen = set()
    with gate.open():
        for stop in count():
            root, clock = scratch / str(stop), Clock()
            one, other = (
                Spool(root, sync="none", clock=clock, delivers=delivers, watch="poll")
                for delivers in (False, True)
            )
            with one, other:
                jobs = other.queue("jobs", create=True)
                jobs.put(b"x")
                other.deliver()
                window = Window(one.tree, "jobs")
                claims = one.complete(claim_ids(one.context, window, 1, visibility=SHORT_S))
                let_pass(gate, clock, other)
                actor = Actor(
                    gate,
                    lambda: renew_again(one, claims),  # noqa: B023
                )
                if actor.run(stop):
                    break
                # It is stopped until its new claim would end.
                let_pass(gate, clock, other)
                theirs: list[Message] = list(jobs.claim(visibility=LONG_S))
                seen.add(bool(theirs))
                actor.run(None)
                assert actor.error is None
                let_pass(gate, clock, other)
                if theirs:
                    assert jobs.claim() == [], f"stopped before {stop}"
            shutil.rmtree(root)
    assert seen == {True, False}
