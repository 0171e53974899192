"""SIGKILL between any two system calls of a consumer: the same batch again, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.consumers.batches import forget
from fsmq.spool.consumers.consumer import Consumer
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock, visible
from tests.spool.test_crash import recover

BODIES = {"one": b"first body", "two": b"second body"}


def open_consumer(spool: Spool) -> Consumer:
    return Consumer(spool, "spark", visibility=50)


def take(spool: Spool) -> None:
    with open_consumer(spool) as consumer:
        assert consumer.claim("s", 0, ["jobs"], 2) is not None


def commit(spool: Spool) -> None:
    with open_consumer(spool) as consumer:
        assert consumer.commit("s", 1) == 2


def adopt(spool: Spool) -> None:
    with open_consumer(spool) as consumer:
        consumer.adopt("t", 5)


def take_back(spool: Spool) -> None:
    """Keep a batch whose messages went back to their queue."""
    for message_id in BODIES:
        spool.queue("jobs").release(message_id)
    with open_consumer(spool) as consumer:
        [batch] = consumer.batches("s", 0)
        consumer.renew_batch(batch)


def crashes(
    root: Path, clock: Clock, verb: Callable[[Spool], object], *before: Callable[[Spool], object]
) -> Iterator[tuple[bool, Path]]:
    """Every crash of a verb: whether it was acknowledged, and the tree that it left."""
    for at in range(1000):
        tree = root / str(at)
        with Spool(tree, sync="none", clock=clock) as spool:
            jobs = spool.queue("jobs", create=True)
            for message_id, body in BODIES.items():
                jobs.put(body, id=message_id)
            spool.deliver()
            for step in before:
                step(spool)
        acknowledged = run_and_die(tree, verb, at, clock)
        if acknowledged is None:
            assert at > 1, "a verb changes something"
            return
        yield acknowledged, tree
    raise AssertionError("the verb did not end")


def given(tree: Path, clock: Clock, stream: str) -> list[list[str]]:
    """What the consumer is given after a restart."""
    with Spool(tree, sync="none", clock=clock) as spool, open_consumer(spool) as consumer:
        kept = [consumer.renew_batch(batch) for batch in consumer.batches(stream, 0)]
        return [[claim.id for claim in batch.claims["jobs"]] for batch in kept]


def test_a_batch_that_was_told_is_given_again(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, take):
        batches = given(tree, clock, "s")
        assert batches in ([], [list(BODIES)])
        if acknowledged:
            assert batches
        assert recover(tree, clock) == BODIES


def test_a_commit_is_all_or_nothing(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, commit, take):
        batches = given(tree, clock, "s")
        if batches:
            assert not acknowledged
            assert batches == [list(BODIES)]
            assert recover(tree, clock) == BODIES
        else:
            assert visible(tree) == []
            assert recover(tree, clock) == {}


def test_a_batch_that_is_adopted_stays_one_batch(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, adopt, take):
        batches = given(tree, clock, "s") + given(tree, clock, "t")
        assert batches == [list(BODIES)]
        assert given(tree, clock, "t") or not acknowledged
        assert recover(tree, clock) == BODIES


def test_a_batch_that_is_taken_back_loses_nothing(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, take_back, take):
        [batch] = given(tree, clock, "s")
        # Claimed anew and not yet stored so: it could be someone else's, and its timer tells.
        assert batch == list(BODIES) or not acknowledged
        assert recover(tree, clock) == BODIES


def test_dropping_a_consumer_loses_nothing(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(
        root, clock, lambda spool: forget(spool.context, "spark"), take
    ):
        if acknowledged:
            assert not (tree / "consumers" / "spark").exists()
        assert recover(tree, clock) == BODIES
