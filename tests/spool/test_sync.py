"""Group commit: shared syncs, their order, and their failures."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest

from fsmq.spool import InvalidValue, NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.durability.sync import Dirty, Group, Syncer, SyncMode
from fsmq.spool.layout.tree import Tree
from tests.harness.suite import eventually
from tests.spool.helpers import tree_of, visible


class FailingSyncer(Syncer):
    """A syncer whose next ``failures`` syncs fail."""

    failures = 0

    def run(self, group: Group) -> None:
        if self.failures:
            self.failures -= 1
            fsync = os.fsync

            def refuse(fd: int) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            os.fsync = refuse
            try:
                super().run(group)
            finally:
                os.fsync = fsync
        else:
            super().run(group)


@pytest.fixture
def failing(root: Path) -> Spool:
    spool = Spool(root, sync="fsync")
    spool.syncer = FailingSyncer(spool.tree, "fsync")
    spool.create_queue("jobs")
    return spool


def fail(spool: Spool, times: int) -> None:
    assert isinstance(spool.syncer, FailingSyncer)
    spool.syncer.failures = times


class GatedSyncer(Syncer):
    """Begins its first sync when the gate opens."""

    gate: threading.Event

    def run(self, group: Group) -> None:
        assert self.gate.wait(60)
        super().run(group)


@pytest.mark.parametrize("mode", ["auto", "fsync", "syncfs"])
def test_waiting_puts_share_a_sync(root: Path, mode: SyncMode) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = spool.syncer = GatedSyncer(spool.tree, mode)
        syncer.gate = threading.Event()
        jobs = spool.queue("jobs", create=True)
        with ThreadPoolExecutor(16) as threads:
            puts = [threads.submit(jobs.put, b"%d" % n) for n in range(16)]
            # The first one leads its own group; all others wait in the next one.
            eventually(lambda: len(syncer._open.changes) == 15)
            syncer.gate.set()
            ids = [put.result() for put in puts]
        assert (syncer.syncs, syncer.synced) == (2, 16)
        assert sorted(ids) == [message_id for _, message_id in visible(root)]


def test_a_lone_put_waits_for_one_sync(root: Path) -> None:
    with Spool(root) as spool:
        jobs = spool.queue("jobs", create=True)
        before = spool.syncer.syncs
        jobs.put(b"x")
        assert spool.syncer.syncs == before + 1


def test_an_unknown_mode_is_refused(root: Path) -> None:
    with pytest.raises(InvalidValue, match="fsync"):
        Spool(root, sync="sometimes")  # type: ignore[arg-type]


def test_a_put_whose_sync_failed_leaves_nothing(failing: Spool, root: Path) -> None:
    jobs = Queue(failing, "jobs")
    fail(failing, 1)
    with pytest.raises(Unavailable, match="EIO") as refused:
        jobs.put(b"never stored", id="one")
    assert refused.value.retry_after >= 1
    assert tree_of(root)["new"] == []
    assert jobs.put(b"stored", id="one") == "one"
    assert [m.body for m in jobs.claim(5)] == [b"stored"]
    failing.close()


def test_a_failed_sync_fails_its_whole_group_and_no_other(failing: Spool, root: Path) -> None:
    jobs = Queue(failing, "jobs")
    gate = threading.Barrier(12)
    fail(failing, 1)

    def put(n: int) -> str | None:
        gate.wait()
        try:
            return jobs.put(b"%d" % n)
        except Unavailable:
            return None

    with ThreadPoolExecutor(12) as threads:
        stored = [message_id for message_id in threads.map(put, range(12)) if message_id]
    assert len(stored) < 12
    assert sorted(stored) == [message_id for _, message_id in visible(root)]
    assert [n for n in tree_of(root)["new"] if n[0] == "."] == []
    failing.close()


def test_all_writers_of_a_file_whose_sync_failed_get_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They do not keep the file open, and the disk reports the error only to the first sync.
    (root / "config").mkdir(parents=True)
    with Spool(root, sync="fsync") as spool:
        (root / "config" / "common").write_bytes(b"x")
        one, other = (Dirty(written=["config/common"]) for _ in range(2))
        sync = spool.tree.sync_file
        failures = [errno.EIO]

        def fails_once(path: str) -> None:
            if failures:
                raise OSError(failures.pop(), "Input/output error", path)
            sync(path)

        monkeypatch.setattr(spool.tree, "sync_file", fails_once)
        for work in (one, other):
            with pytest.raises(Unavailable, match="EIO"):
                spool.syncer.sync(work)
        spool.syncer.sync(Dirty(written=["config/common"]))  # written again since


def test_a_claim_whose_sync_failed_releases_its_messages(failing: Spool) -> None:
    jobs = Queue(failing, "jobs")
    jobs.put(b"x")
    failing.deliver()
    fail(failing, 1)
    with pytest.raises(Unavailable):
        jobs.claim()
    assert [m.body for m in jobs.claim()] == [b"x"]
    failing.close()


def test_a_failed_sync_closes_its_files(failing: Spool) -> None:
    jobs = Queue(failing, "jobs")
    before = len(os.listdir("/proc/self/fd"))
    fail(failing, 20)
    for _ in range(20):
        with pytest.raises(Unavailable):
            jobs.put(b"x", id="one")
    assert len(os.listdir("/proc/self/fd")) == before
    failing.close()


def test_no_verb_leaks_a_descriptor(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"x")
        jobs.claim(visibility=0)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            message_id = jobs.put(b"x", content_type="text/plain")
            jobs.claim(5, visibility=9)
            jobs.peek()
            jobs.find(message_id)
            jobs.renew(message_id, 1)
            jobs.release(message_id, 1)
            jobs.release(message_id)
            jobs.renew(message_id, 1)
            jobs.remove(message_id)
            jobs.counts()
            jobs.purge()
            prepare.put(spool.context, "jobs", [NewMessage(b"x", id="one")]).abort()
            spool.reap()
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_folder_is_not_an_error_of_a_sync(root: Path) -> None:
    tree = Tree(root)
    syncer = Syncer(tree, "fsync")
    syncer.sync(Dirty(folders={"queues/gone", "new"}))
    syncer.close()
    tree.close()


def test_a_sync_that_a_signal_ended_fails_for_the_whole_group(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception of the handler is raised only in the thread that syncs."""
    tree = Tree(root)
    syncer = Syncer(tree, "fsync")
    group = Group()
    group.changes.append(Dirty(folders={"new"}))

    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        syncer.run(group)
    with pytest.raises(Unavailable):
        group.check()
    syncer.close()
    tree.close()


