"""Retention of logs, and expiry of channels."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import ChannelMessage, Spool
from fsmq.spool.claimed import Claim
from fsmq.spool.errors import LogFull, OffsetGone, Unavailable
from fsmq.spool.layout.tree import Tree
from fsmq.spool.log import upkeep
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming.channels import ChannelStore
from fsmq.spool.log.consuming.open_channel import OpenChannel
from fsmq.spool.log.consuming.progress_file import ProgressFile
from fsmq.spool.log.log import Log
from fsmq.spool.log.logs import Logs
from fsmq.spool.log.retention import Retention
from fsmq.spool.log.segment.record import Entry
from fsmq.spool.log.upkeep import Upkeep
from tests.harness.calls import seen
from tests.spool.helpers import Clock
from tests.spool.logs import bodies

HOUR_S, DAY_S = 3600.0, 86_400.0


@pytest.fixture
def log(spool: Spool) -> Log:
    made = spool.log("users")
    made.create(segment_bytes=4096, retain_for=HOUR_S, writers="host")
    return made


def fill(log: Log, clock: Clock, batches: int = 10) -> None:
    """Publish a batch each minute; a segment takes two batches."""
    for _ in range(batches):
        log.publish_many([b"x" * 100] * 20)
        clock.advance(60)


def tend(log: Log) -> None:
    upkeep = Upkeep(log.spool.open_logs)  # type: ignore[attr-defined]
    for _ in range(3):
        upkeep.step()


def assert_gone_before(log: Log, first: int) -> None:
    with pytest.raises(OffsetGone) as error:
        log.page(0)
    assert error.value.first == log.first() == first
    assert next(log.read("first")).offset == first


def test_old_messages_of_a_log_without_channels_are_removed(log: Log, clock: Clock) -> None:
    fill(log, clock)
    tend(log)
    assert log.first() == 0
    clock.advance(HOUR_S - 4 * 60)
    tend(log)
    assert 0 < log.first() < 200
    first = log.first()
    assert_gone_before(log, first)
    assert len(bodies(log, "first")) == 200 - first
    clock.advance(HOUR_S)
    tend(log)
    assert log.first() == log.end() == 200
    assert list(log.read()) == []
    assert log.publish(b"next") == 200


@pytest.mark.parametrize("writers", ["host", "hosts"])
@pytest.mark.parametrize("at_once", [1, 4])
def test_messages_larger_than_a_segment_are_removed_by_age(
    spool: Spool, clock: Clock, writers: Any, at_once: int
) -> None:
    log = spool.log("large")
    log.create(segment_bytes=4096, retain_for=HOUR_S, writers=writers)
    for number in range(6):
        log.publish_many([bytes([number]) * 9000] * at_once)
        clock.advance(60)
    spool.tend_logs()
    assert log.first() == 0
    clock.advance(HOUR_S - 3 * 60)
    for _ in range(3):
        spool.tend_logs()
    first, end = log.first(), 6 * at_once
    assert 0 < first < end
    assert_gone_before(log, first)
    found = [(message.offset, message.body) for message in log.read()]
    assert found == [(at, bytes([at // at_once]) * 9000) for at in range(first, end)]
    clock.advance(HOUR_S)
    for _ in range(3):
        spool.tend_logs()
    assert log.first() == log.end() == end
    assert log.publish(b"next") == end


def test_a_publish_is_stored_again_when_its_first_message_was_removed_within_the_window(
    spool: Spool, log: Log, clock: Clock
) -> None:
    """In a process that has not seen the first one: no file lists the ids of removed messages."""
    log.configure(max_bytes=8192, dedupe_window=DAY_S)
    first = log.publish(b"once", id="order-1")
    with Spool(spool.tree.root, clock=clock, delivers=False) as other:
        assert other.log(log.name).publish(b"once", id="order-1") == first
    fill(log, clock)
    tend(log)
    assert log.first() > first
    with Spool(spool.tree.root, clock=clock, delivers=False) as other:
        assert other.log(log.name).publish(b"once", id="order-1") == log.end() - 1


def test_the_newest_bytes_are_kept(log: Log, clock: Clock) -> None:
    log.configure(retain_for=0, retain_bytes=10_000)
    fill(log, clock, 20)
    tend(log)
    stats = log.stats()
    assert stats.first > 0
    assert 10_000 <= stats.bytes < 16_000


def test_an_unread_message_is_kept_for_max_lag(log: Log, clock: Clock) -> None:
    fill(log, clock)
    ch = log.channel("slow")
    ch.create("first", max_lag=DAY_S)
    clock.advance(2 * HOUR_S)
    tend(log)
    assert log.first() == 0
    ch.pause()
    ch.resume()
    messages = ch.claim(100)
    ch.ack(*messages)
    tend(log)
    assert 0 < log.first() <= 100
    first = log.first()
    clock.advance(DAY_S)
    tend(log)
    state = ch.state()
    assert log.first() == 200
    assert (state.position, state.lost, state.first_lost, state.lag) == (200, 100, 100, 0)
    assert first <= 100
    log.publish(b"new")
    assert [message.offset for message in ch.claim(10)] == [200]
    tend(log)
    assert ch.state().lost == 100


@pytest.mark.parametrize("age_s", [0.0, 2 * HOUR_S])
def test_a_full_log_refuses_messages_while_a_channel_is_behind(
    log: Log, clock: Clock, age_s: float
) -> None:
    log.configure(when_full="refuse", max_bytes=8_000)
    ch = log.channel("slow")
    ch.create("first")
    fill(log, clock)
    clock.advance(age_s)
    tend(log)
    with pytest.raises(LogFull):
        log.publish(b"x")
    assert ch.state().lost == 0
    ch.ack(*ch.claim(200))
    tend(log)
    assert log.stats().bytes <= 8_000
    for _ in range(10):
        fill(log, clock)
        ch.ack(*ch.claim(200))
        tend(log)
    assert log.stats().bytes <= 8_000
    assert ch.state().lost == 0


def test_a_full_log_drops_unread_messages(log: Log, clock: Clock) -> None:
    log.configure(max_bytes=10_000)
    ch = log.channel("slow")
    ch.create("first")
    fill(log, clock)
    clock.advance(2 * HOUR_S)
    tend(log)
    stats, state = log.stats(), ch.state()
    assert stats.bytes <= 10_000
    assert state.lost == stats.first == state.position > 0
    got = ch.claim(200)
    assert [message.offset for message in got] == list(range(stats.first, 200))


@contextmanager
def unreadable(channel: str) -> Iterator[None]:
    """The progress of a channel cannot be read."""
    real = ProgressFile.read_bytes

    def read(self: ProgressFile, size: int, start: int = 0) -> bytes:
        if f"/{channel}/" in self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        return real(self, size, start)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressFile, "read_bytes", read)
        yield


@contextmanager
def kept_locked(channel: str) -> Iterator[None]:
    """A stopped process holds the lock of the channel."""
    [path] = Path().glob(f"channels/{channel}/progress.*")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("fault", [unreadable, kept_locked])
@pytest.mark.parametrize("when_full", ["drop", "refuse"])
def test_a_log_does_not_grow_while_a_channel_cannot_be_read(
    log: Log,
    clock: Clock,
    spool: Spool,
    when_full: str,
    fault: Callable[[str], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log.configure(when_full=when_full, max_bytes=8_000)
    for name in ("bad", "good"):
        log.channel(name).create("first")
    fill(log, clock)
    monkeypatch.chdir(spool.tree.root / "logs/users")
    faulty: list[str] = []
    with fault("bad"):
        Upkeep(log.spool.open_logs, lambda of, error: faulty.append(of)).step()  # type: ignore[attr-defined]
        assert "logs/users" in faulty
        if when_full == "refuse":
            with pytest.raises(LogFull):
                log.publish(b"x")
        else:
            assert log.stats().bytes <= 8_000
            assert log.channel("good").state().lost == log.first() > 0
    state = log.channel("bad").state()
    got = log.channel("bad").claim(200)
    assert [message.offset for message in got] == list(range(log.first(), 200))
    assert log.channel("bad").state().lost == log.first()
    assert state.lost in (0, log.first())


def set_last_use(spool: Spool, channel: str, since: float) -> None:
    for file in (spool.tree.root / "logs/users/channels" / channel).iterdir():
        os.utime(file, (since, since))


def expiring(log: Log, name: str) -> Channel:
    made = log.channel(name)
    made.create("last", expires=HOUR_S)
    return made


@pytest.mark.parametrize("order", ["none", "key", "strict"])
@pytest.mark.parametrize("act", ["claim", "work"])
def test_a_claim_counts_what_was_removed_while_another_process_held_the_lock(
    spool: Spool, log: Log, clock: Clock, order: str, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process may be stopped, and the mover does not wait for it."""
    monkeypatch.chdir(spool.tree.root / "logs/users")
    fill(log, clock)
    ch = log.channel("slow")
    ch.create("first", order=order)
    log.configure(max_bytes=8192)
    assert log.first() == 0  # so this process knows the segments
    with kept_locked("slow"), Spool(spool.tree.root, clock=clock, delivers=False) as mover:
        with suppress(Unavailable):
            mover.tend_logs()
        first = mover.log(log.name).first()
    assert first > 0
    seen: list[int] = []
    if act == "claim":
        seen += [message.offset for message in ch.claim(999)]
    else:

        def handle(message: ChannelMessage, claim: Claim) -> None:
            seen.append(message.offset)
            if message.offset == 199:
                worker.stop()

        worker = ch.worker(handle, concurrency=1)
        worker.run()
    assert seen == list(range(first, 200))
    assert (ch.state().lost, ch.state().first_lost) == (first, 0)


