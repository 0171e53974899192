"""A fault of one file, folder or call harms nothing else."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.durability.sync import Dirty
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.mover.delivery import Delivery
from tests.harness.suite import eventually
from tests.spool.crashing import leave
from tests.spool.helpers import Clock, back_to_new, files_no_longer_than, tree_of
from tests.spool.test_ready import make_noise


def refuse(
    spool: Spool,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    part: str,
    code: int = errno.EPERM,
) -> None:
    """Let a method of the tree fail for each path with ``part`` in it."""
    real = getattr(spool.tree, verb)

    def call(path: str, *rest: object, **named: object) -> object:
        if any(part in str(name) for name in (path, *rest)):
            raise OSError(code, os.strerror(code), path)
        return real(path, *rest, **named)

    monkeypatch.setattr(spool.tree, verb, call)


def test_an_entry_that_cannot_be_delivered_blocks_no_other_queue(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"claimed")
    jobs.claim(visibility=1)
    bad = spool.queue("bad", create=True).put(b"x")
    good = jobs.put(b"new")
    for queue, message_id in (("bad", bad), ("jobs", good)):
        (root / "queues" / queue / message_id).rename(root / "new" / f"{queue}:{message_id}")
    clock.advance(1)
    with monkeypatch.context() as patched:
        refuse(spool, patched, "rename", "queues/bad")
        assert spool.deliver() == 2
        assert len(tree_of(root)["queues/jobs"]) == 2
        assert good in tree_of(root)["queues/jobs"]
        assert tree_of(root)["new"] == [f"bad:{bad}"]
        # It ends no claim of another message either.
        assert len(jobs.claim(count=9)) == 2
        assert jobs.claim() == []
    eventually(lambda: spool.deliver() == 1)
    assert tree_of(root)["queues/bad"] == [bad]


def test_a_file_that_cannot_be_unlinked_blocks_no_other_file(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = jobs.put_many([b"x"] * 20)
    jobs.remove(*ids)
    refuse(spool, monkeypatch, "unlink", ids[7])
    with pytest.raises(Unavailable, match="cannot reap"):
        spool.reap()
    assert os.listdir(root / "remove") == [f"jobs:{ids[7]}"]


def test_an_unseen_release_does_not_count_as_a_delivery(spool: Spool, jobs: Queue) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"x")
    for _ in range(3):
        [message] = jobs.claim()
        assert message.deliveries == 1
        spool.complete(prepare.release_unseen(spool.context, message))
    assert spool.counts("dead").total == 0
    assert [m.deliveries for m in jobs.claim()] == [1]


def test_a_claim_of_an_id_in_flight_does_not_count_as_a_delivery(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    message_id = jobs.put(b"x")
    spool.deliver()
    other = root / "delay" / f"jobs:{message_id}"
    other.write_bytes(b"the same id, in a claim")
    until_ns = spool.context.stamps.encode(message_id, spool.context.now_ms() + 60_000, 1)
    os.utime(other, ns=(until_ns, until_ns))
    for _ in range(3):
        spool.context.ready.forget("jobs")
        assert spool.complete(prepare.claim(spool.context, "jobs")) == []
    other.unlink()
    spool.context.ready.forget("jobs")
    assert [m.deliveries for m in jobs.claim()] == [1]


def test_a_failed_deletion_can_be_retried(jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.configure(max_depth=7)
    jobs.put_many([b"new", b"claimed"])
    jobs.claim()
    with monkeypatch.context() as patched:
        refuse(jobs.spool, patched, "rename", "queues/jobs")
        with pytest.raises(Unavailable):
            jobs.delete()
    jobs.delete()
    again = jobs.spool.queue("jobs", create=True)
    assert again.counts().total == 0
    assert again.settings().max_depth is None


@pytest.mark.parametrize(("new", "timers"), [(True, False), (False, True), (True, True)])
def test_a_mover_with_nothing_to_do_waits(spool: Spool, new: bool, timers: bool) -> None:
    with closing(Delivery(spool.context, new=new, timers=timers)) as delivery:
        for _ in range(2):
            delivery.step()
            assert delivery.timeout() > 0.1
            delivery.rescan()


def test_a_partly_written_filter_is_never_in_force(spool: Spool, jobs: Queue, root: Path) -> None:
    topic = spool.topic("news", create=True)
    policy = {"kind": [f"number {n}" for n in range(100)]}
    with files_no_longer_than(100), pytest.raises(Unavailable):
        topic.subscribe("jobs", policy)
    assert topic.subscriptions() == {}
    assert os.listdir(root / "topics" / "news") == []


def test_a_failed_claim_leaves_the_message_ready(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails after the stamp, so that it cannot be restored either."""
    jobs.put(b"x")
    spool.deliver()
    with monkeypatch.context() as patched:
        refuse(spool, patched, "rename", "delay/")
        stamps = iter([os.utime])
        patched.setattr(os, "utime", lambda *of, **named: next(stamps, _refused)(*of, **named))
        with pytest.raises(Unavailable):
            jobs.claim()
    assert [message.body for message in jobs.claim()] == [b"x"]


