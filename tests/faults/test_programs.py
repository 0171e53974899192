"""Programs without descriptors, on a slow disk, and with a fault at their start."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fsmq import Client
from tests.faults.inject import (
    SYNCS,
    WHOLE_DISK,
    cpu_s,
    injected,
    limit_files,
    memory,
    open_files,
    strace,
    tracer_of,
)
from tests.faults.user import User, refused
from tests.harness.suite import HOME, PATIENCE_S, Suite, eventually
from tests.http.helpers import Wire

SLOW_S, NEVER_S = 1.0, 10 * PATIENCE_S
CLIENTS = 50
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with Suite(tmp_path_factory.mktemp("faults") / "mq", mq_options=["--sync=syncfs"]) as running:
        yield running


def test_without_descriptors_mq_neither_spins_nor_stops_serving(user: User) -> None:
    assert user.post().status == 201
    pids = [user.suite[name].pid for name in ("mq", "mover", "reaper")]
    limits = {pid: limit_files(pid, open_files(pid) - 2) for pid in pids}
    try:
        assert refused(user.post())
        assert refused(user.fetch())
        assert not user.is_ready()
        # These connections wait and take no processor time.
        waiting = [Wire(user.suite.url) for _ in range(20)]
        before, began = cpu_s(pids[0]), time.monotonic()
        for one in waiting:
            one.request("GET", "/_health/live")
        assert refused(user.post())
        time.sleep(0.5)
        assert cpu_s(pids[0]) - before < 0.5 * (time.monotonic() - began)
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    for one in waiting:
        assert one.answer().status == 200
        one.close()
    eventually(user.is_ready)
    assert user.post().status == 201


def test_a_slow_disk_delays_only_requests_that_sync(user: User) -> None:
    """A sync that does not end blocks fifty clients and no other."""
    suite = user.suite
    before = memory(suite["mq"].pid)
    with ThreadPoolExecutor(CLIENTS) as clients:
        with injected(suite, f"{SYNCS}:delay_enter={NEVER_S:g}s", programs=["mq"]) as fault:
            posts = [clients.submit(post, user, number) for number in range(CLIENTS)]
            eventually(lambda: "sync" in fault.log)
            for _ in range(20):
                assert user.ask("GET", "/_health/live").status == 200
                assert user.ask("GET", "/").status == 200
            assert not any(one.done() for one in posts)
            assert memory(suite["mq"].pid) - before < 32 * MEGABYTE
        assert {one.result() for one in posts} == {201}


def test_many_clients_share_a_slow_sync(user: User) -> None:
    slow = f"{SYNCS}:delay_enter={SLOW_S:g}s"
    with (
        ThreadPoolExecutor(CLIENTS) as clients,
        injected(user.suite, slow, programs=["mq"]) as fault,
    ):
        posts = [clients.submit(post, user, number) for number in range(CLIENTS)]
        assert {one.result() for one in posts} == {201}
        assert 1 <= fault.hits < CLIENTS / 2


def post(user: User, number: int) -> int:
    with Wire(user.suite.url, PATIENCE_S) as wire:
        body = b"%d" % number + b"x" * 10_000
        answer = wire.ask("POST", f"/{user.queue}/messages", {}, body)
        if answer.status == 201:
            user.accepted[answer.id] = body
        return answer.status


def start_with_faults(
    program: str, root: Path, tmp_path: Path, fault: str
) -> subprocess.CompletedProcess[str]:
    """Start a program that a fault ends."""
    command = [sys.executable, "-m", f"fsmq.daemons.{program}", f"--root={root}"]
    return subprocess.run(
        [
            *strace(tmp_path / "strace", [fault], [root]),
            *command,
            *(["--port=0"] if program == "mq" else []),
        ],
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("calls", "programs"), [(WHOLE_DISK, ("mq", "mover", "reaper")), ("utimensat", ("mq", "mover"))]
)
def test_a_start_on_a_bad_disk_fails_with_a_code_for_a_restart(
    root: Path, tmp_path: Path, calls: str, programs: tuple[str, ...]
) -> None:
    """Also if the precision of times cannot be probed."""
    (root / "new").mkdir(parents=True, mode=0o700)
    for program in programs:
        done = start_with_faults(program, root, tmp_path, f"{calls}:error=EIO")
        assert "Traceback" not in done.stderr
        assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("program", ["mq", "mover"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_start_fails_with_a_code_for_a_restart_if_one_call_of_its_probe_fails(
    root: Path, tmp_path: Path, program: str, error: str
) -> None:
    """The file that the probe cannot unlink is in the way of its later trials."""
    (root / "new").mkdir(parents=True, mode=0o700)
    done = start_with_faults(program, root, tmp_path, f"unlinkat:error={error}:when=1")
    assert "File exists" in done.stderr
    assert done.returncode == 1, done.stderr


def test_a_mover_survives_a_fault_during_its_first_listing(root: Path, tmp_path: Path) -> None:
    for folder in ("new", "queues/q", "delay"):
        (root / folder).mkdir(parents=True, mode=0o700)
    for number in range(5):
        (root / "new" / f"q:{number}").write_bytes(b"x")
    suite = Suite(root, mover=True)
    try:
        suite.start("mq")
        folders = [root / "new", root / "delay"]
        rules = strace(tmp_path / "strace", ["getdents64:error=EIO"], folders)
        mover = suite["mover"]
        mover.under = [*rules[:1], "-D", "-I1", *rules[1:]]
        mover.start(until_ready=False)
        eventually(lambda: any("cannot deliver" in e["event"] for e in mover.logs()))
        os.kill(tracer_of(mover.pid), signal.SIGTERM)
        eventually(lambda: len(list((root / "queues" / "q").iterdir())) == 5, 20.0)
        assert mover.is_running()
    finally:
        suite.close()


def test_the_client_retries_until_the_disk_works(user: User) -> None:
    suite = user.suite
    with Client(suite.url, retry_for=PATIENCE_S) as client:
        jobs = client.queue(user.queue)
        with ThreadPoolExecutor(1) as threads:
            with injected(suite, f"{WHOLE_DISK}:error=EIO", paths=[suite.root]):
                putting = threads.submit(jobs.put, b"kept")
                eventually(lambda: any("POST" in e["event"] for e in suite.logs("mq")))
                assert not putting.done()
            message_id = putting.result(PATIENCE_S)
        user.accepted[message_id] = b"kept"
    answer = user.fetch(wait=15)
    assert (answer.id, answer.body) == (message_id, b"kept")
    assert user.fetch().status == 204
    assert user.delete(message_id).status == 202
