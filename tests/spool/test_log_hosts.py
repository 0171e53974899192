"""Logs written by many hosts or processes, which take turns under a lock.

`test_log_turns.py` tests writers whose lock does not hold.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import NoSuchLog, Unavailable
from fsmq.spool.fsck import check
from fsmq.spool.log.log import Log
from fsmq.spool.log.logs import Logs
from fsmq.spool.log.segment import tail, turns
from fsmq.spool.log.segment.checkpoint import End
from fsmq.spool.log.segment.record import (
    FIRST,
    LINE_BYTES,
    MARK_BYTES,
    entry,
    find_mark,
    parse_line,
)
from fsmq.spool.log.segment.segments import File
from fsmq.spool.log.segment.tail import LogTail
from fsmq.spool.log.segment.turns import Turn, last_end
from tests.harness.calls import seen
from tests.harness.suite import HOME, eventually
from tests.spool.helpers import Clock, damage
from tests.spool.logs import MODES, bodies, file_names, opened, segments
from tests.spool.running import in_threads, start_python


@pytest.fixture
def log(spool: Spool) -> Log:
    made = spool.log("users")
    made.create(writers="hosts", segment_bytes=4096)
    return made


class FailingSyncs:
    """Lets the next ``left`` syncs of file contents fail. during: called before each."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.during = lambda: None
        self._sync = os.fdatasync
        patch.setattr(os, "fdatasync", self.sync)

    def sync(self, fd: int) -> None:
        if self.left:
            self.left -= 1
            self.during()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(fd)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> FailingSyncs:
    return FailingSyncs(monkeypatch)


IS_NEW = pytest.mark.parametrize("is_new", [True, False], ids=["a new reader", "one that has read"])


def publish_late(log: Log, *, is_gone: bool = False) -> None:
    """As a stopped writer leaves it that goes on after another one has taken its turn.

    is_gone: after retention has removed what was there when it was stopped, and the next segment.
    """
    path = segments(log)[0].with_name(".sync")
    late = path.read_bytes()
    log.publish_many([b"x" * 4096, b"1"])
    log.publish_many([b"y" * 4096, b"2"])
    log.publish(b"3")
    for segment in segments(log)[:2] if is_gone else ():
        segment.unlink()
    path.write_bytes(late)


@pytest.mark.parametrize("is_gone", [False, True])
@IS_NEW
def test_a_late_checkpoint_hides_nothing(
    log: Log, spool: Spool, is_new: bool, is_gone: bool
) -> None:
    with Spool(spool.tree.root, sync="none", delivers=False) as other:
        log.publish(b"0")
        if not is_new:
            assert bodies(other.log("users")) == [b"0"]
        publish_late(log, is_gone=is_gone)
        assert bodies(other.log("users"), 5) == [b"3"]
        assert log.publish(b"last") == 6


@IS_NEW
def test_a_late_checkpoint_hides_only_its_part_while_the_disk_is_full(
    log: Log, spool: Spool, is_new: bool
) -> None:
    def fail(name: str, of: tuple[Any, ...]) -> None:
        if name == "open" and of[1] & os.O_EXCL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Spool(spool.tree.root, sync="none", delivers=False) as other:
        log.publish(b"0")
        if not is_new:
            assert bodies(other.log("users")) == [b"0"]
        publish_late(log)
        with seen(fail):
            assert bodies(other.log("users")) == [b"0"]
        spool.tend_logs()
        assert bodies(other.log("users"))[-1] == b"3"


def test_two_hosts_with_one_id_store_one_message(log: Log, spool: Spool) -> None:
    with Spool(spool.tree.root, sync="none") as two:
        logs, got = [log, two.log("users")], []

        def publish(of: Log) -> None:
            for number in range(30):
                got.append((number, of.publish(b"x", id=str(number))))

        in_threads(partial(publish, one) for one in logs)
    assert len(set(got)) == 30
    assert log.end() == 30


