"""Ordered logs: publishing, reading, ids, crashes and damaged segments."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Spool
from fsmq.spool.errors import InvalidValue, MessageTooLarge, NoSuchLog, Unavailable
from fsmq.spool.fsck import check
from fsmq.spool.layout import filesystem
from fsmq.spool.log.log import Log, LogEntry
from fsmq.spool.log.ranges import Ranges
from fsmq.spool.log.segment import newest, record
from fsmq.spool.log.segment import segments as files
from fsmq.spool.log.segment.checkpoint import End
from fsmq.spool.log.segment.tail import LogTail
from fsmq.spool.log.segment.turns import last_end
from tests.harness.suite import HOME
from tests.spool.helpers import Clock, damage
from tests.spool.logs import MODES, bodies, failing_syncs, forget, opened, segments
from tests.spool.running import in_threads


@pytest.fixture(autouse=True, params=[False, True], ids=["not preallocated", "preallocated"])
def preallocates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether publishers write zeros behind the end of the log, to be overwritten later."""
    if request.param:
        monkeypatch.setattr(filesystem, "_IN_PLACE", {"tmpfs", "ext4", "xfs"})
        monkeypatch.setattr(newest, "_SMALL_IN_A_ROW", 1)
    return bool(request.param)


@pytest.fixture
def log(spool: Spool) -> Log:
    log = spool.log("users")
    assert log.create(writers="host")
    return log


def create(spool: Spool, writers: str) -> Log:
    log = spool.log(f"of-{writers}")
    log.create(writers=writers)
    return log


@MODES
def test_messages_are_read_in_the_order_of_publishing(spool: Spool, writers: str) -> None:
    log = create(spool, writers)
    assert log.publish(b"first", key="k", content_type="text/plain", attributes={"a": "b"}) == 0
    assert log.publish_many([b"", "zwei", LogEntry(b"three", id="3")]) == range(1, 4)
    found = list(log.read())
    assert [message.offset for message in found] == [0, 1, 2, 3]
    assert [message.body for message in found] == [b"first", b"", b"zwei", b"three"]
    first = found[0]
    assert (first.key, first.content_type, first.attributes) == ("k", "text/plain", {"a": "b"})
    assert (found[3].id, found[3].key) == ("3", None)
    assert bodies(log, 2) == [b"zwei", b"three"]
    assert log.end() == 4


@MODES
def test_two_processes_publish_and_read(spool: Spool, writers: str, clock: Clock) -> None:
    log = create(spool, writers)
    log.publish_many([b"%d" % number for number in range(300)])
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        again = other.log(log.name)
        assert again.publish(b"other") == 300
        assert log.publish(b"mine") == 301
        assert again.publish(b"other again") == 302
        assert bodies(again) == bodies(log)
        assert bodies(log)[-3:] == [b"other", b"mine", b"other again"]


def test_a_log_is_created_once_and_deleted_with_its_messages(spool: Spool, log: Log) -> None:
    assert not log.create(retain_for=1)
    assert log.settings().retain_for != 1
    assert spool.logs() == ["users"]
    uuid = log.stats().uuid
    log.publish(b"gone")
    log.delete()
    assert spool.logs() == []
    for verb in (log.delete, lambda: log.publish(b"x"), log.stats, log.end, lambda: bodies(log)):
        with pytest.raises(NoSuchLog):
            verb()
    assert spool.reap() > 0
    assert log.create()
    assert log.publish(b"new") == 0
    assert log.stats().uuid != uuid


def test_a_log_that_another_process_deleted_takes_no_messages(
    spool: Spool, log: Log, clock: Clock
) -> None:
    log.publish(b"x")
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        other.log("users").delete()
        with pytest.raises(NoSuchLog):
            log.publish(b"y")
        other.log("users").create()
        assert log.publish(b"z") == 0
        assert bodies(log) == bodies(other.log("users")) == [b"z"]


@MODES
def test_threads_publish_at_once_and_learn_their_offsets(spool: Spool, writers: str) -> None:
    log = create(spool, writers)
    offsets: dict[int, bytes] = {}

    def publish(name: int) -> None:
        for number in range(20):
            body = b"%d %d" % (name, number)
            offsets[log.publish(body)] = body

    in_threads(partial(publish, name) for name in range(8))
    assert {message.offset: message.body for message in log.read()} == offsets
    assert sorted(offsets) == list(range(160))


