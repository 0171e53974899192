"""Limits of claims in flight and of claims per second, which all processes keep together."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, Message, NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.consumers.claims import claim_ids
from fsmq.spool.consumers.window import Window
from fsmq.spool.durability.locks import lock
from fsmq.spool.errors import InUse
from fsmq.spool.fsck import check
from fsmq.spool.index import listings
from fsmq.spool.layout.tree import Tree
from fsmq.spool.limits import in_flight
from tests.spool.helpers import Clock

MAX_QUEUED_EVENTS = Path("/proc/sys/fs/inotify/max_queued_events")


def put(queue: Queue, number: int) -> None:
    queue.put_many([b"%d" % n for n in range(number)])


# -- claims in flight -----------------------------------------------------------------------------


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_no_more_are_in_flight_than_allowed(root: Path, clock: Clock, watch: str) -> None:
    one = Spool(root, sync="none", clock=clock, watch=watch, poll_interval=0.01)
    with one as spool, Spool(root, sync="none", clock=clock) as other:
        jobs, theirs = spool.queue("jobs", create=True), other.queue("jobs")
        put(jobs, 10)
        jobs.configure(max_in_flight=3)
        held = jobs.claim(2)
        assert (len(held), len(theirs.claim(5)), len(jobs.claim(5))) == (2, 1, 0)
        theirs.ack(held[0])
        assert len(jobs.claim(5, wait=30)) == 1
        held[1].release()
        assert len(theirs.claim(5)) == 1
        assert jobs.claim(5) == []
        clock.advance(31)  # the claims have ended, even if no mover has noticed it
        again: list[object] = []
        while len(again) < 3:  # without events some ends are noticed later
            again += jobs.claim(5, wait=30)
        assert len(again) == 3
        assert theirs.claim() == []


def test_delayed_messages_are_not_in_flight(jobs: Queue) -> None:
    jobs.put_many([NewMessage(b"x", delay=60)] * 3)
    put(jobs, 2)
    jobs.configure(max_in_flight=1)
    assert len(jobs.claim(2)) == 1
    assert jobs.claim() == []


@pytest.mark.parametrize("has_backoff", [False, True])
def test_a_waiting_message_is_not_in_flight(jobs: Queue, clock: Clock, has_backoff: bool) -> None:
    put(jobs, 2)
    jobs.configure(max_in_flight=1, retry_backoff=10 if has_backoff else None)
    [held] = jobs.claim()
    held.release(0 if has_backoff else 10)
    assert (jobs.counts().in_flight, jobs.counts().delayed) == (0, 1)
    [other] = jobs.claim()
    other.ack()
    assert jobs.claim() == []
    clock.advance(11)
    [again] = jobs.claim()
    assert (again.id, again.deliveries) == (held.id, 2)


def test_a_renewed_claim_counts_while_it_holds(jobs: Queue, clock: Clock) -> None:
    put(jobs, 2)
    jobs.configure(max_in_flight=1)
    [held] = jobs.claim()
    clock.advance(29)
    held.renew(60)
    clock.advance(10)
    assert jobs.claim() == []
    held.renew(1)
    clock.advance(2)
    assert len(jobs.claim()) == 1


@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_renewed_claim_counts_in_a_process_that_claims_by_groups(
    root: Path, jobs: Queue, clock: Clock, fifo: bool, is_own: bool
) -> None:
    put(jobs, 3)
    jobs.configure(max_in_flight=1)
    jobs.spool.create_queue("grouped", fifo=fifo)
    if not fifo:
        jobs.spool.configure("grouped", {"fetch_order": "fair"})
    with Spool(root, sync="none", clock=clock) as other:
        theirs = other.queue("jobs")
        theirs.claim()[0].ack()  # from now on it counts claims by events
        assert other.queue("grouped").claim() == []
        [held] = (theirs if is_own else jobs).claim(visibility=5)
        assert theirs.claim() == []
        held.renew(60)
        clock.advance(6)
        assert theirs.claim() == []
        held.renew(1)
        clock.advance(2)
        assert len(theirs.claim()) == 1


@pytest.mark.parametrize("verb", ["ack", "release", "configure"])
def test_a_claim_that_waits_at_the_limit_is_woken_by_another_process(root: Path, verb: str) -> None:
    with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
        jobs, theirs = spool.queue("jobs", create=True), other.queue("jobs")
        put(jobs, 2)
        jobs.configure(max_in_flight=1, retry_backoff=600)
        [held] = jobs.claim()
        steps: dict[str, Callable[[], object]] = {
            "ack": lambda: theirs.ack(held),
            "release": lambda: theirs.release(held.id),  # it waits for its backoff
            "configure": lambda: theirs.configure(max_in_flight=2),
        }
        [found] = claimed_after(spool, jobs, steps[verb])
        assert found.id != held.id


def claimed_after(spool: Spool, jobs: Queue, step: Callable[[], object]) -> list[Message]:
    """The messages of a claim that waits at the limit until this step."""
    found: list[Message] = []
    thread = threading.Thread(target=lambda: found.extend(jobs.claim(wait=60)))
    thread.start()
    while "jobs" not in spool.context.limiter.shut:
        time.sleep(0.001)
    started = time.monotonic()
    step()
    thread.join()
    assert time.monotonic() - started < 30
    return found


def test_a_claim_that_waits_at_a_limit_uses_little_processor_time(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        put(jobs, 3)
        jobs.configure(max_in_flight=1, max_rate=0.5)
        jobs.claim(visibility=600)
        before = time.thread_time()
        assert jobs.claim(wait=1.5) == []
        assert time.thread_time() - before < 0.2


def test_a_killed_process_frees_the_limit(root: Path, spool: Spool) -> None:
    jobs = spool.queue("jobs", create=True)
    put(jobs, 4)
    jobs.configure(max_in_flight=2)
    child = os.fork()
    if not child:
        opened = Spool(root, sync="none")
        with opened.context.limiter.turn("jobs", opened.settings("jobs")) as turn:
            turn.begin()
            os.kill(os.getpid(), 9)
    assert os.waitpid(child, 0)[1] == 9
    assert len(jobs.claim(4)) == 2


def test_a_consumer_keeps_the_limits(jobs: Queue) -> None:
    put(jobs, 10)
    jobs.spool.deliver()
    jobs.configure(max_in_flight=4)
    window = Window(jobs.spool.tree, "jobs")
    assert len(jobs.spool.complete(claim_ids(jobs.spool.context, window, 10))) == 4
    assert jobs.claim() == []


def test_a_claim_by_id_keeps_the_limits(spool: Spool) -> None:
    spool.create_queue("tasks", index=True)
    tasks = spool.indexed("tasks")
    tasks.upsert([NewMessage(b"x", id=i) for i in "abc"])
    spool.configure("tasks", {"max_in_flight": 1})
    assert tasks.claim("b") is not None
    assert tasks.claim("a") is None
    tasks.ack("b")
    assert tasks.claim("a") is not None


# -- claims per second ----------------------------------------------------------------------------


def test_all_processes_together_keep_the_rate(root: Path, clock: Clock) -> None:
    with (
        Spool(root, sync="none", clock=clock) as spool,
        Spool(root, sync="none", clock=clock) as other,
    ):
        queues = spool.queue("jobs", create=True), other.queue("jobs")
        put(queues[0], 300)
        queues[0].configure(max_rate=20, max_burst=5)

        def claimed() -> int:
            return sum(len(queue.claim(3)) for _ in range(10) for queue in queues)

        assert claimed() == 5
        for _ in range(10):
            clock.advance(0.1)
            assert claimed() == 2
        clock.advance(60)
        assert claimed() == 5


def test_a_rate_below_one_per_second_is_kept(jobs: Queue, clock: Clock) -> None:
    put(jobs, 5)
    jobs.configure(max_rate=0.1)
    assert len(jobs.claim(5)) == 1
    clock.advance(9.9)
    assert jobs.claim(5) == []
    clock.advance(0.2)
    assert len(jobs.claim(5)) == 1


def test_claims_of_an_empty_queue_do_not_count(jobs: Queue) -> None:
    jobs.configure(max_rate=1, max_burst=2)
    for _ in range(10):
        assert jobs.claim() == []
    put(jobs, 3)
    assert len(jobs.claim(3)) == 2


def test_aborted_claims_do_not_count(jobs: Queue) -> None:
    spool = jobs.spool
    put(jobs, 3)
    jobs.configure(max_rate=1, max_burst=2)
    for _ in range(10):
        undone = prepare.claim(spool.context, "jobs", 2)
        undone.dirty.close()
        undone.abort()
    assert len(jobs.claim(3)) == 2
    assert jobs.claim(3) == []


def test_the_rate_restarts_when_the_clock_is_set_back(jobs: Queue, clock: Clock) -> None:
    put(jobs, 9)
    jobs.configure(max_rate=1, max_burst=2)
    assert len(jobs.claim(9)) == 2
    clock.advance(-3600)
    assert jobs.claim(9) == []
    clock.advance(1.1)
    assert len(jobs.claim(9)) == 1


def test_a_waiting_claim_gets_the_next_message_in_time(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        put(jobs, 4)
        jobs.configure(max_rate=5, max_burst=1)
        started = time.monotonic()
        for _ in range(4):
            assert len(jobs.claim(wait=30)) == 1
        assert time.monotonic() - started >= 0.55


# -- settings, files and faults -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"max_in_flight": 0}, "max_in_flight: must be a whole number from 1 to 1099511627776"),
        ({"max_in_flight": True}, "max_in_flight: must be a whole number"),
        ({"max_rate": 0}, "max_rate: must be a number of messages a second from 0.001 to 1000000"),
        ({"max_rate": float("inf")}, "max_rate: must be a number of messages a second"),
        ({"max_burst": 0}, "max_burst: must be a whole number from 1 to 1000000"),
    ],
)
def test_bad_limits_are_refused(jobs: Queue, wrong: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        jobs.configure(**wrong)


def test_without_limits_there_is_no_file_of_limits(jobs: Queue, root: Path) -> None:
    put(jobs, 2)
    jobs.configure(max_depth=5)
    jobs.claim(2)
    assert os.listdir(root / "config") == ["jobs.json"]
    assert not jobs.spool.context.limiter._limiter


def test_the_file_of_limits_is_deleted_with_the_queue(jobs: Queue, root: Path) -> None:
    put(jobs, 2)
    jobs.configure(max_rate=5, max_in_flight=1)
    jobs.claim(2)
    assert sorted(os.listdir(root / "config")) == [".jobs.limits", "jobs.json"]
    assert check(root, clock=lambda: time.time() + 1000).findings == []
    jobs.delete()
    assert os.listdir(root / "config") == []
    jobs.create()
    put(jobs, 2)
    jobs.configure(max_in_flight=1)
    assert len(jobs.claim(2)) == 1


@pytest.mark.parametrize("torn", [b"", b"\0" * 80, b"1 nan 7", b"1 -5 0", b"inf 1 1", b"\xff"])
def test_a_torn_file_of_limits_is_started_again(jobs: Queue, root: Path, torn: bytes) -> None:
    put(jobs, 5)
    jobs.configure(max_in_flight=2, max_rate=50)
    jobs.claim()
    (root / "config" / ".jobs.limits").write_bytes(torn)
    assert len(jobs.claim(5)) == 1
    assert json.loads((root / "config" / "jobs.json").read_text())["max_in_flight"] == 2


def test_a_child_of_a_killed_program_keeps_no_lock(jobs: Queue, root: Path) -> None:
    """The program forks in the middle of a claim, as another thread of it may, and is killed."""
    put(jobs, 2)
    jobs.configure(max_in_flight=5)
    jobs.spool.deliver()
    reading, writing = os.pipe()  # the child of the child lives while this is open
    child = os.fork()
    if child == 0:
        killed = Spool(root, sync="none", delivers=False)
        rename = killed.tree.rename

        def fork_and_die(source: str, target: str, **named: bool) -> bool:
            if target.startswith("delay/"):
                if os.fork() == 0:
                    os.close(writing)
                    os.read(reading, 1)
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(source, target, **named)

        try:
            killed.tree.rename = fork_and_die  # type: ignore[method-assign]
            killed.queue("jobs").claim()
        finally:
            os._exit(1)
    os.close(reading)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    try:
        assert len(jobs.claim(2)) == 2
    finally:
        os.close(writing)


def test_deleted_queues_keep_no_files_open(spool: Spool) -> None:
    def use_one(name: str) -> int:
        jobs = spool.queue(name, create=True)
        jobs.configure(max_in_flight=3, max_rate=100)
        jobs.put(b"x")
        assert len(jobs.claim()) == 1
        jobs.delete()
        return len(os.listdir("/proc/self/fd"))

    first = use_one("first")
    assert [use_one(f"next-{n}") for n in range(20)] == [first] * 20


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_each_process_keeps_the_limits(
    jobs: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    put(jobs, 9)
    jobs.configure(max_rate=1, max_burst=3, max_in_flight=5)
    assert len(jobs.claim(9)) == 3
    assert jobs.claim(9) == []
    clock.advance(1)
    assert len(jobs.claim(9)) == 1


@pytest.mark.parametrize(
    "settings", [{"max_in_flight": 5}, {"max_rate": 10}, {"fetch_order": "fair"}]
)
def test_a_claim_fails_while_a_stopped_process_has_the_lock(
    jobs: Queue, root: Path, settings: dict[str, Any]
) -> None:
    jobs.configure(**settings)
    put(jobs, 3)
    assert len(jobs.claim()) == 1
    [path] = [p for p in (root / "config").glob(".jobs.*") if p.suffix in (".limits", ".claims")]
    with Spool(root, sync="none") as stopped:
        held = lock(stopped.tree, str(path.relative_to(root)), 0)
        assert held is not None
        for _ in range(2):
            with pytest.raises(InUse, match="may be stopped"):
                jobs.claim()
        held.unlock()
    assert len(jobs.claim()) == 1


def test_a_change_of_other_settings_keeps_the_count(jobs: Queue, root: Path) -> None:
    jobs.configure(max_in_flight=3)
    put(jobs, 5)
    assert len(jobs.claim()) == 1
    with Spool(root, sync="none") as other:
        other.queue("jobs").configure(alert_age=60)
    listings.forbid()  # as on a thread on which others wait
    try:
        assert len(jobs.claim(5)) == 2
        with Spool(root, sync="none") as other:
            other.queue("jobs").configure(max_in_flight=4)
        assert len(jobs.claim(5)) == 1
    finally:
        listings.allow()


def test_a_queue_is_counted_if_it_is_limited_while_the_last_limit_ends(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check that no other queue is limited, and the end of listening for events."""
    late = spool.queue("late", create=True)
    for queue in (jobs, late):
        queue.configure(max_in_flight=1)
        put(queue, 5)
    assert len(jobs.claim(5)) == 1
    listen, claimed = spool.context.ready.listen, []

    def listen_late(folder: str, on_event: Any, *more: Any, **how: Any) -> bool:
        if on_event is None and folder == "delay":
            claimed.extend(late.claim(5))
        return listen(folder, on_event, *more, **how)

    monkeypatch.setattr(spool.context.ready, "listen", listen_late)
    jobs.configure(max_in_flight=None)
    assert len(jobs.claim(5)) == 4
    assert len(claimed) == 1
    assert late.claim(5) == []


