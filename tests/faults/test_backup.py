"""Backups under load: real programs and clients, kills, full disks, other users, no events."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from fsmq import Client
from fsmq.spool import FsmqError, NewMessage, Spool
from fsmq.spool.backup import restore
from fsmq.spool.fsck import check
from tests.faults.test_unwatched import INSTANCES, limited, works
from tests.harness.forkserver import environment
from tests.harness.mounts import Mount
from tests.harness.rounds import part_of
from tests.harness.suite import Suite, arbitrary_moment
from tests.spool.helpers import Clock, listed, visible

QUEUES = ("jobs", "more", "ordered", "mail", "audit", "by-id")
_ROUNDS = part_of(3, 8)
_LATER_S = 10 * 86_400.0


def command(*arguments: str | Path, under: list[str] | None = None) -> list[str]:
    return [*(under or []), sys.executable, "-m", "fsmq.cli", *map(str, arguments)]


def run(*arguments: str | Path, code: int = 0, under: list[str] | None = None) -> str:
    done = subprocess.run(
        command(*arguments, under=under), capture_output=True, text=True, env=environment()
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


class Load:
    """Clients of all kinds, which record the times of puts and removals.

    put: when the put of a body into a queue was answered. gone: when its removal was requested.
    published: the body of each offset and the time of the answer. done: acknowledged offsets of a
    channel and the times of the answers.
    """

    def __init__(self, suite: Suite) -> None:
        self.put: dict[tuple[str, bytes], float] = {}
        self.gone: dict[tuple[str, bytes], float] = {}
        self.published: dict[int, tuple[bytes, float]] = {}
        self.done: dict[int, float] = {}
        self.errors: list[BaseException] = []
        self._given: dict[str, tuple[str, bytes]] = {}
        self.url, self.root = suite.url, suite.root
        self._stop = threading.Event()
        self._numbers = iter(range(1 << 40))
        with Client(self.url) as client:
            for name in QUEUES:
                client.create_queue(name, fifo=name == "ordered", index=name == "by-id")
            client.topic("news", create=True).subscribe("mail")
            client.topic("news").subscribe("audit")
            client.log("visits", create=True).channel("c").create("first")
            client.schedule("often").define("@every 1s", "audit", "scheduled")

    @contextmanager
    def running(self) -> Iterator[None]:
        roles = (self.produce, self.produce, self.consume, self.consume, self.move, self.log)
        threads = [threading.Thread(target=self._run, args=(role,)) for role in (*roles, self.ids)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert not self.errors

    def _run(self, role: Callable[[Client, Random], None]) -> None:
        chance = Random(threading.get_ident())
        try:
            with Client(self.url) as client:
                while not self._stop.is_set():
                    role(client, chance)
        except BaseException as error:
            self.errors.append(error)

    def _body(self) -> bytes:
        return b"%d" % next(self._numbers)

    def produce(self, client: Client, chance: Random) -> None:
        body = self._body()
        if chance.random() < 0.25:
            client.topic("news").publish(body)
            names = ["mail", "audit"]
        elif chance.random() < 0.3:
            client.queue("ordered").put(body, group=str(chance.randrange(5)))
            names = ["ordered"]
        else:
            own = body.decode() if chance.random() < 0.3 else None
            client.queue("jobs").put(body, id=own, delay=chance.choice([0, 0, 0, 0.3]))
            names = ["jobs"]
        now = time.monotonic()
        self.put.update({(name, body): now for name in names})

    def consume(self, client: Client, chance: Random) -> None:
        name = chance.choice([name for name in QUEUES if name != "by-id"])
        queue = client.queue(name)
        for message in queue.claim(chance.choice([1, 5]), chance.choice([0.2, 30]), wait=0.05):
            what = chance.random()
            with suppress(FsmqError):
                if what < 0.5:
                    self._going(name, message.body)
                    queue.ack(message)
                elif what < 0.9:
                    queue.release(message)

    def _going(self, name: str, body: bytes) -> None:
        # Moved messages were put into the first queue.
        self.gone.setdefault(("jobs" if name == "more" else name, body), time.monotonic())

    def move(self, client: Client, chance: Random) -> None:
        source, target = chance.sample(["jobs", "more"], 2)
        with Spool(self.root, sync="none", watch="poll") as spool, suppress(FsmqError):
            spool.queue(source).move_to(target, in_flight=chance.random() < 0.5)

    def log(self, client: Client, chance: Random) -> None:
        log = client.log("visits")
        for first, body in [(log.publish(body), body) for body in [self._body() for _ in range(3)]]:
            self.published[first] = body, time.monotonic()
        messages = log.channel("c").claim(10)
        log.channel("c").ack_each(messages)
        self.done.update({message.offset: time.monotonic() for message in messages})

    def ids(self, client: Client, chance: Random) -> None:
        with Spool(self.root, sync="none", watch="poll") as spool:
            for _ in range(20):
                given = f"id {chance.randrange(30)}"
                body = self._body() + b" of " + given.encode()
                if given in self._given:
                    self.gone[self._given[given]] = time.monotonic()
                spool.indexed("by-id").upsert([NewMessage(body, id=given)])
                self.put["by-id", body] = time.monotonic()
                self._given[given] = "by-id", body

    def check(self, root: Path, began: float, ended: float) -> None:
        """Check a restored root against the answers before its backup began."""
        clock = Clock()
        with Spool(root, sync="none", clock=clock) as spool:
            clock.advance(_LATER_S)
            spool.deliver()
            found: Counter[tuple[str, bytes]] = Counter()
            for name in QUEUES:
                for message in spool.queue(name).peek(1_000_000):
                    found["jobs" if name == "more" else name, message.body] += 1
            scheduled = found.pop(("audit", b"scheduled"), 0)
            moments = [message.id for message in spool.queue("audit").peek(1_000_000)]
            assert len(moments) == len(set(moments))
            owed = {
                key
                for key, at in list(self.put.items())
                if at < began and self.gone.get(key, ended) >= ended
            }
            assert owed - set(found) == set()
            assert {key: number for key, number in found.items() if number > 1} == {}
            given = {
                message.body
                for number in range(30)
                if (message := spool.indexed("by-id").find(f"id {number}")) is not None
            }
            assert given == {body for name, body in found if name == "by-id"}
            bodies = [message.body for message in spool.log("visits").read()]
            for offset, (body, at) in list(self.published.items()):
                assert offset >= len(bodies) if bodies[offset : offset + 1] != [body] else True
                assert at >= began or bodies[offset] == body
            state = spool.log("visits").channel("c").state()
            assert state.position <= len(bodies)
            done = [offset for offset, at in list(self.done.items()) if at < began]
            assert state.position > max(done, default=-1) - 10
            assert scheduled >= 0


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    with Suite(tmp_path / "mq") as running:
        yield running


def test_snapshots_under_load_have_all_acknowledged_messages(suite: Suite, tmp_path: Path) -> None:
    load, where, taken = Load(suite), tmp_path / "snapshots", []
    with load.running():
        time.sleep(1)  # for some messages
        for _ in range(_ROUNDS):
            began = time.monotonic()
            report = json.loads(run("backup", where, "--root", suite.root, "--json"))
            taken.append((Path(report["snapshot"]), began, time.monotonic()))
            assert (report["left_out"], report["faults"]) == ({}, [])
    for number, (snapshot, began, ended) in enumerate(taken):
        assert str(check(snapshot)) == "clean"
        restored = restore(snapshot, tmp_path / f"again-{number}")
        assert restored.faults == []
        load.check(restored.root, began, ended)
    assert len(load.put) > 100


def test_a_killed_backup_leaves_only_whole_snapshots(suite: Suite, tmp_path: Path) -> None:
    load, where, chance = Load(suite), tmp_path / "snapshots", Random(7)
    with load.running():
        for _ in range(_ROUNDS):
            before = set(listed(where)) if where.exists() else set()
            backup = subprocess.Popen(
                command("backup", where, "--root", suite.root),
                env=environment(),
                stdout=subprocess.DEVNULL,
            )
            arbitrary_moment(chance, 0.2, 1.2)
            backup.kill()
            backup.wait()
            new = set(listed(where)) - before if where.exists() else set()
            assert all(str(check(where / name)) == "clean" for name in new if name[0] != ".")
        began = time.monotonic()
        report = json.loads(run("backup", where, "--root", suite.root, "--json", "--keep", "1"))
        ended = time.monotonic()
    assert listed(where) == [Path(report["snapshot"]).name]
    load.check(restore(report["snapshot"], tmp_path / "again").root, began, ended)


def test_a_full_disk_leaves_existing_snapshots(tmp_path: Path, mount: Mount) -> None:
    root, disk = tmp_path / "mq", mount(tmp_path / "disk", "size=1m")
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"x" * 100_000)
        first = run("backup", disk, "--root", root)
        for _ in range(20):
            jobs.put(b"x" * 100_000)
    assert "1 message" in first
    error = run("backup", disk, "--root", root, code=69)
    assert "the disk is full" in error or "no space" in error.lower()
    [name] = listed(disk)
    assert name in first
    small = mount(tmp_path / "small", "size=20k")
    assert "cannot restore" in run("restore", disk / name, "--root", small, code=69)
    assert os.listdir(small) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_backup_by_root_keeps_owners(tmp_path: Path) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"one", id="own")
    for folder, names, files in os.walk(root):
        for name in (".", *names, *files):
            os.chown(Path(folder) / name, 65534, 65534)
    run("backup", tmp_path / "to", "--root", root)
    [name] = listed(tmp_path / "to")
    snapshot = tmp_path / "to" / name
    run("restore", snapshot, "--root", tmp_path / "again")
    for copy in (snapshot, tmp_path / "again"):
        for path in (".", "new", "queues/jobs", "queues/jobs/own", "delay"):
            assert ((copy / path).stat().st_uid, path) == (65534, path)


@pytest.mark.skipif(not works(), reason="needs user namespaces")
def test_a_backup_without_events_has_all_messages(tmp_path: Path) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        for number in range(50):
            jobs.put(b"%d" % number)
        jobs.claim(20, 60)
        output = run("backup", tmp_path / "to", "--root", root, under=limited(**{INSTANCES: 0}))
        assert "50 messages" in output
        [name] = listed(tmp_path / "to")
        snapshot = tmp_path / "to" / name
        assert visible(snapshot) == visible(root)


def test_the_commands_report_their_work(tmp_path: Path) -> None:
    root, where = tmp_path / "mq", tmp_path / "to"
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put(b"x" * 2048)
        first = run("backup", where, "--root", root)
        assert first.endswith(": 1 message, 1 queue, 0 logs; 2.0 KiB copied\n")
        second = run("backup", where, "--root", root, "--keep", "1")
        assert "; 0 B copied, 2.0 KiB linked to 2" in second
        assert second.endswith("; 1 old snapshot removed\n")
        (root / "queues/jobs/link").symlink_to("/etc/passwd")
        error = run("backup", where, "--root", root, code=1)
        assert "queues/jobs/link was left out" in error
        snapshot = where / listed(where)[-1]
        output = run("restore", snapshot, "--root", tmp_path / "again")
        assert output.startswith(f"{tmp_path}/again: 1 message, 2.0 KiB\n")
        assert "is a spool already" in run("restore", snapshot, "--root", root, code=78)
        assert "in the spool" in run("backup", root / "x", "--root", root, code=2)
        assert "no spool" in run("backup", where, "--root", tmp_path / "none", code=78)
        shutil.rmtree(tmp_path / "again")
