"""Staged jobs: messages count only after the commit, and each job once."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Queue, QueueFull, Spool, Unavailable
from fsmq.spool.durability import settings_lock
from fsmq.spool.durability.locks import reserve
from fsmq.spool.durability.sync import Dirty
from fsmq.spool.fsck import check
from fsmq.spool.layout.settings import MAX_DELAY_S
from fsmq.spool.staging.abandoned import ABANDONED_AFTER_S
from fsmq.spool.staging.commit import Outcome, abort, commit, is_committed
from fsmq.spool.staging.forward import Forward
from fsmq.spool.staging.part import Job, Part, Written
from tests.harness.calls import Trap, failing, seen
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, files_no_longer_than, visible
from tests.spool.test_faults import refuse

JOB = Job("load-1")


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "staging").iterdir())


def new_part(spool: Spool, job: Job = JOB, *, create_queues: bool = False) -> Part:
    return Part(spool.context, spool.syncer.sync, job, create_queues=create_queues)


def write(
    spool: Spool, job: Job, messages: Iterable[NewMessage], *, create_queues: bool = False
) -> Written:
    part = new_part(spool, job, create_queues=create_queues)
    for message in messages:
        part.write("jobs", message)
    return part.finish()


def some(count: int, prefix: str = "body") -> list[NewMessage]:
    return [NewMessage(f"{prefix} {n}".encode()) for n in range(count)]


def bodies(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.claim(1000)]


def die_committing(spool: Spool, job: Job, messages: Iterable[NewMessage]) -> None:
    """Commit a job, and die before its messages are forwarded."""

    def die(forward: Forward) -> None:
        raise KeyboardInterrupt

    part = write(spool, job, messages)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Forward, "run", die)
        with pytest.raises(KeyboardInterrupt):
            commit(spool, job, [part])


def run_mover(spool: Spool) -> None:
    with Spool(spool.tree.root, sync="none", clock=spool.context.clock) as mover:
        mover.deliver()


def test_an_own_id_carries_all_fields_and_is_forwarded_once(spool: Spool, jobs: Queue) -> None:
    own = NewMessage(b"{}", id="order-17", priority=3, ttl=1000, content_type="application/json")
    name = jobs.put(b"{}", id="order-18", content_type="a/b")
    written = write(spool, JOB, [own, NewMessage(b"again", id="order-18")])
    assert commit(spool, JOB, [written]) == Outcome(messages=2, repeated=1)
    first, second = jobs.claim(2)
    assert (first.id, first.body) == (name, b"{}")
    assert (second.priority, second.content_type) == (3, "application/json")


def test_an_own_id_with_a_time_to_live_is_forwarded_once_however_late(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write(spool, JOB, [NewMessage(b"x", id="order-17", ttl=1600)])
    later = time.time() + 800
    monkeypatch.setattr(time, "time", lambda: later)
    jobs.put(b"x", id="order-17", ttl=1600)
    assert commit(spool, JOB, [written]).repeated == 1
    assert jobs.counts().total == 1


def test_an_own_id_that_is_too_long_with_its_priority_is_not_staged(spool: Spool) -> None:
    queue = spool.queue("q" * 180, create=True)
    with pytest.raises(InvalidValue, match="id: is too long for queue"):
        new_part(spool).write(queue.name, NewMessage(b"x", id="i" * 64, priority=1))


def test_a_fifo_queue_takes_no_staged_messages(spool: Spool) -> None:
    """Forwarding keeps no order."""
    spool.create_queue("orders", fifo=True)
    part = new_part(spool, Job("load", 1))
    with pytest.raises(InvalidValue, match="fifo"):
        part.write("orders", NewMessage(b"x", group="g"))
    part.abandon()


def test_messages_count_after_the_commit(root: Path, spool: Spool, jobs: Queue) -> None:
    parts = [write(spool, JOB, some(3, "one")), write(spool, JOB, some(2, "two"))]
    assert jobs.counts().total == 0
    assert not is_committed(spool, JOB)
    assert commit(spool, JOB, parts) == Outcome(5)
    assert is_committed(spool, JOB)
    assert bodies(jobs) == [b"one 0", b"one 1", b"one 2", b"two 0", b"two 1"]
    assert staged(root) == ["load-1.json"]
    assert spool.context.metrics.value(("put", "jobs")) == 5


def test_a_staged_message_is_like_one_of_a_put(spool: Spool, jobs: Queue) -> None:
    jobs.configure(compression="zstd")
    message = NewMessage(b"x" * 1000, priority=7, ttl=60, content_type="a/b", attributes={"k": "v"})
    commit(spool, JOB, [write(spool, JOB, [message])])
    [found] = jobs.claim()
    assert (found.body, found.priority, found.content_type) == (b"x" * 1000, 7, "a/b")
    assert found.attributes == {"k": "v"}
    assert found.id.endswith(".h.z")
    assert found.expires_at is not None


def test_a_job_is_committed_once(root: Path, spool: Spool, jobs: Queue) -> None:
    for number in (0, 1):
        job = Job("query", number)
        assert commit(spool, job, [write(spool, job, some(2))]).messages == 2
        for done in (job, Job("query", 0)):
            assert commit(spool, done, [write(spool, done, some(2))]) == Outcome(again=True)
    assert len(bodies(jobs)) == 4
    assert staged(root) == ["query.json"]


def test_a_commit_without_a_number_leaves_nothing(root: Path, spool: Spool, jobs: Queue) -> None:
    commit(spool, JOB, [write(spool, JOB, some(2))], keeps=False)
    assert staged(root) == []
    assert len(bodies(jobs)) == 2


def test_only_the_given_parts_count(root: Path, spool: Spool, jobs: Queue) -> None:
    twice = [write(spool, JOB, some(1, "failed")), write(spool, JOB, some(1, "good"))]
    late = new_part(spool)
    late.write("jobs", NewMessage(b"late"))
    commit(spool, JOB, twice[1:])
    with pytest.raises(Unavailable):
        late.write("jobs", NewMessage(b"too late"))
    late.abandon()
    assert bodies(jobs) == [b"good 0"]
    assert staged(root) == ["load-1.json"]


def test_abandoned_parts_leave_nothing(root: Path, spool: Spool, jobs: Queue) -> None:
    part = new_part(spool)
    part.write("jobs", NewMessage(b"never"))
    part.reject(b"{}\n")
    part.abandon()
    assert staged(root) == []
    write(spool, JOB, some(2))
    abort(spool, JOB)
    assert staged(root) == []
    assert jobs.counts().total == 0


def test_a_group_is_synced_while_the_next_one_is_written(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.part._GROUP", 2)
    has_continued = threading.Event()
    groups = []

    def sync(work: Dirty) -> None:
        assert has_continued.wait(60), "the part waits for the sync"
        groups.append((len(work.written), len(work.folders)))

    part = Part(spool.context, sync, JOB)
    for message in some(3):
        part.write("jobs", message)
    has_continued.set()
    for message in some(4):
        part.write("jobs", message)
    assert commit(spool, JOB, [part.finish()]) == Outcome(7)
    assert groups == [(2, 1), (2, 1), (2, 1), (1, 1)]


def test_a_group_that_cannot_be_synced_fails_the_part(
    root: Path, spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.part._GROUP", 2)

    def refuse(work: Dirty) -> None:
        raise Unavailable("the disk says no")

    part = Part(spool.context, refuse, JOB)
    for message in some(3):
        part.write("jobs", message)
    with pytest.raises(Unavailable, match="the disk says no"):
        part.write("jobs", NewMessage(b"the fourth"))
    part.abandon()
    other = Part(spool.context, refuse, JOB)
    for message in some(2):
        other.write("jobs", message)
    with pytest.raises(Unavailable, match="the disk says no"):
        other.finish()
    other.abandon()
    assert staged(root) == []


def test_a_delay_counts_from_the_commit(spool: Spool, jobs: Queue, clock: Clock) -> None:
    part = write(spool, JOB, [NewMessage(b"later", delay=10), NewMessage(b"now")])
    clock.advance(3600)
    commit(spool, JOB, [part])
    assert bodies(jobs) == [b"now"]
    clock.advance(9)
    assert bodies(jobs) == []
    clock.advance(1)
    assert bodies(jobs) == [b"later"]


def test_the_longest_delay_counts_from_the_commit(spool: Spool, jobs: Queue, clock: Clock) -> None:
    commit(spool, JOB, [write(spool, JOB, [NewMessage(b"later", delay=MAX_DELAY_S)])])
    clock.advance(MAX_DELAY_S - 1)
    assert bodies(jobs) == []
    clock.advance(1)
    assert bodies(jobs) == [b"later"]


def check_has_failed(part: Part) -> None:
    """The part can only be abandoned."""
    acts: list[Callable[[], object]] = [
        lambda: part.write("jobs", NewMessage(b"more")),
        lambda: part.reject(b"{}\n"),
        part.finish,
    ]
    for act in acts:
        with pytest.raises(Unavailable, match="abandon it"):
            act()
    part.abandon()


@pytest.mark.parametrize("own", ["order-1", None])
def test_a_torn_message_counts_for_nothing(
    root: Path, spool: Spool, jobs: Queue, own: str | None
) -> None:
    """The disk becomes full during a write, and then there is room again."""
    message = NewMessage(b"hello, world", id=own)
    part = new_part(spool)
    with files_no_longer_than(5), pytest.raises(Unavailable):
        part.write("jobs", message)
    check_has_failed(part)
    assert commit(spool, JOB, [write(spool, JOB, [message])]) == Outcome(1)
    assert bodies(jobs) == [b"hello, world"]
    assert staged(root) == ["load-1.json"]


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_a_part_has_failed_when_a_call_of_it_failed(tmp_path: Path, is_done: bool) -> None:
    message = NewMessage(b"x", id="order-1", delay=60)
    acts: list[Callable[[Part], object]] = [
        lambda part: part.write("jobs", message),
        lambda part: part.reject(b"{}\n"),
        lambda part: part.finish(),
    ]
    with Spool(tmp_path, sync="fsync") as spool:
        spool.create_queue("jobs")
        failed = 0
        for act in acts:
            for at in range(100):
                part = new_part(spool)
                part.write("jobs", NewMessage(b"before"))
                trap = Trap(at, failing(0, is_done=is_done))
                try:
                    with seen(trap):
                        act(part)
                except Unavailable:
                    failed += 1
                    check_has_failed(part)
                else:
                    part.abandon()
                if not trap.is_sprung:
                    break
        assert failed >= 6


def test_a_part_has_failed_when_a_group_could_not_be_synced(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the group would count as durable when the part is finished again."""
    monkeypatch.setattr("fsmq.spool.staging.part._GROUP", 2)

    def refuse_one(work: Dirty) -> None:
        if work.written:
            raise Unavailable("the disk says no")

    part = Part(spool.context, refuse_one, JOB)
    for message in some(2):
        part.write("jobs", message)
    with pytest.raises(Unavailable, match="says no"):
        part.finish()
    check_has_failed(part)


