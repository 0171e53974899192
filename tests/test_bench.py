"""``fsmq bench``: it measures, leaves nothing behind, and advises by what it found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.cli.admin.bench import Figure, advise
from fsmq.spool import Spool
from tests.harness.forkserver import environment, run
from tests.harness.suite import HOME, eventually

_METHODS = ("fsync", "syncfs", "auto", "none")
_GROUPS = (1, 8, 64)


class Done(NamedTuple):
    """What a run has said."""

    returncode: int
    stdout: str
    stderr: str


def _run(root: Path, *options: str) -> Done:
    done = run("fsmq.cli", ["bench", f"--root={root}", *options], environment(), b"")
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_json_has_every_method_and_group(root: Path) -> None:
    done = _run(root, "--seconds=0.05", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figures = {(f["method"], f["group"]): f for f in told["figures"]}
    assert set(figures) == {("raw fsync", 1), ("raw flush", 1)} | {
        (m, g) for m in _METHODS for g in _GROUPS
    }
    for figure in figures.values():
        assert figure["messages_per_second"] > 0
        assert 0 < figure["p50_ms"] <= figure["p95_ms"] <= figure["p99_ms"] <= figure["max_ms"]
    assert told["sync"] in ("auto", "fsync")
    assert told["reason"]
    alone = told["put_alone"]
    parts = {part: alone[f"{part}_ms"] for part in ("flush", "journal", "cpu")}
    assert parts["cpu"] == pytest.approx(figures["none", 1]["p50_ms"], abs=0.001)
    assert parts[alone["largest"]] == max(parts.values())


def test_text_names_the_method_that_suits(root: Path) -> None:
    done = _run(root, "--seconds=0.05", "--bytes=0")
    assert done.returncode == 0, done.stderr
    assert "raw fsync" in done.stdout
    assert "\n--sync " in done.stdout
    assert "\nA put alone waits " in done.stdout
    assert not root.exists(), "it made the folder, and has to take it away"


def test_a_spool_that_stands_there_is_left_alone(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        queue = spool.queue("jobs", create=True)
        queue.put(b"mine")
        before = sorted(path.name for path in root.iterdir())
        assert _run(root, "--seconds=0.05").returncode == 0
        assert sorted(path.name for path in root.iterdir()) == before
        assert spool.queues() == ["jobs"]
        assert [message.body for message in queue.claim()] == [b"mine"]


def test_an_end_by_signal_cleans_up(root: Path) -> None:
    root.mkdir()
    command = [sys.executable, "-m", "fsmq.cli", "bench", f"--root={root}", "--seconds=60"]
    process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: list(root.glob(".bench-*/mq/new")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert list(root.iterdir()) == []


def test_a_disk_that_refuses_is_told_of() -> None:
    done = _run(Path("/proc/fsmq"), "--seconds=0.05")
    assert done.returncode == 1
    assert done.stderr.startswith("fsmq: cannot measure in /proc/fsmq: ")
    assert "Traceback" not in done.stderr


def _figures(**rates: tuple[float, float, float]) -> list[Figure]:
    """Figures of methods that make so many messages a second at groups of 1, 8 and 64."""
    return [
        Figure(method, group, 1024, [group / rate])
        for method, three in rates.items()
        for group, rate in zip(_GROUPS, three, strict=True)
    ]


@pytest.mark.parametrize(
    ("fsync", "syncfs", "sync", "reason"),
    [
        ((1000, 1000, 1000), (1500, 4000, 9000), "auto", "at every size of group (up to 9.0×)"),
        ((1000, 1000, 1000), (500, 2000, 9000), "auto", "0.5× for one message and 9.0× for groups"),
        ((1000, 1000, 1000), (100, 200, 300), "fsync", "fsync of each file is faster"),
        ((1000, 1000, 1000), (1001, 1002, 999), "auto", "1.0× for one message and 1.0× for groups"),
    ],
)
def test_advice_follows_the_figures(
    fsync: tuple[float, float, float],
    syncfs: tuple[float, float, float],
    sync: str,
    reason: str,
) -> None:
    advice = advise(_figures(fsync=fsync, syncfs=syncfs))
    assert advice.sync == sync
    assert reason in advice.reason


def test_without_a_whole_sync_only_fsync_suits() -> None:
    assert advise(_figures(fsync=(1, 2, 3))).sync == "fsync"