@pytest.mark.parametrize("stops_at", ["create", "append"])
def test_a_writer_without_the_lock_appends_nothing_once_one_host_writes(
    log: Log, spool: Spool, stops_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It publishes without the lock while `writers` is changed, and is stopped there."""
    monkeypatch.setattr(tail, "_PATIENCE_WITH_TURNS_S", (0.0, 0.1))
    log.publish(b"first")
    answered: dict[int, bytes] = {0: b"first"}
    stopped = {name: threading.Event() for name in ("create", "append")}
    may_continue = {name: threading.Event() for name in ("create", "append")}

    def publish() -> None:
        with Spool(spool.tree.root, sync="none") as other, suppress(Unavailable):
            number = other.log("users").publish(b"late")
            assert answered.setdefault(number, b"late") == b"late"

    late = threading.Thread(target=publish)

    def stop_at(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any) -> Any:
            if threading.current_thread() is late:
                stopped[name].set()
                assert may_continue[name].wait(60)
            return real(*given)

        monkeypatch.setattr(owner, name, call)

    replace_now = Logs._replace

    def replace(logs: Logs, *given: Any) -> None:
        late.start()
        assert stopped[stops_at].wait(60)
        replace_now(logs, *given)

    monkeypatch.setattr(Logs, "_replace", replace)
    stop_at(turns, "create")
    stop_at(File, "append")
    if stops_at == "append":
        may_continue["create"].set()
    log.configure(writers="host")
    may_continue["create"].set()
    eventually(lambda: stopped["append"].is_set() or not late.is_alive())
    answered[log.publish(b"of the host")] = b"of the host"
    may_continue["append"].set()
    late.join()
    answered[log.publish(b"next")] = b"next"
    assert [answered[number] for number in range(len(answered))] == bodies(log)
    assert {b"of the host", b"next"} <= set(answered.values())


def test_writers_on_a_network_filesystem_take_turns(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `writers` says: the server may drop the lock of a host that is silent for long."""
    monkeypatch.setattr("fsmq.spool.layout.filesystem.is_network", lambda kind: True)
    for writers in ("host", "hosts"):
        with Spool(root) as one, Spool(root) as two, Spool(root) as three:
            logs = [spool.log(writers) for spool in (one, two, three)]
            logs[0].create(writers=writers, segment_bytes=4096)
            for number in range(60):
                assert logs[number % 3].publish(b"%0200d" % number, id=str(number)) == number
                assert logs[-number % 3].end() == number + 1
            for log in logs:
                assert [int(body) for body in bodies(log)] == list(range(60))
                assert log.publish(b"", id="7") == 7
            assert ".turn." + f"{1:020}" not in file_names(logs[0])
            log.delete()


def test_hosts_in_turn_write_to_one_segment(log: Log, spool: Spool) -> None:
    log.configure(segment_bytes=1 << 20)
    with Spool(spool.tree.root, sync="none") as other:
        for number in range(50):
            one = log if number % 2 else other.log("users")
            assert one.publish(b"%d" % number) == number
    assert [name for name in file_names(log) if name[0] != "."] == [f"{1:020}"]
    assert len([name for name in file_names(log) if name.startswith(".turn.")]) == 1


@MODES
@pytest.mark.parametrize("lacks", [2, 3, 1])
def test_a_listing_that_lacks_names_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, writers: str, lacks: int
) -> None:
    """A listing is not a snapshot: while names come and go it may lack existing names."""
    with opened(root, writers=writers, segment_bytes=4096) as log:
        for number in range(60):
            log.publish(b"%0200d" % number)
        log.channel("c").create("first", order="none")
        own = {path.name for path in segments(log)}
        listed = os.listdir

        def torn(path: Any) -> list[str]:
            found = sorted(listed(path))
            return [name for n, name in enumerate(found) if name not in own or n % lacks]

        with monkeypatch.context() as patch, Spool(root) as other:
            patch.setattr(os, "listdir", torn)
            there = other.log("users")
            assert [int(body) for body in bodies(there)] == list(range(60))
            channel = there.channel("c")
            got = [m.offset for _ in range(6) for m in channel.claim(10)]
            assert got == list(range(60))
            assert channel.state().lost == 0
            assert there.publish(b"60") == 60
            assert log.publish(b"61") == 61
        assert [int(body) for body in bodies(log)] == list(range(62))


@pytest.mark.parametrize("before", ["host", "hosts"])
def test_retired_messages_stay_gone_when_writers_change(
    root: Path, clock: Clock, before: str
) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        log = spool.log("users")
        log.create(writers=before, retain_for=60.0)
        log.publish_many([b"old"] * 5)
        log.configure(writers="hosts" if before == "host" else "host")
        log.publish_many([b"new"] * 5)
        clock.advance(61)
        for _ in range(4):
            spool.tend_logs()
            assert log.publish(b"x") >= 10
        first = log.first()
        assert first >= 5
        with Spool(root, sync="none", clock=clock) as other:
            there = other.log("users")
            assert there.first() == first
            assert [m.offset for m in there.read()] == list(range(first, log.end()))


