"""A disk that really fails: accepted data are lost, and the error is reported only once."""

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

_DISKS = 3  # tries
LEAST = 20  # operations that are acknowledged before the disk refuses
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
def test_acknowledged_messages_can_be_read(
    programs: Programs, disk: FailingDisk, tmp_path: Path, sync: str
) -> None:
    with Spool(disk.place / "mq", sync="none") as spool:
        for queue in (MAIN, FAN):
            spool.create_queue(queue)
    for folder in ("new", "delay", "remove", f"queues/{MAIN}", f"queues/{FAN}"):
        disk.grow(disk.place / "mq" / folder)
    # After a refused block of its own, ext4 is read-only.
    disk.failures = lambda: len(re.findall(r"ENOSPC|EIO|EROFS", programs.log("here-mq-0")))
    results = Campaign(
        disk, programs, tmp_path, sync=sync, weights=LOAD, seed=sync, least=LEAST
    ).run(1)
    assert results.findings == []
    assert results.acknowledged >= LEAST


class Interrupted(Spool):
    """A spool that does something else during its first syncfs, which will fail."""

    def meanwhile(self, action: Callable[[], object]) -> None:
        syncfs = self.syncer._syncfs

        def once(fd: int) -> None:
            self.syncer._syncfs = syncfs  # type: ignore[method-assign]
            action()
            syncfs(fd)

        self.syncer._syncfs = once  # type: ignore[method-assign]


@pytest.fixture(params=["syncfs", "auto"])
def spool(disk: FailingDisk, request: pytest.FixtureRequest) -> Iterator[Interrupted]:
    """A spool with the queue ``q`` and a message ``old`` on a disk that refuses."""
    with interrupted_on(disk, request.param) as spool:
        yield spool


@contextmanager
def interrupted_on(disk: FailingDisk, sync: SyncMode) -> Iterator[Interrupted]:
    with Spool(disk.place / "mq", sync="none") as spool:
        spool.queue("q", create=True).put(b"old", id="old")
        spool.deliver()
    disk.grow(disk.place / "mq" / "new")
    disk.sync()
    with Interrupted(disk.place / "mq", sync=sync) as spool:
        disk.refuse()
        yield spool


def some(count: int = 1) -> list[NewMessage]:
    return [NewMessage(os.urandom(20_000)) for _ in range(count)]


def left(spool: Spool) -> list[str]:
    return os.listdir(spool.tree.root / "new")


def test_an_error_fails_every_affected_group(spool: Interrupted, disk: FailingDisk) -> None:
    first, second = prepare.put(spool.context, "q", some()), []
    spool.meanwhile(lambda: second.append(prepare.put(spool.context, "q", some())))
    with pytest.raises(Unavailable, match=r"^syncfs"):
        spool.complete(first)
    with pytest.raises(Unavailable, match=r"^fsync"):
        spool.complete(second[0])
    assert left(spool) == []
    disk.take()
    [stored] = spool.complete(prepare.put(spool.context, "q", some()))
    assert left(spool) == []
    assert stored in os.listdir(spool.tree.root / "queues" / "q")


@pytest.mark.parametrize("sync", ["syncfs", "auto"])
def test_an_error_fails_a_group_of_many_files(tmp_path: Path, sync: SyncMode) -> None:
    """Many files need many tables: an ext4 that loses one becomes read-only."""
    for number in range(_DISKS):
        try:
            disk = FailingDisk(tmp_path / str(number))
            with disk, interrupted_on(disk, sync) as spool:
                first, second = prepare.put(spool.context, "q", some()), []
                action = partial(prepare.put, spool.context, "q", some(1100))
                spool.meanwhile(lambda second=second, action=action: second.append(action()))
                with pytest.raises(Unavailable, match=r"^syncfs"):
                    spool.complete(first)
                disk.take()  # refused data are lost all the same
                with pytest.raises(Unavailable):
                    spool.complete(second[0])
                if not disk.is_read_only:
                    assert left(spool) == []
                    return
        except CannotMount as error:
            pytest.skip(str(error))
    pytest.fail(f"{_DISKS} disks have become read-only")


def test_a_claim_succeeds_as_it_writes_no_data(spool: Interrupted) -> None:
    first, claimed = prepare.put(spool.context, "q", some()), []
    spool.meanwhile(lambda: claimed.append(prepare.claim(spool.context, "q", 1, 60.0)))
    with pytest.raises(Unavailable, match=r"^syncfs"):
        spool.complete(first)
    [message] = spool.complete(claimed[0])
    assert message.body == b"old"


def test_two_syncs_at_once_do_not_share_an_error(spool: Interrupted) -> None:
    """A mover syncs at the same time as requests."""
    first, second = prepare.put(spool.context, "q", some()), prepare.put(spool.context, "q", some())
    other = Thread(target=lambda: outcome.append(_outcome(spool, second)))
    outcome: list[str] = []
    spool.meanwhile(other.start)
    group = Group()
    group.changes.append(first.dirty)
    spool.syncer.run(group)
    other.join()
    assert group.error is not None
    assert outcome == ["refused"]


def test_an_error_fails_no_later_group(spool: Interrupted, disk: FailingDisk) -> None:
    """Each descriptor of the syncer reports an error once: all of them do now."""
    with pytest.raises(Unavailable, match=r"^syncfs"):
        spool.complete(prepare.put(spool.context, "q", some()))
    disk.take()
    for _ in range(2 * IN_FLIGHT):
        stored = spool.complete(prepare.put(spool.context, "q", some()))
        assert len(stored) == 1


def _outcome(spool: Spool, prepared: Prepared[list[str]]) -> str:
    try:
        spool.complete(prepared)
    except Unavailable:
        return "refused"
    return "stored"


def test_an_error_of_the_upper_layer_of_an_overlay_is_found(
    disk: FailingDisk, tmp_path: Path
) -> None:
    """The syncfs of the overlay does not report it."""
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