def test_a_part_has_failed_when_a_rejected_row_was_torn(spool: Spool, jobs: Queue) -> None:
    part = new_part(spool)
    part.reject(b"[1]\n")
    with files_no_longer_than(7), pytest.raises(Unavailable):
        part.reject(b"[22222]\n")
    check_has_failed(part)


def test_an_invalid_message_does_not_fail_its_part(spool: Spool, jobs: Queue) -> None:
    part = new_part(spool)
    with pytest.raises(InvalidValue):
        part.write("jobs", NewMessage(b"x", id="a/b"))
    with pytest.raises(NoSuchQueue):
        part.write("elsewhere", NewMessage(b"x"))
    part.write("jobs", NewMessage(b"x"))
    assert commit(spool, JOB, [part.finish()]) == Outcome(1)


def test_messages_whose_ids_are_taken_are_not_forwarded(spool: Spool, jobs: Queue) -> None:
    jobs.put(b"ready", id="ready")
    jobs.put(b"held", id="held")
    spool.deliver()
    jobs.claim()
    same = [NewMessage(b"again", id=name) for name in ("ready", "held", "new", "new")]
    other = NewMessage(b"other", id="new")
    part = write(spool, JOB, [*same, other])
    assert commit(spool, JOB, [part]).repeated == 4
    assert jobs.counts().total == 3