def test_unused_channels_are_removed(spool: Spool, log: Log, clock: Clock) -> None:
    for name in ("idle", "paused", "used"):
        expiring(log, name)
    log.channel("paused").pause()
    set_last_use(spool, "idle", since=time.time() - 0.9 * HOUR_S)
    tend(log)
    assert log.channels() == ["idle", "paused", "used"]
    for name in ("idle", "paused", "used"):
        set_last_use(spool, name, since=time.time() - 1.1 * HOUR_S)
    assert log.channel("used").claim() == []
    tend(log)
    assert log.channels() == ["paused", "used"]


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
def test_a_wrong_clock_does_not_expire_channels(
    spool: Spool, log: Log, clock: Clock, seconds: float
) -> None:
    for name in ("idle", "used"):
        expiring(log, name)
    set_last_use(spool, "idle", since=time.time() - 2 * HOUR_S)
    clock.advance(seconds)
    tend(log)
    assert log.channels() == ["used"]


def test_claims_from_an_empty_channel_are_a_use(spool: Spool, log: Log) -> None:
    """Time passes for the files and for the consumer."""
    channel = expiring(log, "used")
    path = spool.tree.root / "logs/users/channels/used/progress.1"
    store = spool.open_logs.channel("users", "used")
    for part in range(100):
        set_last_use(spool, "used", since=time.time() - part % 11 / 10 * HOUR_S)
        store._noted_at -= HOUR_S / 10
        assert channel.claim() == []
        assert time.time() - path.stat().st_mtime < HOUR_S / 16
        tend(log)
        assert log.channels() == ["used"]
    set_last_use(spool, "used", since=time.time() - HOUR_S)
    store._noted_at -= HOUR_S / 20
    assert channel.claim() == []  # not every claim writes
    assert time.time() - path.stat().st_mtime > 0.9 * HOUR_S
    tend(log)
    assert log.channels() == ["used"]


