"""Delivery: new → queues, new → delay, delay → queues, and what comes in by a shell."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.durability.drafts import Draft
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.mover.delivery import Delivery
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, back_to_new, tree_of


def test_deliver_moves_new_messages_to_their_queues(spool: Spool, jobs: Queue, root: Path) -> None:
    one = jobs.put(b"1")
    two = spool.queue("other", create=True).put(b"2")
    back_to_new(root, "jobs")
    back_to_new(root, "other")
    assert spool.deliver() == 2
    assert tree_of(root) == {
        "new": [],
        "delay": [],
        "queues/jobs": [one],
        "queues/other": [two],
    }
    assert spool.deliver() == 0


def test_a_delayed_message_waits_in_delay(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    message_id = jobs.put(b"x", delay=5)
    assert tree_of(root)["delay"] == [f"jobs:{message_id}"]
    back_to_new(root)
    spool.deliver()
    assert tree_of(root)["delay"] == [f"jobs:{message_id}"]
    assert jobs.counts().delayed == 1
    clock.advance(5)
    assert jobs.claim()[0].deliveries == 1


def test_a_message_whose_delay_is_over_goes_straight_to_its_queue(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    message_id = jobs.put(b"x", delay=5)
    back_to_new(root)
    clock.advance(6)
    spool.deliver()
    assert tree_of(root)["queues/jobs"] == [message_id]


def test_a_message_that_expires_in_new_is_not_delivered(
    spool: Spool, jobs: Queue, clock: Clock
) -> None:
    jobs.put(b"x", ttl=1)
    back_to_new(spool.tree.root)
    clock.advance(60)
    spool.deliver()
    assert jobs.counts().total == 0


def test_two_deliveries_on_one_tree_do_no_harm(root: Path, spool: Spool, jobs: Queue) -> None:
    with Spool(root, sync="none", clock=spool.context.clock) as other:
        ids = jobs.put_many([b"x"] * 300)
        back_to_new(root)
        assert spool.deliver() + other.deliver() == 300
        assert [m.id for m in other.queue("jobs").claim(1000)] == ids


def test_what_was_put_before_a_start_is_delivered_after_it(root: Path, jobs: Queue) -> None:
    ids = jobs.put_many([b"x"] * 20)
    back_to_new(root)
    with Spool(root, sync="none") as again:
        assert [m.id for m in again.queue("jobs").claim(20)] == ids


def test_a_timer_that_runs_at_a_start_is_kept(root: Path, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    jobs.claim(visibility=50)
    with Spool(root, sync="none", clock=clock) as again:
        assert again.queue("jobs").claim() == []
        clock.advance(50)
        assert len(again.queue("jobs").claim()) == 1


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_a_shell_user_enqueues_with_mv(root: Path, tmp_path: Path, watch: str) -> None:
    with Spool(root, sync="none", watch=watch, poll_interval=0.02) as spool:  # type: ignore[arg-type]
        jobs = spool.queue("jobs", create=True)
        file = tmp_path / "notes.h"
        file.write_bytes(b"no header block: none of our ids\n")
        subprocess.run(["mv", file, root / "new" / "jobs:notes.h"], check=True)
        [message] = jobs.claim(wait=20)
    assert (message.id, message.body) == ("notes.h", b"no header block: none of our ids\n")
    assert (message.content_type, message.priority, message.deliveries) == (None, 0, 1)


def test_a_file_that_someone_still_writes_to_has_not_arrived(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    spool.deliver()
    with open(root / "new" / "jobs:slow", "wb") as file:
        file.write(b"half ")
        file.flush()
        assert jobs.claim() == []
        file.write(b"and whole")
    assert [m.body for m in jobs.claim()] == [b"half and whole"]


def test_a_shell_user_makes_a_message_ready(jobs: Queue, root: Path) -> None:
    assert jobs.claim() == []
    (root / "queues" / "jobs" / "by hand").write_bytes(b"x")
    assert [m.id for m in jobs.claim()] == ["by hand"]


def test_a_shell_user_gives_a_message_back(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"x")
    jobs.claim()
    os.rename(root / "delay" / f"jobs:{message_id}", root / "queues" / "jobs" / message_id)
    assert jobs.claim()[0].deliveries == 2


def test_a_shell_user_parks_a_message_in_delay_and_it_comes_back(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    (root / "delay" / "jobs:parked").write_bytes(b"x")
    assert [m.id for m in jobs.claim()] == ["parked"]


def test_a_copied_tree_counts_no_deliveries_by_accident(
    root: Path, tmp_path: Path, jobs: Queue, clock: Clock
) -> None:
    # A copy without times: no stamp verifies, so every count is 0 and every timer over.
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"x")
    jobs.claim(visibility=1000)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    with Spool(copy, sync="none", clock=clock) as spool:
        assert spool.queue("jobs").claim()[0].deliveries == 1
        assert spool.queue("dead").counts().total == 0


def test_a_copy_with_times_keeps_timers_and_counts(
    root: Path, tmp_path: Path, jobs: Queue, clock: Clock
) -> None:
    jobs.put(b"x")
    jobs.claim(visibility=1000)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    with Spool(copy, sync="none", clock=clock) as spool:
        assert spool.queue("jobs").claim() == []
        clock.advance(1000)
        assert spool.queue("jobs").claim()[0].deliveries == 2


def test_a_foreign_time_in_new_brings_nothing_to_the_dead_letters(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    file = root / ".file"
    file.write_bytes(b"x")
    chance = spool.context.stamps.encode("by-hand", int(clock.now * 1000) + 9_000_000, 50)
    os.utime(file, ns=(chance, chance))
    file.rename(root / "new" / "jobs:by-hand")
    assert [m.deliveries for m in jobs.peek(state="new")] == [0]
    [message] = jobs.claim()
    assert (message.id, message.deliveries) == ("by-hand", 1)


def test_nor_by_a_verb_that_delivers_it_itself(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    message_id = jobs.put(b"x")
    back_to_new(root)
    chance = spool.context.stamps.encode(message_id, int(clock.now * 1000) - 1, 50)
    os.utime(root / "new" / f"jobs:{message_id}", ns=(chance, chance))
    jobs.set_priority(message_id, 5)
    [message] = jobs.claim()
    assert message.deliveries == 1


def test_nor_by_the_id_that_a_dedup_queue_gives_it(
    spool: Spool, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in (read_side("d"), write_side("d")):
        spool.create_queue(queue)
    spool.complete(dedup.send(spool.context, "d", [b"x"]))
    back_to_new(root, write_side("d"))
    [sent] = (root / "new").iterdir()
    unlucky = uuid7()
    chance = spool.context.stamps.encode(unlucky, int(clock.now * 1000) - 1, 50)
    os.utime(sent, ns=(chance, chance))
    monkeypatch.setattr(dedup, "uuid7", iter([unlucky, uuid7()]).__next__)
    spool.deliver()
    [message] = spool.complete(dedup.poll(spool.context, "d", 1, 10))
    assert message.deliveries == 1


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
def test_nor_where_a_put_shows_it_past_the_mover(
    spool: Spool, clock: Clock, fifo: bool, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("line", fifo=fifo)
    spool.tree.network = network
    write = Draft.write

    def write_at_an_unlucky_moment(draft: Draft, fd: int) -> None:
        write(draft, fd)
        chance = spool.context.stamps.encode(draft.message_id, int(clock.now * 1000) - 1, 50)
        os.utime(fd, ns=(chance, chance))

    monkeypatch.setattr(Draft, "write", write_at_an_unlucky_moment)
    spool.queue("line").put(b"x", group="g")
    [message] = spool.queue("line").claim()
    assert message.deliveries == 1


def test_messages_of_a_missing_queue_wait_until_it_is_made(spool: Spool, root: Path) -> None:
    spool.deliver()
    (root / "new" / "later:x").write_bytes(b"x")
    (root / "delay" / "later:y").write_bytes(b"y")
    assert spool.deliver() == 0
    assert tree_of(root) == {"new": ["later:x"], "delay": ["later:y"]}
    assert [m.id for m in spool.queue("later", create=True).claim(2)] == ["x", "y"]


@pytest.mark.parametrize("watch", ["events", "poll"])
@pytest.mark.parametrize("kept", [3, 1000])
def test_any_number_of_messages_wait_for_any_number_of_queues(
    spool: Spool,
    root: Path,
    clock: Clock,
    watch: str,
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few are kept in memory, and few are told of; a listing finds the others."""
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_KEPT", kept)
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_QUEUES", 2)
    told: list[tuple[str, str]] = []
    delivery = Delivery(
        spool.context,
        events=watch == "events",
        poll_interval=0.0,
        on_problem=lambda name, reason: told.append((name, reason)),
    )
    ids = [uuid7() for _ in range(20)]
    for queue in ("one", "two", "three", "four"):
        for message_id in ids:
            (root / "new" / f"{queue}:{message_id}").touch()
            (root / "delay" / f"{queue}:{message_id}.x1").touch()
    clock.advance(10)  # by chance the time of one may be a deadline
    for _ in range(3):
        delivery.rescan()
        delivery.step()
    assert sum(map(len, delivery._undeliverable._waiting.values())) <= kept
    assert sorted(Counter(name.partition(":")[0] for name, _ in told).values()) == [2, 2], told
    # What can expire did so without its queue.
    assert os.listdir(root / "delay") == []
    for queue in ("one", "two", "three", "four"):
        spool.create_queue(queue)
        here = root / "queues" / queue
        eventually(lambda here=here: (delivery.step(), len(os.listdir(here)) == 20)[-1])
    delivery.close()


