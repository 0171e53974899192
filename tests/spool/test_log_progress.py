"""The progress file of a channel: appends, damage and replacement."""

from __future__ import annotations

import errno
import os
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.durability.sync import Dirty
from fsmq.spool.errors import NoSuchChannel, NoSuchLog, Unavailable
from fsmq.spool.fsck import check
from fsmq.spool.layout.files import write_all
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.consuming import progress_file
from fsmq.spool.log.consuming.open_channel import _LEAST_BYTES
from fsmq.spool.log.consuming.progress_file import ProgressFile
from fsmq.spool.log.log import Log, LogEntry
from tests.harness.cost import counted
from tests.spool.crashing import MUTATING
from tests.spool.helpers import Clock
from tests.spool.running import in_threads


@pytest.fixture
def log(spool: Spool) -> Log:
    return spool.log("users", create=True)


@pytest.fixture
def two(spool: Spool, clock: Clock) -> Iterator[Spool]:
    """A second spool, which shares no memory with the first."""
    with Spool(spool.tree.root, sync="none", clock=clock, delivers=False) as other:
        yield other


@pytest.fixture
def always_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced after each change."""
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", 0)
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._TIMES", 0)


def create(log: Log, number: int, keys: int = 0, **settings: Any) -> Channel:
    entries = [LogEntry(b"%d" % n, key=f"k{n % keys}" if keys else None) for n in range(number)]
    log.publish_many(entries)
    channel = log.channel("mailer")
    channel.create("first", **{"order": "none", **settings})
    return channel


def mailer(spool: Spool) -> Channel:
    return spool.log("users").channel("mailer")


def reopened(spool: Spool, clock: Clock) -> Spool:
    return Spool(spool.tree.root, sync="none", clock=clock, delivers=False)


def file_of(channel: Channel) -> Path:
    root = channel.log.spool.context.tree.root
    [path] = (root / "logs/users/channels/mailer").glob("progress.*")
    return Path(path)


def offsets(channel: Channel, count: int = 1000) -> list[int]:
    return [message.offset for message in channel.claim(count)]


# -- messages that the log does not show -----------------------------------------------------------


def prepare_late_note(log: Log, two: Spool) -> Callable[[], None]:
    """A function that sets the noted durable end of the log back, as a stopped writer may, to
    where the other process has seen it."""
    log.publish_many([LogEntry(b"%d" % n, key=f"k{n % 2}") for n in range(2)])
    [path] = (log.spool.context.tree.root / "logs/users/log").glob(".sync")
    before = path.read_bytes()
    assert two.log("users").end() == 2

    def write_note() -> None:
        with open(path, "r+b") as file:
            file.write(before)

    return write_note


@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_messages_that_a_log_does_not_show_are_not_lost(
    log: Log, two: Spool, clock: Clock, order: str
) -> None:
    write_note = prepare_late_note(log, two)
    channel = create(log, 4, keys=2, order=order)
    channel.claim(6, visibility=5)
    channel.ack(1)
    clock.advance(6)
    write_note()
    with pytest.raises(Unavailable, match="does not show its offset"):
        mailer(two).claim(9)
    log.publish(b"6")
    assert offsets(mailer(two)) == [0, 2, 3, 4, 5, 6]
    assert mailer(two).state().lost == 0


@pytest.mark.parametrize(
    "verb",
    [
        lambda channel: channel.claim(1),
        lambda channel: channel.end_poison(),
        lambda channel: channel.bury(2, 3, 4, 5),
    ],
    ids=["claim", "end_poison", "bury"],
)
def test_messages_that_a_log_does_not_show_are_buried_later(
    log: Log, spool: Spool, two: Spool, clock: Clock, verb: Callable[[Channel], object]
) -> None:
    write_note = prepare_late_note(log, two)
    channel = create(log, 4, max_deliveries=1, dead_letter_queue="dead")
    channel.claim(6, visibility=5)
    channel.ack(0, 1)
    clock.advance(6)
    write_note()
    with suppress(Unavailable):
        verb(mailer(two))
    assert (mailer(two).state().buried, mailer(two).state().lost) == (0, 0)
    log.publish(b"6")
    clock.advance(10)  # until burying is retried
    verb(mailer(two))
    assert (mailer(two).state().buried, mailer(two).state().lost) == (4, 0)
    assert sorted(m.body for m in spool.queue("dead").claim(9)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_damage_brings_no_acknowledged_or_claimed_message_back(
    log: Log, spool: Spool, clock: Clock, order: str
) -> None:
    """The damaged message is in a gap: it waited for the first message of its key."""
    log.publish_many([LogEntry(b"%d" % n * 50, key=key) for n, key in enumerate("AABCD")])
    channel = create(log, 0, order="key")
    for offset in (0, 2, 3):
        assert offsets(channel, 1) == [offset]
    channel.ack(0, 2)
    damage(log, b"1" * 50)
    with reopened(spool, clock) as other:
        mailer(other).configure(order=order)
        got = mailer(other).claim(9)
        assert [one.offset for one in got] == ([] if order == "strict" else [4])
        channel.ack(3)
        assert offsets(mailer(other)) == ([4] if order == "strict" else [])
        assert mailer(other).state().lost == 1


def damage(log: Log, body: bytes) -> None:
    [path] = (log.spool.context.tree.root / "logs/users/log").glob("0*")
    path.write_bytes(path.read_bytes().replace(body, b"?" * len(body)))


def test_damaged_messages_are_lost_and_not_buried(
    log: Log, spool: Spool, two: Spool, clock: Clock
) -> None:
    log.publish_many([LogEntry(b"%d" % n * 50) for n in range(4)])
    channel = create(log, 0, max_deliveries=1, dead_letter_queue="dead")
    channel.claim(3, visibility=5)
    damage(log, b"1" * 50)
    clock.advance(6)
    assert offsets(mailer(two)) == [3]
    state = mailer(two).state()
    assert (state.buried, state.lost, state.first_lost) == (2, 1, 1)
    assert len(spool.queue("dead").claim(9)) == 2


# -- settings --------------------------------------------------------------------------------------


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Lets another process act just before this one opens the channel's file."""

    def stop(act: Callable[[], object]) -> None:
        def opened(*place: Any) -> ProgressFile:
            monkeypatch.setattr("fsmq.spool.log.consuming.open_channel.ProgressFile", ProgressFile)
            act()
            return ProgressFile(*place)

        monkeypatch.setattr("fsmq.spool.log.consuming.open_channel.ProgressFile", opened)

    return stop


