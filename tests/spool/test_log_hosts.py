"""Logs that many hosts write: links to the next offset, merges, and writers that sleep."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest
from fsmq.spool.log.merging import Merger

from fsmq.spool import Spool
from fsmq.spool.errors import OffsetGone
from fsmq.spool.log import linking
from fsmq.spool.log.disk import Disk
from fsmq.spool.log.log import Log, LogEntry
from tests.harness.suite import HOME

TRUST_S, MERGE_AFTER_S = 0.2, 1.5


@pytest.fixture
def log(spool: Spool) -> Log:
    made = spool.log("users")
    made.create(writers="hosts", segment_bytes=4096)
    return made


def merger(log: Log, after_s: float = 0.0, kept: int = 0) -> Merger:
    return Merger(log._store.disk, after_s=after_s, kept=kept)


def merge(log: Log) -> int:
    one, total = merger(log, kept=1), 0
    while number := one.step(4096):
        total += number
    return total


def names(log: Log) -> list[str]:
    folder = log.spool.context.tree.root / "logs" / log.name / "log"
    return sorted(path.name for path in folder.iterdir())


def has_merged(log: Log) -> bool:
    return any("-" in name for name in names(log))


def bodies(log: Log) -> list[bytes]:
    return [message.body for message in log.read()]


def test_merged_groups_say_the_same(log: Log, spool: Spool) -> None:
    messages = [LogEntry(b"%d" % n, key=f"k{n % 3}", id=f"id{n}") for n in range(200)]
    for at in range(0, 200, 4):
        log.publish_many(messages[at : at + 4])
    before = list(log.read())
    assert len(names(log)) == 50
    assert merge(log) >= 40
    assert len(names(log)) < 30
    assert list(log.read()) == before
    with Spool(spool.tree.root, sync="none") as other:
        assert list(other.log("users").read()) == before
        assert other.log("users").publish(b"next") == 200
        assert [m.offset for m in other.log("users").read(150)] == list(range(150, 201))


def test_a_crash_between_two_steps_of_a_merge_changes_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        log.publish(b"%d" % number)
    before = bodies(log)
    tree = log.spool.context.tree
    real, left = tree.unlink, [5]

    def dies(path: str) -> bool:
        if "/." in path:
            return real(path)
        left[0] -= 1
        if left[0] < 0:
            raise OSError(5, "the process died")
        return real(path)

    monkeypatch.setattr(tree, "unlink", dies)
    with pytest.raises(OSError, match="died"):
        merge(log)
    monkeypatch.undo()
    assert bodies(log) == before
    log.spool.open_logs.close()  # type: ignore[attr-defined]
    assert bodies(log) == before
    merge(log)
    assert bodies(log) == before
    assert len(names(log)) < 6


def others_publish_and_merge(log: Log, number: int) -> None:
    with Spool(log.spool.context.tree.root, sync="none") as spool:
        other = spool.log(log.name)
        for _ in range(number):
            other.publish(b"of another host")
        merge(other)


@pytest.mark.parametrize("slept_s", [0.0, linking.TRUST_S + 1, 10 * linking.MERGE_AFTER_S])
def test_a_writer_that_slept_before_its_link_does_not_count(
    log: Log, monkeypatch: pytest.MonkeyPatch, slept_s: float
) -> None:
    """Its name was taken, merged and freed meanwhile: the link succeeds, and is at no end."""
    log.publish(b"first")
    log.publish(b"second")
    tree = log.spool.context.tree
    real, asleep = tree.link, [True]
    shift = [0.0]
    clock = linking.since_boot

    def link(path: str, name: str) -> None:
        if asleep.pop() if asleep else False:
            if slept_s:
                others_publish_and_merge(log, 20)
                assert Path(name).name not in names(log)
            shift[0] = slept_s
            real(path, name)
            assert (Path(name).name in names(log)) == (slept_s >= 0)
            readers_see_nothing_of_it()
            return
        real(path, name)

    def readers_see_nothing_of_it() -> None:
        if not slept_s:
            return
        with Spool(tree.root, sync="none") as spool:
            assert b"sleeper" not in bodies(spool.log(log.name))

    monkeypatch.setattr(tree, "link", link)
    monkeypatch.setattr(linking, "since_boot", lambda: clock() + shift[0])
    offset = log.publish(b"sleeper")
    monkeypatch.undo()
    assert offset == (22 if slept_s else 2)
    found = bodies(log)
    assert len(found) == offset + 1
    assert found[offset] == b"sleeper"
    assert found.count(b"sleeper") == 1


@pytest.mark.parametrize("slept_s", [0.0, linking.TRUST_S + 1, 10 * linking.MERGE_AFTER_S])
def test_a_writer_that_slept_behind_its_link_looks_for_the_end(
    log: Log, monkeypatch: pytest.MonkeyPatch, slept_s: float
) -> None:
    """When it was awake again the name behind its own was free; before, another group had it."""
    log.publish(b"first")
    real, clock = Disk.sync_folder, linking.since_boot
    asleep, shift = [slept_s > 0], [0.0]

    def sync_folder(disk: Disk, folder: str) -> None:
        if folder == disk.segments and asleep and asleep.pop():
            others_publish_and_merge(log, 20)
            assert f"{2:020}" not in names(log)
            shift[0] = slept_s
        real(disk, folder)

    monkeypatch.setattr(Disk, "sync_folder", sync_folder)
    monkeypatch.setattr(linking, "since_boot", lambda: clock() + shift[0])
    assert log.publish(b"sleeper") == 1
    end = log.end()
    assert log.publish(b"next") == end == (22 if slept_s else 2)
    found = bodies(log)
    assert (found[1], found[end], len(found)) == (b"sleeper", b"next", end + 1)


def test_a_writer_that_was_behind_reads_what_has_come(
    log: Log, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries the end that it knows, and that of the winner; then it looks for the end."""
    log.publish(b"0")
    with Spool(spool.tree.root, sync="none") as two:
        for number in range(1, 31):
            two.log("users").publish(b"%d" % number)
        tree, tried = spool.tree, []
        real = tree.link

        def link(path: str, name: str) -> None:
            tried.append(int(Path(name).name))
            real(path, name)

        monkeypatch.setattr(tree, "link", link)
        assert log.publish(b"31") == 31
        assert tried == [1, 2, 31]
        assert two.log("users").publish(b"32") == 32
        assert log.publish(b"33") == 33
        assert tried == [1, 2, 31, 32, 33]
    assert bodies(log) == [b"%d" % number for number in range(34)]


