"""Files of other users in the tree: root uses mv, and the daemons run as another user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Spool, Unavailable, prepare
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.verbs.dedup import read_side, write_side

NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A spool that belongs to another user than root, in folders that this user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder, "mq")
        with Spool(root, sync="none") as spool:
            spool.create_queue("jobs")
        if os.geteuid() == 0:
            for path in [root, *root.rglob("*")]:
                os.chown(path, NOBODY, NOBODY)
        yield root


def as_its_user(work: Callable[[], str]) -> str:
    """The result of ``work`` in a child that is not root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(child, 0)
    return result


def put_unreadable(path: Path) -> None:
    path.write_bytes(b"secret")
    path.chmod(0)


@pytest.mark.parametrize("count", [1, 150])
def test_files_that_cannot_be_read_hold_up_no_other(shared: Path, count: int) -> None:
    for number in range(count):
        put_unreadable(shared / "queues" / "jobs" / f"0-{number}")

    def work() -> str:
        with Spool(shared, sync="none") as spool:
            jobs = spool.queue("jobs", create=True)
            jobs.put_many([NewMessage(b"one"), NewMessage(b"two")])
            return " ".join(m.body.decode() for _ in range(2) for m in jobs.claim())

    assert as_its_user(work) == "one two"


def test_a_file_that_cannot_be_read_is_skipped(shared: Path) -> None:
    put_unreadable(shared / "queues" / "jobs" / "0-first")

    def work() -> str:
        with Spool(shared, sync="none") as spool:
            return repr(spool.queue("jobs").claim(wait=0.1))

    assert as_its_user(work) == "[]"
    assert (shared / "queues" / "jobs" / "0-first").exists()


def test_a_file_that_cannot_be_read_wakes_no_waiter(shared: Path) -> None:
    put_unreadable(shared / "queues" / "jobs" / "0-first")

    def work() -> str:
        arrivals: list[tuple[str, int, float]] = []
        with Spool(shared, sync="none") as spool:
            jobs = spool.queue("jobs", create=True)
            assert jobs.claim() == []
            spool.context.ready.on_arrival = lambda *of: arrivals.append(of)
            for _ in range(3):
                assert jobs.claim() == []
        return repr(arrivals)

    assert as_its_user(work) == "[]"


def test_a_file_that_cannot_be_read_is_delivered_and_can_be_removed(shared: Path) -> None:
    put_unreadable(shared / "new" / "jobs:0-first")

    def work() -> str:
        with Spool(shared, sync="none", clock=lambda: 4e9) as spool:
            spool.deliver()
            return f"{spool.queue('jobs').remove('0-first')} {spool.reap()}"

    assert as_its_user(work) == "1 1"


def test_an_unfinished_file_that_cannot_be_read_does_not_block_the_start(shared: Path) -> None:
    """A complete file is promoted at the start; a later one may have a living writer."""
    put_unreadable(shared / "new" / staged_entry("jobs", "theirs", seal_of(b"x")))

    def work() -> str:
        def deliver(name: str) -> str:
            (shared / "new" / staged_entry("jobs", name, seal_of(b"x"))).write_bytes(b"x")
            assert spool._delivery is not None
            spool._delivery.rescan()
            spool.deliver()
            return " ".join(sorted(os.listdir(shared / "new")))

        with Spool(shared, sync="none") as spool:
            return f"{deliver('early')}, {deliver('late')}"

    seal = f"{seal_of(b'x'):08x}"
    assert as_its_user(work) == (
        f".jobs:theirs:{seal} jobs:early, .jobs:late:{seal} .jobs:theirs:{seal}"
    )


def test_a_queue_that_cannot_be_listed_does_not_stop_a_survey(shared: Path) -> None:
    (shared / "queues" / "theirs").mkdir(mode=0)

    def work() -> str:
        with Spool(shared, sync="none") as spool:
            spool.queue("jobs", create=True).put(b"x")
            try:
                spool.survey("theirs")
            except Unavailable as error:
                is_refused = "EACCES" in str(error)
            totals = {name: seen.counts.total for name, seen in spool.survey().items()}
            return f"{totals} {is_refused}"

    assert as_its_user(work) == "{'jobs': 1} True"


def test_a_folder_that_cannot_be_written_to_is_unavailable(shared: Path) -> None:
    def work() -> str:
        (shared / "new").chmod(0o500)
        with Spool(shared, sync="none") as spool:
            try:
                return spool.queue("jobs", create=True).put(b"x")
            except Unavailable as error:
                return str(error)

    assert "EACCES" in as_its_user(work)


def test_a_queue_can_be_deleted_beside_a_topic_of_another_user(shared: Path) -> None:
    foreign = shared / "topics" / "theirs"
    foreign.mkdir()
    foreign.chmod(0)

    def delete() -> str:
        with Spool(shared, sync="fsync") as spool:
            spool.delete_queue("jobs")
            return repr(spool.queues())

    assert as_its_user(delete) == "[]"
    foreign.chmod(0o700)


@pytest.mark.parametrize("kind", ["plain", "dedup", "indexed"])
def test_a_file_that_cannot_be_read_holds_up_no_move(shared: Path, kind: str) -> None:
    def fill() -> str:
        with Spool(shared, sync="none") as spool:
            for name in "ab":
                for side in (write_side(name), read_side(name)):
                    spool.create_queue(side)
                spool.create_queue(f"indexed-{name}", index=True)
                spool.create_queue(f"plain-{name}")
            spool.complete(prepare.dedup_send(spool.context, "a", [b"one", b"two"]))
            spool.indexed("indexed-a").upsert(
                [NewMessage(b"%d" % one, id=f"{one}") for one in (1, 2)]
            )
            spool.queue("plain-a").put_many([b"one", b"two"])
            spool.deliver()
        return ""

    def move() -> str:
        with Spool(shared, sync="none") as spool:
            name = "" if kind == "dedup" else f"{kind}-"
            ref = spool.begin_move(f"{name}a", f"{name}b", dedup=kind == "dedup").ref
            done = spool.make_move(ref)
            assert done is not None
            return f"{done.status} {done.moved} {done.conflicts}"

    assert as_its_user(fill) == ""
    source = write_side("a") if kind == "dedup" else f"{kind}-a"
    put_unreadable(shared / "queues" / source / "0-first")
    # A plain rename reads nothing.
    assert as_its_user(move) == ("complete 3 0" if kind == "plain" else "error 2 1")