def test_a_stopped_claim_gets_nothing_from_a_paused_channel(
    log: Log, two: Spool, stopped: Callable[[Callable[[], object]], None]
) -> None:
    channel = create(log, 4)
    stopped(mailer(two).pause)
    assert offsets(channel) == []


@pytest.mark.parametrize("verb", [Channel.claim, Channel.end_poison], ids=["claim", "end_poison"])
def test_a_stopped_process_follows_a_change_from_skip_to_bury(
    log: Log,
    spool: Spool,
    two: Spool,
    clock: Clock,
    stopped: Callable[[Callable[[], object]], None],
    verb: Callable[[Channel], object],
) -> None:
    channel = create(log, 4, max_deliveries=1, on_poison="skip")
    channel.claim(3, visibility=5)
    clock.advance(6)
    stopped(lambda: mailer(two).configure(on_poison="bury", dead_letter_queue="dead"))
    verb(channel)
    assert (channel.state().skipped, channel.state().buried) == (0, 3)
    assert len(spool.queue("dead").claim(9)) == 3


# -- acknowledgements ------------------------------------------------------------------------------


def test_a_slow_acknowledgement_undoes_no_other(
    log: Log, spool: Spool, clock: Clock, always_replaced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During its sync others acknowledge messages and replace the file."""
    channel = create(log, 300)
    channel.claim(300, visibility=3600)
    stalled, go = threading.Event(), threading.Event()
    sync = channel._store._sync

    def slow(work: Dirty) -> None:
        if threading.current_thread().name == "slow":
            stalled.set()
            go.wait()
        sync(work)

    monkeypatch.setattr(channel._store, "_sync", slow)
    thread = threading.Thread(target=channel.ack, args=(299,), name="slow")
    thread.start()
    stalled.wait()
    for offset in range(1, 299, 2):
        channel.ack(offset)
    go.set()
    thread.join()
    with reopened(spool, clock) as later:
        state = mailer(later).state()
        assert (state.lag, state.in_flight) == (150, 150)
        assert mailer(later).ack(*range(1, 300, 2)) == 0


def test_many_threads_acknowledge_in_any_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._LEAST_BYTES", 500)
    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel._TIMES", 0)
    number = 400
    left = list(range(1, number))
    random.Random(5).shuffle(left)
    with Spool(root, sync="fsync", delivers=False) as spool:
        channel = create(spool.log("users", create=True), number)
        channel.claim(number, visibility=3600)

        def work() -> None:
            while True:
                try:
                    offset = left.pop()
                except IndexError:
                    return
                assert channel.ack(offset) == 1

        in_threads([work] * 20)
    with Spool(root, delivers=False) as later:
        state = mailer(later).state()
        assert (state.position, state.lag) == (0, 1)


def test_a_repeated_acknowledgement_is_synced(
    log: Log, root: Path, two: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = create(log, 3)
    channel.claim(3)

    def fails(work: Dirty) -> None:
        work.close()
        raise Unavailable("the disk said no")

    monkeypatch.setattr(channel._store, "_sync", fails)
    with pytest.raises(Unavailable):
        channel.ack(1)
    # The disk may have lost the page with that line, and reports that only once.
    synced: list[bytes] = []
    store = mailer(two)._store
    monkeypatch.setattr(store, "_sync", lambda work: synced.append(file_of(channel).read_bytes()))
    before = file_of(channel).read_bytes()
    assert mailer(two).ack(1) == 0
    [content] = synced
    assert content.startswith(before)
    assert content[len(before) :].startswith(b"done 1-2 ")


# -- claims ----------------------------------------------------------------------------------------


def test_two_releases_of_one_claim_keep_their_delays(log: Log, two: Spool, clock: Clock) -> None:
    channel = create(log, 4, max_deliveries=2, on_poison="block")
    channel.claim(4, visibility=600)
    channel.release(0, 3, delay=300)
    channel.release(1, 2, delay=600)
    assert mailer(two).state().delayed == 4
    assert offsets(mailer(two)) == []
    clock.advance(301)
    assert [(m.offset, m.deliveries) for m in mailer(two).claim(9)] == [(0, 2), (3, 2)]
    clock.advance(300)
    assert [(m.offset, m.deliveries) for m in channel.claim(9)] == [(1, 2), (2, 2)]


def test_a_key_is_in_a_claim_until_its_last_message_is_settled(log: Log, two: Spool) -> None:
    channel = create(log, 3, keys=1, order="key")
    first, second = channel.claim(2)
    first.release()
    assert offsets(mailer(two)) == []
    second.ack()
    assert offsets(mailer(two)) == [0, 2]


def test_a_claim_with_another_key_left_does_not_hold_up_a_key(log: Log, two: Spool) -> None:
    channel = create(log, 4, keys=2, order="key")
    channel.claim(3)
    channel.release(0)
    channel.ack(2)  # the claim still has the other key
    assert offsets(mailer(two)) == [0]


def test_claims_of_interleaved_keys_do_not_replace_the_file_again_and_again(log: Log) -> None:
    """What two claims hold is one range of offsets, but many in each claim, and in the file."""
    number = 20_000
    channel = create(log, number, keys=2, order="key")
    [first] = channel.claim(1)
    others = channel.claim(number)
    first.ack()
    assert len(channel.claim(number)) == number // 2 - 1
    folder = log.spool.context.tree.root / "logs/users/channels/mailer"
    [before] = folder.glob("progress.*")
    assert before.stat().st_size > _LEAST_BYTES
    for message in others[:10]:
        message.ack()
    assert list(folder.glob("progress.*")) == [before]


def test_redelivered_messages_are_claimed_by_offset(log: Log, two: Spool, clock: Clock) -> None:
    channel = create(log, 40)
    channel.claim(40, visibility=10)
    channel.renew(*range(0, 40, 2), visibility=20)
    channel.release(*range(1, 40, 4), delay=15)
    clock.advance(21)
    found: list[int] = []
    while some := offsets(mailer(two) if len(found) % 2 else channel, 3):
        found += some
    assert found == list(range(40))


def test_ended_claims_are_valid_again_when_the_clock_is_set_back(log: Log, clock: Clock) -> None:
    channel = create(log, 4)
    channel.claim(4, visibility=10)
    clock.advance(11)
    assert offsets(channel, 1) == [0]
    clock.advance(-11)
    assert offsets(channel) == []
    assert channel.state().in_flight == 4
    clock.advance(11)
    assert offsets(channel) == [1, 2, 3]


# -- the file --------------------------------------------------------------------------------------


def test_an_incomplete_line_is_ignored(log: Log, two: Spool, spool: Spool) -> None:
    channel = create(log, 6)
    channel.claim(3)
    mailer(two).state()
    with file_of(channel).open("ab") as file:
        file.write(b"done 0-3 12ab")
    assert mailer(two).ack(1) == 1
    for process in (spool, two, reopened(spool, channel.log._store.disk.clock)):  # type: ignore[arg-type]
        state = mailer(process).state()
        assert (state.lag, state.in_flight) == (5, 2)


@pytest.mark.parametrize(("damage", "cost"), [(b"\0", 2), (b"x", 3)], ids=["zeros", "other bytes"])
def test_damage_loses_lines_up_to_the_next_line_feed_or_zero(
    log: Log, spool: Spool, damage: bytes, cost: int
) -> None:
    channel = create(log, 6)
    channel.claim(6)
    for offset in range(6):
        channel.ack(offset)
    path = file_of(channel)
    content = path.read_bytes()
    at = content.index(b"done 2-3")
    end = content.index(b"done 4-5")
    path.write_bytes(content[:at] + damage * (end - at) + content[end:])
    with reopened(spool, spool.context.clock) as later:  # type: ignore[arg-type]
        assert mailer(later).state().lag == cost


def test_a_restored_older_file_is_used(log: Log, spool: Spool) -> None:
    """A backup is restored while processes run."""
    channel = create(log, 6)
    channel.claim(3)
    path = file_of(channel)
    kept = path.read_bytes()
    channel.ack(0, 1, 2)
    path.write_bytes(kept)
    assert channel.ack(1) == 1
    assert (channel.state().lag, channel.state().in_flight) == (5, 2)
    path.write_bytes(kept + path.read_bytes()[: len(kept)])
    assert channel.state().lag in (5, 6)


def test_a_damaged_first_line_is_reported(log: Log, spool: Spool, two: Spool) -> None:
    channel = create(log, 2)
    path = file_of(channel)
    content = path.read_bytes()
    path.write_bytes(b"F" + content[1:])
    for process in (spool, two):
        with pytest.raises(Unavailable, match="damaged"):
            mailer(process).claim()
    assert [f.kind.value for f in check(spool.tree.root, offline=True).findings] == ["bad-channel"]
    path.unlink()
    assert [f.kind.value for f in check(spool.tree.root, offline=True).findings] == ["bad-channel"]
    channel.delete()
    assert channel.create("first")
    assert offsets(mailer(two)) == [0, 1]


def test_a_stopped_process_does_not_replace_the_file_of_a_recreated_channel(
    log: Log, two: Spool, always_replaced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it writes a new file, the channel is deleted and created again."""
    channel = create(log, 4)
    channel.claim(4)

    def stopped(fd: int, data: bytes) -> None:
        monkeypatch.setattr(progress_file, "write_all", write_all)
        mailer(two).delete()
        mailer(two).create("first", order="none")
        assert mailer(two).ack(*mailer(two).claim(3)) == 3
        write_all(fd, data)

    monkeypatch.setattr(progress_file, "write_all", stopped)
    channel.ack(0)
    for process in (channel, mailer(two)):
        assert (process.state().position, process.state().lag) == (3, 1)


@pytest.mark.parametrize(
    "verb",
    [
        lambda channel: channel.claim(9),
        lambda channel: channel.ack(0),
        lambda channel: channel.release(0),
        lambda channel: channel.seek("last"),
        lambda channel: channel.seek(2),
    ],
    ids=["claim", "done", "release", "seek-last", "seek"],
)
def test_a_stopped_process_does_not_change_a_channel_of_a_recreated_log(
    log: Log, two: Spool, verb: Callable[[Channel], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is deleted and created again before the process opens the channel."""
    channel = create(log, 4)
    channel.claim(4)

    def stopped(*place: Any) -> ProgressFile:
        monkeypatch.undo()
        two.log("users").delete()
        two.log("users").create()
        assert create(two.log("users"), 4).claim(1)[0].offset == 0
        return ProgressFile(*place)

    monkeypatch.setattr("fsmq.spool.log.consuming.open_channel.ProgressFile", stopped)
    with pytest.raises(NoSuchLog):
        verb(channel)
    for process in (channel, mailer(two)):
        state = process.state()
        assert (state.position, state.in_flight, state.lag) == (0, 1, 4)


def test_the_file_is_not_replaced_on_a_full_disk(
    log: Log, two: Spool, always_replaced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = create(log, 4)
    channel.claim(4)

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(progress_file, "write_all", full)
        assert channel.ack(0) == 1
        before = file_of(channel)
        assert mailer(two).ack(1) == 1
        assert file_of(channel) == before
    assert channel.ack(2) == 1
    assert file_of(channel) != before
    assert mailer(two).state().lag == 1


def fail_at(patch: pytest.MonkeyPatch, at: int, number: int) -> list[str]:
    """Let the mutating call of this number fail; the names of the calls."""
    calls: list[str] = []

    def wrap(name: str, call: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            if name == "open" and not given[1] & os.O_CREAT:
                return call(*given, **named)
            calls.append(name)
            if len(calls) == at + 1:
                raise OSError(number, os.strerror(number))
            return call(*given, **named)

        return counted

    for name in MUTATING:
        patch.setattr(os, name, wrap(name, getattr(os, name)))
    return calls


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ENOENT])
def test_any_call_may_fail_once(
    root: Path, clock: Clock, always_replaced: None, number: int
) -> None:
    at = 0
    while True:
        with (
            Spool(root / str(at), sync="fsync", clock=clock, delivers=False) as one,
            reopened(one, clock) as two,
        ):
            channel = create(one.log("users", create=True), 6)
            channel.claim(6)
            mailer(two).ack(0)
            is_answered = True
            with pytest.MonkeyPatch.context() as patch:
                calls = fail_at(patch, at, number)
                try:
                    assert channel.ack(1) == 1
                except (Unavailable, NoSuchChannel):
                    is_answered = False
            assert mailer(two).ack(1) in ((0,) if is_answered else (0, 1))
            assert mailer(two).ack(2) == 1
            assert channel.ack(3) == 1
            with reopened(one, clock) as later:
                for process in (one, two, later):
                    state = mailer(process).state()
                    assert (state.position, state.lag, state.in_flight) == (4, 2, 2)
            two.tend_logs()
            assert len(list(file_of(channel).parent.glob("*progress*"))) == 1
        if len(calls) <= at:
            assert at > 5
            return
        at += 1


# -- cost ------------------------------------------------------------------------------------------


def calls_of(number: int, root: Path, order: str, shape: str) -> int:
    """The number of Python calls for claims and acknowledgements by two processes in turn, on a
    channel whose messages are alternately acknowledged and in the state ``shape``."""
    clock = Clock()
    with Spool(root, sync="none", clock=clock, delivers=False) as one, reopened(one, clock) as two:
        channel = create(one.log("users", create=True), number, keys=number, order=order)
        channel.claim(number, visibility=3600)
        channel.ack(*range(1, number, 2))
        if shape == "their consumer died":
            clock.advance(3601)
        else:
            for offset in range(0, number, 2):
                channel.release(offset, delay=0 if shape == "given up" else 86400)
        if shape == "delayed, with new ones behind":
            one.log("users").publish_many([LogEntry(b"new", key=f"n{n}") for n in range(12)])
        both = [channel, mailer(two)]
        for some in both:
            some.ack(*some.claim(1))
        with counted() as cost:
            for turn in range(10):
                found = both[turn % 2].claim(1)
                both[turn % 2].ack(*found)
        return cost.calls


@pytest.mark.parametrize(
    "shape", ["given up", "their consumer died", "delayed", "delayed, with new ones behind"]
)
@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_the_cost_of_a_claim_does_not_grow_with_the_channel(
    root: Path, order: str, shape: str
) -> None:
    few = calls_of(60, root / "few", order, shape)
    many = calls_of(4000, root / "many", order, shape)
    assert many < 1.3 * few


@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_ended_claims_are_not_kept_in_memory(root: Path, order: str) -> None:
    def growth(channel: Channel, times: int) -> int:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(times):
            [message] = channel.claim(1)
            channel.release(message.offset)
        return tracemalloc.get_traced_memory()[0] - before

    with Spool(root, sync="none", delivers=False) as spool:
        channel = create(spool.log("users", create=True), 3, order=order)
        tracemalloc.start()
        try:
            growth(channel, 1200)  # until ended claims are dropped
            assert growth(channel, 2400) < 400_000
        finally:
            tracemalloc.stop()


def test_a_channel_keeps_no_file_open(log: Log) -> None:
    channel = create(log, 9)
    channel.claim(2)
    before = len(os.listdir("/proc/self/fd"))
    for name in "abcdef":
        other = log.channel(name)
        other.create("first")
        other.ack(*other.claim(3))
        other.state()
    assert len(os.listdir("/proc/self/fd")) == before