def test_what_a_sleeper_left_is_removed(log: Log) -> None:
    """It died between its late link and its look."""
    for number in range(20):
        log.publish(b"%d" % number)
    before = bodies(log)
    merge(log)
    folder = log.spool.context.tree.root / "logs/users/log"
    os.link(folder / names(log)[-1], folder / f"{3:020}")
    assert bodies(log) == before
    merge(log)
    assert f"{3:020}" not in names(log)
    assert bodies(log) == before


def test_a_late_name_before_the_oldest_is_nothing(log: Log) -> None:
    for number in range(20):
        log.publish(b"%d" % number)
    merge(log)
    folder = log.spool.context.tree.root / "logs/users/log"
    wide = next(name for name in names(log) if "-" in name)
    first_left = int(wide.partition("-")[2])
    os.link(folder / names(log)[-1], folder / f"{0:020}")
    (folder / wide).unlink()
    log.spool.open_logs.close()  # type: ignore[attr-defined]
    assert bodies(log) == [b"%d" % number for number in range(first_left, 20)]
    merge(log)
    assert log.first() == first_left


def test_two_hosts_with_one_id_store_one_message(log: Log, spool: Spool) -> None:
    with Spool(spool.tree.root, sync="none") as two:
        logs, got = [log, two.log("users")], []

        def publish(of: Log) -> None:
            for number in range(30):
                got.append((number, of.publish(b"x", id=str(number))))

        threads = [threading.Thread(target=publish, args=(one,)) for one in logs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(got)) == 30
    assert log.end() == 30


