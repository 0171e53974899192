"""How many logs a process has open."""

from __future__ import annotations

import gc
import os
import resource
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from fsmq.spool import Spool
from fsmq.spool.errors import NoSuchLog
from fsmq.spool.log.log import Log
from fsmq.spool.log.segment.record import LogMessage
from fsmq.spool.log.store import Store
from tests.spool.logs import bodies
from tests.spool.running import in_threads

MOST = 8
NAMES = [f"log{number}" for number in range(30)]
FILES_OF_ONE = 5  # its folder, .writer, .sync, the turn, and the newest segment


@pytest.fixture
def logs(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> list[Log]:
    monkeypatch.setattr("fsmq.spool.log.logs._MOST_OPEN", MOST)
    return [spool.log(name, create=True) for name in NAMES]


def files_of(spool: Spool, folder: str = "logs") -> Counter[str]:
    """The number of descriptors of each log."""
    within = f"{spool.tree.root}/{folder}/"
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the descriptor of this listing
        if path.startswith(within):
            found[path.removeprefix(within).partition("/")[0]] += 1
    return found


def stores(log: Log) -> int:
    """The number of stores of a log in this process."""
    gc.collect()
    root = log.spool.context.tree.root
    return sum(
        isinstance(one, Store) and one.disk.name == log.name and one.disk.tree.root == root
        for one in gc.get_objects()
    )


def test_a_process_that_uses_many_logs_keeps_few_files_open(spool: Spool, logs: list[Log]) -> None:
    readers: list[Iterator[LogMessage]] = []
    for log in logs:
        log.publish(b"0")
        log.publish(b"1")
        log.channel("slow").create("first")
    channels = [log.channel("slow") for log in logs]
    for log in logs:
        reader = log.read()
        assert next(reader).body == b"0"
        readers.append(reader)
    kept = [log._store for log in logs]
    for round_ in range(3):
        for log, store in zip(logs, kept, strict=True):
            log.publish(b"%d" % (round_ + 2))
            assert store.end() == round_ + 3
            assert store.page(round_, 1).messages[0].offset == round_
        for channel in channels:
            [message] = channel.claim()
            channel.ack(message)
        found = files_of(spool)
        assert len(found) <= MOST
        assert max(found.values()) <= FILES_OF_ONE
    assert [next(reader).body for reader in readers] == [b"1"] * len(logs)
    assert [stores(log) for log in logs] == [1] * len(logs)


def test_a_log_is_not_closed_while_it_is_in_use(spool: Spool, logs: list[Log]) -> None:
    first = logs[0]
    first.publish(b"first")
    store = first._store
    with store.writing():
        for log in logs[1:]:
            log.publish(b"x")
        assert store.known().end == 1
        assert len(files_of(spool)) <= MOST
        assert files_of(spool)[first.name] > 1
    assert first.publish(b"second") == 1


def test_threads_publish_to_and_read_more_logs_than_are_open(spool: Spool, logs: list[Log]) -> None:
    kept = [log._store for log in logs]

    def work(number: int) -> None:
        for round_ in range(10):
            for at, log in enumerate(logs):
                if (at + round_) % 4 == number:
                    log.publish(b"x")
                kept[at].end()

    in_threads(partial(work, number) for number in range(4))
    assert [log.end() for log in logs] == [10] * len(logs)
    assert len(files_of(spool)) <= MOST + 4


@pytest.mark.parametrize("limit", [256, 1024])
def test_logs_use_a_quarter_of_the_file_limit(spool: Spool, limit: int) -> None:
    logs = [spool.log(f"log{number}", create=True) for number in range(limit // 4)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit += len(os.listdir("/proc/self/fd"))  # files left open by other tests
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        for _ in range(2):
            for log in logs:
                log.publish(b"x")
                log.channel("c").create("first")
                assert len(log.channel("c").claim()) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert sum(files_of(spool).values()) <= limit // 4


@pytest.mark.parametrize("by_another", [False, True])
def test_deleted_channels_are_not_kept_in_memory(spool: Spool, by_another: bool) -> None:
    log = spool.log("users", create=True)
    log.publish(b"x")
    lasting = [log.channel(f"lasting{number}", create=True) for number in range(10)]
    with Spool(spool.tree.root, sync="none") as other:
        for number in range(500):
            log.channel(f"c{number}").create("first")
            log.channel(f"c{number}").claim()
            (other if by_another else spool).log("users").channel(f"c{number}").delete()
            lasting[number % 10].claim()
    assert len(spool.open_logs._channels) < 100
    assert log.channels() == sorted(channel.name for channel in lasting)


def test_a_deleted_log_has_no_open_files(spool: Spool, logs: list[Log]) -> None:
    log = logs[0]
    log.publish(b"old")
    kept = log._store
    with Spool(spool.tree.root, sync="none") as other:
        other.log(log.name).delete()
        other.log(log.name).create()
    log.publish(b"new")
    assert not files_of(spool, "remove")
    with pytest.raises(NoSuchLog):
        kept.end()
    assert not files_of(spool, "remove")
    assert bodies(log) == [b"new"]
