"""Power cuts under senders into a fifo queue, and workers: order, and deduplication ids.

Behind each cut every put that was begun is tried again. What it was told before holds, nothing
stands twice, and what comes out comes in its order, behind all that was acknowledged.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, NewMessage, Spool
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.fsck import Severity, check
from fsmq.spool.layout.names import sequence_of
from tests.harness.suite import eventually
from tests.power.disk import CannotMount, Cut, Disk

QUEUE, GROUPS = "orders", "abcd"
HOLD_S = 60.0
ROUNDS, LOAD_S = 3, 0.5


class Log:
    """What one program has begun, and been told: of a deduplication id, and a message's id."""

    def __init__(self, path: Path) -> None:
        self._out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, one: str, message_id: str = "-") -> None:
        os.write(self._out, f"{what} {one} {message_id} {time.monotonic()!r}\n".encode())


@contextmanager
def until_the_cut(log: Log) -> Iterator[None]:
    try:
        yield
    except (FsmqError, OSError) as error:
        log.note("fault", type(error).__name__)


def new(dedup_id: str) -> NewMessage:
    return NewMessage(dedup_id.encode(), group=dedup_id[0], dedup_id=dedup_id)


def put(root: Path, log: Log, sync: SyncMode, seed: str) -> None:
    chance = random.Random(seed)
    with until_the_cut(log), Spool(root, sync=sync, delivers=False) as spool:
        last = [f"{GROUPS[0]}-{seed}-0"]
        for number in range(1_000_000):
            if chance.random() < 0.7:
                last = [
                    f"{chance.choice(GROUPS)}-{seed}-{number}-{n}"
                    for n in range(chance.randint(1, 3))
                ]
            for one in last:
                log.note("putting", one)
            ids = spool.queue(QUEUE).put_many([new(one) for one in last])
            for one, message_id in zip(last, ids, strict=True):
                log.note("put", one, message_id)


def work(root: Path, log: Log, sync: SyncMode, seed: str) -> None:
    chance = random.Random(seed)
    with until_the_cut(log), Spool(root, sync=sync) as spool:
        while True:
            for message in spool.queue(QUEUE).claim(4, visibility=HOLD_S, wait=0.05):
                if chance.random() < 0.1:
                    message.release()
                    continue
                log.note("acking", str(message.dedup_id), message.id)
                message.ack()
                log.note("acked", str(message.dedup_id), message.id)
            spool.reap()


PROGRAMS = (put, put, work, work)


@dataclass
class Known:
    """What was told before a cut for certain, by deduplication id."""

    ids: dict[str, str] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    fading: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def read(self, path: Path, cut: Cut) -> None:
        for line in path.read_text().splitlines():
            what, one, message_id, at = line.split(" ")
            is_certain = float(at) < cut.began
            if what == "fault":
                assert not is_certain, line
            elif what == "putting":
                self.begun.add(one)
            elif what == "put" and is_certain:
                assert self.ids.setdefault(one, message_id) == message_id, line
            elif what == "acking":
                self.fading.add(one)
            elif what == "acked" and is_certain:
                self.gone.add(one)


def inspect(root: Path, known: Known) -> None:
    """Hold the tree against what is known, and empty it."""
    stands = time.time() + 2 * HOLD_S  # all claims have ended
    with Spool(root, clock=lambda: stands) as spool:
        queue = spool.queue(QUEUE)
        for one in sorted(known.begun):
            [message_id] = queue.put_many([new(one)])
            assert known.ids.setdefault(one, message_id) == message_id, one
        spool.deliver()
        found: dict[str, list[int]] = defaultdict(list)
        seen: list[str] = []
        while messages := queue.claim(100):
            for message in messages:
                found[str(message.group)].append(message.sequence or 0)
                seen.append(str(message.dedup_id))
                assert message.id == known.ids[str(message.dedup_id)]
            queue.ack(*messages)
        assert queue.counts().total == 0
    assert len(seen) == len(set(seen))
    assert known.gone.isdisjoint(seen)
    missing = known.begun - known.gone - set(seen)
    assert missing <= known.fading, sorted(missing)
    for group, places in found.items():
        assert places == sorted(places)
        before = [sequence_of(known.ids[one]) or 0 for one in known.gone if one[0] == group]
        assert max(before, default=0) < places[0]
    findings = check(root, offline=True).findings
    assert [f for f in findings if f.severity is Severity.ERROR] == []


@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
@pytest.mark.parametrize("sync", ["auto", "fsync"])
def test_order_and_deduplication_outlive_the_power(
    tmp_path: Path, filesystem: str, sync: SyncMode
) -> None:
    try:
        with Disk(tmp_path / "disk", filesystem) as disk:
            cut_again_and_again(disk, tmp_path, sync)
    except CannotMount as error:
        pytest.skip(str(error))


def cut_again_and_again(disk: Disk, folder: Path, sync: SyncMode) -> None:
    root, chance = disk.place / "mq", random.Random(f"{disk.kind}{sync}")
    with Spool(root) as spool:
        spool.create_queue(QUEUE, fifo=True)
    disk.sync()
    fork = multiprocessing.get_context("fork")
    acknowledged = 0
    for number in range(ROUNDS):
        paths = [folder / f"{number}-{n}" for n in range(len(PROGRAMS))]
        running = [
            fork.Process(target=program, args=(root, Log(path), sync, f"{number}{n}"))
            for n, (program, path) in enumerate(zip(PROGRAMS, paths, strict=True))
        ]
        for process in running:
            process.start()
        eventually(lambda paths=paths: all(b"put " in p.read_bytes() for p in paths[:2]))
        eventually(lambda paths=paths: any(b"acked" in p.read_bytes() for p in paths[2:]))
        time.sleep(LOAD_S * chance.random())
        cut = disk.cut_power()
        for process in running:
            process.kill()  # a worker that waits for more would notice nothing
            process.join()
        disk.unmount()
        disk.mount()
        known = Known()
        for path in paths:
            known.read(path, cut)
        acknowledged += len(known.gone)
        inspect(root, known)
        disk.sync()
    assert acknowledged > ROUNDS
    assert disk.check() == ""