def test_a_log_changes_from_one_host_to_many_and_back(log: Log, spool: Spool) -> None:
    other = Spool(spool.tree.root, sync="none")
    again = other.log("users")
    expected = []

    def both(text: bytes) -> None:
        for one in (log, again, log):
            assert one.publish(text) == len(expected)
            expected.append(text)
            assert bodies(log) == bodies(again) == expected

    both(b"hosts")
    log.configure(writers="host")
    both(b"host")
    log.configure(writers="hosts")
    both(b"hosts again")
    again.configure(writers="host")
    both(b"host again")
    other.close()


# Without a disk to wait for they would publish more than a test can read.
WRITER = """
import sys, time
from fsmq.spool import Spool
from fsmq.spool.log import linking
linking.TRUST_S = float(sys.argv[3])
with Spool(sys.argv[1], sync="none") as spool:
    log = spool.log("users")
    with open(sys.argv[2], "w", buffering=1) as told:
        number = 0
        while True:
            body = f"{sys.argv[2]} {number}"
            number += 1
            time.sleep(0.002)
            print(log.publish(body), body, file=told)
"""


def writers(root: Path, folder: Path, number: int) -> Iterator[tuple[Popen[bytes], Path]]:
    for name in range(number):
        told = folder / f"writer-{name}"
        command = [sys.executable, "-c", WRITER, str(root), str(told), str(TRUST_S)]
        yield Popen(command, cwd=HOME, stdout=DEVNULL, env={**os.environ, "PYTHONPATH": HOME}), told


def test_stopped_writers_lose_nothing_and_no_offset_means_two_things(
    log: Log, tmp_path: Path
) -> None:
    """Processes are stopped for longer than a merge waits, while others publish and merge."""
    rng = random.Random(11)
    seen: dict[int, bytes] = {}
    one = merger(log, MERGE_AFTER_S, kept=2)
    running = list(writers(log.spool.context.tree.root, tmp_path, 3))
    begin = time.monotonic()
    wakes: list[tuple[float, Popen[bytes]]] = []
    grown = 0

    def has_enough() -> bool:
        """Whether there was time for stops, and something to merge on a machine that is busy."""
        lasted_s = time.monotonic() - begin
        all_write = all(told.exists() for _, told in running)
        has_merges = lasted_s > 5 and log.end() > 200 and has_merged(log)
        return lasted_s > 90 or (all_write and has_merges)

    try:
        while not has_enough():
            process, _ = rng.choice(running)
            if log.end() > grown + 20 and process not in [stopped for _, stopped in wakes]:
                grown = log.end()
                process.send_signal(signal.SIGSTOP)
                pause = rng.choice([0.01, 0.3, 2 * MERGE_AFTER_S])
                wakes.append((time.monotonic() + pause, process))
            for at, stopped in list(wakes):
                if time.monotonic() >= at:
                    stopped.send_signal(signal.SIGCONT)
                    wakes.remove((at, stopped))
            one.step(4096)
            read_on(log, seen)
            time.sleep(0.005)  # the cores are for those who write
    finally:
        for process, _ in running:
            process.kill()
            process.wait()
    for message in log.read():
        assert seen.setdefault(message.offset, message.body) == message.body
    assert sorted(seen) == list(range(log.end()))
    assert has_merged(log), (len(seen), len(names(log)))
    told = [line for _, path in running for line in path.read_text().splitlines()]
    assert len(told) > 100
    for line in told:
        offset, _, body = line.partition(" ")
        assert seen[int(offset)] == body.encode()
    assert len(set(seen.values())) == len(seen)
    assert {message.offset: message.body for message in log.read()} == seen


def read_on(log: Log, seen: dict[int, bytes]) -> None:
    """Read from a random place, and compare with what was there before."""
    begin = random.Random(len(seen)).randrange(len(seen) + 1) if seen else 0
    try:
        end = log.end()
        for message in log.read(min(begin, end)):
            if message.offset >= end:
                return
            assert seen.setdefault(message.offset, message.body) == message.body
    except OffsetGone:
        raise AssertionError("nothing was removed") from None
