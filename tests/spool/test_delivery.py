"""Delivery: new → queues, new → delay, delay → queues, and messages of shell users."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
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


def test_a_delayed_message_waits_in_delay(jobs: Queue, root: Path, clock: Clock) -> None:
    message_id = jobs.put(b"x", delay=5)
    assert tree_of(root)["delay"] == [f"jobs:{message_id}"]
    back_to_new(root)
    jobs.spool.deliver()
    assert tree_of(root)["delay"] == [f"jobs:{message_id}"]
    assert jobs.counts().delayed == 1
    clock.advance(5)
    assert jobs.claim()[0].deliveries == 1


def test_a_message_whose_delay_is_over_is_ready(jobs: Queue, root: Path, clock: Clock) -> None:
    message_id = jobs.put(b"x", delay=5)
    back_to_new(root)
    clock.advance(6)
    jobs.spool.deliver()
    assert tree_of(root)["queues/jobs"] == [message_id]


def test_a_message_expired_in_new_is_not_delivered(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x", ttl=1)
    back_to_new(spool.tree.root)
    clock.advance(60)
    spool.deliver()
    assert jobs.counts().total == 0


def test_two_movers_deliver_each_message_once(root: Path, spool: Spool, jobs: Queue) -> None:
    with Spool(root, sync="none", clock=spool.context.clock) as other:
        ids = jobs.put_many([b"x"] * 300)
        back_to_new(root)
        assert spool.deliver() + other.deliver() == 300
        assert [m.id for m in other.queue("jobs").claim(1000)] == ids


def test_messages_in_new_are_delivered_at_a_start(root: Path, jobs: Queue) -> None:
    ids = jobs.put_many([b"x"] * 20)
    back_to_new(root)
    with Spool(root, sync="none") as again:
        assert [m.id for m in again.queue("jobs").claim(20)] == ids


def test_timers_and_counts_are_kept_at_a_start(root: Path, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    jobs.claim(visibility=50)
    with Spool(root, sync="none", clock=clock) as again:
        assert again.queue("jobs").claim() == []
        clock.advance(50)
        assert again.queue("jobs").claim()[0].deliveries == 2


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_a_shell_user_puts_a_message_with_mv(root: Path, tmp_path: Path, watch: str) -> None:
    with Spool(root, sync="none", watch=watch, poll_interval=0.02) as spool:  # type: ignore[arg-type]
        jobs = spool.queue("jobs", create=True)
        file = tmp_path / "notes.h"
        file.write_bytes(b"no header block: none of our ids\n")
        subprocess.run(["mv", file, root / "new" / "jobs:notes.h"], check=True)
        [message] = jobs.claim(wait=20)
    assert (message.id, message.body) == ("notes.h", b"no header block: none of our ids\n")
    assert (message.content_type, message.priority, message.deliveries) == (None, 0, 1)


def test_a_file_open_for_writing_is_not_delivered(spool: Spool, jobs: Queue, root: Path) -> None:
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


def test_a_shell_user_releases_a_message(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"x")
    jobs.claim()
    os.rename(root / "delay" / f"jobs:{message_id}", root / "queues" / "jobs" / message_id)
    assert jobs.claim()[0].deliveries == 2


def test_a_message_of_a_shell_user_in_delay_is_delivered(jobs: Queue, root: Path) -> None:
    (root / "delay" / "jobs:parked").write_bytes(b"x")
    assert [m.id for m in jobs.claim()] == ["parked"]


def test_a_copy_without_times_has_no_timer_or_count(root: Path, jobs: Queue, clock: Clock) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"x")
    jobs.claim(visibility=1000)
    copy = root.with_name("copy")
    shutil.copytree(root, copy, copy_function=shutil.copyfile)
    with Spool(copy, sync="none", clock=clock) as spool:
        assert spool.queue("jobs").claim()[0].deliveries == 1
        assert spool.queue("dead").counts().total == 0


def test_a_copy_with_times_keeps_timers_and_counts(root: Path, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    jobs.claim(visibility=1000)
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    with Spool(copy, sync="none", clock=clock) as spool:
        assert spool.queue("jobs").claim() == []
        clock.advance(1000)
        assert spool.queue("jobs").claim()[0].deliveries == 2


def test_the_time_of_a_shell_users_file_is_no_stamp(jobs: Queue, root: Path, clock: Clock) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    file = root / ".file"
    file.write_bytes(b"x")
    stamp = jobs.spool.context.stamps.encode("by-hand", int(clock.now * 1000) + 9_000_000, 50)
    os.utime(file, ns=(stamp, stamp))
    file.rename(root / "new" / "jobs:by-hand")
    assert [m.deliveries for m in jobs.peek(state="new")] == [0]
    [message] = jobs.claim()
    assert (message.id, message.deliveries) == ("by-hand", 1)


def test_a_verb_that_delivers_a_message_ignores_an_accidental_stamp(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    message_id = jobs.put(b"x")
    back_to_new(root)
    stamp = spool.context.stamps.encode(message_id, int(clock.now * 1000) - 1, 50)
    os.utime(root / "new" / f"jobs:{message_id}", ns=(stamp, stamp))
    jobs.set_priority(message_id, 5)
    [message] = jobs.claim()
    assert message.deliveries == 1


def test_a_dedup_queue_gives_no_id_with_an_accidental_stamp(
    spool: Spool, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in (read_side("d"), write_side("d")):
        spool.create_queue(queue)
    spool.complete(dedup.send(spool.context, "d", [b"x"]))
    back_to_new(root, write_side("d"))
    [sent] = (root / "new").iterdir()
    unlucky = uuid7()
    stamp = spool.context.stamps.encode(unlucky, int(clock.now * 1000) - 1, 50)
    os.utime(sent, ns=(stamp, stamp))
    monkeypatch.setattr(dedup, "uuid7", iter([unlucky, uuid7()]).__next__)
    spool.deliver()
    [message] = spool.complete(dedup.poll(spool.context, "d", 1, 10))
    assert message.deliveries == 1


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
def test_a_put_that_delivers_by_itself_leaves_no_accidental_stamp(
    spool: Spool, clock: Clock, fifo: bool, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("line", fifo=fifo)
    spool.tree.network = network
    write = Draft.write

    def write_with_stamp(draft: Draft, fd: int) -> None:
        write(draft, fd)
        stamp = spool.context.stamps.encode(draft.message_id, int(clock.now * 1000) - 1, 50)
        os.utime(fd, ns=(stamp, stamp))

    monkeypatch.setattr(Draft, "write", write_with_stamp)
    spool.queue("line").put(b"x", group="g")
    [message] = spool.queue("line").claim()
    assert message.deliveries == 1


def test_messages_of_a_missing_queue_wait_until_it_is_created(spool: Spool, root: Path) -> None:
    spool.deliver()
    (root / "new" / "later:x").write_bytes(b"x")
    (root / "delay" / "later:y").write_bytes(b"y")
    assert spool.deliver() == 0
    assert tree_of(root) == {"new": ["later:x"], "delay": ["later:y"]}
    assert [m.id for m in spool.queue("later", create=True).claim(2)] == ["x", "y"]


@pytest.mark.parametrize("watch", ["events", "poll"])
@pytest.mark.parametrize("kept", [3, 1000])
def test_many_messages_wait_for_many_missing_queues(
    spool: Spool, root: Path, clock: Clock, watch: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are kept in memory, some are reported, and listings find the others."""
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_KEPT", kept)
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_QUEUES", 2)
    reported: list[str] = []
    delivery = Delivery(
        spool.context,
        events=watch == "events",
        poll_interval=0.0,
        on_problem=lambda name, reason: reported.append(name.partition(":")[0]),
    )
    ids = [uuid7() for _ in range(20)]
    for queue in ("one", "two", "three", "four"):
        for message_id in ids:
            (root / "new" / f"{queue}:{message_id}").touch()
            (root / "delay" / f"{queue}:{message_id}.x1").touch()
    clock.advance(10)  # the time of a file may be a deadline by accident
    for _ in range(3):
        delivery.rescan()
        delivery.step()
    assert sum(map(len, delivery._undeliverable._waiting.values())) <= kept
    assert sorted(Counter(reported).values()) == [2, 2], reported
    assert os.listdir(root / "delay") == []  # messages expire without a queue
    for queue in ("one", "two", "three", "four"):
        spool.create_queue(queue)
        here = root / "queues" / queue
        eventually(lambda here=here: (delivery.step(), len(os.listdir(here)) == 20)[-1])
    delivery.close()