@MODES
def test_an_id_is_stored_once(spool: Spool, writers: str, clock: Clock) -> None:
    log = create(spool, writers)
    log.publish(b"before")
    assert log.publish(b"a", id="one") == 1
    assert log.publish(b"a again", id="one") == 1
    batch = [LogEntry(b"b", id="two"), LogEntry(b"c"), LogEntry(b"d", id="three")]
    assert log.publish_many(batch) == log.publish_many(batch) == range(2, 5)
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        assert other.log(log.name).publish(b"a", id="one") == 1
        assert other.log(log.name).publish(b"e", id="four") == 5
    assert log.publish(b"e", id="four") == 5
    with pytest.raises(InvalidValue):
        log.publish_many([LogEntry(b"b", id="two"), LogEntry(b"new", id="new")])
    clock.advance(301)
    assert log.publish(b"a much later", id="one") == 6


@MODES
def test_an_id_is_stored_once_though_other_clocks_are_wrong(
    spool: Spool, writers: str, clock: Clock
) -> None:
    """Each publisher is a new process."""

    def publish(number: int, behind_s: float, id: str | None = None) -> list[int]:
        clock.advance(-behind_s)
        with Spool(spool.tree.root, sync="none", clock=clock, delivers=False) as other:
            found = [other.log(log.name).publish(b"x" * 1000, id=id) for _ in range(number)]
        clock.advance(behind_s)
        return found

    log = create(spool, writers)
    log.configure(segment_bytes=4096)
    publish(6, 1000)
    [first] = publish(1, 0, "one")
    publish(6, 0)
    publish(40, 3600)
    publish(9, -7200)
    assert publish(3, 0, "one") == [first] * 3
    assert publish(2, 3600, "one") == [first + 56] * 2


@MODES
def test_an_id_is_found_after_the_clock_was_ahead_for_a_while(
    spool: Spool, writers: str, clock: Clock
) -> None:
    log = create(spool, writers)
    assert log.publish(b"a", id="one") == 0
    clock.advance(86_400)
    assert log.publish(b"b", id="two") == 1
    clock.advance(1 - 86_400)
    assert log.publish(b"a", id="one") == 0
    # The first message "two" is a day ahead of the clock now.
    assert [log.publish(b"c", id="two") for _ in range(2)] == [2, 2]
    clock.advance(86_400)
    assert log.publish(b"b", id="two") == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_ids_are_found_by_the_times_of_messages_in_any_order(
    spool: Spool, clock: Clock, seed: int
) -> None:
    """Processes have their own clocks, which are set now and then; checkpoints are lost."""
    rng = random.Random(seed)
    log = create(spool, "hosts" if seed % 2 else "host")
    log.configure(segment_bytes=rng.choice([4096, 30_000, 1 << 20]))
    clocks = [Clock() for _ in range(3)]
    spools = [Spool(spool.tree.root, sync="none", clock=one, delivers=False) for one in clocks]
    window_us = 300_000_000
    for _ in range(150):
        at = rng.randrange(3)
        step = rng.choice([0.0, 1.0, 40.0, 40.0, 200.0, -200.0, 900.0, -900.0])
        clocks[at].advance(step)
        if not rng.randrange(8):
            spools[at].close()
            spools[at] = Spool(spool.tree.root, sync="none", clock=clocks[at], delivers=False)
        if not rng.randrange(20):
            for other in spools:
                other.open_logs.close()
            for checkpoint in (spool.tree.root / "logs" / log.name / "log").glob(".[st]*"):
                checkpoint.unlink()
        now_us = int(clocks[at]() * 1e6)
        mine = spools[at].log(log.name)
        own = f"id{rng.randrange(12)}"
        known = {
            m.offset for m in mine.read() if m.id == own and abs(m.time_us - now_us) <= window_us
        }
        got, end = mine.publish(bytes(rng.randrange(900)), id=own), mine.end()
        assert got in known if known else got == end - 1
        mine.publish_many([bytes(rng.randrange(900))] * rng.randrange(1, 90))
    for one in spools:
        one.close()
    assert findings(log) == []


def test_times_follow_a_clock_set_far_back_but_no_small_step_back(log: Log, clock: Clock) -> None:
    for step in (0.0, -1.5, 2.0, -3600.0, 60.0):
        clock.advance(step)
        log.publish(b"x")
    times = [message.published_at for message in log.read()]
    assert [round(time - times[0], 1) for time in times] == [0.0, 0.0, 0.5, -3599.5, -3539.5]


