"""Process 1 of a container, which gets all orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmq.spool import Spool
from tests.harness.forkserver import environment
from tests.harness.suite import HOME, eventually

CONTAINER = ["unshare", "-Urpf", "--kill-child", "--mount-proc"]


def works() -> bool:
    done = subprocess.run([*CONTAINER, "sh", "-c", "echo $$"], capture_output=True, check=False)
    return done.stdout == b"1\n"


pytestmark = pytest.mark.skipif(not works(), reason="needs namespaces of processes")


@contextmanager
def as_process_one(root: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as process 1; its parent process."""
    process = subprocess.Popen(
        [*CONTAINER, sys.executable, "-m", "fsmq.cli", *arguments],
        cwd=HOME,
        env=environment(FSMQ_AT=str(root)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return []


def dead_children(pid: int) -> list[int]:
    """The zombies among the descendants of a process."""
    found = []
    for child in children(pid):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            continue
        found += [child] if state == "Z" else dead_children(child)
    return found


def test_a_worker_reaps_orphans_of_its_commands(root: Path, tmp_path: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).put_many([b"x"] * 20)
        # Each command leaves an orphan, and every second one fails.
        lines = tmp_path / "lines"
        command = f"(sleep 0.05; echo >> {lines}) & test $FSMQ_DELIVERIES = 2"
        with as_process_one(root, "get", "jobs", "--exec", command, "--backoff=0", "-c4") as one:
            eventually(lambda: lines.exists() and lines.read_text().count("\n") == 40)
            eventually(lambda: spool.queue("jobs").counts().total == 0)
            eventually(lambda: dead_children(one.pid) == [])
            [init] = children(one.pid)
            os.kill(init, signal.SIGTERM)
            assert one.wait(30) == 0


def test_up_reaps_orphans_and_stops_on_a_signal(root: Path) -> None:
    with as_process_one(root, "up", f"--root={root}", "--port=0") as one:
        assert one.stdout is not None
        assert one.stdout.readline().startswith(b"fsmq is up")
        [init] = children(one.pid)
        # A shell that enters the container leaves an orphan.
        orphan = ["nsenter", f"--target={init}", "--user", "--pid", "--mount", "sh", "-c"]
        subprocess.run([*orphan, "sleep 0.05 &"], check=True)
        eventually(lambda: len(children(init)) == 1)
        assert dead_children(one.pid) == []
        os.kill(init, signal.SIGTERM)
        assert one.wait(30) == 0


def test_the_exit_code_of_process_one_is_passed_on(root: Path) -> None:
    with as_process_one(root, "up", f"--root={root}", "--port=1", "--address=192.0.2.1") as one:
        assert one.wait(60) == 78
