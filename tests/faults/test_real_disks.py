"""Real disks that are full or read-only: 503 with Retry-After, no partial files, and recovery."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import NewMessage, Spool, Unavailable
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.layout.tree import Tree
from fsmq.spool.verbs.queues import deletion
from tests.faults.user import refused
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.keyfile import add_key, bearer
from tests.spool.crashing import leave
from tests.spool.helpers import Clock

MEGABYTE = 1024 * 1024
# With fsync an error of the disk is reported for its file.
MQ_OPTIONS = ["--sync=fsync", "--poll-interval=0.05"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small filesystem")


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


DISKS = ("tmpfs", "ext4")


@contextmanager
def mounted(kind: str, folder: Path, *options: str) -> Iterator[Path]:
    """A filesystem of a few megabytes. options: of mkfs.ext4."""
    where = folder / "disk"
    where.mkdir()
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=500", "tmpfs", where)
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(8 * MEGABYTE)
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024", *options, image)
        run("mount", "-o", "loop", image, where)
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with mounted(request.param, tmp_path) as where:
        yield where


@pytest.fixture(scope="module", params=DISKS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("served")
    with (
        mounted(request.param, folder) as where,
        Suite(where / "mq", mq_options=MQ_OPTIONS, logs=folder / "logs") as suite,
    ):
        yield suite


@pytest.fixture
def small(served: Suite) -> Iterator[Suite]:
    """A suite on a small disk, which is empty again for the next test, with the queue ``q``."""
    assert ask(served, "PUT", "/q").status == 201
    yield served
    for path in served.root.parent.iterdir():
        if path.is_dir() and path.name not in (served.root.name, "lost+found"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    eventually(lambda: ask(served, "DELETE", "/q").status == 200)
    eventually(lambda: is_fit(served) and not list((served.root / "remove").iterdir()))


@pytest.fixture
def fresh(disk: Path) -> Iterator[Suite]:
    """A new suite on a small disk, with the history elsewhere.

    mq has a file of the history open for writing, and such a disk cannot become read-only.
    """
    history = disk / "mq" / "history"
    history.mkdir(parents=True, mode=0o700)
    run("mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", history)
    try:
        with Suite(disk / "mq", mq_options=MQ_OPTIONS, logs=disk.parent / "logs") as suite:
            assert ask(suite, "PUT", "/q").status == 201
            yield suite
    finally:
        subprocess.run(["umount", "--lazy", history], check=True)


def ask(suite: Suite, method: str, path: str, body: bytes = b"") -> Answer:
    with Wire(suite.url) as wire:
        return wire.ask(method, path, {}, body)


def fill(disk: Path, name: str = "ballast") -> Path:
    """Use up all space with a file."""
    ballast, size_before = disk / name, -1
    with ballast.open("wb", buffering=0) as file:
        # ext4 frees the space of removed files at its next commit.
        while file.tell() > size_before:
            size_before = file.tell()
            for size in (65_536, 1024, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"\0" * size)
                        os.fsync(file.fileno())
    return ballast


def use_up_inodes(disk: Path) -> Path:
    """Use up all inodes with files in a folder."""
    crowd = disk / "crowd"
    crowd.mkdir()
    for n in range(5000):
        try:
            (crowd / str(n)).touch()
        except OSError:
            return crowd
    raise AssertionError("there are inodes left")


def is_fit(suite: Suite) -> bool:
    return ask(suite, "GET", "/_health/ready").status == 200


def test_a_full_disk_refuses_and_recovers(small: Suite) -> None:
    disk = small.root.parent
    ballast = fill(disk)
    answer = ask(small, "POST", "/q/messages", b"x" * 5000)
    assert refused(answer)
    assert "full" in answer.json["detail"]
    assert not list((small.root / "new").iterdir())
    assert not is_fit(small)
    ballast.unlink()
    eventually(lambda: is_fit(small))
    posted = ask(small, "POST", "/q/messages", b"x" * 5000)
    assert posted.status == 201
    fetched = ask(small, "GET", "/q/messages?wait=15")
    assert (fetched.id, len(fetched.body)) == (posted.id, 5000)


def test_a_full_disk_can_be_emptied_over_http(small: Suite) -> None:
    disk = small.root.parent
    for _ in range(20):
        assert ask(small, "POST", "/q/messages", b"x" * 5000).status == 201
    fill(disk)
    assert refused(ask(small, "POST", "/q/messages", b"x" * 50_000))
    for _ in range(20):
        fetched = ask(small, "GET", "/q/messages?wait=15")
        assert ask(small, "DELETE", f"/q/messages/{fetched.id}").status == 202
    # The reaper frees the space.
    answer = ask(small, "POST", "/q/messages", b"x" * 50_000)
    for _ in range(200):
        if answer.status == 201:
            break
        assert refused(answer)
        ask(small, "GET", "/q/messages?wait=0.05")
        answer = ask(small, "POST", "/q/messages", b"x" * 50_000)
    assert answer.status == 201


@pytest.mark.parametrize("use_up", [fill, use_up_inodes], ids=["space", "inodes"])
def test_the_first_claim_of_a_queue_with_limits_needs_no_space(
    disk: Path, use_up: Callable[[Path], object]
) -> None:
    """Else a full disk could not be emptied."""
    kinds: dict[str, dict[str, Any]] = {
        "fifo": {},
        "fair": {"fetch_order": "fair"},
        "limited": {"max_in_flight": 10},
        "rate": {"max_rate": 1000},
    }
    with Spool(disk / "mq", sync="fsync") as spool:
        for name, settings in kinds.items():
            spool.create_queue(name, fifo=name == "fifo")
            spool.configure(name, settings)
            for number in range(3):
                spool.queue(name).put(b"x", group=f"{number}")
        spool.deliver()
        eventually(lambda: spool.deliver() == 0)
        use_up(disk)
        for name in kinds:
            assert [message.ack() for message in spool.queue(name).claim(3)] == [True] * 3


@pytest.fixture(params=[fill, use_up_inodes], ids=["space", "inodes"])
def crowded(request: pytest.FixtureRequest, disk: Path) -> Iterator[Spool]:
    """A spool on a full disk, whose folder ``remove/`` has no space for the names in ``q``."""
    with Spool(disk / "mq", sync="fsync") as spool:
        messages = [NewMessage(b"x", id=f"{n:02}-" + "n" * 60) for n in range(40)]
        spool.queue("q", create=True).put_many(messages)
        assert len(spool.queue("q").claim(10, visibility=60)) == 10
        spool.queue("q").put(b"x", delay=60)
        request.param(disk)
        yield spool


@pytest.mark.parametrize("few", [deletion._FEW, 0], ids=["few", "many"])
def test_a_full_disk_can_be_purged(
    crowded: Spool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_FEW", few)
    crowded.queue("q").purge()
    assert crowded.counts("q").total == 0


@pytest.mark.parametrize("few", [deletion._FEW, 0], ids=["few", "many"])
def test_a_queue_can_be_deleted_on_a_full_disk(
    crowded: Spool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_FEW", few)
    crowded.delete_queue("q")
    assert crowded.queues() == []
    assert not list((crowded.tree.root / "delay").iterdir())


def test_messages_can_be_removed_on_a_full_disk(crowded: Spool) -> None:
    jobs = crowded.queue("q", create=True)
    ids = [message.id for message in jobs.peek(100)]
    assert jobs.remove(*ids) == len(ids) == 30


@pytest.mark.parametrize("use_up", [fill, use_up_inodes], ids=["space", "inodes"])
def test_claimed_messages_can_be_removed_on_a_full_disk(
    disk: Path, use_up: Callable[[Path], object]
) -> None:
    with Spool(disk / "mq", sync="fsync") as spool:
        jobs = spool.queue("q", create=True)
        jobs.put_many([NewMessage(b"x", id=f"{n:02}-" + "n" * 60) for n in range(60)])
        claimed = jobs.claim(60, visibility=60)
        use_up(disk)
        assert jobs.ack_each(claimed) == ["removed"] * 60


def test_a_full_disk_can_be_purged_over_http(small: Suite) -> None:
    disk = small.root.parent
    for _ in range(5):
        assert ask(small, "POST", "/q/messages", b"x").status == 201
    use_up_inodes(disk)
    assert refused(ask(small, "POST", "/q/messages", b"x"))
    assert ask(small, "DELETE", "/q/messages").status == 200
    assert ask(small, "GET", "/q/messages").status == 204


def test_a_disk_without_inodes_refuses_and_recovers(small: Suite) -> None:
    disk = small.root.parent
    crowd = use_up_inodes(disk)
    assert refused(ask(small, "POST", "/q/messages", b"x"))
    assert refused(ask(small, "PUT", "/another"))
    assert not is_fit(small)
    for path in crowd.iterdir():
        path.unlink()
    eventually(lambda: is_fit(small))
    assert ask(small, "POST", "/q/messages", b"x").status == 201
    assert ask(small, "GET", "/q/messages?wait=15").body == b"x"


def test_the_message_of_a_killed_put_is_delivered_on_a_disk_without_inodes(disk: Path) -> None:
    """It may have been acknowledged. A new put of its id needs a file, so it cannot begin."""
    root = disk / "mq"
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        leave(root, NewMessage(b"x"))
        use_up_inodes(disk)
        with pytest.raises(Unavailable):
            jobs.put(b"y", id="own")
        assert recover(spool.tree, time.time(), at_start=True).promoted == 1
        assert [m.body for m in jobs.claim()] == [b"x"]


def test_a_batch_that_cannot_be_stored_on_a_full_disk_counts_as_no_delivery(disk: Path) -> None:
    """Else a program that restarts often would bury messages that it never got."""
    clock = Clock()
    with Spool(disk / "mq", sync="none", clock=clock) as spool:
        jobs = spool.queue("q", create=True)
        jobs.configure(max_deliveries=2, dead_letter_queue="dead")
        others = spool.queue("r", create=True)
        ids = jobs.put_many([NewMessage(b"x")] * 60)
        others.put_many([NewMessage(b"x")] * 40)
        spool.deliver()
        with Consumer(spool, "spark", visibility=10) as consumer:
            stored = consumer.claim("s", 0, ["q"], 10)
            assert stored is not None
        ballast = fill(disk)
        for _ in range(3):
            with Consumer(spool, "spark", visibility=10) as consumer:
                with pytest.raises(Unavailable, match=r"cannot (store a batch|claim from queue)"):
                    consumer.claim("s", 1, ["q", "r"], 100)
                assert spool.counts("q").ready >= 50
                assert spool.counts("r").ready == 40
            clock.advance(20)
            spool.deliver()
            assert spool.counts("q").ready == 60
            # The same for a stored batch whose claims have ended.
            with Consumer(spool, "spark", visibility=10) as consumer:
                with pytest.raises(Unavailable, match="cannot store a batch"):
                    consumer.renew_batch(stored)
                assert spool.counts("q").ready == 60
        assert spool.counts("dead").total == 0
        ballast.unlink()
        with Consumer(spool, "spark", visibility=60) as consumer:
            assert len(consumer.renew_batch(stored)) == 10
            batch = consumer.claim("s", 1, ["q", "r"], 100)
            assert batch is not None
            assert [claim.id for claim in batch.claims["q"]] == ids[10:]
            assert {claim.deliveries for of in batch.claims.values() for claim in of} == {1}


def test_a_batch_that_cannot_be_divided_on_a_full_disk_counts_as_no_delivery(disk: Path) -> None:
    clock = Clock()
    with Spool(disk / "mq", sync="none", clock=clock) as spool:
        jobs = spool.queue("q", create=True)
        jobs.configure(max_deliveries=2, dead_letter_queue="dead")
        ids = jobs.put_many([NewMessage(b"x")] * 60)
        spool.deliver()
        with Consumer(spool, "spark", visibility=1000) as consumer:
            assert consumer.claim("s", 0, ["q"], 60) is not None
        ballast = fill(disk)
        failed = 0
        while True:
            # Each time there is space for another part.
            os.truncate(ballast, ballast.stat().st_size - 4096)
            clock.advance(2000)
            spool.deliver()
            with Consumer(spool, "spark", visibility=1000, counts_again=False) as consumer:
                try:
                    for batch in consumer.batches("s", 0):
                        if len(batch) > 1:
                            consumer.divide(consumer.renew_batch(batch), 4)
                except Unavailable:
                    failed += 1
                held = [claim.id for b in consumer.batches("s", 0) for claim in b.claims["q"]]
                if max(map(len, consumer.batches("s", 0))) == 1:
                    break
            ready = [message.id for message in jobs.peek(60) if message.id not in held]
            assert sorted({*held, *ready}) == sorted(ids)
        assert failed > 1
        # Without the thread that renews, which uses and frees space.
        with Consumer(spool, "spark", visibility=1000, counts_again=False) as consumer:
            os.truncate(ballast, ballast.stat().st_size - 4 * 4096)
            one, *_ = [consumer.renew_batch(batch) for batch in consumer.batches("s", 0)]
        with Consumer(spool, "spark", visibility=1000, counts_again=False) as consumer:
            fill(disk, "more")
            clock.advance(500)
            one = consumer.renew_batch(one)  # it keeps its claims
            clock.advance(800)
            spool.deliver()
            assert one.claims["q"][0].id not in {message.id for message in jobs.peek(60)}
            for n in range(3):
                fill(disk, f"more-{n}")
                with pytest.raises(Unavailable, match="cannot divide"):
                    consumer.divide(one, 4)
        for full in disk.glob("more*"):
            full.unlink()
        clock.advance(2000)
        spool.deliver()
        assert {m.deliveries for m in jobs.claim(60)} <= {1, 2}
        assert spool.counts("dead").total == 0


def test_a_claim_holds_after_a_start_on_a_full_disk_with_whole_seconds(tmp_path: Path) -> None:
    """The precision of its times cannot be probed with a new file."""
    with mounted("ext4", tmp_path, "-I", "128", "-N", "200") as where:
        Spool(where / "mq", sync="none").queue("q", create=True)
        crowd = use_up_inodes(where)
        with Suite(where / "mq", mq_options=MQ_OPTIONS, logs=tmp_path / "logs") as suite:
            for path in crowd.iterdir():
                path.unlink()
            eventually(lambda: is_fit(suite))
            assert ask(suite, "POST", "/q/messages", b"x").status == 201
            assert ask(suite, "GET", "/q/messages?visibility=60&wait=15").status == 200
            assert ask(suite, "GET", "/q/messages?wait=1.5").status == 204


@pytest.fixture
def whole_seconds(tmp_path: Path) -> Iterator[tuple[Suite, Spool]]:
    """A suite, and another program, on a disk whose times are whole seconds."""
    with (
        mounted("ext4", tmp_path, "-I", "128") as where,
        Spool(where / "mq", sync="none") as spool,
        Suite(where / "mq", mq_options=MQ_OPTIONS, logs=tmp_path / "logs") as suite,
    ):
        yield suite, spool


def test_a_publish_reaches_who_subscribed_within_the_same_second(
    whole_seconds: tuple[Suite, Spool],
) -> None:
    """The folder of the topic keeps its time."""
    suite, spool = whole_seconds
    topic = spool.topic("t", create=True)
    for number in range(5):
        assert ask(suite, "POST", "/_topics/t/messages", b"x").status == 201
        queue = spool.queue(f"q{number}", create=True)
        topic.subscribe(queue.name)
        assert ask(suite, "POST", "/_topics/t/messages", b"x").status == 201
        assert spool.counts(queue.name).total == 1


def test_settings_that_changed_twice_within_a_second_are_in_force(
    whole_seconds: tuple[Suite, Spool],
) -> None:
    """Their file has the time, the size and the inode of the one before the last."""
    suite, spool = whole_seconds
    jobs = spool.queue("jobs", create=True)
    for _ in range(5):
        jobs.configure(max_message_bytes=1)
        assert ask(suite, "POST", "/jobs/messages", b"xxx").status == 413
        for most in (2, 3):
            jobs.configure(max_message_bytes=most)
        assert ask(suite, "POST", "/jobs/messages", b"xxx").status == 201


def test_a_key_that_was_revoked_in_the_second_of_the_last_change_ends(tmp_path: Path) -> None:
    """The file is written in place, with as many bytes: it has the same time, size and inode."""
    with mounted("ext4", tmp_path, "-I", "128") as where, ExitStack() as stack:
        file = where / "keys.toml"
        texts = []
        for name in ("one", "two"):
            file.unlink(missing_ok=True)
            texts.append((add_key(file, name, "--receive=jobs"), file.read_bytes()))
        (old, old_text), (new, new_text) = texts
        assert len(old_text) == len(new_text)
        suite = stack.enter_context(
            Suite(tmp_path / "mq", mq_options=[f"--keys={file}"], mover=False, reaper=False)
        )
        (suite.root / "queues" / "jobs").mkdir()

        def status(key: str) -> int:
            with Wire(suite.url) as wire:
                return wire.ask("GET", "/jobs/messages", bearer(key)).status

        for _ in range(10):
            time.sleep(1.05 - time.time() % 1)
            file.write_bytes(old_text)
            second = int(file.stat().st_ctime)
            eventually(lambda: status(old) == 204)
            file.write_bytes(new_text)
            is_same_second = int(file.stat().st_ctime) == second
            eventually(lambda: status(new) == 204)
            assert status(old) == 401
            if is_same_second:
                return
        pytest.fail("no key was loaded within the second of its change")


def test_a_read_only_disk_refuses_and_recovers(fresh: Suite) -> None:
    small, disk = fresh, fresh.root.parent
    assert ask(small, "POST", "/q/messages?delay=0", b"before").status == 201
    held = ask(small, "GET", "/q/messages?wait=15").id
    assert ask(small, "POST", "/q/messages", b"ready").status == 201
    read_only = ("mount", "-o", "remount,ro", disk)
    eventually(lambda: subprocess.run(read_only, capture_output=True).returncode == 0)
    try:
        for method, path in (
            ("POST", "/q/messages"),
            ("PUT", "/another"),
            ("DELETE", f"/q/messages/{held}"),
            ("PATCH", f"/q/messages/{held}?visibility=5"),
            ("PATCH", f"/q/messages/{held}?visibility=0"),
            ("DELETE", "/q"),
        ):
            answer = ask(small, method, path, b"{}")
            assert refused(answer)
            assert "read-only" in answer.json["detail"]
        assert ask(small, "GET", "/q").status == 200
        assert not is_fit(small)
    finally:
        run("mount", "-o", "remount,rw", disk)
    eventually(lambda: is_fit(small))
    assert ask(small, "DELETE", f"/q/messages/{held}").status == 202
    assert ask(small, "POST", "/q/messages", b"after").status == 201
    assert {ask(small, "GET", "/q/messages?wait=15").body for _ in range(2)} == {b"ready", b"after"}
    assert all(small[name].is_running() for name in ("mq", "mover", "reaper"))


def test_a_missing_root_refuses_and_recovers(small: Suite) -> None:
    """The root is moved away and back."""
    elsewhere = small.root.parent / "elsewhere"
    small.root.rename(elsewhere)
    assert ask(small, "POST", "/q/messages", b"x").status in (201, 503)
    elsewhere.rename(small.root)
    assert ask(small, "POST", "/q/messages", b"x").status == 201
    assert ask(small, "GET", "/q/messages?wait=15").body == b"x"


def test_a_file_that_is_not_on_the_disk_is_no_message(tmp_path: Path) -> None:
    """After a failed fsync a file can be read from the page cache only."""
    with mounted("ext4", tmp_path) as where:
        tree = Tree(where / "mq")
        bodies = {name: (name * 5000).encode() for name in ("good", "lost")}
        for name, body in bodies.items():
            entry = tree.folder("new", staged_entry("q", name, seal_of(body)))
            fd = tree.create(entry)
            os.write(fd, body)
            os.fsync(fd)
            os.close(fd)
        with (tmp_path / "image").open("r+b") as disk:
            disk.seek(disk.read().index(bodies["lost"]))
            disk.write(b"\0" * len(bodies["lost"]))
            disk.flush()
            os.fsync(disk.fileno())
        assert recover(tree, time.time(), at_start=True).promoted == 1
        assert [n for n in os.listdir(where / "mq" / "new") if n[0] != "."] == ["q:good"]
        tree.close()
