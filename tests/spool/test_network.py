"""Effects of NFS.

When an answer is lost in a restart of the server, a rename is done but fails with ENOENT. Callers
may report "not sure" then, but never "nothing was done", or the client would retry. A name that
another host has just renamed may still be visible, and a descriptor may be stale. And this host may
have cached names that another host changes.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, NoSuchQueue, Queue, Spool, prepare
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability.byte_locks import ByteLocks
from fsmq.spool.durability.locks import lock, reserve
from fsmq.spool.layout.transitions import DELIVER
from fsmq.spool.staging.commit import Outcome, commit, is_committed
from fsmq.spool.staging.part import Job, Part, Written
from tests.spool.helpers import Clock, back_to_new, visible
from tests.spool.remembered import Memory

JOB = Job("load-1")


class Answers:
    """Loses the answer of the next rename to a path that contains ``lost``."""

    lost: str | None = None
    was_lost = False


@pytest.fixture
def answers(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The spool as on NFS: a rename has no flags, and its answer can be lost."""
    spool.tree.network = True
    spool.tree.can_noreplace = False
    found, rename = Answers(), os.rename

    def renamed(source: str, target: str, **of: int) -> None:
        rename(source, target, **of)
        if found.lost is not None and found.lost in target:
            found.lost, found.was_lost = None, True
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    monkeypatch.setattr(os, "rename", renamed)
    yield found
    assert found.was_lost


def write(spool: Spool, count: int) -> Written:
    part = Part(spool.context, spool.syncer.sync, JOB)
    for number in range(count):
        part.write("jobs", NewMessage(b"%d" % number))
    return part.finish()


def test_a_put_whose_answer_was_lost_is_done(jobs: Queue, root: Path, answers: Answers) -> None:
    answers.lost = "queues/jobs/"
    message_id = jobs.put(b"x")
    assert visible(root) == [("jobs", message_id)]


def test_a_removal_whose_answer_was_lost_is_done(jobs: Queue, root: Path, answers: Answers) -> None:
    jobs.put(b"x")
    [held] = jobs.claim()
    answers.lost = "remove/"
    assert jobs.remove(held.id) == 1
    assert visible(root) == []


def test_a_message_whose_claim_lost_its_answer_is_ready_at_once(
    spool: Spool, jobs: Queue, answers: Answers
) -> None:
    """The stamp of the claim is removed from the file: it was not a delivery."""
    message_id = jobs.put(b"x")
    spool.deliver()
    answers.lost = "delay/"
    assert spool.complete(prepare.claim(spool.context, "jobs", 1, 10.0)) == []
    spool.deliver()
    [again] = jobs.claim()
    assert (again.id, again.deliveries) == (message_id, 1)


@pytest.mark.parametrize("step", [f"staging/{JOB.name}:", "new/", "staging/.gone-"])
def test_a_job_counts_when_a_step_of_its_commit_lost_its_answer(
    spool: Spool, jobs: Queue, answers: Answers, step: str
) -> None:
    part = write(spool, 3)
    answers.lost = step
    assert commit(spool, JOB, [part]) == Outcome(3)
    assert is_committed(spool, JOB)
    assert jobs.counts().total == 3
    assert commit(spool, JOB, [write(spool, 3)]) == Outcome(again=True)


def test_a_batch_whose_commit_lost_its_answer_is_acknowledged(
    spool: Spool, jobs: Queue, root: Path, answers: Answers
) -> None:
    jobs.put_many([b"1", b"2"])
    spool.deliver()
    with Consumer(spool, "billing") as consumer:
        batch = consumer.claim("stream", 0, ["jobs"], 10)
        assert batch is not None
        answers.lost = ".done"
        assert consumer.commit("stream", batch.number) == 2
    assert visible(root) == []


@pytest.fixture
def network(spool: Spool) -> Spool:
    spool.tree.network = True
    spool.tree.can_noreplace = False
    return spool


def test_an_old_name_of_a_message_that_another_host_delivered_is_ignored(
    network: Spool, jobs: Queue, root: Path
) -> None:
    """It does not count as a second message with that id."""
    message_id = jobs.put(b"x")
    back_to_new(root)
    assert network.deliver() == 1
    # A cached old name shows the same file.
    old, new = root / "new" / f"jobs:{message_id}", root / "queues" / "jobs" / message_id
    old.hardlink_to(new)
    assert not network.tree.move(DELIVER, "jobs", message_id)
    old.unlink()
    old.write_bytes(b"another file")
    with pytest.raises(FileExistsError):
        network.tree.move(DELIVER, "jobs", message_id)