def test_not_all_strays_are_told_of(
    spool: Spool, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_REPORTED", 5)
    told: list[str] = []
    for number in range(20):
        (root / "new" / f"no-colon-{number}").touch()
    clock.advance(10)
    delivery = Delivery(spool.context, on_problem=lambda name, reason: told.append(reason))
    for _ in range(3):
        delivery.rescan()
        delivery.step()
    delivery.close()
    assert len(told) == 5
    assert "fsmq fsck" in told[-1]


def test_strays_are_left_alone_and_told_once(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    told: list[str] = []
    (root / "new" / "no-colon").write_bytes(b"x")
    (root / "new" / "jobs:folder").mkdir()
    (root / "delay" / "a b:c").write_bytes(b"x")
    (root / "delay" / "jobs:link").symlink_to("/etc/hostname")
    clock.advance(10)  # a fresh file may still be written to
    delivery = Delivery(spool.context, on_problem=lambda name, reason: told.append(name))
    for _ in range(3):
        delivery.rescan()
        delivery.step()
    delivery.close()
    assert sorted(told) == ["a b:c", "jobs:folder", "jobs:link", "no-colon"]
    assert tree_of(root)["new"] == ["jobs:folder", "no-colon"]
    assert tree_of(root)["delay"] == ["a b:c", "jobs:link"]


def test_a_file_in_place_of_a_queue_stops_no_other_queue(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    (root / "queues" / "file").write_bytes(b"no folder")
    (root / "new" / "file:x").write_bytes(b"x")
    (root / "delay" / "file:y").write_bytes(b"y")
    jobs.put(b"z")
    assert [m.body for m in jobs.claim(5)] == [b"z"]
    assert spool.queues() == ["jobs"]
    assert (root / "new" / "file:x").exists()


def test_an_id_that_is_ready_already_is_not_overwritten(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    jobs.put(b"first", id="one")
    spool.deliver()
    (root / "new" / "jobs:one").write_bytes(b"second")
    (root / "delay" / "jobs:one").write_bytes(b"third")
    spool.deliver()
    assert (root / "queues" / "jobs" / "one").read_bytes() == b"first"
    assert (root / "new" / "jobs:one").read_bytes() == b"second"
    assert (root / "delay" / "jobs:one").read_bytes() == b"third"


def test_a_complete_dot_name_of_a_crash_is_promoted_at_the_start(root: Path, jobs: Queue) -> None:
    with Spool(root, sync="none", delivers=False) as dead:
        prepared = prepare.put(dead.context, "jobs", [NewMessage(b"whole")])
    with Spool(root, sync="none") as again:
        assert [m.body for m in again.queue("jobs").claim()] == [b"whole"]
    del prepared


def test_a_dot_name_of_full_length_with_other_bytes_is_torn(root: Path, spool: Spool) -> None:
    """What ext4 leaves when the power fails during the sync: the length is there, the bytes not."""
    spool.create_queue("jobs")
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"whole")])
    [staged] = (root / "new").iterdir()
    staged.write_bytes(b"\0" * 5)
    with Spool(root, sync="none") as again:
        assert again.queue("jobs").claim() == []
    assert list((root / "new").iterdir()) == [staged]
    prepared.abort()


def test_a_torn_dot_name_is_removed_once_no_writer_can_be_at_work(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    torn = root / "new" / ".jobs:torn:c459294f"
    torn.write_bytes(b"half")
    left = root / "new" / ".jobs:one:own"
    left.touch()
    with Spool(root, sync="none", clock=clock) as young:
        assert young.queue("jobs").claim() == []
    assert torn.exists()
    clock.advance(120)
    with Spool(root, sync="none", clock=clock) as old:
        assert old.queue("jobs").claim() == []
        assert not torn.exists()
        old.queue("jobs").put(b"x", id="one")


def test_a_mover_holds_messages_for_its_own_delay_at_least(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    # Its clock is the tree's: ctime plus the delay.
    with Spool(root, sync="none", delivers=False) as real:
        (root / "delay" / "jobs:x").write_bytes(b"x")
        delivery = Delivery(real.context, delay=3600)
        assert delivery.step() == 0
        delivery.close()
        delivery = Delivery(real.context, delay=0)
        assert delivery.step() == 1
        delivery.close()


def test_expired_messages_are_swept_from_their_queues(
    spool: Spool, jobs: Queue, clock: Clock, root: Path
) -> None:
    jobs.put_many([NewMessage(b"x", ttl=5), b"stays"])
    spool.deliver()
    clock.advance(7)
    delivery = Delivery(spool.context, expiry_interval=0)
    delivery.step()
    delivery.close()
    assert [m.body for m in jobs.peek()] == [b"stays"]


def test_a_large_queue_expires_in_parts(
    spool: Spool, jobs: Queue, clock: Clock, root: Path
) -> None:
    for n in range(5000):
        (root / "queues" / "jobs" / str(n)).touch()
    old = jobs.put_many([NewMessage(b"x", ttl=5)] * 3)
    spool.deliver()
    clock.advance(600)
    delivery = Delivery(spool.context, expiry_interval=0)
    steps = 0
    while any((root / "queues" / "jobs" / name).exists() for name in old):
        delivery.step()
        steps += 1
        assert steps < 10
    delivery.close()
    assert len(os.listdir(root / "queues" / "jobs")) == 5000


def test_the_dead_letters_of_the_dead_letters_are_buried_too(
    spool: Spool, jobs: Queue, clock: Clock
) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    dead = spool.queue("dead", create=True)
    dead.configure(max_deliveries=1, dead_letter_queue="dust")
    jobs.put(b"x")
    for queue in (jobs, dead):
        assert len(queue.claim(visibility=1)) == 1
        clock.advance(1.01)  # a claim may last a millisecond more, for a name of its own
    spool.deliver()
    assert len(spool.queue("dust").peek()) == 1


@contextmanager
def someone_holds(file: Path) -> Iterator[None]:
    """Between another process's look at a message and its rename."""
    fd = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_mover_leaves_a_message_on_which_someone_acts(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    held, other = jobs.put_many([b"held", b"other"])
    jobs.claim(2, visibility=1)
    clock.advance(1)
    with someone_holds(root / "delay" / f"jobs:{held}"):
        assert [m.id for m in jobs.claim(2)] == [other]
    clock.advance(1)
    assert [m.id for m in jobs.claim(2)] == [held]


def test_a_claim_leaves_a_message_on_which_someone_acts(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    held, other = jobs.put_many([b"held", b"other"])
    spool.deliver()
    with someone_holds(root / "queues" / "jobs" / held):
        assert [m.id for m in jobs.claim(2)] == [other]
        assert jobs.claim(2) == []
    # No file event tells that the message was let go: a waiting claim has to look again by itself.
    started = time.monotonic()
    assert [m.id for m in jobs.claim(2, wait=60)] == [held]
    assert time.monotonic() - started < 30


def test_a_renewal_does_not_come_between_a_look_and_its_rename(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    message_id = jobs.put(b"x")
    jobs.claim()
    with someone_holds(root / "delay" / f"jobs:{message_id}"):
        with pytest.raises(Unavailable, match="right now"):
            jobs.renew(message_id, 60)
        with pytest.raises(Unavailable, match="right now"):
            jobs.release(message_id)
    jobs.renew(message_id, 60)
    jobs.release(message_id)


def test_what_comes_to_delay_is_looked_at_a_moment_later_if_it_is_still_there(
    spool: Spool, jobs: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, kept = jobs.put_many([b"done", b"kept"])
    looks: list[str] = []
    stat = spool.tree.stat

    def look(path: str) -> os.stat_result | None:
        looks.append(path)
        return stat(path)

    delivery = Delivery(spool.context, first_look=0.1)
    try:
        delivery.step()  # it has listed what was there
        assert [message.id for message in jobs.claim(2, visibility=0.05)] == [done, kept]
        monkeypatch.setattr(spool.tree, "stat", look)
        assert delivery.step() == 0
        assert not [path for path in looks if path.startswith("delay/")]
        jobs.ack(done)
        clock.advance(0.06)
        looks.clear()
        assert delivery.step() == 0
        eventually(lambda: delivery.step() == 1)
        assert {path for path in looks if path.startswith("delay/")} == {f"delay/jobs:{kept}"}
        assert [message.id for message in jobs.claim()] == [kept]
    finally:
        delivery.close()


def test_the_first_look_comes_by_a_clock_that_nobody_sets(
    spool: Spool, jobs: Queue, clock: Clock
) -> None:
    [kept] = jobs.put_many([b"kept"])
    delivery = Delivery(spool.context, first_look=0.1)
    try:
        delivery.step()
        [message] = jobs.claim(visibility=60)
        delivery.step()
        clock.advance(-3600)
        message.renew(2)
        clock.advance(2)
        eventually(lambda: delivery.step() == 1)
        assert [message.id for message in jobs.claim()] == [kept]
    finally:
        delivery.close()


def test_what_a_shell_user_puts_rests_for_a_moment(root: Path, spool: Spool, jobs: Queue) -> None:
    """`mv` looks at each file once more behind its rename."""
    ours = jobs.put(b"x")
    back_to_new(root)
    delivery = Delivery(spool.context, rest=3600)
    try:
        assert delivery.step() == 1  # and it has listed what was there
        (root / "file").write_text("x")
        (root / "file").rename(root / "new" / "jobs:theirs")
        own = jobs.put(b"x", id="own")
        (root / "queues" / "jobs" / own).rename(root / "new" / f"jobs:{own}")
        assert delivery.step() == 1
        assert tree_of(root)["queues/jobs"] == [ours, own]
        assert delivery.step() == 0
        assert not delivery.is_behind  # nobody spins meanwhile
    finally:
        delivery.close()
    with_events = Delivery(spool.context, rest=0.02)
    try:
        (root / "new" / "jobs:theirs").rename(root / "new" / "jobs:mine")
        eventually(lambda: with_events.step())
        assert tree_of(root)["queues/jobs"] == [ours, "mine", own]
    finally:
        with_events.close()
