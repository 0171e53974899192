"""A forked `fsmq` behaves in a shell as one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import Spool
from tests.harness.desk import Forking
from tests.harness.forkserver import environment
from tests.harness.suite import PATIENCE_S, eventually

PROGRAMS = str(Path(sys.executable).parent)


@pytest.fixture
def forking() -> Iterator[Forking]:
    running = Forking(environment())
    yield running
    running.close()


def shell(script: str, folder: Path, *places: object, **more: str) -> subprocess.Popen[str]:
    """A shell that looks for programs in these places first."""
    path = os.pathsep.join([*map(str, places), PROGRAMS, os.environ["PATH"]])
    return subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(PATH=path, FSMQ_AT=str(folder / "mq"), **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_forked_command_reads_prints_and_ends_like_a_started_one(
    tmp_path: Path, forking: Forking
) -> None:
    script = """
    fsmq queue create jobs; fsmq queue create jobs; fsmq nonsense; echo $?
    echo ä | fsmq put jobs --id one; mkdir -p in; cd in; FSMQ_AT=../mq fsmq peek jobs one --raw
    PYTHONUTF8=0 fsmq queue show jobs | head -1; fsmq queue delete jobs
    """
    outputs = []
    for name, *place in (("alone",), ("forked", forking.folder)):
        (tmp_path / name).mkdir()
        printed, _ = shell(script, tmp_path / name, *place).communicate(timeout=PATIENCE_S)
        outputs.append(printed.replace(str(tmp_path / name), "…"))
    assert outputs[0] == outputs[1]
    assert "ä" in outputs[0]
    assert forking.forked == 6, "only the command with PYTHONUTF8=0 needs its own interpreter"


def test_a_forked_command_ends_with_the_small_program(tmp_path: Path, forking: Forking) -> None:
    with Spool(tmp_path / "mq") as spool:
        spool.create_queue("jobs")
    waiting = shell("fsmq get jobs --wait 1h", tmp_path, forking.folder)
    assert waiting.stdout is not None
    eventually(lambda: forking.forked)
    os.killpg(waiting.pid, signal.SIGKILL)
    assert waiting.stdout.read() == "", "a process that still runs would hold it open"


def test_signals_are_passed_on_by_the_small_program(tmp_path: Path, forking: Forking) -> None:
    with Spool(tmp_path / "mq") as spool:
        spool.create_queue("jobs")
    waiting = shell("exec fsmq get jobs --wait 1h", tmp_path, forking.folder)
    eventually(lambda: forking.forked)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(PATIENCE_S) != 0
    assert waiting.stdout is not None
    assert "Traceback" not in waiting.stdout.read()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_the_programs_of_up_are_forked_and_end_with_it(
    tmp_path: Path, forking: Forking, number: signal.Signals, code: int
) -> None:
    root = tmp_path / "mq"
    up = shell(f"exec fsmq up --root {root} --port 0 2> log", tmp_path, forking.folder)
    assert up.stdout is not None
    assert "fsmq is up: http://127.0.0.1:" in up.stdout.readline()
    assert any("root:" in line for line in up.stdout), "the last line"
    assert forking.forked == 3
    up.send_signal(number)
    assert up.wait(PATIENCE_S) == code
    assert up.stdout.read() == "", "a process that still runs would hold it open"