def test_the_count_is_exact_if_events_are_lost_during_a_count(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.configure(max_in_flight=2)
    put(jobs, 5)
    hidden = in_flight.hidden_ids

    def lose(tree: Tree, queue: str) -> set[str]:
        found = hidden(tree, queue)
        monkeypatch.undo()
        spool.context.ready._on_loss()
        with Spool(root, sync="none") as other:
            other.queue("jobs").configure(max_in_flight=None)
            assert len(other.queue("jobs").claim(2)) == 2
            other.queue("jobs").configure(max_in_flight=2)
        return found

    monkeypatch.setattr(in_flight, "hidden_ids", lose)
    jobs.claim()
    assert jobs.claim() == []


def test_the_count_is_exact_if_events_were_lost_before_it(jobs: Queue, root: Path) -> None:
    put(jobs, 3)
    jobs.configure(max_in_flight=1)
    jobs.ack(*jobs.claim())
    one, two = root / "delay" / ".one", root / "delay" / ".two"
    one.touch()
    for _ in range(int(MAX_QUEUED_EVENTS.read_text()) // 2):
        one.rename(two)
        two.rename(one)
    with Spool(root, sync="none") as other:
        assert len(other.queue("jobs").claim()) == 1
    assert jobs.claim() == []


def test_a_forked_child_keeps_the_limits(jobs: Queue) -> None:
    put(jobs, 30)
    jobs.configure(max_in_flight=3)
    assert len(jobs.claim()) == 1
    assert of_child(lambda: len(jobs.claim(9))) == 2
    assert jobs.claim() == []
    jobs.configure(max_in_flight=None, max_rate=1000, max_burst=10)
    assert len(jobs.claim()) == 1
    assert of_child(lambda: len(jobs.claim(20))) == of_child(lambda: len(jobs.claim(20))) == 0


def of_child(count: Callable[[], int]) -> int:
    """The result of a function in a forked child."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(count())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_failed_read_leaves_no_lock(
    jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(jobs, 2)
    jobs.configure(max_in_flight=5, max_rate=1000)
    assert len(jobs.claim()) == 1
    pread = os.pread

    def refuse(fd: int, *rest: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".limits"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, *rest)

    with monkeypatch.context() as failing:
        failing.setattr(os, "pread", refuse)
        with pytest.raises(Unavailable):
            jobs.claim()
    with Spool(root, sync="none") as other:
        assert len(other.queue("jobs").claim()) == 1


@pytest.mark.parametrize("fifo", [True, False])
def test_claims_by_groups_with_a_limit_do_not_deadlock(root: Path, fifo: bool) -> None:
    """They take two locks for each message: that of the groups and that of the limit."""
    with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
        spool.create_queue("grouped", fifo=fifo)
        queue = spool.queue("grouped")
        if not fifo:
            queue.configure(fetch_order="fair")
        queue.configure(max_in_flight=100)
        queue.put_many([NewMessage(b"x", group=str(n)) for n in range(40)])
        faults: list[Unavailable] = []

        def claim(of: Queue) -> None:
            try:
                for _ in range(40):
                    for message in of.claim(5):
                        message.release()
            except Unavailable as fault:
                faults.append(fault)

        threads = [
            threading.Thread(target=claim, args=(s.queue("grouped"),)) for s in (spool, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
