"""``fsmq bench`` measures, removes its files, and advises a method of sync."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmq.cli.admin.bench import Figure, advise
from fsmq.spool import Spool
from tests.harness.forkserver import environment, run
from tests.harness.suite import HOME, eventually

_METHODS = ("fsync", "syncfs", "auto", "none")
_GROUPS = (1, 8, 64)


def _run(root: Path, *options: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr."""
    done = run("fsmq.cli", ["bench", f"--root={root}", *options], environment(), b"")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_json_has_every_method_and_group(root: Path) -> None:
    code, stdout, stderr = _run(root, "--seconds=0.05", "--json")
    assert code == 0, stderr
    report = json.loads(stdout)
    figures = {(f["method"], f["group"]): f for f in report["figures"]}
    assert set(figures) == {("raw fsync", 1), ("raw flush", 1)} | {
        (m, g) for m in _METHODS for g in _GROUPS
    }
    for figure in figures.values():
        assert figure["messages_per_second"] > 0
        assert 0 < figure["p50_ms"] <= figure["p95_ms"] <= figure["p99_ms"] <= figure["max_ms"]
    assert report["sync"] in ("auto", "fsync")
    assert report["reason"]
    alone = report["put_alone"]
    parts = {part: alone[f"{part}_ms"] for part in ("flush", "journal", "cpu")}
    assert parts["cpu"] == pytest.approx(figures["none", 1]["p50_ms"], abs=0.001)
    assert parts[alone["largest"]] == max(parts.values())


def test_text_names_the_best_method(root: Path) -> None:
    code, stdout, stderr = _run(root, "--seconds=0.05", "--bytes=0")
    assert code == 0, stderr
    assert "raw fsync" in stdout
    assert "\n--sync " in stdout
    assert "\nA put alone waits " in stdout
    assert not root.exists(), "it must remove the folder that it created"


def test_an_existing_spool_is_not_changed(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        queue = spool.queue("jobs", create=True)
        queue.put(b"mine")
        before = sorted(path.name for path in root.iterdir())
        assert _run(root, "--seconds=0.05")[0] == 0
        assert sorted(path.name for path in root.iterdir()) == before
        assert spool.queues() == ["jobs"]
        assert [message.body for message in queue.claim()] == [b"mine"]


def test_a_signal_ends_it_cleanly(root: Path) -> None:
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


def test_a_failing_disk_is_reported() -> None:
    code, _, stderr = _run(Path("/proc/fsmq"), "--seconds=0.05")
    assert code == 1
    assert stderr.startswith("fsmq: cannot measure in /proc/fsmq: ")
    assert "Traceback" not in stderr


def _figures(**rates: tuple[float, float, float]) -> list[Figure]:
    """Figures from the rates of methods at groups of 1, 8 and 64."""
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


def test_fsync_is_advised_where_syncfs_was_not_measured() -> None:
    assert advise(_figures(fsync=(1, 2, 3))).sync == "fsync"