@MODES
def test_an_offset_is_found_by_time(spool: Spool, writers: str, clock: Clock) -> None:
    log = create(spool, writers)
    log.configure(segment_bytes=4096)
    start = clock()
    for _ in range(50):
        log.publish_many([b"x" * 100] * 7)
        clock.advance(1)

    def at(seconds: float) -> int:
        return log.offset_of(datetime.fromtimestamp(start + seconds, UTC))

    assert [at(-1), at(0), at(10), at(10.5), at(49), at(50)] == [0, 0, 70, 77, 343, 350]
    with pytest.raises(InvalidValue):
        log.offset_of(datetime.now())


def test_an_offset_in_a_large_segment_is_found_by_its_marks(spool: Spool, log: Log) -> None:
    log.publish_many([b"%06d" % number for number in range(20_000)])
    log.publish_many([bytes(200_000), b"behind"])
    for offset in (0, 1, 63, 64, 65, 9_999, 19_999, 20_000, 20_001):
        [message] = log.page(offset, 1).messages
        assert message.offset == offset
    assert log.page(19_999, 5).next == 20_002


def test_a_full_segment_is_followed_by_a_new_one(log: Log) -> None:
    log.configure(segment_bytes=4096)
    for number in range(100):
        log.publish(b"%0200d" % number)
    assert len(segments(log)) > 5
    assert [int(body) for body in bodies(log)] == list(range(100))
    stats = log.stats()
    assert (stats.first, stats.next, stats.segments) == (0, 100, len(segments(log)))
    assert 100 * 220 <= stats.bytes < 100 * 240


def test_a_changed_size_limit_applies_in_processes_that_have_the_log_open(
    spool: Spool, log: Log, clock: Clock
) -> None:
    log.publish(b"x")
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        theirs = other.log(log.name)
        theirs.publish(b"y")
        log.configure(max_message_bytes=10)
        for publish in (
            lambda: theirs.publish(b"x" * 11),
            lambda: theirs.publish_many([b"x" * 10, b"x" * 11]),
            lambda: theirs._taking(NewMessage(b"x" * 11)),
        ):
            with pytest.raises(MessageTooLarge, match="the limit is 10 bytes"):
                publish()
        [error, second] = theirs.publish_each([[LogEntry(b"x" * 11)], [LogEntry(b"x" * 10)]])
        assert isinstance(error, MessageTooLarge)
        assert second == 2
        log.configure(max_message_bytes=None)
        assert theirs.publish(b"x" * 11) == 3


def test_invalid_messages_and_settings_are_refused(spool: Spool, log: Log) -> None:
    log.configure(max_message_bytes=10)
    with pytest.raises(MessageTooLarge):
        log.publish(b"x" * 11)
    for wrong in ({"key": ""}, {"key": "a\nb"}, {"id": "x" * 300}, {"attributes": {"Key": "x"}}):
        with pytest.raises(InvalidValue):
            log.publish(b"x", **wrong)
    with pytest.raises(InvalidValue) as error:
        log.publish_many([b"x", LogEntry(b"x", key="")])
    assert error.value.index == 1
    with pytest.raises(InvalidValue):
        log.configure(colour="red")
    with pytest.raises(NoSuchLog):
        spool.log("none").publish(b"x")
    assert log.end() == 0


# -- crashes and damage --------------------------------------------------------------------------


def noted_end(log: Log) -> End:
    """The end of the log that its writers have noted."""
    end = last_end(log._store.disk)
    assert end is not None
    return end


def turn(log: Log) -> Path:
    """The file with that note."""
    return max(segments(log)[0].parent.glob(".turn.*"))


def base(path: Path) -> int:
    """The first offset of a segment."""
    line = record.parse_line(path.read_bytes())
    assert line is not None
    return line.base


def append_raw(log: Log, data: bytes) -> None:
    """Write bytes behind the end, like a writer that dies before it notes that."""
    path, end = segments(log)[-1], noted_end(log)
    with path.open("r+b") as file:
        file.seek(end.position)
        file.write(data)


def tear(log: Log, extra: bytes, *, reboot: bool) -> None:
    """Leave the log as a writer that died during an append, with a reboot or without."""
    append_raw(log, extra)
    if reboot:
        turn(log).unlink()
        segments(log)[0].with_name(".sync").unlink()
    forget(log)


