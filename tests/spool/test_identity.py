"""An own id is used again while someone still acts on the message that had it before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmq.spool import (
    DuplicateMessage,
    InvalidValue,
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
    """The same spool as another process sees it."""
    with Spool(root, sync="none", clock=clock) as spool:
        yield spool


def use_again(spool: Spool, message_id: str = "report", *, reap: bool = True) -> None:
    """Remove a message and put another one of its id, and bring it to its queue."""
    jobs = spool.queue("jobs", create=True)
    assert jobs.remove(message_id)
    if reap:
        spool.reap()
    jobs.put(b"NEW", id=message_id)
    spool.deliver()


def before(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]
) -> None:
    """Do something once, right before a function is called for the first time."""
    real = getattr(owner, name)
    steps = iter([step])

    def call(*of: object, **named: object) -> object:
        next(steps, lambda: None)()
        return real(*of, **named)

    monkeypatch.setattr(owner, name, call)


def after(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, step: Callable[[], object]
) -> None:
    """Do something once, right after a function was called for the first time."""
    real = getattr(owner, name)
    steps = iter([step])

    def call(*of: object, **named: object) -> object:
        done = real(*of, **named)
        next(steps, lambda: None)()
        return done

    monkeypatch.setattr(owner, name, call)


def everything(spool: Spool) -> list[tuple[bytes, int | None]]:
    """Claim all that can be claimed: bodies and counts."""
    return [(m.body, m.deliveries) for m in spool.queue("jobs").claim(10, visibility=60)]


@pytest.mark.parametrize("reap", [True, False], ids=["reaped", "in remove"])
@pytest.mark.parametrize(
    ("owner", "step"), [(Latched, "stamp"), (claim, "_move_to_delay")], ids=["stamp", "move"]
)
def test_a_claimer_that_stalls_hands_out_no_removed_message(
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
        found = everything(spool)
    assert found + everything(spool) == [(b"NEW", 1)]


def test_a_claimer_whose_message_was_removed_at_once_takes_no_other_claim_away(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"OLD", id="report")
    spool.deliver()

    def use_again_and_claim() -> None:
        use_again(other)
        assert everything(other) == [(b"NEW", 1)]

    with monkeypatch.context() as patched:
        after(patched, spool.tree, "rename", use_again_and_claim)
        assert spool.complete(prepare.claim(spool.context, "jobs", 1, 60.0)) == []
    assert everything(spool) == []


def test_a_claimer_stamps_no_claim_of_the_message_that_came_after_its_own(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is removed right after the rename, and the next one claimed a moment later."""
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


