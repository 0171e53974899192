"""An own id is used again while a process still acts on the message that had it before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import (
    Counts,
    DuplicateMessage,
    Message,
    NewMessage,
    NoSuchMessage,
    Queue,
    Spool,
    Unavailable,
    prepare,
)
from fsmq.spool.consumers import consumer as consumer_module
from fsmq.spool.consumers.batches import finish_abandoned
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.fsck import check
from fsmq.spool.layout.tree import Tree
from fsmq.spool.layout.uuids import derived_uuid7
from fsmq.spool.mover.expiry import Expiry
from fsmq.spool.verbs import claim
from fsmq.spool.verbs import latch as latch_module
from fsmq.spool.verbs import renew_at_least as extension_module
from fsmq.spool.verbs.latch import Latched
from tests.spool.helpers import Clock, back_to_new, tree_of


@pytest.fixture
def other(root: Path, clock: Clock, jobs: Queue) -> Iterator[Spool]:
    """The spool in another process."""
    with Spool(root, sync="none", clock=clock) as spool:
        yield spool


def use_again(spool: Spool, message_id: str = "report", *, reap: bool = True) -> None:
    """Remove a message, and put and deliver another one of its id."""
    jobs = spool.queue("jobs", create=True)
    assert jobs.remove(message_id)
    if reap:
        spool.reap()
    jobs.put(b"NEW", id=message_id)
    spool.deliver()


def use_again_and_claim(spool: Spool) -> None:
    use_again(spool)
    assert claim_all(spool) == [(b"NEW", 1)]


def die() -> None:
    raise SystemExit


def before(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]
) -> None:
    """Run a step once, right before the first call of a function."""
    real = getattr(owner, name)
    steps = iter([step])

    def call(*of: object, **named: object) -> object:
        next(steps, lambda: None)()
        return real(*of, **named)

    monkeypatch.setattr(owner, name, call)


def after(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]
) -> None:
    """Run a step once, right after the first call of a function."""
    real = getattr(owner, name)
    steps = iter([step])

    def call(*of: object, **named: object) -> object:
        result = real(*of, **named)
        next(steps, lambda: None)()
        return result

    monkeypatch.setattr(owner, name, call)


def claim_all(spool: Spool) -> list[tuple[bytes, int | None]]:
    """Claim all messages; their bodies and counts."""
    return [(m.body, m.deliveries) for m in spool.queue("jobs").claim(10, visibility=60)]


@pytest.mark.parametrize("reap", [True, False], ids=["reaped", "in remove"])
@pytest.mark.parametrize(
    ("owner", "step"), [(Latched, "stamp"), (claim, "_move_to_delay")], ids=["stamp", "move"]
)
def test_a_stalled_claim_returns_no_removed_message(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    reap: bool,
) -> None:
    jobs.put(b"OLD", id="report")
    spool.deliver()
    with monkeypatch.context() as patched:
        before(patched, owner, step, lambda: use_again(other, reap=reap))
        found = claim_all(spool)
    assert found + claim_all(spool) == [(b"NEW", 1)]


def test_a_claim_whose_message_was_removed_ends_no_claim_of_the_next(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"OLD", id="report")
    spool.deliver()

    with monkeypatch.context() as patched:
        after(patched, spool.tree, "rename", lambda: use_again_and_claim(other))
        assert spool.complete(prepare.claim(spool.context, "jobs", 1, 60.0)) == []
    assert claim_all(spool) == []


def test_a_claim_stamps_no_later_message_of_its_id(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is removed after the rename, and the next one claimed before the stamp."""
    jobs.put(b"OLD", id="report")
    spool.deliver()
    claimed: list[Message] = []

    def put_and_claim() -> None:
        other.queue("jobs").put(b"NEW", id="report")
        claimed.extend(other.queue("jobs").claim(visibility=60))

    with monkeypatch.context() as patched:
        after(patched, spool.tree, "rename", lambda: other.queue("jobs").remove("report"))
        before(patched, spool.tree, "stamp", put_and_claim)
        assert spool.complete(prepare.claim(spool.context, "jobs", 1, 10.0)) == []
    if not claimed:
        put_and_claim()
    [found] = jobs.peek(state="in_flight")
    [held] = claimed
    assert (found.body, found.deliveries, found.deadline) == (b"NEW", 1, held.deadline)