def test_a_commit_waits_for_an_id_that_another_process_is_putting(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.forward._PATIENCE_S", 0.01)
    part = write(spool, JOB, [NewMessage(b"mine", id="wanted"), NewMessage(b"other", id="other")])
    held = reserve(spool.tree, "jobs", "wanted")
    assert held is not None
    with pytest.raises(Unavailable, match="is committed, and the mover will forward it"):
        commit(spool, JOB, [part])
    assert [m.id for m in jobs.claim()] == ["other"]  # it does not wait
    held.free()
    with Spool(spool.tree.root, sync="none", clock=spool.context.clock) as again:
        again.deliver()
        assert [m.id for m in again.queue("jobs").claim()] == ["wanted"]


@pytest.mark.parametrize("holds", ["an id", "the settings"])
def test_a_lock_of_a_stopped_process_does_not_block_a_mover(
    root: Path, spool: Spool, jobs: Queue, clock: Clock, holds: str
) -> None:
    side = spool.queue("side", create=True)
    for number in range(3):
        die_committing(spool, Job(f"load{number}"), [NewMessage(b"x", id=f"wanted{number}")])
    held: list[AbstractContextManager[object]]
    if holds == "an id":
        held = [reserved(spool, f"wanted{number}") for number in range(3)]
    else:
        held = [settings_lock.settings_held(spool.tree, "jobs")]
    with Spool(root, sync="none", clock=clock) as mover, ExitStack() as stack:
        for one in held:
            stack.enter_context(one)
        side.put(b"y")
        began = time.monotonic()
        mover.deliver()
        assert time.monotonic() - began < 3.0
        assert bodies(side) == [b"y"]
        assert bodies(jobs) == []
    run_mover(spool)
    assert bodies(jobs) == [b"x"] * 3


@contextmanager
def reserved(spool: Spool, message_id: str) -> Iterator[None]:
    """A stopped process is putting this id."""
    held = reserve(spool.tree, "jobs", message_id)
    assert held is not None
    yield
    held.free()


def test_a_job_is_kept_until_all_its_files_are_forwarded(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network filesystem a rename may report a missing file once."""
    rename = spool.tree.rename
    refuses = {"new/jobs:one": 1, "new/jobs:two": 10_000}

    def miss(source: str, target: str, **how: bool) -> bool:
        refuses[target] = refuses.get(target, 0) - 1
        return refuses[target] < 0 and rename(source, target, **how)

    monkeypatch.setattr("fsmq.spool.staging.forward._PATIENCE_S", 0.1)
    monkeypatch.setattr(spool.tree, "rename", miss)
    first = Job("first")
    commit(spool, first, [write(spool, first, [NewMessage(b"1", id="one")])])
    second = Job("second")
    with pytest.raises(Unavailable, match="is committed, and the mover will forward it"):
        commit(spool, second, [write(spool, second, [NewMessage(b"2", id="two")])])
    run_mover(spool)
    assert bodies(jobs) == [b"1", b"2"]


def test_a_file_that_cannot_be_renamed_holds_up_no_other_of_its_job(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.forward._PATIENCE_S", 0.0)
    part = write(spool, JOB, [NewMessage(b"x", id=f"m{n}") for n in range(9)])

    def refuse_one(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_rename2" and arguments[1].endswith("/jobs:m3"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with seen(refuse_one), pytest.raises(Unavailable, match="is committed"):
        commit(spool, JOB, [part])
    assert jobs.counts().total == 8
    eventually(lambda: spool.deliver() >= 0 and jobs.counts().total == 9)


@pytest.mark.parametrize("call", ["stat", "stamp"])
def test_a_file_that_cannot_be_stamped_holds_up_no_other_of_its_job(
    spool: Spool, jobs: Queue, clock: Clock, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.forward._PATIENCE_S", 0.0)
    part = write(spool, JOB, [NewMessage(b"x", id=f"m{n}", delay=60) for n in range(9)])
    with monkeypatch.context() as patched:
        refuse(spool, patched, call, "/jobs:m3", errno.EIO)
        with pytest.raises(Unavailable, match="is committed"):
            commit(spool, JOB, [part])
        assert jobs.counts().total == 8
    eventually(lambda: spool.deliver() >= 0 and jobs.counts().total == 9)
    assert bodies(jobs) == []
    clock.advance(60)
    assert len(bodies(jobs)) == 9


def test_delays_whose_sync_failed_are_stamped_and_synced_again(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops pages that it could not write, and the next sync succeeds."""
    part = write(spool, JOB, [NewMessage(b"x", id="m", delay=60)])
    done: list[str] = []
    stamp, sync = spool.tree.stamp, spool.syncer.sync

    def note_stamp(path: str, mtime_ns: int) -> bool:
        done.append("stamp")
        return stamp(path, mtime_ns)

    def fail_once(work: Dirty) -> None:
        if any(path.endswith("/jobs:m") for path in work.closed):
            done.append("sync")
            if done.count("sync") == 1:
                raise Unavailable("the disk reports an I/O error (EIO)")
        sync(work)

    monkeypatch.setattr(spool.tree, "stamp", note_stamp)
    monkeypatch.setattr(spool.syncer, "sync", fail_once)
    commit(spool, JOB, [part])
    assert done == ["stamp", "sync"] * 2
    assert jobs.counts().delayed + jobs.counts().new == 1


@pytest.mark.parametrize("create", [False, True])
def test_a_job_to_a_recreated_fifo_queue_fails(
    root: Path, spool: Spool, jobs: Queue, create: bool
) -> None:
    part = write(spool, JOB, some(2))
    spool.delete_queue("jobs")
    spool.create_queue("jobs", fifo=True)
    with pytest.raises(InvalidValue, match="fifo"):
        commit(spool, JOB, [part], create_queues=create)
    assert staged(root) == []
    assert spool.counts("jobs").total == 0


def test_a_mover_forwards_nothing_to_a_recreated_fifo_queue(
    root: Path, spool: Spool, jobs: Queue
) -> None:
    die_committing(spool, JOB, some(2))
    spool.delete_queue("jobs")
    spool.create_queue("jobs", fifo=True)
    run_mover(spool)
    assert staged(root) == ["load-1.json"]
    assert spool.counts("jobs").total == 0


@pytest.mark.parametrize("create", [False, True])
def test_missing_queues_are_refused_or_created(spool: Spool, create: bool) -> None:
    if not create:
        with pytest.raises(NoSuchQueue):
            write(spool, JOB, some(1))
        return
    part = write(spool, JOB, some(1), create_queues=True)
    assert not spool.has_queue("jobs")
    commit(spool, JOB, [part], create_queues=True)
    assert bodies(Queue(spool, "jobs")) == [b"body 0"]


def test_a_job_to_a_queue_deleted_before_the_commit_fails(root: Path, spool: Spool) -> None:
    spool.create_queue("jobs")
    part = write(spool, JOB, some(2))
    spool.delete_queue("jobs")
    with pytest.raises(NoSuchQueue):
        commit(spool, JOB, [part])
    assert staged(root) == []


def test_a_job_that_exceeds_the_limit_of_a_queue_fails_as_a_whole(root: Path, spool: Spool) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.configure(max_depth=4)
    jobs.put(b"first")
    with pytest.raises(QueueFull, match="max_depth is 4"):
        commit(spool, JOB, [write(spool, JOB, some(2)), write(spool, JOB, some(2))])
    assert staged(root) == []
    assert len(bodies(jobs)) == 1


def test_the_group_of_a_restored_message_must_not_forge_headers(spool: Spool, jobs: Queue) -> None:
    part = new_part(spool)
    name = "01890a5d-ac96-774b-bcce-b302099a8057.h"
    forged = NewMessage(b"x", id=name, group="g\nfsmq.id: another\nfsmq.arrived: 9999999999999")
    with pytest.raises(InvalidValue, match="control characters"):
        part.write("jobs", forged, restores=True)
    part.write("jobs", NewMessage(b"x", id=name, group="g"), restores=True)
    commit(spool, JOB, [part.finish()])
    spool.deliver()
    assert [(m.id, m.group, m.given_id) for m in jobs.peek()] == [(name, "g", None)]


def test_rejected_rows_are_written_to_one_file(tmp_path: Path, root: Path, spool: Spool) -> None:
    spool.create_queue("jobs")
    for _ in range(2):  # a second run of a job that is not committed writes the same file
        parts = []
        for n in range(2):
            part = new_part(spool)
            part.reject(b'{"row": %d}\n' % n)
            parts.append(part.finish())
        assert commit(spool, JOB, parts, rejected_rows=tmp_path / "bad") == Outcome()
    [found] = (tmp_path / "bad").iterdir()
    assert found.name == "load-1-0.jsonl"
    assert [json.loads(line) for line in found.open()] == [{"row": 0}, {"row": 1}]
    assert staged(root) == []


@pytest.mark.parametrize("name", ["", ".x", "a:b", "a/b", "ä", "x" * 101])
def test_invalid_names_of_jobs_are_refused(spool: Spool, name: str) -> None:
    with pytest.raises(InvalidValue, match="job"):
        commit(spool, Job(name), [])


def test_a_mover_forwards_the_messages_of_a_dead_commit(
    root: Path, spool: Spool, jobs: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.staging.abandoned._BUDGET", 3)
    die_committing(spool, JOB, [*some(10), NewMessage(b"later", delay=5)])
    assert is_committed(spool, JOB)
    assert [f.kind.value for f in check(root, offline=True).findings] == ["committed-job"]
    run_mover(spool)
    assert staged(root) == ["load-1.json"]
    assert len(bodies(jobs)) == 10
    clock.advance(5)
    assert bodies(jobs) == [b"later"]
    # The number stays known.
    assert commit(spool, JOB, [write(spool, JOB, some(1))]).again


def test_the_next_commit_forwards_the_messages_of_a_dead_one(spool: Spool, jobs: Queue) -> None:
    die_committing(spool, Job("query", 0), some(2, "first"))
    for number in (0, 1):
        job = Job("query", number)
        commit(spool, job, [write(spool, job, some(1, "second"))])
    assert bodies(jobs) == [b"first 0", b"first 1", b"second 0"]


def test_an_abandoned_job_is_removed_later(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    part = new_part(spool)
    part.write("jobs", NewMessage(b"never"))
    part._lock.unlock()  # as if its process had died
    write(spool, Job("other"), some(1))
    living = new_part(spool, Job("living"))
    living.write("jobs", NewMessage(b"soon"))
    for seconds, left in ((0, 3), (ABANDONED_AFTER_S + 60, 1)):
        clock.advance(seconds)
        run_mover(spool)
        assert len(staged(root)) == left
    assert commit(spool, Job("living"), [living.finish()]) == Outcome(1)
    assert bodies(jobs) == [b"soon"]


def test_a_commit_of_a_removed_job_fails(
    root: Path, spool: Spool, jobs: Queue, clock: Clock
) -> None:
    part = write(spool, JOB, some(2))
    clock.advance(ABANDONED_AFTER_S + 60)
    run_mover(spool)
    with pytest.raises(Unavailable, match="is gone: nobody wrote to it for an hour"):
        commit(spool, JOB, [part])
    assert staged(root) == []


def test_fsck_reports_and_repairs(root: Path, spool: Spool, jobs: Queue) -> None:
    folder = root / "staging"
    write(spool, JOB, some(2))
    (folder / ".gone-01977420-dc00-7abc-8def-0123456789ab" / "part").mkdir(parents=True)
    (folder / "query.json").write_text("{")
    (folder / "readme").write_text("")
    (folder / "other:3").mkdir()
    report = check(root, offline=True, repair=True)
    assert sorted((f.kind.value, f.path) for f in report.findings) == [
        ("bad-job", "staging/other:3"),
        ("bad-job", "staging/query.json"),
        ("stray", "staging/readme"),
    ]
    assert sorted(f.kind.value for f in report.repaired) == ["abandoned-job", "leftover"]
    assert staged(root) == ["other:3", "query.json", "readme"]


def test_a_job_is_written_to_the_journal(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        spool.create_queue("jobs")
        commit(spool, JOB, [write(spool, JOB, some(2))])
    [segment] = (root / "journal").iterdir()
    steps = [json.loads(line) for line in segment.open()]
    assert [(step["event"], step["size"]) for step in steps] == [("accepted", 6)] * 2
    assert sorted(step["id"] for step in steps) == [i for _, i in visible(root)]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_queue_cannot_be_recreated_while_a_job_is_forwarded(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, fifo: bool
) -> None:
    """The deletion waits for the message that is being forwarded, and removes it."""
    spool.create_queue("jobs")
    part = write(spool, JOB, [NewMessage(b"OLD", id="report")])
    rename = spool.tree.rename
    with Spool(root, sync="none", delivers=False) as other:

        def delete_and_rename(source: str, target: str, **how: bool) -> bool:
            if target == "new/jobs:report":
                monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.0)
                with pytest.raises(Unavailable, match="another process holds"):
                    other.delete_queue("jobs")
            return rename(source, target, **how)

        monkeypatch.setattr(spool.tree, "rename", delete_and_rename)
        commit(spool, JOB, [part])
        other.delete_queue("jobs")
        other.create_queue("jobs", fifo=fifo)
        assert other.counts("jobs").total == 0