def test_a_mover_buries_poison_when_nobody_claims(log: Log, spool: Spool, clock: Clock) -> None:
    log.publish(b"bad")
    ch = log.channel("c")
    ch.create("first", order="none", max_deliveries=1, dead_letter_queue="dead")
    ch.claim(1, visibility=5)
    clock.advance(6)
    tend(log)
    assert ch.state().position == 1
    assert spool.counts("dead").total == 1


def test_an_append_of_a_killed_writer_is_settled(log: Log) -> None:
    log.publish(b"one")
    store = log._store
    with store.writing() as tail:
        assert tail is not None
        tail.append([[Entry(b"", b"two")]], 4096)
    assert log.end() == 1
    tend(log)
    assert bodies(log) == [b"one", b"two"]


def test_old_drafts_of_logs_and_channels_are_removed(
    log: Log, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = spool.tree.root / "logs"
    name = ".01977420-dc00-7abc-8def-0123456789ab"
    for folder in (root / "users/channels" / name / "1", root / name / "log"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    places = [root / "users/channels" / name, root / name]
    tend(log)
    assert all(place.exists() for place in places)
    monkeypatch.setattr(upkeep, "LEFT_AFTER_S", 0.0)
    tend(log)
    assert not any(place.exists() for place in places)
    assert spool.reap() > 0


def test_acknowledgements_are_synced_before_the_messages_are_removed(
    root: Path, log: Log, clock: Clock
) -> None:
    """The consumer may have been killed before its sync."""
    fill(log, clock)
    quick = log.channel("quick", create=True)
    quick.seek("first")
    quick.ack(*quick.claim(200))  # not synced
    clock.advance(2 * HOUR_S)
    steps: list[str] = []

    def see(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "fsync" and "/quick/" in os.readlink(f"/proc/self/fd/{arguments[0]}"):
            steps.append("sync of the channel")
        if name == "rename" and "remove/" in arguments[1]:
            steps.append("removal")

    with Spool(root, sync="fsync", clock=clock) as mover, seen(see):
        tend(mover.log("users"))
    assert steps[:2] == ["sync of the channel", "removal"]
    assert log.first() > 0
    assert quick.state().lost == 0


def test_retention_is_not_a_use_of_a_channel(log: Log, clock: Clock) -> None:
    fill(log, clock)
    quick = log.channel("quick", create=True)
    quick.seek("first")
    quick.ack(*quick.claim(200))
    [used] = (log.spool.tree.root / "logs/users/channels/quick").glob("progress.*")  # type: ignore[attr-defined]
    os.utime(used, (clock() - DAY_S, clock() - DAY_S))
    before = quick.changed_at()
    clock.advance(2 * HOUR_S)
    tend(log)
    assert log.first() > 0
    assert quick.changed_at() == before


def test_a_stopped_mover_removes_nothing_from_a_recreated_log(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts the losses of the old channel when it continues. No lock kept others out."""
    log.configure(retain_for=0, max_bytes=2000, when_full="drop")
    fill(log, clock)
    log.channel("slow").create("first")
    lose = ChannelStore.lose_before

    def stopped(channel: ChannelStore, first: int) -> int:
        monkeypatch.undo()
        with Spool(spool.tree.root, sync="none", clock=clock) as other:
            new = other.log("users")
            new.delete()
            new.create()
            new.channel("slow").create("first")
            new.publish_many([b"new"] * 5)
        return lose(channel, first)

    with pytest.MonkeyPatch.context() as without_locks:
        without_locks.setattr(Logs, "held", lambda logs, name, **more: nullcontext())
        monkeypatch.setattr(ChannelStore, "lose_before", stopped)
        tend(log)
    assert len(log.channel("slow").claim(9)) == 5
    assert log.channel("slow").state().lost == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda channel: (channel.delete(), channel.create("first", order="strict")),
        lambda channel: channel.configure(expires=None),
        lambda channel: channel.pause(),
        lambda channel: channel.claim(),
    ],
    ids=["recreated", "configured", "paused", "claimed"],
)
def test_a_channel_that_is_used_just_before_it_expires_stays(
    log: Log, spool: Spool, clock: Clock, use: Callable[[Channel], object]
) -> None:
    """The mover has found it unused, and waits for the lock to delete it."""
    log.publish_many([b"1", b"2"])
    channel = log.channel("browser")
    channel.create("first", expires=HOUR_S)
    set_last_use(spool, "browser", since=clock() - 2 * HOUR_S)
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        held, logs = Logs.held, other.open_logs

        def stopped(of: Logs, name: str, **more: bool) -> AbstractContextManager[None]:
            if of is logs:
                use(channel)
            return held(of, name, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Logs, "held", stopped)
            Upkeep(logs).step()
    assert log.channels() == ["browser"]


def test_a_creation_that_was_stopped_for_an_hour_fails(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mover has removed its draft like one that a crash left."""
    rename = Tree.rename
    monkeypatch.setattr(upkeep, "LEFT_AFTER_S", 0.0)

    def stopped(tree: Tree, source: str, target: str, **options: bool) -> bool:
        if tree is spool.tree and target in ("logs/users", "logs/users/channels/slow"):
            with Spool(spool.tree.root, sync="none") as other:
                Upkeep(other.open_logs).step()
        return rename(tree, source, target, **options)

    monkeypatch.setattr(Tree, "rename", stopped)
    log = spool.log("users")
    with pytest.raises(Unavailable):
        log.create()
    monkeypatch.setattr(Tree, "rename", rename)
    assert log.create()
    monkeypatch.setattr(Tree, "rename", stopped)
    with pytest.raises(Unavailable):
        log.channel("slow").create()
    monkeypatch.setattr(Tree, "rename", rename)
    assert log.channel("slow").create()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"retain_for": 0}, {"retain_for": DAY_S}),
        ({"retain_for": 0}, {"retain_bytes": 1 << 30}),
        ({"retain_for": DAY_S, "max_bytes": 1}, {"max_bytes": None}),
        ({"retain_for": DAY_S, "max_bytes": 1}, {"when_full": "refuse"}),
        ({"retain_for": 0, "max_bytes": 1}, {"when_full": "refuse"}),
    ],
)
def test_a_change_of_settings_during_retention_keeps_the_rest(
    log: Log, spool: Spool, clock: Clock, before: dict[str, Any], after: dict[str, Any]
) -> None:
    log.configure(**before)
    log.channel("slow").create("first", max_lag=0)
    fill(log, clock, 20)
    ages: list[float] = []
    kept: list[int] = []
    age = Retention._age

    with Spool(spool.tree.root, sync="none", clock=clock) as other:

        def change_at_third(retention: Retention, *given: Any) -> float:
            found = age(retention, *given)
            ages.append(found)
            if len(ages) == 3:
                other.log("users").configure(**after)
                kept.append(other.log("users").first())
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Retention, "_age", change_at_third)
            tend(log)
    assert kept[0] > 0
    assert log.first() == kept[0]