def extend(spool: Spool, seconds: float) -> list[bool]:
    renewal = prepare.renew_at_least(spool.context, "jobs", ["report"], seconds)
    return spool.complete(renewal)


def test_an_extension_shortens_no_claim(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process claims the message after the check that its claim has ended."""
    jobs.put(b"x", id="report")
    jobs.claim(visibility=10)
    clock.advance(10.1)  # a claim may end a little later, to have a name of its own
    claimed: list[object] = []
    with monkeypatch.context() as patched:
        before(patched, extension_module, "restamp", lambda: claimed.extend(claim_all(other)))
        assert extend(spool, 30.0) == [True]
    assert claimed == [(b"x", 2)]
    clock.advance(30)
    assert claim_all(spool) == []


def test_an_extension_shortens_no_delay(jobs: Queue, spool: Spool, clock: Clock) -> None:
    spool.complete(prepare.put(spool.context, "jobs", [NewMessage(b"x", id="report", delay=60.0)]))
    assert extend(spool, 10.0) == [True]
    clock.advance(10)
    assert claim_all(spool) == []
    clock.advance(50)
    assert claim_all(spool) == [(b"x", 1)]


def test_a_claim_that_lost_to_a_move_does_not_count(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"x", id="report")
    spool.deliver()
    spool.queue("archive", create=True)
    with monkeypatch.context() as patched:
        before(patched, claim, "_move_to_delay", lambda: other.queue("jobs").move_to("archive"))
        assert jobs.claim() == []
    [message] = other.queue("archive").claim()
    assert message.deliveries == 1


def test_a_stalled_mover_ends_no_claim_of_a_later_message(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"OLD", id="report")
    jobs.claim(visibility=10)
    clock.advance(10)
    with monkeypatch.context() as patched:
        before(patched, Latched, "move", lambda: use_again_and_claim(other))
        spool.deliver()
    assert claim_all(spool) == []
    clock.advance(60)
    assert claim_all(spool) == [(b"NEW", 2)]


def test_a_stalled_mover_buries_no_later_message(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"OLD", id="report")
    jobs.claim(visibility=10)
    clock.advance(10)
    with monkeypatch.context() as patched:
        before(patched, Latched, "stamp", lambda: use_again_and_claim(other))
        spool.deliver()
    assert spool.counts("dead").total == 0
    assert claim_all(spool) == []


def test_an_unseen_release_ends_only_its_own_claim(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock
) -> None:
    jobs.put(b"x", id="report")
    [mine] = jobs.claim(visibility=1)
    clock.advance(1)
    [theirs] = other.queue("jobs").claim(visibility=60)
    with pytest.raises(NoSuchMessage):
        spool.complete(prepare.release_unseen(spool.context, mine))
    assert spool.queue("jobs").claim() == []
    other.complete(prepare.release_unseen(other.context, theirs))
    assert claim_all(spool) == [(b"x", 2)]


def test_an_aborted_claim_ends_no_later_claim(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock
) -> None:
    jobs.put(b"x", id="report")
    spool.deliver()
    prepared = prepare.claim(spool.context, "jobs", 1, 1.0)
    clock.advance(1)
    assert claim_all(other) == [(b"x", 2)]
    prepared.dirty.close()
    prepared.abort()
    assert claim_all(spool) == []


@pytest.mark.parametrize("place", ["claimed", "looked through", "in delay"])
def test_no_message_expires_in_place_of_another(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: Any, place: str
) -> None:
    """The id has an old time, so the file has the time of the put."""
    jobs.configure(retention=10)
    own = derived_uuid7(int(clock() * 1e9) - 3600 * 10**9, b"an hour ago")
    name = jobs.put(b"OLD", id=own)
    spool.deliver()
    if place == "in delay":
        assert jobs.claim(visibility=10)
    clock.advance(11)

    def use_again_and_hide() -> None:
        assert other.queue("jobs").remove(name)
        other.queue("jobs").put(b"NEW", id=own)
        other.deliver()
        if place == "in delay":
            assert other.queue("jobs").claim(visibility=5)

    with monkeypatch.context() as patched:
        before(patched, spool.tree, "rename", use_again_and_hide)
        if place == "claimed":
            assert all(m.body == b"NEW" for m in jobs.claim(visibility=5))
        elif place == "in delay":
            spool.deliver()
        else:
            for _ in range(3):
                Expiry(spool.context, 1.0, lambda *of: None).step(0.0)
    clock.advance(6)
    assert [body for body, _ in claim_all(spool)] == [b"NEW"]


@pytest.mark.parametrize("verb", ["mover", "renewal"])
def test_no_delay_ends_in_place_of_another(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: Any, verb: str
) -> None:
    jobs.put(b"OLD", id="report")
    back_to_new(spool.tree.root)

    def use_again_delayed() -> None:
        assert other.queue("jobs").remove("report")
        other.queue("jobs").put(b"NEW", id="report", delay=3600)
        back_to_new(spool.tree.root)

    with monkeypatch.context() as patched:
        before(patched, spool.tree, "rename", use_again_delayed)
        if verb == "mover":
            spool.deliver()
        else:
            assert extend(spool, 30.0) == [False]
    assert claim_all(spool) == []
    clock.advance(3600)
    assert claim_all(spool) == [(b"NEW", 1)]


def acknowledge_late(
    jobs: Queue, other: Spool, monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]
) -> None:
    """Acknowledge a message whose id is used again before the rename; run a step after it.

    Another process has claimed the new message, which is not acknowledged.
    """
    jobs.put(b"OLD", id="report")
    [old] = jobs.claim(visibility=300)
    with monkeypatch.context() as patched:
        before(patched, Latched, "move", lambda: use_again_and_claim(other))
        before(patched, Latched, "_remove", lambda: after(patched, Tree, "rename", step))
        assert jobs.ack_each([old]) != ["removed"]


def test_a_start_restores_a_message_that_a_killed_ack_had_taken(
    jobs: Queue, root: Path, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ack was of the message that had the id before."""
    with pytest.raises(SystemExit):
        acknowledge_late(jobs, other, monkeypatch, die)
    assert claim_all(other) == []
    clock.advance(30)  # its claim still holds
    recover(other.tree, clock(), at_start=True)
    assert tree_of(root)["delay"] == ["jobs:report"]
    assert claim_all(other) == []
    clock.advance(31)
    assert claim_all(other) == [(b"NEW", 2)]
    assert not check(root).findings


def test_a_message_that_a_living_process_has_taken_is_left_to_it(
    jobs: Queue, root: Path, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recover_after_an_hour() -> None:
        clock.advance(3600)
        assert recover(other.tree, clock(), at_start=True) == (0, 0)
        assert not check(root).findings

    acknowledge_late(jobs, other, monkeypatch, recover_after_an_hour)
    assert claim_all(other) == [(b"NEW", 2)]


@pytest.mark.parametrize("verb", ["by its id", "in its claim"])
def test_a_message_that_a_killed_ack_had_taken_can_be_removed(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """It does not count as missing, because recovery would restore it."""
    jobs.put(b"x", id="report")
    claimed = jobs.claim(visibility=300)
    with monkeypatch.context() as patched:
        after(patched, Tree, "rename", die)
        with pytest.raises(SystemExit):
            jobs.ack_each(claimed)
    assert tree_of(root)["new"] == [".jobs:report:taken"]
    if verb == "by its id":
        assert other.queue("jobs").remove("report")
    else:
        assert other.queue("jobs").ack_each(claimed) == ["removed"]
    assert tree_of(root)["new"] == tree_of(root)["delay"] == []


def test_a_taken_message_is_unavailable_and_not_lost(
    jobs: Queue, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove() -> None:
        with pytest.raises(Unavailable):
            other.queue("jobs").remove("report")

    acknowledge_late(jobs, other, monkeypatch, remove)
    clock.advance(61)
    assert claim_all(other) == [(b"NEW", 2)]


def test_fsck_restores_a_message_that_a_killed_ack_had_taken(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        acknowledge_late(jobs, other, monkeypatch, die)
    [fault] = check(root, offline=True).findings
    assert "taken away" in fault.reason
    check(root, offline=True, repair=True)
    assert tree_of(root)["delay"] == ["jobs:report"]
    assert not check(root, offline=True).findings


@pytest.mark.parametrize("has_numbers", [True, False], ids=["numbers", "no locks on bytes"])
def test_a_taken_message_is_restored_when_its_id_is_free(
    jobs: Queue, root: Path, other: Spool, clock: Clock, monkeypatch: Any, has_numbers: bool
) -> None:
    monkeypatch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", has_numbers)

    def put_a_third_one() -> None:
        with pytest.raises(DuplicateMessage):
            other.queue("jobs").put(b"THIRD", id="report")
        (root / "delay" / "jobs:report").write_bytes(b"THIRD")  # as a shell user may
        assert [m.body for m in other.queue("jobs").claim(visibility=300)] == [b"THIRD"]

    acknowledge_late(jobs, other, monkeypatch, put_a_third_one)
    now = time.time() + 3600
    assert recover(other.tree, now) == (0, 0)
    [fault] = check(root, clock=lambda: now).findings
    assert "has the same id" in fault.reason
    third = jobs.peek(state="in_flight")
    assert jobs.ack_each(third) == ["removed"]  # although the taken one has its id
    assert recover(other.tree, now) == (1, 0)
    assert not check(root, clock=lambda: now).findings
    clock.advance(61)
    assert claim_all(other) == [(b"NEW", 2)]


def test_a_purge_removes_a_taken_message(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledge_late(jobs, other, monkeypatch, other.queue("jobs").purge)
    assert recover(other.tree, time.time() + 3600) == (0, 0)
    assert not tree_of(root)["new"]
    assert not tree_of(root)["delay"]


@pytest.fixture
def consumer(spool: Spool, jobs: Queue) -> Consumer:
    """A consumer that has claimed a message. The test closes it."""
    jobs.put(b"OLD", id="report")
    spool.deliver()
    consumer = Consumer(spool, "spark", visibility=3600)
    assert consumer.claim("s", 0, ["jobs"], 5) is not None
    return consumer


def test_a_late_commit_spares_another_message_of_the_id(
    consumer: Consumer, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer dies in its commit; the mover finishes it after the id is used again."""
    other.deliver()  # the mover checks for dead consumers again in half a minute
    with monkeypatch.context() as patched, consumer:
        patched.setattr(consumer_module, "finish_committed", lambda *of: die())
        with pytest.raises(SystemExit):
            consumer.commit("s", 1)
    clock.advance(3600)
    assert [m.body for m in other.queue("jobs").claim()] == [b"OLD"]
    use_again_and_claim(other)  # it was claimed as often as the message of the commit
    assert finish_abandoned(other.context) == 0
    clock.advance(60)
    assert claim_all(other) == [(b"NEW", 2)]


def test_a_message_whose_id_is_used_again_during_a_commit_is_spared(
    consumer: Consumer, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, consumer:
        before(patched, Latched, "move", lambda: use_again_and_claim(other))
        assert consumer.commit("s", 1) == 0
    assert tree_of(Path(spool.tree.root))["delay"] == ["jobs:report"]


def test_a_restarted_consumer_renews_no_claim_of_another_message(
    consumer: Consumer, spool: Spool, other: Spool, clock: Clock
) -> None:
    consumer.close()
    clock.advance(3600)
    assert [m.body for m in other.queue("jobs").claim()] == [b"OLD"]
    use_again_and_claim(other)
    with Consumer(spool, "spark", visibility=1) as again:
        [batch] = again.batches("s", 0)
        assert again.renew_batch(batch).claims == {"jobs": []}
    clock.advance(2)
    assert claim_all(other) == []


def test_a_consumer_claims_no_other_message_again(consumer: Consumer, other: Spool) -> None:
    use_again(other)
    with consumer:
        [batch] = consumer.batches("s", 0)
        assert consumer.renew_batch(batch).claims == {"jobs": []}
    assert claim_all(other) == [(b"NEW", 1)]


def test_a_consumer_ends_no_delay_of_another_message(
    consumer: Consumer, jobs: Queue, spool: Spool, other: Spool, clock: Clock
) -> None:
    assert jobs.remove("report")
    spool.complete(
        prepare.put(spool.context, "jobs", [NewMessage(b"NEW", id="report", delay=60.0)])
    )
    with consumer:
        [batch] = consumer.batches("s", 0)
        assert consumer.renew_batch(batch).claims == {"jobs": []}
    assert claim_all(other) == []
    clock.advance(60)
    assert claim_all(other) == [(b"NEW", 1)]


def test_a_copied_batch_can_be_committed(consumer: Consumer, root: Path, clock: Clock) -> None:
    """Its messages have other inodes, and are known by their sizes and counts."""
    consumer.close()
    copy = root.with_name("copy")
    os.system(f"cp -a '{root}' '{copy}'")
    with Spool(copy, sync="none", clock=clock) as spool, Consumer(spool, "spark") as again:
        [batch] = again.batches("s", 0)
        assert again.renew_batch(batch).claims.keys() == {"jobs"}
        assert again.commit("s", 1) == 1
        assert spool.counts("jobs").total == 0


def test_an_unneeded_renewal_syncs_the_claim(jobs: Queue, spool: Spool, other: Spool) -> None:
    jobs.put(b"x", id="report")
    spool.deliver()
    claim = prepare.claim(spool.context, "jobs", 1, 60.0)
    renewal = prepare.renew_at_least(other.context, "jobs", ["report"], 30.0)
    assert len(renewal.dirty.files) == 1
    assert renewal.dirty.folders == {"new", "delay", "queues/jobs"}
    assert other.complete(renewal) == [True]
    spool.complete(claim)


def test_nobody_gets_a_message_whose_delay_is_not_set_yet(
    root: Path, jobs: Queue, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks on bytes a mover that starts thinks that the writer has crashed."""
    monkeypatch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", False)
    claimed: list[bytes] = []

    def promote_and_claim() -> None:
        other.deliver()
        claimed.extend(m.body for m in other.queue("jobs").claim(visibility=60))

    with Spool(root, sync="none", delivers=False) as writer, monkeypatch.context() as patched:
        before(patched, os, "utime", promote_and_claim)
        writer.complete(prepare.put(writer.context, "jobs", [NewMessage(b"x", delay=60.0)]))
    assert claimed == []
    assert jobs.counts() == Counts(delayed=1)


def test_an_id_that_is_too_long_for_the_dead_letter_queue_is_replaced(
    jobs: Queue, spool: Spool, root: Path, clock: Clock
) -> None:
    dead = "d" * 180
    jobs.configure(max_deliveries=1, dead_letter_queue=dead)
    for number in range(2):
        (root / "queues" / "jobs" / f"{'i' * 240}{number}").write_bytes(b"x")  # as a shell may
        [message] = jobs.claim(visibility=10)
        if number:
            jobs.bury(message.id)
        else:
            clock.advance(10)
            spool.deliver()
    assert tree_of(root)["queues/jobs"] == []
    assert [(m.body, len(m.id)) for m in spool.queue(dead).peek(count=2)] == [(b"x", 36)] * 2


@pytest.mark.parametrize("visibility", [0, 60], ids=["a claim that has ended", "a claim"])
def test_a_claim_that_stalls_before_its_latch_changes_no_other_claim(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch, visibility: int
) -> None:
    """It has opened the file when another process claims the message."""
    jobs.put(b"x")
    spool.deliver()
    taken: list[Message] = []

    def claim_elsewhere() -> None:
        taken.extend(other.queue("jobs").claim(visibility=visibility))

    with monkeypatch.context() as patched:
        before(patched, latch_module.fcntl, "flock", claim_elsewhere)
        assert jobs.claim() == []
    [found], [held] = jobs.peek(state="in_flight"), taken
    assert (found.deliveries, found.deadline) == (held.deliveries, held.deadline) != (2, None)