def test_an_extension_shortens_no_claim(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone claims the message right after the look that said that its claim has ended."""
    jobs.put(b"x", id="report")
    jobs.claim(visibility=10)
    clock.advance(10.1)  # a claim may end a little later, so that its name is its own
    claimed: list[object] = []
    with monkeypatch.context() as patched:
        before(patched, extension_module, "restamp", lambda: claimed.extend(everything(other)))
        assert spool.complete(prepare.renew_at_least(spool.context, "jobs", ["report"], 30.0)) == [
            True
        ]
    assert claimed == [(b"x", 2)]
    clock.advance(30)
    assert everything(spool) == []


def test_an_extension_cuts_no_delay(jobs: Queue, spool: Spool, clock: Clock) -> None:
    spool.complete(prepare.put(spool.context, "jobs", [NewMessage(b"x", id="report", delay=60.0)]))
    assert spool.complete(prepare.renew_at_least(spool.context, "jobs", ["report"], 10.0)) == [True]
    clock.advance(10)
    assert everything(spool) == []
    clock.advance(50)
    assert everything(spool) == [(b"x", 1)]


def test_a_claimer_that_lost_to_a_move_leaves_the_count_as_it_was(
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


def test_a_mover_that_stalls_takes_no_other_claim_away(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"OLD", id="report")
    jobs.claim(visibility=10)
    clock.advance(10)

    def use_again_and_claim() -> None:
        use_again(other)
        assert everything(other) == [(b"NEW", 1)]

    with monkeypatch.context() as patched:
        before(patched, Latched, "move", use_again_and_claim)
        spool.deliver()
    assert everything(spool) == []
    clock.advance(60)
    assert everything(spool) == [(b"NEW", 2)]


def test_the_dead_letters_take_the_message_that_was_looked_at(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"OLD", id="report")
    jobs.claim(visibility=10)
    clock.advance(10)

    def use_again_and_claim() -> None:
        use_again(other)
        assert everything(other) == [(b"NEW", 1)]

    with monkeypatch.context() as patched:
        before(patched, Latched, "stamp", use_again_and_claim)
        spool.deliver()
    assert spool.counts("dead").total == 0
    assert everything(spool) == []


def test_who_hung_up_gives_back_its_own_claim_only(
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
    assert everything(spool) == [(b"x", 2)]


def test_a_claim_whose_sync_failed_late_is_not_taken_from_the_next(
    jobs: Queue, spool: Spool, other: Spool, clock: Clock
) -> None:
    jobs.put(b"x", id="report")
    spool.deliver()
    prepared = prepare.claim(spool.context, "jobs", 1, 1.0)
    clock.advance(1)
    assert everything(other) == [(b"x", 2)]
    prepared.dirty.close()
    prepared.abort()
    assert everything(spool) == []


@pytest.mark.parametrize("place", ["claimed", "looked through", "in delay"])
def test_no_message_expires_in_the_place_of_another(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """The id tells an old moment, so it says in the file when the message came."""
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
    assert [body for body, _ in everything(spool)] == [b"NEW"]


@pytest.mark.parametrize("verb", ["mover", "renewal"])
def test_a_delay_is_not_passed_over_in_the_place_of_another(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
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
            renewal = prepare.renew_at_least(spool.context, "jobs", ["report"], 30.0)
            assert spool.complete(renewal) == [False]
    assert everything(spool) == []
    clock.advance(3600)
    assert everything(spool) == [(b"NEW", 1)]


def acknowledge_late(
    jobs: Queue, other: Spool, monkeypatch: pytest.MonkeyPatch, at_look: Callable[[], object]
) -> None:
    """Acknowledge a message whose id is used again before the rename; then ``at_look`` happens.

    The new message is claimed by someone else, and not acknowledged.
    """
    jobs.put(b"OLD", id="report")
    [old] = jobs.claim(visibility=300)

    def use_again_and_claim() -> None:
        use_again(other)
        assert everything(other) == [(b"NEW", 1)]

    with monkeypatch.context() as patched:
        before(patched, Latched, "move", use_again_and_claim)
        before(patched, Latched, "_remove", lambda: after(patched, Tree, "rename", at_look))
        assert jobs.ack_each([old]) != ["removed"]


def test_a_message_is_brought_back_that_was_taken_away_by_who_was_killed(
    jobs: Queue, root: Path, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledgement of the message that had its id before was to look which one it is."""

    def die() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        acknowledge_late(jobs, other, monkeypatch, die)
    assert everything(other) == []
    clock.advance(30)  # its claim still holds
    recover(other.tree, clock(), at_start=True)
    assert tree_of(root)["delay"] == ["jobs:report"]
    assert everything(other) == []
    clock.advance(31)
    assert everything(other) == [(b"NEW", 2)]
    assert not check(root).findings


def test_a_message_that_a_living_process_has_taken_away_is_left_to_it(
    jobs: Queue, root: Path, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_for_an_hour() -> None:
        clock.advance(3600)
        assert recover(other.tree, clock(), at_start=True) == (0, 0)
        assert not check(root).findings

    acknowledge_late(jobs, other, monkeypatch, look_for_an_hour)
    assert everything(other) == [(b"NEW", 2)]


@pytest.mark.parametrize("verb", ["by its id", "in its claim"])
def test_who_removes_what_was_taken_away_by_who_was_killed_is_told_so(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """To be told that it is gone would be wrong: it comes back."""
    jobs.put(b"x", id="report")
    claimed = jobs.claim(visibility=300)

    def die() -> None:
        raise SystemExit

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


def test_a_message_that_was_taken_away_is_in_nobodys_way_and_not_gone(
    jobs: Queue, other: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def try_it() -> None:
        with pytest.raises(Unavailable):
            other.queue("jobs").remove("report")

    acknowledge_late(jobs, other, monkeypatch, try_it)
    clock.advance(61)
    assert everything(other) == [(b"NEW", 2)]


def test_a_check_brings_back_what_was_taken_away(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        acknowledge_late(jobs, other, monkeypatch, die)
    [fault] = check(root, offline=True).findings
    assert "taken away" in fault.reason
    check(root, offline=True, repair=True)
    assert tree_of(root)["delay"] == ["jobs:report"]
    assert not check(root, offline=True).findings


@pytest.mark.parametrize("has_numbers", [True, False], ids=["numbers", "no locks on bytes"])
def test_a_message_that_was_taken_away_waits_until_its_id_is_free(
    jobs: Queue,
    root: Path,
    other: Spool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    has_numbers: bool,
) -> None:
    """Of two messages of one id one would wait for the other."""
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
    assert jobs.ack_each(third) == ["removed"]  # though the other one is in its way
    assert recover(other.tree, now) == (1, 0)
    assert not check(root, clock=lambda: now).findings
    clock.advance(61)
    assert everything(other) == [(b"NEW", 2)]


def test_a_purge_removes_what_was_taken_away(
    jobs: Queue, root: Path, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledge_late(jobs, other, monkeypatch, other.queue("jobs").purge)
    assert recover(other.tree, time.time() + 3600) == (0, 0)
    assert not tree_of(root)["new"]
    assert not tree_of(root)["delay"]


@pytest.fixture
def consumer(spool: Spool, jobs: Queue) -> Consumer:
    """One that has claimed a message. Close it."""
    jobs.put(b"OLD", id="report")
    spool.deliver()
    consumer = Consumer(spool, "spark", visibility=3600)
    assert consumer.claim("s", 0, ["jobs"], 5) is not None
    return consumer


def test_a_late_clean_up_spares_another_message_of_the_id(
    consumer: Consumer,
    jobs: Queue,
    spool: Spool,
    other: Spool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer dies within its commit; the mover does the rest when the id is used again."""

    def die(*of: object) -> int:
        raise SystemExit

    other.deliver()  # the mover has looked, and looks again in half a minute
    with monkeypatch.context() as patched, consumer:
        patched.setattr(consumer_module, "finish_committed", die)
        with pytest.raises(SystemExit):
            consumer.commit("s", 1)
    clock.advance(3600)
    assert [m.body for m in other.queue("jobs").claim()] == [b"OLD"]
    use_again(other)
    assert everything(other) == [(b"NEW", 1)]  # claimed as often as the one that was committed
    assert finish_abandoned(other.context) == 0
    clock.advance(60)
    assert everything(other) == [(b"NEW", 2)]


def test_a_message_that_is_swapped_during_a_clean_up_is_spared(
    consumer: Consumer, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_again_and_claim() -> None:
        use_again(other)
        assert everything(other) == [(b"NEW", 1)]

    with monkeypatch.context() as patched, consumer:
        before(patched, Latched, "move", use_again_and_claim)
        assert consumer.commit("s", 1) == 0
    assert tree_of(Path(spool.tree.root))["delay"] == ["jobs:report"]


def test_a_consumer_that_was_down_keeps_no_claim_of_another_message(
    consumer: Consumer, root: Path, spool: Spool, other: Spool, clock: Clock
) -> None:
    consumer.close()
    clock.advance(3600)
    assert [m.body for m in other.queue("jobs").claim()] == [b"OLD"]
    use_again(other)
    assert everything(other) == [(b"NEW", 1)]
    with Consumer(spool, "spark", visibility=1) as again:
        [batch] = again.batches("s", 0)
        assert again.renew_batch(batch).claims == {"jobs": []}
    clock.advance(2)
    assert everything(other) == []


def test_a_consumer_claims_no_other_message_anew(
    consumer: Consumer, spool: Spool, other: Spool
) -> None:
    use_again(other)
    with consumer:
        [batch] = consumer.batches("s", 0)
        assert consumer.renew_batch(batch).claims == {"jobs": []}
    assert everything(other) == [(b"NEW", 1)]


def test_a_consumer_cuts_no_delay_of_another_message(
    consumer: Consumer, jobs: Queue, spool: Spool, other: Spool, clock: Clock
) -> None:
    assert jobs.remove("report")
    spool.complete(
        prepare.put(spool.context, "jobs", [NewMessage(b"NEW", id="report", delay=60.0)])
    )
    with consumer:
        [batch] = consumer.batches("s", 0)
        assert consumer.renew_batch(batch).claims == {"jobs": []}
    assert everything(other) == []
    clock.advance(60)
    assert everything(other) == [(b"NEW", 1)]


def test_a_batch_of_a_copied_tree_is_known_by_sizes_and_counts(
    consumer: Consumer, root: Path, tmp_path: Path, clock: Clock
) -> None:
    consumer.close()
    copy = tmp_path / "copy"
    os.system(f"cp -a '{root}' '{copy}'")
    with Spool(copy, sync="none", clock=clock) as spool, Consumer(spool, "spark") as again:
        [batch] = again.batches("s", 0)
        assert again.renew_batch(batch).claims.keys() == {"jobs"}
        assert again.commit("s", 1) == 1
        assert spool.counts("jobs").total == 0


def test_a_renewal_that_changes_nothing_waits_for_the_sync_of_the_claim(
    jobs: Queue, spool: Spool, other: Spool
) -> None:
    jobs.put(b"x", id="report")
    spool.deliver()
    claim = prepare.claim(spool.context, "jobs", 1, 60.0)
    renewal = prepare.renew_at_least(other.context, "jobs", ["report"], 30.0)
    assert len(renewal.dirty.files) == 1
    assert renewal.dirty.folders == {"new", "delay", "queues/jobs"}
    assert other.complete(renewal) == [True]
    spool.complete(claim)


def test_a_delay_is_set_on_no_message_that_was_given_to_others(
    root: Path, jobs: Queue, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are no locks on bytes a mover that starts takes a writer for crashed, and someone
    claims what it promoted."""
    monkeypatch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", False)
    claimed: list[bytes] = []

    def promote_and_claim() -> None:
        other.deliver()
        claimed.extend(m.body for m in other.queue("jobs").claim(visibility=60))

    with Spool(root, sync="none", delivers=False) as writer, monkeypatch.context() as patched:
        before(patched, os, "utime", promote_and_claim)
        with pytest.raises(Unavailable):
            prepare.put(writer.context, "jobs", [NewMessage(b"x", delay=1.0)])
    assert claimed == [b"x"]


def test_a_dead_letter_queue_takes_no_id_that_could_not_be_claimed_there(
    jobs: Queue, spool: Spool, root: Path, clock: Clock
) -> None:
    dead = "d" * 180
    jobs.configure(max_deliveries=1, dead_letter_queue=dead)
    long = "i" * 240
    (root / "queues" / "jobs" / long).write_bytes(b"x")  # as a shell user may name it
    [message] = jobs.claim(visibility=10)
    with pytest.raises(InvalidValue, match="too long"):
        jobs.bury(message.id)
    clock.advance(10)
    assert [m.id for m in jobs.claim(visibility=10)] == [long]
    jobs.release(long)
    assert tree_of(root)["queues/jobs"] == [long]
    assert spool.counts(dead).total == 0


@pytest.mark.parametrize("visibility", [0, 60], ids=["a claim that has ended", "a claim"])
def test_a_claimer_that_stalls_before_its_lock_changes_no_claim(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    visibility: int,
) -> None:
    """It has opened the file, and another one claims the message."""
    jobs.put(b"x")
    spool.deliver()
    taken: list[Message] = []
    with monkeypatch.context() as patched:
        before(
            patched,
            latch_module.fcntl,
            "flock",
            lambda: taken.extend(other.queue("jobs").claim(visibility=visibility)),
        )
        assert jobs.claim() == []
    [found], [held] = jobs.peek(state="in_flight"), taken
    assert (found.deliveries, found.deadline) == (held.deliveries, held.deadline) != (2, None)