def encoded(*bodies: bytes) -> bytes:
    """The bytes of an append."""
    cursor = record.Cursor(b"x" * 16, 0, 1, 0)
    return b"".join(record.encode([record.Entry(b"", body) for body in bodies], 1, cursor))


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("cut", [1, 19, 20, 30, -1])
def test_a_torn_append_is_cut(log: Log, reboot: bool, cut: int) -> None:
    log.publish_many([b"kept %d" % number for number in range(100)])
    tear(log, encoded(b"torn", b"2")[:cut], reboot=reboot)
    assert len(bodies(log)) == 100
    assert log.publish(b"next") == 100
    assert bodies(log)[-2:] == [b"kept 99", b"next"]


def test_a_complete_append_of_a_dead_writer_counts_once_it_is_durable(
    log: Log, spool: Spool, clock: Clock
) -> None:
    log.publish(b"first")
    append_raw(log, encoded(b"left"))
    assert bodies(log) == [b"first"]
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        assert bodies(other.log("users")) == [b"first", b"left"]  # opening the log syncs it
    assert log.publish(b"next") == 2
    assert bodies(log) == [b"first", b"left", b"next"]


@pytest.mark.parametrize("lost", [".sync", "turn", "both"])
def test_checkpoints_may_be_old(log: Log, lost: str) -> None:
    """Checkpoints are not synced, so a crash may bring back old ones."""
    log.configure(segment_bytes=4096)
    log.publish(b"first")
    folder = segments(log)[0].parent
    own = turn(log).name
    names = {".sync": [".sync"], "turn": [own], "both": [".sync", own]}[lost]
    old = {name: (folder / name).read_bytes() for name in names}
    for number in range(100):
        log.publish(b"%0100d" % number)
        if number in (5, 70):  # in the same segment, and some segments later
            forget(log)
            for name, content in old.items():
                (folder / name).write_bytes(content)
            assert [int(body) for body in bodies(log)[1:]] == list(range(number + 1))
            assert log.end() == number + 2
    assert log.publish(b"next") == 101


def test_the_noted_end_may_be_ahead_of_the_bytes_on_disk(log: Log) -> None:
    log.publish(b"first")
    [path] = segments(log)
    checkpoint, end = turn(log), noted_end(log)
    synced = path.with_name(".sync").read_bytes()
    log.publish(b"second")
    too_far = checkpoint.read_bytes()
    forget(log)
    with path.open("r+b") as file:
        file.seek(end.position)
        file.write(bytes(path.stat().st_size - end.position))  # as xfs does
    checkpoint.write_bytes(too_far)
    path.with_name(".sync").write_bytes(synced)
    assert bodies(log) == [b"first"]
    assert log.publish(b"third") == 1
    assert bodies(log) == [b"first", b"third"]


def test_a_new_reader_reads_durable_messages_while_a_writer_is_stopped(
    log: Log, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.log.store._SHORT_S", 0.01)
    log.publish(b"first")
    path = segments(log)[0]
    append_raw(log, b"in the middle of an append")
    with path.with_name(".writer").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Spool(spool.tree.root, sync="none", clock=clock) as other:
            assert bodies(other.log("users")) == [b"first"]
    assert log.publish(b"next") == 1


DIES = """
import os, sys
from fsmq.spool import Spool
with Spool(sys.argv[1], delivers=False) as spool:
    log = spool.log("users")
    log.publish(b"good")
    os.fdatasync = lambda fd: os._exit(9)  # it failed, and nobody noted that
    log.publish(b"doubtful")
"""


def test_bytes_that_a_dead_process_did_not_sync_are_written_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root, writers="host") as log:
        done = subprocess.run([sys.executable, "-c", DIES, str(root)], cwd=HOME)
        assert done.returncode == 9
        written: list[int] = []
        pwrite = os.pwrite

        def note(fd: int, data: bytes, at: int) -> int:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(f"/{segments(log)[0].name}"):
                written.append(at)
            return pwrite(fd, data, at)

        monkeypatch.setattr(os, "pwrite", note)
        assert bodies(log) == [b"good", b"doubtful"]
        assert written
        del written[:]
        end = noted_end(log)
        log.publish(b"next")
        assert min(written) == end.position


