"""Two messages with the same own id in a queue: each is delivered, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, prepare
from fsmq.spool.fsck import check
from fsmq.spool.layout.stamps import Stamps
from tests.spool.helpers import Clock, tree_of


def by_redrive(spool: Spool) -> Callable[[], object]:
    jobs = spool.queue("jobs")
    jobs.configure(max_deliveries=5, dead_letter_queue="dead")
    jobs.put(b"old", id="order")
    [message] = jobs.claim()
    message.bury("bad")
    jobs.configure(max_deliveries=None, dead_letter_queue=None)
    return lambda: spool.queue("dead").redrive()


def by_move(spool: Spool) -> Callable[[], object]:
    spool.queue("other", create=True).put(b"old", id="order")
    spool.deliver()
    return lambda: spool.queue("other").move_to("jobs")


def by_hand(spool: Spool) -> Callable[[], object]:
    path = spool.tree.root / "queues" / "jobs" / "order"

    def move() -> None:
        path.write_bytes(b"old")
        os.utime(path, (1, 1))

    return move


@pytest.fixture(params=[by_redrive, by_move, by_hand])
def both(request: pytest.FixtureRequest, spool: Spool, jobs: Queue) -> Queue:
    """A queue in which one of them is in flight for a minute and the other is ready."""
    jobs.configure(visibility_timeout=60)
    bring_other = request.param(spool)
    # The other message arrives during the sync of the put.
    put = prepare.put(spool.context, "jobs", [NewMessage(b"new", id="order")])
    bring_other()
    assert bodies(jobs) == [b"old"]
    assert spool.complete(put) == ["order"]
    spool.deliver()
    return jobs


def bodies(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.claim(10)]


def test_each_is_delivered_though_claims_end(
    both: Queue, spool: Spool, root: Path, clock: Clock
) -> None:
    assert bodies(both) == []
    for deliveries in (2, 3):
        clock.advance(61)
        spool.deliver()
        [again] = both.claim(10)
        assert (again.body, again.deliveries) == (b"old", deliveries)
        assert both.claim(10) == []
    assert again.ack()
    [other] = both.claim(10)
    assert (other.body, other.deliveries) == (b"new", 1)
    assert other.ack()
    assert tree_of(root)["delay"] == tree_of(root)["queues/jobs"] == []
    assert not check(root, offline=True, clock=clock).findings


def test_a_released_message_is_claimed_again(both: Queue, spool: Spool, clock: Clock) -> None:
    both.release("order")
    [message] = both.claim(10)
    assert (message.body, message.deliveries) == (b"old", 2)
    both.release("order", delay=10)
    assert bodies(both) == []
    clock.advance(11)
    spool.deliver()
    assert bodies(both) == [b"old"]


def test_the_other_follows_when_the_first_is_buried(
    both: Queue, spool: Spool, clock: Clock
) -> None:
    both.configure(max_deliveries=2, dead_letter_queue="buried")
    for _ in range(2):
        clock.advance(61)
        spool.deliver()
        found = bodies(both)
    assert found == [b"new"]
    assert bodies(spool.queue("buried")) == [b"old"]


def test_another_process_finds_the_waiting_message(both: Queue, root: Path, clock: Clock) -> None:
    clock.advance(61)
    with Spool(root, sync="none", clock=clock) as other:
        other.deliver()
        [message] = other.queue("jobs").claim(10)
        assert message.body == b"old"
        assert message.ack()
        assert bodies(other.queue("jobs")) == [b"new"]


def test_the_other_is_claimed_in_fair_order(both: Queue, spool: Spool) -> None:
    both.configure(fetch_order="fair")
    assert bodies(both) == []
    both.ack("order")
    both.put(b"later")
    spool.deliver()
    assert sorted(bodies(both)) == [b"later", b"new"]


def test_each_is_delivered_where_file_times_are_coarse(
    spool: Spool, jobs: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool.context, "stamps", Stamps(coarse=True))
    bring_other = by_hand(spool)
    jobs.put(b"new", id="order")
    spool.deliver()
    assert bodies(jobs) == [b"new"]
    bring_other()
    assert bodies(jobs) == []
    clock.advance(61)
    spool.deliver()
    [message] = jobs.claim(10)
    assert message.body == b"new"
    assert message.ack()
    assert bodies(jobs) == [b"old"]
