"""The ready index: its order, its updates, and its shares for several processes."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq.spool import InvalidValue, NoSuchQueue, Queue, Spool
from fsmq.spool.index import listings
from fsmq.spool.index.ready_index import GRACE_S, ReadyIndex
from fsmq.spool.index.share import Share
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, forked

ids = st.text("abc", min_size=1, max_size=3)
verbs = st.sampled_from(["add", "discard", "pop", "load", "fail", "again"])
steps = st.lists(st.tuples(verbs, ids), max_size=60)


@given(steps)
def test_an_index_is_a_sorted_set(calls: list[tuple[str, str]]) -> None:
    index, model, quarantined = ReadyIndex(Share()), set[str](), set[str]()
    for verb, message_id in calls:
        if verb == "add":
            assert (index.add(message_id) is not None) == (message_id not in model)
            model.add(message_id)
        elif verb == "discard":
            index.discard(message_id)
            model.discard(message_id)
        elif verb == "load":
            model = {message_id, "b"}
            index.load(model)
        elif verb == "again":
            failed = index.pop_failed(early=True)
            assert failed in (quarantined or {None})
            model.discard(failed or "")
        else:
            expected = min(model - quarantined, default=None)
            assert index.pop() == expected
            if verb == "fail" and expected is not None:
                index.quarantine(expected)
                quarantined.add(expected)
            else:
                model.discard(expected or "")
        quarantined &= model
        assert len(index) == len(model)
        assert index.first(3) == sorted(model)[:3]


@given(st.sets(st.integers(0, 10_000).map(str), min_size=50, max_size=80), st.integers(2, 4))
def test_a_process_takes_its_share_first_and_then_the_rest(names: set[str], nodes: int) -> None:
    shares = [Share(rank, nodes) for rank in range(nodes)]
    for share in shares:
        index = ReadyIndex(share)
        index.load(names)
        assert index.first(20) == sorted(names)[:20]
        taken = [index.pop() for _ in names]
        own = sorted(name for name in names if share.prefers(name))
        assert taken == own + sorted(names - set(own))
    for name in names:
        assert sum(share.prefers(name) for share in shares) == 1


def test_a_pruned_index_stays_in_order() -> None:
    index = ReadyIndex(Share())
    index.load(f"{n:05}" for n in range(5000))
    for n in range(4990):
        index.discard(f"{n:05}")
    assert [index.pop() for _ in range(11)] == [*(f"{n:05}" for n in range(4990, 5000)), None]


def test_messages_of_another_process_are_claimed_at_once(root: Path, jobs: Queue) -> None:
    assert jobs.claim() == []
    with Spool(root, sync="none") as other:
        message_id = other.queue("jobs").put(b"x")
        other.deliver()
        assert [m.id for m in jobs.claim()] == [message_id]


def test_a_more_urgent_arrival_is_claimed_first(spool: Spool, jobs: Queue) -> None:
    jobs.put_many([b"2", b"3"])
    spool.deliver()
    jobs.claim(1)
    jobs.put(b"9", priority=9)
    (spool.tree.root / "queues" / "jobs" / "0-urgent").write_bytes(b"1")
    assert [m.body for m in jobs.claim(5)] == [b"1", b"3", b"9"]


def test_a_recreated_queue_is_listed_again(root: Path, spool: Spool, jobs: Queue) -> None:
    jobs.put_many([b"old"] * 3)
    jobs.claim()
    with Spool(root, sync="none") as other:
        other.delete_queue("jobs")
        with pytest.raises(NoSuchQueue):
            jobs.claim()
        other.queue("jobs", create=True).put(b"new")
        other.deliver()
        other.queue("jobs").purge()
        other.queue("jobs").put(b"newer")
        other.deliver()
    assert [m.body for m in jobs.claim(5)] == [b"newer"]


def test_a_queue_is_listed_again_after_a_lost_event(spool: Spool, jobs: Queue, root: Path) -> None:
    assert jobs.claim() == []
    make_noise(root / "queues" / "jobs")
    (root / "queues" / "jobs" / "late").write_bytes(b"x")
    assert [m.id for m in jobs.claim(5)] == ["late"]


def test_a_listing_after_lost_events_may_be_done_elsewhere(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    assert jobs.claim() == []
    calls: list[bool] = []
    spool.context.ready.on_lost = lambda: calls.append(True)
    make_noise(root / "queues" / "jobs")
    (root / "queues" / "jobs" / "late").write_bytes(b"x")
    listings.forbid()
    try:
        assert jobs.claim(5) == []
        assert calls
        assert spool.context.ready.is_due("jobs")  # claims wait for a listing
    finally:
        listings.allow()
    spool.context.ready.rescan()
    assert [m.id for m in jobs.claim(5)] == ["late"]


def make_noise(folder: Path) -> None:
    """Cause more events than the kernel keeps."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    file = folder / "0-noise"
    # Two names in turn, because the kernel merges equal events.
    for _ in range(limit // 4 + 100):
        file.touch()
        file.rename(file.with_name("0-more"))
        file.with_name("0-more").rename(file)
    file.unlink()


def test_an_arrival_calls_back(spool: Spool, jobs: Queue) -> None:
    announced: list[str] = []
    callback: Callable[..., None] = lambda queue, *more: announced.append(queue)  # noqa: E731
    spool.context.ready.on_arrival = callback
    jobs.claim()
    jobs.put(b"x")
    spool.deliver()
    assert "jobs" in announced


def test_polling_finds_messages_without_events(root: Path, clock: Clock) -> None:
    with (
        Spool(root, sync="none", watch="poll", poll_interval=0.01) as spool,
        Spool(root, sync="none", watch="poll", poll_interval=0.01) as other,
    ):
        jobs = spool.queue("jobs", create=True)
        assert jobs.claim() == []
        for n in range(5):
            other.queue("jobs").put(b"%d" % n)
            assert [m.body for m in jobs.claim(wait=20)] == [b"%d" % n]
        message_id = jobs.put(b"again")
        jobs.claim(wait=20, visibility=0.1)
        [message] = other.queue("jobs").claim(wait=20)
        assert (message.id, message.deliveries) == (message_id, 2)


def test_messages_of_other_shares_come_last_and_later() -> None:
    share, other = Share(0, 2), Share(1, 2)
    foreign = next(name for name in map(str, range(100)) if other.prefers(name))
    own = next(name for name in map(str, range(100)) if share.prefers(name))
    index = ReadyIndex(share)
    assert index.add(foreign) == GRACE_S
    assert index.add(own) == 0.0
    assert index.pop_some(5) == [own, foreign]
    index.postpone(foreign)
    assert index.first(5) == [foreign]
    assert index.pop() is None
    assert index.ripens_in() is not None
    assert eventually(index.pop, patience=10.0) == foreign
    assert index.ripens_in() is None


def test_partitions_follow_the_number_of_processes_within_the_bounds() -> None:
    names = [str(n) for n in range(3000)]
    for of, low, high, partitions in ((4, 1, 10, 4), (4, 8, 10, 8), (4, 1, 2, 2), (4, 1, 1, 1)):
        shares = [Share(rank, of).within(low, high) for rank in range(of)]
        assert {share.partitions for share in shares} == {partitions}
        owned = [sum(share.prefers(name) for name in names) for share in shares]
        assert sum(owned) == len(names)  # each id has one owner
        owners = [count for count in owned if count]
        assert len(owners) == min(of, partitions)
        assert min(owners) > 0.8 * len(names) / len(owners)


def test_a_share_is_a_range_of_the_places() -> None:
    for of in (2, 3, 5):
        for rank in range(of):
            share = Share(rank, of)
            for name in map(str, range(500)):
                place = zlib.crc32(name.encode()) / 2**32
                assert share.prefers(name) is (rank / of <= place < (rank + 1) / of)


def test_settings_divide_a_queue(spool: Spool, jobs: Queue) -> None:
    ready = spool.context.ready
    ready.set_share(Share(1, 3))
    assert ready.partitions(jobs.settings()) == 3
    jobs.configure(max_partitions=1)
    assert ready.partitions(jobs.settings()) == 1
    ids = jobs.put_many([b"x"] * 20)
    # A process whose part is empty takes the rest in order.
    assert [m.id for m in jobs.claim(count=20, wait=5)] == ids
    with pytest.raises(InvalidValue, match="min_partitions: min_partitions 2 is more than"):
        jobs.configure(min_partitions=2)


def test_a_forked_child_gets_its_own_events(root: Path) -> None:
    """With a shared queue of events, one would miss the events that the other reads."""
    with Spool(root, sync="none", delivers=False) as spool, Spool(root, sync="none") as other:
        jobs, others = spool.queue("jobs", create=True), other.queue("jobs")
        assert jobs.claim() == []
        to_child, to_parent = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            while os.read(to_child[0], 1):
                os.write(to_parent[1], b"%d" % len(jobs.claim()))
            os._exit(0)
        try:
            for _ in range(3):
                others.put_many([b"x", b"x"])
                os.write(to_child[1], b".")
                assert os.read(to_parent[0], 1) == b"1"
                assert len(jobs.claim()) == 1
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            for fd in (*to_child, *to_parent):
                os.close(fd)


def test_a_forked_child_that_does_not_use_the_spool_has_no_inotify_instance(jobs: Queue) -> None:
    """A user has only 128 of them, which a program that forks for each request would use up."""
    assert jobs.claim() == []
    reading, writing = os.pipe()
    with forked(lambda: _fork_and_count(writing)):
        assert os.read(reading, 10) == b"0"
    os.close(reading)
    os.close(writing)


def _fork_and_count(writing: int) -> int:
    child = os.fork()
    if child == 0:
        links = []
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the descriptor of the listing
                links.append(os.readlink(f"/proc/self/fd/{fd}"))
        os.write(writing, b"%d" % sum("inotify" in link for link in links))
    return child