def stale() -> NoReturn:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_message_that_another_host_unlinks_during_a_claim_is_not_claimed(
    network: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    network.deliver()
    opened = os.fstat

    def unlinked(fd: int) -> os.stat_result:
        path = root / "queues" / "jobs" / message_id
        if path.exists() and os.path.samestat(opened(fd), path.stat()):
            path.unlink()
            stale()
        return opened(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", unlinked)
        assert jobs.claim() == []
    assert visible(root) == []


@pytest.mark.parametrize("kind", ["file", "bytes"])
def test_a_lock_whose_file_another_host_unlinks_is_taken_again(
    network: Spool, root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, opened = root / "config" / ".one.lock", os.fstat

    def unlinked(fd: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", opened)
        path.unlink()
        stale()

    monkeypatch.setattr(os, "fstat", unlinked)
    if kind == "file":
        held = lock(network.tree, "config/.one.lock", os.O_CREAT)
        assert held is not None
        assert held.stands()
    else:
        with closing(ByteLocks(network.tree, "config/.one.lock")) as bytes_held:
            assert bytes_held.take(7)
            assert not bytes_held.stands()


def test_a_folder_that_the_reaper_of_another_host_removes_is_skipped(
    network: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.queue("brief", create=True).delete()
    [grave] = (root / "remove").iterdir()
    walk = network.tree.walk

    def walked(path: str) -> object:
        return stale() if grave.name in path else walk(path)

    with monkeypatch.context() as patched:
        patched.setattr(network.tree, "walk", walked)
        assert network.reap() == 0


@pytest.fixture
def memory(network: Spool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    kept = Memory(network, monkeypatch)
    yield kept
    kept.close()


@pytest.fixture
def other(root: Path, clock: Clock, jobs: Queue) -> Iterator[Spool]:
    """The spool on another host."""
    with Spool(root, sync="none", clock=clock) as opened:
        yield opened


def before_the_next_lock(patched: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let another host act after this one has opened a file and before it locks it."""
    lock, waiting = fcntl.flock, [do]

    def locked(fd: int, how: int) -> None:
        if waiting:
            waiting.pop()()
        lock(fd, how)

    patched.setattr(fcntl, "flock", locked)


def test_an_id_that_another_host_frees_is_not_reserved_twice(
    network: Spool, other: Spool, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stays where it is open, and its name where it is cached."""
    first = reserve(other.tree, "jobs", "7")
    assert first is not None

    def free_first() -> None:
        memory.keep("new/.jobs:7:own")
        first.free()

    before_the_next_lock(monkeypatch, free_first)
    mine = reserve(network.tree, "jobs", "7")
    assert mine is not None
    assert reserve(other.tree, "jobs", "7") is None
    mine.free()


def test_an_id_whose_reservation_is_stale_is_reserved_again(
    network: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_next_lock(monkeypatch, stale)
    assert jobs.put(b"x", id="7") == "7"


def test_a_message_that_another_host_released_is_renewed_in_its_new_place(
    network: Spool, jobs: Queue, other: Spool, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    assert jobs.claim(visibility=10)

    def release_elsewhere() -> None:
        memory.keep(f"delay/jobs:{message_id}")
        other.queue("jobs").release(message_id)

    before_the_next_lock(monkeypatch, release_elsewhere)
    jobs.renew(message_id, 60)
    assert other.queue("jobs").claim() == []


def recreated(other: Spool, memory: Memory) -> Queue:
    """The queue, recreated by another host while this one has cached the old folder."""
    memory.keep("queues/jobs")
    other.delete_queue("jobs")
    return other.queue("jobs", create=True)


def test_a_message_is_delivered_to_the_recreated_queue(
    network: Spool, other: Spool, memory: Memory, root: Path
) -> None:
    message_id = recreated(other, memory).put(b"x")
    back_to_new(root)
    assert network.deliver() == 1
    assert visible(root) == [("jobs", message_id)]


def test_a_message_is_claimed_from_the_recreated_queue(
    network: Spool, jobs: Queue, other: Spool, memory: Memory
) -> None:
    jobs.put(b"old")
    network.deliver()
    queue = recreated(other, memory)
    assert jobs.claim() == []
    queue.put(b"new")
    network.context.ready.rescan()
    assert [message.body for message in jobs.claim()] == [b"new"]


def test_a_removal_finds_a_message_of_the_recreated_queue(
    jobs: Queue, other: Spool, memory: Memory
) -> None:
    message_id = recreated(other, memory).put(b"x")
    other.deliver()
    assert jobs.remove(message_id) == 1


def test_a_put_into_a_queue_that_another_host_has_deleted_is_refused(
    network: Spool, other: Spool, memory: Memory, root: Path
) -> None:
    network.create_queue("brief")
    written = prepare.put(network.context, "brief", [NewMessage(b"x")])
    memory.keep("queues/brief")
    other.delete_queue("brief")
    with pytest.raises(NoSuchQueue):
        network.complete(written)
    assert visible(root) == []


def test_an_id_that_another_host_has_deleted_can_be_put_again(
    network: Spool, jobs: Queue, other: Spool, memory: Memory, root: Path
) -> None:
    jobs.put(b"1", id="7")
    with pytest.raises(DuplicateMessage):
        jobs.put(b"2", id="7")
    memory.keep("queues/jobs/7")
    assert other.queue("jobs").remove("7") == 1
    assert jobs.put(b"3", id="7") == "7"
    assert (root / "queues" / "jobs" / "7").read_bytes() == b"3"


def test_an_id_that_another_host_has_put_is_not_put_again(
    jobs: Queue, other: Spool, memory: Memory
) -> None:
    memory.keep("queues/jobs/7", "delay/jobs:7")
    other.queue("jobs").put(b"1", id="7", delay=60)
    other.deliver()
    with pytest.raises(DuplicateMessage):
        jobs.put(b"2", id="7")


def test_a_move_leaves_a_message_whose_id_another_host_has_put_into_the_target(
    jobs: Queue, other: Spool, memory: Memory, root: Path
) -> None:
    jobs.put(b"1", id="7")
    target = other.queue("target", create=True)
    memory.keep("delay/target:7")
    target.put(b"2", id="7", delay=60)
    other.deliver()
    jobs.move_to("target")
    assert visible(root) == [("jobs", "7"), ("target", "7")]


def test_a_publish_reaches_a_subscriber_of_another_host(
    network: Spool, jobs: Queue, other: Spool, memory: Memory, root: Path
) -> None:
    topic = network.topic("news", create=True)
    topic.subscribe("jobs")
    os.utime(root / "topics/news", (1, 1))  # recent changes are not cached
    assert sorted(topic.publish(b"1")) == ["jobs"]
    memory.keep("topics/news", "queues/late")
    other.queue("late", create=True)
    before = (root / "topics/news").stat()
    other.topic("news").subscribe("late")
    os.utime(root / "topics/news", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sorted(topic.publish(b"2")) == ["jobs", "late"]


def test_a_subscription_is_to_the_recreated_topic(
    network: Spool, jobs: Queue, other: Spool, memory: Memory
) -> None:
    topic = network.topic("news", create=True)
    memory.keep("topics/news")
    other.delete_topic("news")
    other.create_topic("news")
    topic.subscribe("jobs")
    assert list(other.subscriptions("news")) == ["jobs"]


def test_a_queue_that_another_host_unsubscribed_can_subscribe_again(
    network: Spool, jobs: Queue, other: Spool, memory: Memory
) -> None:
    network.topic("news", create=True).subscribe("jobs")
    memory.keep("topics/news/jobs")
    other.topic("news").unsubscribe("jobs")
    assert network.subscribe("news", "jobs", keep=True)
    assert list(other.subscriptions("news")) == ["jobs"]


def test_settings_that_another_host_changed_apply(
    network: Spool, jobs: Queue, other: Spool, memory: Memory
) -> None:
    jobs.configure(visibility_timeout=5)
    assert jobs.settings().visibility_timeout == 5
    memory.keep("config/jobs.json")
    other.queue("jobs").configure(visibility_timeout=7)
    assert jobs.settings().visibility_timeout == 7


def test_a_queue_that_another_host_deleted_gets_no_settings(
    network: Spool, other: Spool, memory: Memory, root: Path
) -> None:
    memory.keep("queues/jobs")
    other.delete_queue("jobs")
    with pytest.raises(NoSuchQueue):
        network.configure("jobs", {"visibility_timeout": 5})
    assert list((root / "config").iterdir()) == []
