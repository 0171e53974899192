"""Counts of messages, and the depths of queues that puts check."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsmq.spool import Queue, QueueFull, Spool, prepare
from fsmq.spool.index import listings
from fsmq.spool.index.listings import Unlisted
from fsmq.spool.layout.tree import Tree
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.limits.depths import Depths
from tests.harness.suite import PATIENCE_S, eventually
from tests.spool.helpers import Clock


class Counted:
    """A count that blocks for the queue "slow" until it may end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.asked: list[str] = []

    def __call__(self, queue: str) -> int:
        self.asked.append(queue)
        if queue == "slow":
            self.begun.set()
            assert self.may_end.wait(PATIENCE_S)
        return 5


@pytest.fixture
def no_listings() -> Iterator[None]:
    listings.forbid()
    yield
    listings.allow()


def test_a_slow_count_runs_once_and_blocks_no_other_queue(spool: Spool) -> None:
    counted = Counted()
    depths = Depths(spool.tree, counted)
    with ThreadPoolExecutor(9) as threads:
        try:
            waiting = [threads.submit(depths.admit, "slow", 10, 1) for _ in range(6)]
            assert counted.begun.wait(PATIENCE_S)
            threads.submit(depths.admit, "quick", 10, 1).result(PATIENCE_S)
            assert not any(one.done() for one in waiting)
        finally:
            counted.may_end.set()
        refused = [one.exception(PATIENCE_S) for one in waiting]
    assert counted.asked == ["slow", "quick"]
    assert [type(error) for error in refused if error] == [QueueFull]


def test_a_depth_must_be_learnt_if_listings_are_forbidden(spool: Spool, no_listings: None) -> None:
    counted = Counted()
    depths = Depths(spool.tree, counted)
    with pytest.raises(Unlisted):
        depths.admit("jobs", 10, 1)
    assert not counted.asked
    depths.learn("jobs")
    depths.admit("jobs", 10, 5)
    with pytest.raises(QueueFull):
        depths.admit("jobs", 10, 1)


def test_claims_use_the_last_listing_if_none_is_allowed(tmp_path: Path, no_listings: None) -> None:
    with Spool(tmp_path / "mq", sync="none", watch="poll", poll_interval=0.0) as spool:
        queue, ready = spool.queue("jobs", create=True), spool.context.ready
        (spool.tree.root / "queues" / "jobs" / "one").touch()
        assert not spool.complete(prepare.claim(spool.context, "jobs"))
        assert eventually(lambda: ready.is_due("jobs"))
        ready.load("jobs")
        assert not ready.is_due("jobs")
        (spool.tree.root / "queues" / "jobs" / "two").touch()
        claimed = spool.complete(prepare.claim(spool.context, "jobs", 10))
        assert [message.id for message in claimed] == ["one"]
        assert eventually(lambda: ready.is_due("jobs"))
        listings.allow()
        assert [message.id for message in queue.claim(10)] == ["two"]


def test_all_views_agree_about_a_delay_that_ended(spool: Spool, jobs: Queue, clock: Clock) -> None:
    waiting = jobs.put(b"x", delay=5)
    spool.deliver()
    for seconds, state in ((0.0, "delayed"), (10.0, "in_flight")):  # without a mover
        clock.advance(seconds)
        counts = jobs.counts()
        assert getattr(counts, state) == counts.total == 1
        assert [(m.id, m.state) for m in jobs.peek(state=state)] == [(waiting, state)]
        assert spool.survey()["jobs"].counts == counts


@pytest.mark.parametrize("delay", [0, 60], ids=["to its queue", "to delay"])
def test_a_message_delivered_during_a_count_is_counted_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        show_ready = Tree.show_ready

        def delivering_first(tree: Tree, queue: str, see: Callable[[list[str]], object]) -> bool:
            spool.deliver()
            return show_ready(tree, queue, see)

        monkeypatch.setattr(Tree, "show_ready", delivering_first)
        jobs.put(b"one", delay=delay)
        assert jobs.counts().total == 1
        jobs.put(b"another", delay=delay)
        assert spool.survey()["jobs"].counts.total == 2


@pytest.mark.slow
def test_counts_take_no_memory_for_each_message(root: Path) -> None:
    """A server that lists a queue for a survey and for a claim would have all names twice."""
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True)
        for _ in range(40_000):
            (root / "queues/jobs" / uuid7()).touch()
        for count in (lambda: spool.survey()["jobs"].counts, spool.queue("jobs").counts):
            tracemalloc.start()
            try:
                assert count().ready == 40_000
                assert tracemalloc.get_traced_memory()[1] < 3_000_000
            finally:
                tracemalloc.stop()