def test_small_appends_overwrite_preallocated_zeros(log: Log, preallocates: bool) -> None:
    """The size of the file stays, so each sync writes only the bytes."""
    sizes = set()
    for number in range(50):
        log.publish(b"%0100d" % number)
        sizes.add(segments(log)[0].stat().st_size)
    assert len(sizes) == (1 if preallocates else 50)
    assert [int(body) for body in bodies(log)] == list(range(50))
    log.publish_many([bytes(4096)] * 400)  # far beyond them
    log.configure(segment_bytes=4096)
    log.publish(b"in the next segment")
    assert len(bodies(log)) == 451
    # The zeros behind a finished segment are cut.
    assert segments(log)[0].stat().st_size % (1 << 20)
    assert not check(log.spool.context.tree.root).findings


def test_processes_that_publish_in_turn_preallocate(
    log: Log, spool: Spool, clock: Clock, preallocates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that reopens the segment after another's append must not lose its count."""
    monkeypatch.setattr(newest, "_SMALL_IN_A_ROW", 8)
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        for number in range(10):
            assert log.publish(b"mine") == 2 * number
            assert other.log("users").publish(b"other") == 2 * number + 1
        assert (segments(log)[0].stat().st_size > 1 << 20) == preallocates
    assert bodies(log) == [b"mine", b"other"] * 10


def test_an_append_behind_a_hole_of_zeros_never_counts(log: Log) -> None:
    """Of two unsynced appends a power cut may keep only the second."""
    log.publish(b"kept")
    lone = encoded(b"ghost")
    tear(log, bytes(len(lone)) + lone, reboot=False)
    assert bodies(log) == [b"kept"]
    forget(log)
    assert log.publish(b"other") == 1  # as long as the hole
    forget(log)
    assert bodies(log) == [b"kept", b"other"]
    assert log.publish(b"third") == 2
    assert bodies(log) == [b"kept", b"other", b"third"]


def test_opening_a_log_cuts_no_zeros_of_a_living_writer(
    log: Log, spool: Spool, clock: Clock, preallocates: bool
) -> None:
    log.publish(b"first")
    size = segments(log)[0].stat().st_size
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        assert bodies(other.log("users")) == [b"first"]
        assert segments(log)[0].stat().st_size == size
        assert other.log("users").publish(b"second") == 1
        assert not preallocates or segments(log)[0].stat().st_size == size
        assert log.publish(b"third") == 2
        assert bodies(other.log("users")) == bodies(log) == [b"first", b"second", b"third"]
    assert log.publish(b"fourth") == 3


def test_a_closed_log_has_no_zeros_behind_its_end(log: Log) -> None:
    """Programs that compare sizes to copy files must see the change."""
    log.publish(b"first")
    forget(log)
    assert segments(log)[0].stat().st_size == noted_end(log).position
    assert log.publish(b"second") == 1


def test_messages_are_stored_when_the_disk_has_no_room_for_zeros(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_at = files.write_at

    def is_full(fd: int, data: bytes | memoryview, position: int) -> None:
        if isinstance(data, memoryview):
            write_at(fd, data[:1000], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_at(fd, data, position)

    monkeypatch.setattr(files, "write_at", is_full)
    for number in range(3):
        assert log.publish(b"%d" % number) == number
    assert segments(log)[0].stat().st_size == noted_end(log).position
    assert bodies(log) == [b"0", b"1", b"2"]


def test_zeros_are_not_a_message(log: Log) -> None:
    log.publish_many([b"", b""])
    tear(log, bytes(1000), reboot=True)
    assert log.publish(b"next") == 2
    assert bodies(log) == [b"", b"", b"next"]


@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize("is_last", [True, False])
def test_damage_loses_messages_only_up_to_the_next_mark(
    log: Log, is_last: bool, reboot: bool
) -> None:
    """Single bytes are damaged one after another; all offsets stay the same."""
    number, body = 200, b"%0100d"
    for part in range(4):
        log.publish_many([body % n for n in range(50 * part, 50 * part + 50)])
    if not is_last:
        log.configure(segment_bytes=4096)
        log.publish(b"in the next segment")
        number += 1
    path = segments(log)[0]
    whole = path.read_bytes()
    for at in range(record.FIRST, record.FIRST + 120 * 70, 37):
        damage(path, at)
        if reboot:
            for checkpoint in (*path.parent.glob(".turn.*"), path.with_name(".sync")):
                checkpoint.unlink(missing_ok=True)
        forget(log)
        found, offset, lost = {}, 0, 0
        while offset < log.end():
            page = log.page(offset)
            found.update({message.offset: message.body for message in page.messages})
            offset, lost = page.next, lost + page.lost
        assert log.end() == number, at
        assert len(found) + lost == number
        assert 0 <= lost <= 64
        assert all(found[n] == body % n for n in found if n < 200)
        path.write_bytes(whole)


def test_the_end_is_remembered_when_all_segments_are_gone(log: Log) -> None:
    log.publish_many([b"x"] * 5)
    for path in segments(log):
        path.unlink()
    forget(log)
    assert log.publish(b"next") == 5


def test_a_message_whose_sync_failed_does_not_count(root: Path) -> None:
    with opened(root, writers="host") as log:
        log.publish(b"good")
        with failing_syncs(), pytest.raises(Unavailable):
            log.publish(b"lost")
        assert bodies(log) == [b"good"]
        with Spool(root) as other:
            assert bodies(other.log("users")) == [b"good"]
        assert log.publish(b"next") == 1
        assert bodies(log) == [b"good", b"next"]
    with Spool(root) as spool:
        assert bodies(spool.log("users")) == [b"good", b"next"]


def test_the_first_sync_of_a_log_may_fail(root: Path) -> None:
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(writers="host")
        log.settings()
        spool.open_logs.store("users").settle()
        with failing_syncs(), pytest.raises(Unavailable):
            log.publish(b"lost")
        assert log.publish(b"next") == 0
        assert bodies(log) == [b"next"]


@pytest.mark.skipif(shutil.which("rsync") is None, reason="needs rsync")
def test_a_second_pass_of_rsync_finds_messages_in_the_place_of_zeros(
    log: Log, spool: Spool, tmp_path: Path, clock: Clock
) -> None:
    """See docs/howto/backup.md; without the option rsync compares sizes and seconds."""

    def copy(nanoseconds: int) -> None:
        os.utime(segments(log)[0], ns=(nanoseconds, nanoseconds))
        rsync = ["rsync", "-a", "--delete", "--modify-window=-1"]
        subprocess.run([*rsync, f"{spool.tree.root}/", f"{tmp_path}/copy"], check=True)

    log.publish(b"first")
    copy(10**18 + 1)
    log.publish(b"second")
    copy(10**18 + 2)
    with Spool(tmp_path / "copy", sync="none", clock=clock) as other:
        assert bodies(other.log("users")) == [b"first", b"second"]


def test_zeros_of_a_segment_whose_sync_failed_are_not_counted(root: Path) -> None:
    with opened(root, writers="host") as log:
        for _ in range(20):
            log.publish(b"good")
        with failing_syncs(), pytest.raises(Unavailable):
            log.publish(b"lost")
        assert log.publish(b"next") == 20
        assert log.stats().bytes < 1000


def test_an_answered_message_survives_a_power_cut_and_a_failed_sync_after_it(root: Path) -> None:
    """The checkpoint may be old then: the message behind it was answered."""
    with opened(root, writers="host") as log:
        log.publish(b"first")
        checkpoint = segments(log)[0].with_name(".sync")
        old = checkpoint.read_bytes()
        log.publish(b"second")
    checkpoint.write_bytes(old)
    turn(log).unlink()
    with opened(root) as log:
        with failing_syncs(), pytest.raises(Unavailable):
            log.publish(b"lost")
        assert log.publish(b"third") == 2
        assert bodies(log) == [b"first", b"second", b"third"]


def test_a_sync_that_fails_in_a_new_segment_that_is_not_noted_does_not_stop_the_log(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies(*of: object) -> None:
        raise Killed

    with opened(root, writers="host", segment_bytes=4096) as log:
        log.publish(bytes(4096))
        with monkeypatch.context() as patch:
            patch.setattr(LogTail, "_check_turn", dies)  # the new segment has its first line
            with pytest.raises(Killed):
                log.publish(b"lost")
        assert len(segments(log)) == 2
    with opened(root) as log:
        with failing_syncs(), pytest.raises(Unavailable):
            log.publish(b"lost, too")
        assert log.publish(b"next") == 1
        assert bodies(log) == [bytes(4096), b"next"]


def test_processes_with_an_open_segment_follow_each_change_of_writers(
    log: Log, spool: Spool, clock: Clock
) -> None:
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        there = other.log("users")
        for number, writers in enumerate(("hosts", "host", "hosts", "host")):
            assert log.publish(b"here") == 3 * number
            there.configure(writers=writers)
            assert there.publish(b"there") == 3 * number + 1
            assert log.publish(b"here again") == 3 * number + 2
        assert bodies(there) == bodies(log) == [b"here", b"there", b"here again"] * 4


# -- ranges, large messages, fsck ----------------------------------------------------------------


def test_ranges_are_sets_of_numbers() -> None:
    rng = random.Random(1)
    for _ in range(200):
        ranges, numbers = Ranges(), set()
        for _ in range(30):
            start = rng.randrange(60)
            end = start + rng.randrange(12)
            if rng.random() < 0.6:
                ranges.add(start, end)
                numbers |= {*range(start, end)}
            else:
                ranges.remove(start, end)
                numbers -= {*range(start, end)}
            flat = [n for a, b in ranges for n in range(a, b)]
            assert flat == sorted(numbers)
            assert all(
                b < c for (_, b), (c, _) in zip(list(ranges), list(ranges)[1:], strict=False)
            )
        assert [n for a, b in ranges.gaps(0, 80) for n in range(a, b)] == sorted(
            {*range(80)} - numbers
        )
        assert ranges.count() == len(numbers)
        for n in range(70):
            assert (n in ranges) == (n in numbers)
            after = n
            while after in numbers:
                after += 1
            assert ranges.after(n) == after


def findings(log: Log, **options: bool) -> list[tuple[str, int]]:
    report = check(log.spool.context.tree.root, offline=True, **options)
    return [(finding.kind.value, finding.count) for finding in report.findings]


@MODES
def test_fsck_finds_nothing_in_a_sound_log(spool: Spool, writers: str) -> None:
    log = create(spool, writers)
    log.configure(segment_bytes=4096)
    assert findings(log, bodies=True) == []
    channel = log.channel("c", create=True)
    for _ in range(10):
        log.publish_many([b"x" * 100] * 20)
    channel.ack(*channel.claim(7))
    assert findings(log, bodies=True) == []


def test_fsck_reports_each_kind_of_damage(log: Log, spool: Spool) -> None:
    log.configure(segment_bytes=4096)
    for number in range(100):
        log.publish(b"%0200d" % number)
    log.channel("c", create=True)
    paths = segments(log)
    gone = base(paths[2]) - base(paths[1])
    paths[1].unlink()
    damage(paths[3], record.FIRST + record.MARK_BYTES + 30)
    damage(paths[4], 3)
    folder = paths[0].parent
    (folder / "notes").touch()
    (folder / ".01977420-dc00-7abc-8def-0123456789ab").touch()
    (folder.parent / "channels/c/channel.json").write_text("{")
    found = dict(findings(log, bodies=True))
    assert found.pop("log-hole") >= 1
    assert found.pop("bad-record") == gone + 1
    assert found == {"bad-segment": 1, "bad-settings": 1, "leftover": 1, "stray": 1}
    check(spool.tree.root, offline=True, repair=True)
    assert "leftover" not in dict(findings(log))


@MODES
def test_large_messages_are_read_without_a_cache(spool: Spool, writers: str) -> None:
    log = create(spool, writers)
    spool.open_logs.blocks.budget = 0
    large = [b"%d" % number * (2 << 20) for number in range(4)]
    assert log.publish_many(large) == range(4)
    for offset in range(4):
        assert [message.body for message in log.page(offset).messages] == large[offset:]
    assert bodies(log, 2) == large[2:]


def test_an_interrupted_publisher_blocks_no_other(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler raises in the main thread, which waits for its turn to lead."""
    log = spool.log("users", create=True)
    syncing, go_on = threading.Event(), threading.Event()
    real = os.pwrite

    def slow(fd: int, data: bytes, at: int) -> int:
        if threading.current_thread() is first and not syncing.is_set():
            syncing.set()
            go_on.wait(60)
        return real(fd, data, at)

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(os, "pwrite", slow)
    first = threading.Thread(target=log.publish, args=(b"1",))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        first.start()
        assert syncing.wait(60)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            log.publish(b"2")
    finally:
        signal.signal(signal.SIGALRM, before)
        go_on.set()
        first.join(60)
    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(log.publish, b"3") for _ in range(3)]
        assert sorted(one.result(60) for one in done) == [1, 2, 3]
