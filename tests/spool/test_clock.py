"""A clock that jumps by an hour, forward or back: no message is lost, torn or stuck."""

from __future__ import annotations

import pytest

from fsmq.spool import NewMessage, Queue, Spool, prepare
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.fsck import check
from tests.spool.helpers import Clock, visible

HOUR_S = 3600.0
BOTH = pytest.mark.parametrize("jump", [HOUR_S, -HOUR_S])


def fill(jobs: Queue) -> tuple[set[str], set[str]]:
    """Put messages in all states; the ids of those that can be claimed, and of the hidden ones."""
    jobs.put(b"claimed", id="a")
    jobs.spool.tree.root.joinpath("queues/jobs/shell").write_bytes(b"by a shell user")
    jobs.spool.deliver()
    [claimed] = jobs.spool.complete(prepare.claim(jobs.spool.context, "jobs", 1, 30))
    assert claimed.id == "a"
    ready = {jobs.put(b"ready", id="b"), "shell"}
    jobs.spool.deliver()
    hidden = {"a", jobs.put(b"delayed", delay=60)}
    return ready | {jobs.put(b"new")}, hidden


@BOTH
def test_every_message_is_delivered(spool: Spool, jobs: Queue, clock: Clock, jump: float) -> None:
    clock.advance(5000)  # so that no file looks young
    ready, hidden = fill(jobs)
    clock.advance(jump)
    got = {m.id for m in jobs.claim(10, visibility=5 * HOUR_S)}
    # After a jump forward all timers have ended; after a jump back they end when the clock is back.
    assert got == (ready | hidden if jump > 0 else ready)
    clock.advance(HOUR_S + 61)
    got |= {m.id for m in jobs.claim(10, visibility=5 * HOUR_S)}
    assert got == ready | hidden
    assert {m for _, m in visible(spool.tree.root)} == ready | hidden


@BOTH
def test_verbs_work_after_a_jump(spool: Spool, jobs: Queue, clock: Clock, jump: float) -> None:
    clock.advance(5000)
    fill(jobs)
    clock.advance(jump)
    later = jobs.renew("a", 30)
    assert later == clock() + 30
    jobs.release("a")
    assert jobs.put(b"after", id="after") == "after"
    claimed = {m.id for m in jobs.claim(10)}
    assert {"a", "b", "after", "shell"} <= claimed
    assert jobs.remove(*claimed) == len(claimed)
    jobs.purge()
    spool.reap()
    assert visible(spool.tree.root) == []
    assert check(spool.tree.root, clock=clock).clean


def test_a_timer_is_longer_by_a_jump_back(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x", id="x")
    jobs.claim(visibility=30)
    clock.advance(-HOUR_S)
    clock.advance(HOUR_S + 29)
    assert jobs.claim() == []
    clock.advance(1)
    assert [m.id for m in jobs.claim()] == ["x"]


def test_a_renewal_after_a_jump_back_sets_a_new_timer(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x", id="x")
    jobs.claim(visibility=30)
    clock.advance(-HOUR_S)
    jobs.renew("x", 10)
    clock.advance(10)
    assert [m.id for m in jobs.claim()] == ["x"]


def test_a_jump_expires_only_messages_with_a_ttl(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"mortal", ttl=600)
    kept = jobs.put(b"immortal")
    spool.deliver()
    clock.advance(HOUR_S)
    assert [m.id for m in jobs.claim(10)] == [kept]


@BOTH
def test_a_put_during_a_jump_stores_its_message(spool: Spool, clock: Clock, jump: float) -> None:
    """A mover whose clock is wrong may think that the writer has crashed."""
    spool.create_queue("jobs")
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"whole", id="own")])
    recover(spool.tree, clock() + jump)
    assert spool.complete(prepared) == ["own"]
    spool.deliver()
    assert [m.body for m in Queue(spool, "jobs").claim()] == [b"whole"]
    assert list((spool.tree.root / "new").iterdir()) == []