STORE = """
import sys
from fsmq.spool import Spool
with Spool(sys.argv[1], sync=sys.argv[2]) as spool:
    jobs = spool.queue("jobs")
    jobs.put(b"body", id="one")
    [message] = jobs.claim()
    jobs.remove("one")
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("mode", ["fsync", "syncfs"])
def test_the_order_of_writes_syncs_and_renames(root: Path, tmp_path: Path, mode: str) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
    log = tmp_path / "strace.log"
    calls = "write,fsync,fdatasync,syncfs,rename,renameat,renameat2"
    command = ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", str(log)]
    command += [sys.executable, "-c", STORE, str(root), mode]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
    steps = [step for line in log.read_text().splitlines() if (step := _step(line, root))]
    sync = ["syncfs ."] if mode == "syncfs" else None
    # Folders are synced concurrently, in any order, after the files.
    assert _folders_sorted(steps) == [
        "write new/.jobs:one:dba80bb2",
        *(sync or ["fsync new/.jobs:one:dba80bb2", "fsync new"]),
        "rename new/.jobs:one:dba80bb2 queues/jobs/one",
        "rename queues/jobs/one delay/jobs:one",
        *(sync or ["fsync delay/jobs:one", "fsync delay", "fsync queues/jobs"]),
        "rename delay/jobs:one remove/jobs:one",
        *(sync or ["fsync delay", "fsync new", "fsync queues/jobs", "fsync remove"]),
    ]


def _folders_sorted(steps: list[str]) -> list[str]:
    result = []
    for is_folder, run in groupby(steps, lambda s: s.startswith("fsync") and "one" not in s):
        stretch = list(run)
        result += sorted(stretch) if is_folder else stretch
    return result


def _step(line: str, root: Path) -> str | None:
    """A line of strace as ``call path…``, with paths relative to the root."""
    if match := re.search(r"(write|fsync|syncfs)\(\d+<([^>]*)>", line):
        path = Path(match[2])
        if path != root and root not in path.parents:
            return None
        return f"{match[1]} {path.relative_to(root)}"
    if match := re.search(r'renameat2?\([^"]*"([^"]*)",[^"]*"([^"]*)"', line):
        return f"rename {match[1]} {match[2]}"
    return None