def test_only_some_of_many_stray_files_are_reported(
    spool: Spool, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.mover.undeliverable._MAX_REPORTED", 5)
    reasons: list[str] = []
    for number in range(20):
        (root / "new" / f"no-colon-{number}").touch()
    clock.advance(10)
    with closing(
        Delivery(spool.context, on_problem=lambda name, reason: reasons.append(reason))
    ) as delivery:
        for _ in range(3):
            delivery.rescan()
            delivery.step()
    assert len(reasons) == 5
    assert "fsmq fsck" in reasons[-1]


def test_stray_files_stay_and_are_reported_once(jobs: Queue, root: Path, clock: Clock) -> None:
    reported: list[str] = []
    (root / "new" / "no-colon").write_bytes(b"x")
    (root / "new" / "jobs:folder").mkdir()
    (root / "delay" / "a b:c").write_bytes(b"x")
    (root / "delay" / "jobs:link").symlink_to("/etc/hostname")
    clock.advance(10)  # a young file may still be written to
    with closing(
        Delivery(jobs.spool.context, on_problem=lambda name, reason: reported.append(name))
    ) as delivery:
        for _ in range(3):
            delivery.rescan()
            delivery.step()
    assert sorted(reported) == ["a b:c", "jobs:folder", "jobs:link", "no-colon"]
    assert tree_of(root)["new"] == ["jobs:folder", "no-colon"]
    assert tree_of(root)["delay"] == ["a b:c", "jobs:link"]


def test_a_file_in_place_of_a_queue_is_no_queue(spool: Spool, jobs: Queue, root: Path) -> None:
    (root / "queues" / "file").write_bytes(b"no folder")
    (root / "new" / "file:x").write_bytes(b"x")
    (root / "delay" / "file:y").write_bytes(b"y")
    jobs.put(b"z")
    assert [m.body for m in jobs.claim(5)] == [b"z"]
    assert spool.queues() == ["jobs"]
    assert (root / "new" / "file:x").exists()


def test_a_delivery_overwrites_no_ready_message(spool: Spool, jobs: Queue, root: Path) -> None:
    jobs.put(b"first", id="one")
    spool.deliver()
    (root / "new" / "jobs:one").write_bytes(b"second")
    (root / "delay" / "jobs:one").write_bytes(b"third")
    spool.deliver()
    assert (root / "queues" / "jobs" / "one").read_bytes() == b"first"
    assert (root / "new" / "jobs:one").read_bytes() == b"second"
    assert (root / "delay" / "jobs:one").read_bytes() == b"third"


def test_a_complete_dot_name_of_a_crash_is_delivered_at_a_start(root: Path, jobs: Queue) -> None:
    with Spool(root, sync="none", delivers=False) as dead:
        prepared = prepare.put(dead.context, "jobs", [NewMessage(b"whole")])
    with Spool(root, sync="none") as again:
        assert [m.body for m in again.queue("jobs").claim()] == [b"whole"]
    del prepared


def test_a_dot_name_of_full_length_with_other_bytes_is_torn(root: Path, spool: Spool) -> None:
    """As ext4 leaves it after a power cut during the sync: without the bytes."""
    spool.create_queue("jobs")
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"whole")])
    [staged] = (root / "new").iterdir()
    staged.write_bytes(b"\0" * 5)
    with Spool(root, sync="none") as again:
        assert again.queue("jobs").claim() == []
    assert list((root / "new").iterdir()) == [staged]
    prepared.abort()


