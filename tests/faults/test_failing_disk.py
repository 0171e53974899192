"""A disk that really fails: what it has taken is not there afterwards, and it tells that once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from fsmq.spool import NewMessage, Spool, Unavailable, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.durability.sync import IN_FLIGHT, Group, SyncMode
from tests.faults.failing import FailingDisk
from tests.power.clients import FAN, MAIN
from tests.power.disk import CannotMount, run
from tests.power.programs import Programs
from tests.power.rounds import Campaign

_DISKS = 3  # that are tried
LEAST = 20  # acknowledged before the disk begins to refuse
LOAD = {
    "post": 60,
    "batch": 10,
    "publish": 5,
    "fetch": 10,
    "renew": 5,
    "release": 3,
    "delete": 5,
    "delete_any": 2,
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    try:
        with FailingDisk(tmp_path) as mounted:
            yield mounted
    except CannotMount as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("sync", ["fsync", "syncfs", "auto"])
def test_what_was_acknowledged_reads_back(
    programs: Programs, disk: FailingDisk, tmp_path: Path, sync: str
) -> None:
    with Spool(disk.place / "mq", sync="none") as spool:
        for queue in (MAIN, FAN):
            spool.create_queue(queue)
    for folder in ("new", "delay", "remove", f"queues/{MAIN}", f"queues/{FAN}"):
        disk.grow(disk.place / "mq" / folder)
    # Where a block of ext4's own is refused, it is read-only from then on.
    disk.failures = lambda: len(re.findall(r"ENOSPC|EIO|EROFS", programs.log("here-mq-0")))
    results = Campaign(
        disk, programs, tmp_path, sync=sync, weights=LOAD, seed=sync, least=LEAST
    ).run(1)
    assert results.findings == []
    assert results.acknowledged >= LEAST


class Told(Spool):
    """A spool that does something else while its first syncfs is on its way to an error."""

    def meanwhile(self, deed: Callable[[], object]) -> None:
        syncfs = self.syncer._syncfs

        def once(fd: int) -> None:
            self.syncer._syncfs = syncfs  # type: ignore[method-assign]
            deed()
            syncfs(fd)

        self.syncer._syncfs = once  # type: ignore[method-assign]


@pytest.fixture(params=["syncfs", "auto"])
def told(disk: FailingDisk, request: pytest.FixtureRequest) -> Iterator[Told]:
    """With the queue ``q`` and a message in it, ``old``; the disk refuses."""
    with told_on(disk, request.param) as told:
        yield told


@contextmanager
def told_on(disk: FailingDisk, sync: SyncMode) -> Iterator[Told]:
    with Spool(disk.place / "mq", sync="none") as spool:
        spool.queue("q", create=True).put(b"old", id="old")
        spool.deliver()
    disk.grow(disk.place / "mq" / "new")
    disk.sync()
    with Told(disk.place / "mq", sync=sync) as told:
        disk.refuse()
        yield told


def some(count: int = 1) -> list[NewMessage]:
    return [NewMessage(os.urandom(20_000)) for _ in range(count)]


def left(spool: Spool) -> list[str]:
    return os.listdir(spool.tree.root / "new")


def test_an_error_that_another_group_was_told_is_no_secret(told: Told, disk: FailingDisk) -> None:
    first, second = prepare.put(told.context, "q", some()), []
    told.meanwhile(lambda: second.append(prepare.put(told.context, "q", some())))
    with pytest.raises(Unavailable, match=r"^syncfs"):
        told.complete(first)
    with pytest.raises(Unavailable, match=r"^fsync"):
        told.complete(second[0])
    assert left(told) == []
    disk.take()
    [stored] = told.complete(prepare.put(told.context, "q", some()))
    assert left(told) == []
    assert stored in os.listdir(told.tree.root / "queues" / "q")


@pytest.mark.parametrize("sync", ["syncfs", "auto"])
def test_nor_where_files_are_too_many_to_be_asked(tmp_path: Path, sync: SyncMode) -> None:
    """Many files want many tables: a disk whose ext4 loses one takes nothing back, by itself."""
    for number in range(_DISKS):
        try:
            disk = FailingDisk(tmp_path / str(number))
            with disk, told_on(disk, sync) as told:
                first, second = prepare.put(told.context, "q", some()), []
                deed = partial(prepare.put, told.context, "q", some(1100))
                told.meanwhile(lambda second=second, deed=deed: second.append(deed()))
                with pytest.raises(Unavailable, match=r"^syncfs"):
                    told.complete(first)
                disk.take()  # what it has refused is lost all the same
                with pytest.raises(Unavailable):
                    told.complete(second[0])
                if not disk.is_read_only:
                    assert left(told) == []
                    return
        except CannotMount as error:
            pytest.skip(str(error))
    pytest.fail(f"{_DISKS} disks have become read-only")


def test_what_has_no_bytes_of_its_own_is_done_all_the_same(told: Told) -> None:
    first, claimed = prepare.put(told.context, "q", some()), []
    told.meanwhile(lambda: claimed.append(prepare.claim(told.context, "q", 1, 60.0)))
    with pytest.raises(Unavailable, match=r"^syncfs"):
        told.complete(first)
    [message] = told.complete(claimed[0])
    assert message.body == b"old"


def test_two_syncs_at_once_do_not_share_an_error(told: Told) -> None:
    """The mover of queues syncs beside the requests."""
    first, second = prepare.put(told.context, "q", some()), prepare.put(told.context, "q", some())
    other = Thread(target=lambda: outcome.append(_outcome(told, second)))
    outcome: list[str] = []
    told.meanwhile(other.start)
    group = Group()
    group.changes.append(first.dirty)
    told.syncer.run(group)
    other.join()
    assert group.error is not None
    assert outcome == ["refused"]


def test_a_failure_fails_no_group_that_began_after_it(told: Told, disk: FailingDisk) -> None:
    """Each of the syncer's descriptors is told of an error once: all of them hear of it now."""
    with pytest.raises(Unavailable, match=r"^syncfs"):
        told.complete(prepare.put(told.context, "q", some()))
    disk.take()
    for _ in range(2 * IN_FLIGHT):
        stored = told.complete(prepare.put(told.context, "q", some()))
        assert len(stored) == 1


def _outcome(spool: Spool, prepared: Prepared[list[str]]) -> str:
    try:
        spool.complete(prepared)
    except Unavailable:
        return "refused"
    return "stored"


def test_an_overlay_whose_upper_layer_fails(disk: FailingDisk, tmp_path: Path) -> None:
    """Its own syncfs says nothing of that."""
    layers = {name: disk.place / name for name in ("lower", "upper", "work")}
    for folder in layers.values():
        folder.mkdir()
    merged = tmp_path / "merged"
    merged.mkdir()
    options = ",".join(f"{name}dir={folder}" for name, folder in layers.items())
    run("mount", "-t", "overlay", "-o", options, "overlay", merged)
    try:
        for sync in ("auto", "syncfs"):
            with Spool(merged / "mq", sync=sync) as spool:  # type: ignore[arg-type]
                jobs = spool.queue("q", create=True)
                jobs.put(b"old")
                disk.refuse()
                for _ in range(5):
                    with pytest.raises(Unavailable):
                        jobs.put(os.urandom(20_000))
                disk.take()
    finally:
        run("umount", merged)