def test_a_stopped_writer_blocks_others_for_seconds_only(
    log: Log, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_PATIENCE_WITH_TURNS_S", (0.01, 0.02))
    log.publish(b"first")
    with (
        Spool(spool.tree.root, sync="none") as stopped,
        stopped.log("users")._store.tail as stopped_tail,
    ):

        def publish() -> None:
            with stopped_tail.locked():
                assert log.publish(b"second") == 1
                stopped_tail.append([[entry(b"stopped")]], 4096)

        with pytest.raises(Unavailable):
            publish()
        assert stopped.log("users").publish(b"third") == 2
    assert bodies(log) == [b"first", b"second", b"third"]


@MODES
def test_others_can_publish_after_a_failed_sync(
    root: Path, syncs: FailingSyncs, writers: str
) -> None:
    with opened(root, writers=writers) as log, opened(root) as other:
        assert [log.publish(b"one"), other.publish(b"two")] == [0, 1]
        syncs.left = 1
        with pytest.raises(Unavailable):
            log.publish(b"refused")
        assert bodies(other) == [b"one", b"two"]
        offset = other.publish(b"three")
        found = bodies(log)
        assert found == bodies(other)
        assert [body for body in found if body != b"refused"] == [b"one", b"two", b"three"]
        assert found[offset] == b"three"


@MODES
def test_an_id_whose_sync_failed_is_stored_by_a_retry(
    root: Path, syncs: FailingSyncs, writers: str
) -> None:
    """Another process has seen the message before, and must not count it as stored."""
    with opened(root, writers=writers) as log, opened(root) as other:
        assert [log.publish(b"a", id="a"), other.publish(b"b", id="b")] == [0, 1]

        def publish_y() -> None:
            with suppress(Unavailable):
                other.publish(b"y", id="y")

        other_publisher = threading.Thread(target=publish_y)

        def append_another() -> None:
            end = last_end(log._store.disk)
            other_publisher.start()
            while writers == "host" and last_end(log._store.disk) == end:
                time.sleep(0.001)  # until it is appended

        syncs.left, syncs.during = 1, append_another
        with pytest.raises(Unavailable):
            log.publish(b"x", id="x")
        other_publisher.join()
        offset = other.publish(b"x", id="x")
        assert {m.offset: m.id for m in other.read()}[offset] == "x"
        assert log.publish(b"x", id="x") == offset
        assert [message.id for message in log.read()].count("x") == 1


def test_a_stopped_append_that_was_cut_off_fails_though_the_log_has_grown_past_it(
    root: Path, syncs: FailingSyncs
) -> None:
    """A publisher is stopped between append and sync; the sync of another fails, and the log
    continues in new segments, beyond the offset of the first."""
    with opened(root, writers="host", segment_bytes=4096) as log, opened(root) as other:
        assert [log.publish(b"0"), other.publish(b"1")] == [0, 1]
        with other._store.tail as stopped:
            with stopped.locked():
                _, end = stopped.append([[entry(b"stopped")]], 4096)
            syncs.left = 1
            with pytest.raises(Unavailable):
                log.publish(b"refused")
            for number in range(10):
                assert log.publish(bytes(4096)) == 2 + number
            with pytest.raises(Unavailable):
                stopped.sync(end)
        assert other.publish(b"again") == 12


def test_a_stopped_append_that_others_synced_succeeds(root: Path) -> None:
    with opened(root, writers="host", segment_bytes=4096) as log, opened(root) as other:
        assert [log.publish(b"0"), other.publish(b"1")] == [0, 1]
        with other._store.tail as stopped:
            with stopped.locked():
                _, end = stopped.append([[entry(b"stopped")]], 4096)
            for number in range(10):
                assert log.publish(bytes(4096)) == 3 + number
            stopped.sync(end)
        assert bodies(log)[2] == b"stopped"


@MODES
def test_retries_on_a_full_disk_leave_no_more_files(
    root: Path, monkeypatch: pytest.MonkeyPatch, writers: str
) -> None:
    with opened(root, writers=writers, segment_bytes=4096) as log:
        log.publish(bytes(5000))
        before = file_names(log)

        def is_full(fd: int, data: bytes, position: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for module in ("sealing", "segments"):  # the first line of the next segment, the append
            with monkeypatch.context() as patch:
                patch.setattr(f"fsmq.spool.log.segment.{module}.write_at", is_full)
                for _ in range(5):
                    with pytest.raises(Unavailable):
                        log.publish(b"refused")
        assert len(file_names(log)) <= len(before) + 1
        assert log.publish(b"next") == 1
        assert bodies(log) == [bytes(5000), b"next"]


@MODES
@pytest.mark.parametrize("full", ["empty files", "the next segment", "all syncs"])
def test_retries_on_a_full_disk_leave_no_more_turns(
    root: Path, monkeypatch: pytest.MonkeyPatch, writers: str, full: str
) -> None:
    with Spool(root) as spool, Spool(root) as other:
        log = spool.log("users")
        log.create(writers=writers, segment_bytes=4096)
        log.publish(b"first")
        write = os.pwrite

        def is_full(fd: int, *given: Any) -> int:
            if full == "empty files" and not os.fstat(fd).st_size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, *given)

        def never(fd: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwrite", is_full)
        if full == "the next segment":
            for module in ("sealing", "segments"):
                name = f"fsmq.spool.log.segment.{module}.write_at"
                monkeypatch.setattr(name, lambda fd, *given: never(fd))
        if full == "all syncs":
            monkeypatch.setattr(os, "fdatasync", never)
            monkeypatch.setattr(os, "fsync", never)
        before = file_names(log)
        # A writer that could not write its turn keeps it until another one takes a turn.
        writing = (log,) if full == "empty files" else (log, other.log("users"))
        for _ in range(20):
            for one in writing:
                with suppress(Unavailable):
                    one.publish(bytes(5000))
        assert len(file_names(log)) <= len(before) + 2
        monkeypatch.undo()
        log.publish(b"next")
        assert (bodies(log)[0], bodies(other.log("users"))[-1]) == (b"first", b"next")


def test_a_turn_that_could_not_be_written_hides_no_later_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a` takes its turn after one that the disk refused; `b`, whose turn is older, notices."""
    with Spool(root) as spool, Spool(root) as two, Spool(root) as three:
        b, a, refused = (one.log("users") for one in (spool, two, three))
        b.create(writers="hosts")
        b.publish(b"first")
        answered = {0: b"first"}

        def publish(log: Log, body: bytes) -> None:
            with suppress(Unavailable):
                answered[log.publish(body)] = body

        threads = {
            "a": threading.Thread(target=publish, args=(a, b"of a")),
            "b": threading.Thread(target=publish, args=(b, b"of b")),
        }
        stopped, may_continue = ({one: threading.Event() for one in threads} for _ in range(2))

        def stop(one: str) -> None:
            if threading.current_thread() is threads[one]:
                stopped[one].set()
                assert may_continue[one].wait(60)

        monkeypatch.setattr(LogTail, "_hold", lambda tail, patience_s: False)  # no lock helps
        unlink_before, write, append = turns._unlink_before, Turn.write, File.append

        def unlink(*given: Any) -> None:
            stop("a")
            unlink_before(*given)

        def refuse(turn: Turn, end: End) -> None:
            if threading.current_thread() is threading.main_thread():
                threads["a"].start()
                assert stopped["a"].wait(60)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(turn, end)

        def append_late(file: File, *given: Any) -> None:
            stop("b")
            append(file, *given)

        monkeypatch.setattr(turns, "_unlink_before", unlink)
        monkeypatch.setattr(Turn, "write", refuse)
        monkeypatch.setattr(File, "append", append_late)
        with pytest.raises(Unavailable):
            refused.publish(b"refused")
        threads["b"].start()
        assert eventually(lambda: stopped["b"].is_set() or not threads["b"].is_alive())
        for one in ("a", "b"):
            may_continue[one].set()
            threads[one].join()
        assert {one.offset: one.body for one in a.read()} == answered


def test_the_mover_shows_messages_hidden_by_a_late_checkpoint(log: Log, spool: Spool) -> None:
    """While a reader cannot have the lock that it would need to set the checkpoint right."""
    log.publish(b"first")
    path = segments(log)[0].with_name(".sync")
    late = path.read_bytes()
    log.publish(bytes(5000))
    log.publish(b"in the next segment")
    path.write_bytes(late)
    with Spool(spool.tree.root, sync="none", delivers=False) as other:
        there = other.log("users")
        with there._store.tail as tail:
            tail._sync_is_known = True  # as if it had read the log before
        with path.with_name(".writer").open("rb+") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            assert bodies(there) == [b"first"]
        spool.tend_logs()
        assert bodies(there) == [b"first", bytes(5000), b"in the next segment"]
        assert there.publish(b"last") == 3
    assert bodies(log)[3:] == [b"last"]


# -- recreated logs ------------------------------------------------------------------------------


@MODES
def test_a_recreated_log_is_another_one(
    root: Path, writers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its folder has the inode number of the old one."""
    with opened(root, writers=writers) as log, opened(root) as other:
        log.publish_many([b"old"] * 5)
        assert len(bodies(other)) == 5
        before = os.stat(root / "logs/users/log").st_ino
        log.delete()
        log.create(writers=writers)
        same, stat = os.stat(root / "logs/users/log").st_ino, os.stat

        def as_if_the_same(path: str, **options: Any) -> os.stat_result:
            found = stat(path, **options)
            if found.st_ino != same:
                return found
            return os.stat_result((found[0], before, *found[2:]))

        monkeypatch.setattr(os, "stat", as_if_the_same)
        assert [log.publish(b"new"), other.publish(b"newer")] == [0, 1]
        assert bodies(other) == bodies(log) == [b"new", b"newer"]


@MODES
def test_a_writer_of_the_deleted_log_does_not_change_the_new_one(root: Path, writers: str) -> None:
    with opened(root, writers=writers, segment_bytes=4096) as log, opened(root) as other:
        for number in range(5):
            log.publish(bytes(5000) + b"%d" % number)
        other.publish(b"old")
        before: list[str] = []

        def write_after_recreation() -> None:
            with other._store.tail as tail, tail.locked():
                log.delete()
                log.create(writers=writers)
                assert log.publish(b"new") == 0
                before.extend(file_names(log))
                tail.append([[entry(bytes(5000))]], 4096)
                tail.roll()
                tail.remove_through(3)

        with suppress(Unavailable):
            write_after_recreation()
        assert file_names(log) == before
        assert bodies(log) == [b"new"]
        assert other.publish(b"newer") == 1


# -- damage --------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("size", [1, LINE_BYTES, FIRST])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_damaged_first_line_loses_nothing(
    root: Path, writers: str, size: int, which: int, has_checkpoints: bool
) -> None:
    with opened(root, writers=writers, segment_bytes=4096) as log:
        for number in range(100):
            log.publish(b"%0100d" % number)
        path = segments(log)[which]
    damage(path, 3 if size == 1 else 0, size)
    found = check(root, offline=True).findings
    assert [finding.kind.value for finding in found] == ["bad-segment"]
    if not has_checkpoints:
        for checkpoint in (*path.parent.glob(".turn.*"), path.with_name(".sync")):
            checkpoint.unlink()
    with opened(root) as log:
        assert [int(body) for body in bodies(log)] == list(range(100))
        assert log.publish(b"100") == 100
        log.configure(segment_bytes=4097)
        assert log.publish(bytes(5000)) == 101
        assert log.publish(b"102") == 102
        assert [int(body) for body in bodies(log) if len(body) < 200] == [*range(101), 102]
    with Spool(root) as spool:
        assert len(bodies(spool.log("users"))) == 103


@MODES
@pytest.mark.parametrize("which", [1, -1])
def test_a_missing_segment_loses_only_its_messages(root: Path, writers: str, which: int) -> None:
    with opened(root, writers=writers, segment_bytes=4096) as log:
        for number in range(100):
            log.publish(b"%0100d" % number)
        path = segments(log)[which]
        line = parse_line(path.read_bytes())
        assert line is not None
        its = [m.offset for m in log.read(line.base)][: 100 if which < 0 else 26]
        channel = log.channel("c")
        channel.create("first", order="none")
    path.unlink()
    with opened(root) as log:
        assert log.publish(b"100") == 100
        found = [int(body) for body in bodies(log)]
        lost = sorted(set(range(101)) - set(found))
        assert lost
        assert lost == its[: len(lost)]
        channel = log.channel("c")
        while messages := channel.claim(30):
            channel.ack(*messages)
        assert channel.state().lost == len(lost)


def marks_of(path: Path) -> list[int]:
    data, line = path.read_bytes(), parse_line(path.read_bytes())
    assert line is not None
    uuid, found, at = bytes.fromhex(line.uuid.replace("-", "")), [], 0
    while (mark := find_mark(data, at, uuid, 0)) is not None:
        found.append(mark.position)
        at = mark.position + 1
    return found


@pytest.mark.slow
def test_a_damaged_mark_loses_nothing_and_a_damaged_message_only_itself(root: Path) -> None:
    with opened(root, writers="host") as log:
        for number in range(200):
            log.publish(b"%0100d" % number)
        path = segments(log)[0]
    mark = marks_of(path)[1]
    whole = path.read_bytes()
    for at in range(mark - 120, mark + MARK_BYTES):
        damage(path, at)
        with opened(root) as log:
            found = [message.offset for message in log.read()]
            lost = sorted(set(range(200)) - set(found))
            assert lost == ([] if at >= mark else [63]), at
            assert check(root, offline=True, bodies=True).findings, (at, at - mark)
        path.write_bytes(whole)
    assert not check(root, offline=True, bodies=True).findings


# -- open files and memory -----------------------------------------------------------------------


def test_deleted_logs_leave_no_descriptors(root: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
        spool.log("first", create=True).publish(b"x")
        before = count()
        for number in range(30):
            log = spool.log(f"job-{number}", create=True)
            log.publish(b"x")
            log.delete()
        assert count() == before
        for number in range(30):
            log = other.log(f"of-other-{number}", create=True)
            spool.log(log.name).publish(b"x")
            log.delete()
            with pytest.raises(NoSuchLog):
                spool.log(log.name).publish(b"y")
        assert count() <= before + 5


@pytest.mark.parametrize("has_synced", [True, False])
@pytest.mark.parametrize(("call", "of"), [("pwrite", "/.turn."), ("pread", "/log/0000")])
@MODES
def test_failing_calls_leak_no_descriptors(
    root: Path, monkeypatch: pytest.MonkeyPatch, writers: str, call: str, of: str, has_synced: bool
) -> None:
    """The process has just started and has to find the end of the log."""
    with Spool(root) as spool:
        spool.log("users").create(writers=writers)
        spool.log("users").publish_many([bytes(1000)] * 100)
        if not has_synced:
            segments(spool.log("users"))[0].with_name(".sync").unlink()
    real = getattr(os, call)

    def refuses(fd: int, what: Any, at: int = 0) -> Any:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if of in path and (at or ".turn." in path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, what, at)

    with Spool(root) as spool:
        log, counts = spool.log("users"), []
        monkeypatch.setattr(os, call, refuses)
        for _ in range(9):
            with suppress(Unavailable):  # a writer seals what it cannot read and continues
                log.publish(b"x")
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] <= counts[0] + 1


def test_idle_logs_are_closed_when_another_is_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(root, sync="none") as spool:
        spool.log("first", create=True).publish(b"x")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            spool.log(f"log-{number}", create=True).publish(b"x")
        monkeypatch.setattr("fsmq.spool.log.logs._IDLE_S", 1e-9)
        assert spool.log("first").end() == 1
        assert len(os.listdir("/proc/self/fd")) <= before + 5


def test_cached_places_of_retired_segments_are_dropped(root: Path, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        log = spool.log("users")
        log.create(segment_bytes=4096, retain_for=60.0, writers="host")
        store = spool.open_logs.store("users")
        for _ in range(20):
            log.publish_many([bytes(100)] * 50)
            assert len(bodies(log, "first")) >= 50
            clock.advance(61)
            spool.tend_logs()
            spool.tend_logs()
        assert log.first() == log.end() == 1000
        assert len(store.reader._places) <= 2
        assert len(file_names(log)) <= 5


# -- times ---------------------------------------------------------------------------------------


def test_a_clock_that_was_far_ahead_for_a_moment_does_not_end_retention(
    root: Path, clock: Clock
) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        log = spool.log("users")
        log.create(retain_for=60.0, segment_bytes=4096)
        clock.advance(365 * 86400)
        log.publish(bytes(5000))
        clock.advance(-365 * 86400)
        for _ in range(5):
            log.publish(bytes(5000))
        clock.advance(61)
        for _ in range(3):
            spool.tend_logs()
        assert log.first() == log.end() == 6


# -- processes -----------------------------------------------------------------------------------

# The sleep keeps them from publishing more than the test can read.
WRITER = """
import sys, time
from fsmq.spool import Spool, Unavailable
from fsmq.spool.log.segment import tail, turns
from fsmq.spool.log.segment.segments import File
tail._PATIENCE_WITH_TURNS_S = 0.3, 0.6
with Spool(sys.argv[1], sync="none", delivers=False) as spool:
    log = spool.log("users")
    with open(sys.argv[2], "w", buffering=1) as answered:
        number = 0
        while True:
            body = f"{sys.argv[2]} {number}"
            number += 1
            time.sleep(0.002)
            try:
                print(log.publish(body), body, file=answered)
            except Unavailable:
                pass
"""


@pytest.mark.slow
def test_stopped_and_killed_writers_lose_nothing_and_reuse_no_offset(
    log: Log, tmp_path: Path
) -> None:
    """Processes are stopped for longer than others wait for them, while a channel reads."""
    rng, root = random.Random(11), log.spool.context.tree.root
    channel = log.channel("c")
    channel.create("first", order="none", visibility_timeout=300)
    seen: dict[int, bytes] = {}
    answers = [tmp_path / f"writer-{number}" for number in range(3)]
    running = [start_python(WRITER, root, path) for path in answers]
    begin = time.monotonic()
    wakes: list[tuple[float, Popen[bytes]]] = []
    grown = stops = 0
    try:
        eventually(lambda: all(path.exists() for path in answers))
        while (stops < 12 or log.end() < 400) and time.monotonic() < begin + 90:
            process = rng.choice(running)
            if log.end() > grown + 20 and process not in [stopped for _, stopped in wakes]:
                grown, stops = log.end(), stops + 1
                process.send_signal(signal.SIGSTOP)
                pause = rng.choice([0.01, 0.3, 1.5])
                wakes.append((time.monotonic() + pause, process))
            for at, stopped in list(wakes):
                if time.monotonic() >= at:
                    stopped.send_signal(signal.SIGCONT)
                    wakes.remove((at, stopped))
            messages = channel.claim(50, wait=0.01)
            for message in messages:
                assert seen.setdefault(message.offset, message.body) == message.body
            channel.ack(*messages)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert stops >= 12
    while messages := channel.claim(100):
        seen.update({message.offset: message.body for message in messages})
        channel.ack(*messages)
    assert {message.offset: message.body for message in log.read()} == seen
    assert sorted(seen) == list(range(log.end()))
    assert channel.state().lost == 0
    answered = [line for path in answers for line in path.read_text().splitlines()]
    assert len(answered) > 100
    for line in answered:
        offset, _, body = line.partition(" ")
        assert seen[int(offset)] == body.encode()
    assert len(set(seen.values())) == len(seen)


PUBLISHES = """
import json, sys
from fsmq.spool import Spool, Unavailable
refused = []
with Spool(sys.argv[1], sync="fsync", delivers=False) as spool:
    log = spool.log("users")
    for number in range(150):
        own = f"{sys.argv[2]}-{number}"
        try:
            print(json.dumps([own, log.publish(own, id=own)]), flush=True)
        except Unavailable:
            print(json.dumps([own, None]), flush=True)
"""


@MODES
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_messages_of_a_process_whose_syncs_fail_are_stored_by_another(
    tmp_path: Path, writers: str
) -> None:
    root = tmp_path / "mq"
    with Spool(root) as spool:
        spool.log("users").create(writers=writers)
    program = [sys.executable, "-c", PUBLISHES, str(root)]
    inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=7+7"]
    strace = ["strace", "-qq", "-f", "-o", "/dev/null", *inject]
    running = [
        Popen([*before, *program, name], cwd=HOME, stdout=subprocess.PIPE)
        for before, name in ((strace, "failing"), ([], "sound"))
    ]
    answers: dict[str, int | None] = {}
    for process in running:
        out, _ = process.communicate(timeout=120)
        answers.update(map(json.loads, out.splitlines()))
    refused = [own for own, offset in answers.items() if offset is None]
    assert any(own.startswith("failing") for own in refused)
    with opened(root) as log:
        answers.update({own: log.publish(own, id=own) for own in refused})
        found = {message.offset: message.id for message in log.read()}
    assert {offset: own for own, offset in answers.items()} == found