def test_a_torn_dot_name_is_removed_when_it_is_old(root: Path, jobs: Queue, clock: Clock) -> None:
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


def test_a_mover_holds_messages_for_its_own_delay(jobs: Queue, root: Path) -> None:
    """From the ctime of the file."""
    with Spool(root, sync="none", delivers=False) as real:
        (root / "delay" / "jobs:x").write_bytes(b"x")
        with closing(Delivery(real.context, delay=3600)) as delivery:
            assert delivery.step() == 0
        with closing(Delivery(real.context, delay=0)) as delivery:
            assert delivery.step() == 1


def test_a_mover_removes_expired_messages(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put_many([NewMessage(b"x", ttl=5), b"stays"])
    spool.deliver()
    clock.advance(60)
    with closing(Delivery(spool.context, expiry_interval=0)) as delivery:
        delivery.step()
    assert [m.body for m in jobs.peek()] == [b"stays"]


def test_a_mover_checks_a_large_queue_in_parts(
    spool: Spool, jobs: Queue, clock: Clock, root: Path
) -> None:
    for n in range(5000):
        (root / "queues" / "jobs" / str(n)).touch()
    old = jobs.put_many([NewMessage(b"x", ttl=5)] * 3)
    spool.deliver()
    clock.advance(600)
    with closing(Delivery(spool.context, expiry_interval=0)) as delivery:
        steps = 0
        while any((root / "queues" / "jobs" / name).exists() for name in old):
            delivery.step()
            steps += 1
            assert steps < 10
    assert len(os.listdir(root / "queues" / "jobs")) == 5000


def test_dead_letters_may_be_buried_again(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    dead = spool.queue("dead", create=True)
    dead.configure(max_deliveries=1, dead_letter_queue="dust")
    jobs.put(b"x")
    for queue in (jobs, dead):
        assert len(queue.claim(visibility=1)) == 1
        clock.advance(1.01)  # a claim may last a millisecond longer, for a name of its own
    spool.deliver()
    assert len(spool.queue("dust").peek()) == 1


@contextmanager
def someone_holds(file: Path) -> Iterator[None]:
    """Latch a message, as a process does between its check and its rename."""
    fd = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_mover_leaves_a_latched_message(root: Path, jobs: Queue, clock: Clock) -> None:
    held, other = jobs.put_many([b"held", b"other"])
    jobs.claim(2, visibility=1)
    clock.advance(1)
    with someone_holds(root / "delay" / f"jobs:{held}"):
        assert [m.id for m in jobs.claim(2)] == [other]
    clock.advance(1)
    assert [m.id for m in jobs.claim(2)] == [held]


def test_a_claim_leaves_a_latched_message(root: Path, spool: Spool, jobs: Queue) -> None:
    held, other = jobs.put_many([b"held", b"other"])
    spool.deliver()
    with someone_holds(root / "queues" / "jobs" / held):
        assert [m.id for m in jobs.claim(2)] == [other]
        assert jobs.claim(2) == []
    # The end of a latch is no file event: a waiting claim has to try again by itself.
    started = time.monotonic()
    assert [m.id for m in jobs.claim(2, wait=60)] == [held]
    assert time.monotonic() - started < 30


def test_renewals_and_releases_fail_on_a_latched_message(root: Path, jobs: Queue) -> None:
    message_id = jobs.put(b"x")
    jobs.claim()
    with someone_holds(root / "delay" / f"jobs:{message_id}"):
        with pytest.raises(Unavailable, match="right now"):
            jobs.renew(message_id, 60)
        with pytest.raises(Unavailable, match="right now"):
            jobs.release(message_id)
    jobs.renew(message_id, 60)
    jobs.release(message_id)


def test_a_mover_stats_a_file_in_delay_only_if_it_is_there_after_a_moment(
    spool: Spool, jobs: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, kept = jobs.put_many([b"done", b"kept"])
    paths: list[str] = []
    stat = spool.tree.stat

    def spying_stat(path: str) -> os.stat_result | None:
        paths.append(path)
        return stat(path)

    with closing(Delivery(spool.context, first_look=0.1)) as delivery:
        delivery.step()  # it has listed the folders
        assert [message.id for message in jobs.claim(2, visibility=0.05)] == [done, kept]
        monkeypatch.setattr(spool.tree, "stat", spying_stat)
        assert delivery.step() == 0
        assert not [path for path in paths if path.startswith("delay/")]
        jobs.ack(done)
        clock.advance(0.06)
        paths.clear()
        assert delivery.step() == 0
        eventually(lambda: delivery.step() == 1)
        assert {path for path in paths if path.startswith("delay/")} == {f"delay/jobs:{kept}"}
        assert [message.id for message in jobs.claim()] == [kept]


def test_the_first_stat_goes_by_a_monotonic_clock(spool: Spool, jobs: Queue, clock: Clock) -> None:
    [kept] = jobs.put_many([b"kept"])
    with closing(Delivery(spool.context, first_look=0.1)) as delivery:
        delivery.step()
        [message] = jobs.claim(visibility=60)
        delivery.step()
        clock.advance(-3600)
        message.renew(2)
        clock.advance(2)
        eventually(lambda: delivery.step() == 1)
        assert [message.id for message in jobs.claim()] == [kept]


def test_messages_of_a_shell_user_rest_for_a_moment(root: Path, spool: Spool, jobs: Queue) -> None:
    """`mv` stats each file once more after its rename."""
    ours = jobs.put(b"x")
    back_to_new(root)
    with closing(Delivery(spool.context, rest=3600)) as delivery:
        assert delivery.step() == 1  # it has listed the folders, too
        (root / "file").write_text("x")
        (root / "file").rename(root / "new" / "jobs:theirs")
        own = jobs.put(b"x", id="own")
        (root / "queues" / "jobs" / own).rename(root / "new" / f"jobs:{own}")
        assert delivery.step() == 1
        assert tree_of(root)["queues/jobs"] == [ours, own]
        assert delivery.step() == 0
        assert not delivery.is_behind  # so that the mover does not spin
    with closing(Delivery(spool.context, rest=0.02)) as with_events:
        (root / "new" / "jobs:theirs").rename(root / "new" / "jobs:mine")
        eventually(lambda: with_events.step())
        assert tree_of(root)["queues/jobs"] == [ours, "mine", own]
