"""SIGKILL between any two system calls of a consumer: it gets the same batch again, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.consumers.batches import forget
from fsmq.spool.consumers.consumer import Consumer
from tests.spool.crashing import Verb, crashes_of
from tests.spool.helpers import Clock, visible
from tests.spool.test_crash import BODIES, recover


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


def renew_released(spool: Spool) -> None:
    """Renew a batch whose messages were released."""
    for message_id in BODIES:
        spool.queue("jobs").release(message_id)
    with open_consumer(spool) as consumer:
        [batch] = consumer.batches("s", 0)
        consumer.renew_batch(batch)


def crashes(root: Path, clock: Clock, verb: Verb, *before: Verb) -> Iterator[tuple[bool, Path]]:
    """Every crash of a verb after these steps."""

    def prepare(tree: Path) -> None:
        with Spool(tree, sync="none", clock=clock) as spool:
            jobs = spool.queue("jobs", create=True)
            for message_id, body in BODIES.items():
                jobs.put(body, id=message_id)
            spool.deliver()
            for step in before:
                step(spool)

    return crashes_of(root, verb, clock, prepare)


def given(tree: Path, clock: Clock, stream: str) -> list[list[str]]:
    """The batches that the consumer gets after a restart."""
    with Spool(tree, sync="none", clock=clock) as spool, open_consumer(spool) as consumer:
        kept = [consumer.renew_batch(batch) for batch in consumer.batches(stream, 0)]
        return [[claim.id for claim in batch.claims["jobs"]] for batch in kept]


def test_an_acknowledged_batch_is_given_again(root: Path, clock: Clock) -> None:
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


def test_an_adopted_batch_stays_one_batch(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, adopt, take):
        batches = given(tree, clock, "s") + given(tree, clock, "t")
        assert batches == [list(BODIES)]
        assert given(tree, clock, "t") or not acknowledged
        assert recover(tree, clock) == BODIES


def test_a_renewed_batch_loses_no_message(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, renew_released, take):
        [batch] = given(tree, clock, "s")
        # A message that was claimed again may be missing: its claim was not stored yet.
        assert batch == list(BODIES) or not acknowledged
        assert recover(tree, clock) == BODIES


def test_forgetting_a_consumer_loses_no_message(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(
        root, clock, lambda spool: forget(spool.context, "spark"), take
    ):
        if acknowledged:
            assert not (tree / "consumers" / "spark").exists()
        assert recover(tree, clock) == BODIES