def test_messages_that_cannot_be_claimed_come_last(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = jobs.put_many([NewMessage(b"x", id=f"bad-{n:03}") for n in range(150)])
    jobs.put(b"good", id="good")
    spool.deliver()
    claimed = []
    with monkeypatch.context() as patched:
        refuse(spool, patched, "rename", "jobs:bad-", errno.EIO)
        for _ in range(4):
            with suppress(Unavailable):
                claimed += [message.id for message in jobs.claim()]
        assert claimed == ["good"]
        # If there is no other message, the claim fails: the queue is not empty.
        for _ in range(3):
            with pytest.raises(Unavailable):
                jobs.claim()
    assert sorted(message.id for _ in bad for message in jobs.claim()) == bad


def _refused(*of: object, **named: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_other_descriptors_are_closed_if_one_cannot_be_closed() -> None:
    closed, (good, other) = os.dup(0), os.pipe()
    os.close(closed)
    Dirty(files=[closed, good], moved_folders=[other]).close()
    for fd in (good, other):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_mover_that_polls_remembers_each_failure_once(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        spool.complete(prepare.put(spool.context, "jobs", [NewMessage(b"x")]))
    back_to_new(spool.tree.root)
    with (
        closing(Delivery(spool.context, events=False, poll_interval=0.0)) as delivery,
        monkeypatch.context() as patched,
    ):
        refuse(spool, patched, "rename", "queues/jobs")
        for _ in range(10):
            delivery.rescan()
            delivery.step()
        from_new = delivery._from_new
        assert len(from_new._quarantined) + len(from_new.backlog) == 20


def unreadable(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let reads of files of these names fail."""
    real = os.read

    def read(fd: int, count: int) -> bytes:
        if os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) in names:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, count)

    monkeypatch.setattr(os, "read", read)


@pytest.mark.parametrize("own", [True, False])
def test_an_unreadable_file_of_a_killed_put_blocks_no_other_file(
    spool: Spool, jobs: Queue, root: Path, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%d" % n for n in range(10)]
    leave(root, *(NewMessage(body, id=body.decode() if own else None) for body in bodies))
    left = sorted(name for name in tree_of(root)["new"] if not name.endswith(":own"))
    with monkeypatch.context() as patched:
        unreadable(patched, left[0])
        faults: list[str] = []
        recover(spool.tree, 0, at_start=True, on_fault=lambda path, why: faults.append(why))
        assert faults
        spool.deliver()
        assert jobs.counts().total == 9
    recover(spool.tree, 0, at_start=True)
    spool.deliver()
    assert sorted(message.body for message in jobs.claim(count=20)) == bodies


def test_recovery_at_a_start_is_retried_after_a_fault(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a killed put are delivered as soon as the folder can be listed."""
    message_id = jobs.put(b"x")
    spool.reap()
    name = staged_entry("jobs", message_id, seal_of(b"x"))
    (root / "queues" / "jobs").mkdir(exist_ok=True)
    for place in (root / "new" / f"jobs:{message_id}", root / "queues" / "jobs" / message_id):
        if place.exists():
            place.rename(root / "new" / name)
    with closing(Delivery(spool.context, events=False)) as delivery:
        with monkeypatch.context() as patched:
            refuse(spool, patched, "walk", "new")
            delivery.step()
            assert tree_of(root)["new"] == [name]
        delivery.rescan()
        delivery.step()
    assert tree_of(root)["queues/jobs"] == [message_id]


def test_a_file_in_delay_that_cannot_be_read_blocks_no_timer(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([b"x"] * 5)
    ids = [message.id for message in jobs.claim(count=5, visibility=1)]
    clock.advance(2)
    with closing(Delivery(spool.context, events=False)) as delivery:
        real = os.stat

        def bad(path: object, **more: object) -> os.stat_result:
            if ids[2] in str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(path, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", bad)
            delivery.step()
        assert os.listdir(root / "delay") == [f"jobs:{ids[2]}"]
        clock.advance(10)
        delivery.step()
    assert os.listdir(root / "delay") == []


def test_a_mover_fails_while_a_folder_cannot_be_listed(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spool.tree.root / "new" / "jobs:by-hand").write_bytes(b"x")
    with monkeypatch.context() as patched:
        refuse(spool, patched, "names", "new", errno.EIO)
        spool._delivery.rescan()  # type: ignore[union-attr]
        (spool.tree.root / "new" / "jobs:by-hand").unlink()
        for _ in range(3):
            with pytest.raises(Unavailable, match="cannot deliver"):
                spool.deliver()
    assert spool.deliver() == 0


def test_an_unexpected_error_with_one_message_blocks_no_other(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([b"x"] * 3)
    bad = spool.queue("bad", create=True).put(b"x")
    faults: list[tuple[str, str]] = []
    for queue, count in (("jobs", 3), ("bad", 1)):
        assert len(spool.queue(queue).claim(count=count, visibility=1)) == count
    clock.advance(2)
    real = spool.context.settings.get
    delivery = Delivery(
        spool.context, on_fault=lambda name, error: faults.append((name, type(error).__name__))
    )
    with monkeypatch.context() as patched:
        patched.setattr(
            spool.context.settings, "get", lambda queue: None if queue == "bad" else real(queue)
        )
        assert delivery.step() == 3
        assert delivery.step() == 0
    assert faults == [(f"bad:{bad}", "AttributeError")]
    assert tree_of(root)["delay"] == [f"bad:{bad}"]
    clock.advance(2)
    assert delivery.step() == 1
    delivery.close()


def test_an_unexpected_error_in_one_kind_of_work_blocks_no_other(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[str] = []
    jobs.put(b"x")
    back_to_new(spool.tree.root)
    with closing(
        Delivery(spool.context, on_fault=lambda name, error: faults.append(name))
    ) as delivery:
        monkeypatch.setattr("fsmq.spool.mover.new.recover", lambda *of, **more: None)
        assert delivery.step() == 1
        assert delivery.step() == 0
        assert faults == ["recover new/"]
        assert delivery.fault is None
        assert delivery.timeout() > 0.1


@pytest.mark.parametrize("folder", ["remove", "delay"])
def test_removed_folders_hide_no_message(
    spool: Spool, jobs: Queue, root: Path, folder: str
) -> None:
    message_id = jobs.put(b"x")
    spool.deliver()
    shutil.rmtree(root / folder)
    if folder == "remove":
        assert jobs.remove(message_id) == 1
    else:
        assert [message.id for message in jobs.claim()] == [message_id]


@pytest.mark.parametrize(
    "limit", [{"max_in_flight": 2}, {"fetch_order": "fair", "max_in_flight_per_group": 2}]
)
def test_a_claim_that_cannot_be_read_counts_and_blocks_no_other(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, object]
) -> None:
    jobs.configure(**limit)
    jobs.put_many([NewMessage(b"x", group="a")] * 3)
    [held] = jobs.claim()
    with Spool(root, sync="none", clock=spool.context.clock) as other:
        theirs = other.queue("jobs")
        with monkeypatch.context() as patched:
            refuse(other, patched, "stat", f"delay/jobs:{held.id}", errno.EIO)
            assert [len(theirs.claim(9)), len(theirs.claim(9))] == [1, 0]
        assert theirs.claim() == []
        held.ack()
        assert len(theirs.claim(9)) == 1


def test_the_limit_is_kept_if_a_claim_cannot_be_read_once(
    jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([b"x"] * 3)
    jobs.configure(max_in_flight=1)
    with Spool(root, sync="none", clock=clock) as other:
        theirs = other.queue("jobs")
        theirs.claim()[0].ack()  # from now on it counts claims by events
        [held] = jobs.claim(visibility=10)
        with monkeypatch.context() as patched:
            refuse(other, patched, "stat", f"delay/jobs:{held.id}", errno.EIO)
            assert theirs.claim() == []
        assert theirs.claim() == []
        clock.advance(11)
        assert len(theirs.claim()) == 1


def test_a_renewal_that_cannot_be_read_hides_no_later_event(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.configure(max_in_flight=2)
    spool.create_queue("ordered", fifo=True)
    ordered = spool.queue("ordered")
    with Spool(root, sync="none", clock=clock, delivers=False) as other:
        for queue, theirs in ((jobs, other.queue("jobs")), (ordered, other.queue("ordered"))):
            queue.put(b"0", group="a")
            spool.deliver()
            theirs.claim()[0].ack()
        jobs.put(b"1")
        [held] = jobs.claim()
        assert other.queue("jobs").claim() == []
        held.renew(90)
        ordered.put(b"1", group="a")
        with monkeypatch.context() as patched:
            refuse(other, patched, "stat", f"delay/jobs:{held.id}", errno.EIO)
            assert [message.body for message in theirs.claim()] == [b"1"]


def test_a_queue_that_cannot_be_listed_after_lost_events_blocks_no_other(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = spool.queue("bad", create=True)
    assert jobs.claim() == bad.claim() == []
    make_noise(root / "queues" / "jobs")
    for name in ("jobs", "bad"):
        (root / "queues" / name / "late").write_bytes(b"x")
    with monkeypatch.context() as patched:
        refuse(spool, patched, "ready_names", "bad", errno.EIO)
        assert [message.id for message in jobs.claim()] == ["late"]
        with pytest.raises(Unavailable):
            bad.claim()
    assert [message.id for message in bad.claim()] == ["late"]


@pytest.mark.parametrize("is_held", [True, False])
def test_a_failed_listing_changes_no_order(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    spool.create_queue("ordered", fifo=True)
    ordered = spool.queue("ordered")
    ordered.put(b"0", group="a")
    ordered.claim()[0].ack()
    ordered.put(b"1", group="a")
    held = ordered.claim() if is_held else []
    with Spool(root, sync="none", clock=spool.context.clock, delivers=False) as other:
        theirs = other.queue("ordered")
        with monkeypatch.context() as patched:
            refuse(other, patched, "names", "delay", errno.EIO)
            with pytest.raises(Unavailable):
                theirs.claim()
        ordered.put(b"2", group="a")
        assert [message.body for message in theirs.claim(9)] == ([] if held else [b"1"])


def test_an_unreadable_message_keeps_its_turn(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("ordered", fifo=True)
    ordered = spool.queue("ordered")
    ordered.put(b"0", group="a")
    ordered.claim()[0].ack()
    bad = ordered.put(b"1", group="b")
    with monkeypatch.context() as patched:
        refuse(spool, patched, "open", bad, errno.EIO)
        refuse(spool, patched, "stat", bad, errno.EIO)
        with pytest.raises(Unavailable):
            ordered.claim()
    ordered.put(b"2", group="c")
    found: list[bytes] = []
    while len(found) < 2:  # the message that failed is tried again a moment later
        found += [message.body for message in ordered.claim(9, wait=30)]
    assert sorted(found) == [b"1", b"2"]