def test_a_stopped_mover_does_not_mark_a_recreated_log_as_full(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found the old log full."""
    log.configure(when_full="refuse", max_bytes=2000)
    log.channel("slow").create("first")
    fill(log, clock)
    clock.advance(2 * HOUR_S)
    look = Retention._is_any_behind

    def stopped(retention: Retention, *given: Any) -> bool | None:
        monkeypatch.undo()
        found = look(retention, *given)
        assert found
        with Spool(spool.tree.root, sync="none", clock=clock) as other:
            other.log("users").delete()
            other.log("users").create()
        return found

    monkeypatch.setattr(Retention, "_is_any_behind", stopped)
    Upkeep(spool.open_logs).step()
    assert log.publish(b"new") == 0


@pytest.mark.parametrize("progress_bytes", [128 * 1024, 0], ids=["grows", "is-replaced"])
def test_losing_messages_is_not_a_use_of_a_channel(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch, progress_bytes: int
) -> None:
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", progress_bytes)
    times = 4 if progress_bytes else 1
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._TIMES", times)
    monkeypatch.setattr(OpenChannel, "_now", lambda channel: clock())
    for name in ("idle", "used"):
        log.channel(name).create("first", expires=DAY_S, max_lag=HOUR_S)
        set_last_use(spool, name, since=clock() - 22 * HOUR_S)
    lost = 0
    for _ in range(2):
        fill(log, clock, 4)
        clock.advance(2 * HOUR_S)
        log.channel("used").claim()
        assert log.channels() == ["idle", "used"]
        Upkeep(spool.open_logs).step()
        assert log.channel("used").state().lost > lost
        lost = log.channel("used").state().lost
    assert log.channels() == ["used"]


def test_a_channel_that_is_resumed_after_a_long_pause_stays(
    log: Log, spool: Spool, clock: Clock
) -> None:
    channel = expiring(log, "paused")
    channel.pause()
    set_last_use(spool, "paused", since=clock() - DAY_S)
    channel.resume()
    tend(log)
    assert log.channels() == ["paused"]
    set_last_use(spool, "paused", since=clock() - 2 * HOUR_S)
    tend(log)
    assert log.channels() == []
