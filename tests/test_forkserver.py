"""A forked program runs and ends like one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.forkserver import ForkServer, environment, fork
from tests.harness.suite import HOME, PATIENCE_S

MODULE = "tests.harness.introduces_itself"


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    ours = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return {**ours, "PYTHONPATH": str(HOME)}


@pytest.fixture(scope="module")
def server(environ: dict[str, str]) -> ForkServer:
    return ForkServer([MODULE], environ)


def alone(
    module: str, options: Sequence[str], environ: Mapping[str, str], files: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start an interpreter with the arguments of `ForkServer.start`."""
    stdin, out, err = files
    return subprocess.Popen(
        [sys.executable, "-m", module, *options],
        cwd=HOME,
        env=environ,
        stdin=stdin,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


def started(
    server: ForkServer | None, folder: Path, environ: dict[str, str], stdin_text: str
) -> Any:
    """The description that the program prints, its stderr, its exit code."""
    folder.mkdir()
    options = ["7", "--more=ä b"]
    (folder / "in").write_text(stdin_text)
    with (
        (folder / "in").open("rb") as stdin,
        (folder / "out").open("wb") as out,
        (folder / "err").open("wb") as err,
    ):
        files = [file.fileno() for file in (stdin, out, err)]
        start = alone if server is None else server.start
        process = start(MODULE, options, environ, files)
        code = process.wait(PATIENCE_S)
    printed = json.loads((folder / "out").read_text())
    printed["stdin"] = printed["stdin"].removeprefix(str(folder))
    return printed, (folder / "err").read_text(), code


def test_a_forked_program_is_given_what_an_interpreter_is_given(
    tmp_path: Path, server: ForkServer, environ: dict[str, str]
) -> None:
    environ = {**environ, "EXTRA": "ü"}
    by_itself = started(None, tmp_path / "alone", environ, "a line\n")
    assert started(server, tmp_path / "forked", environ, "a line\n") == by_itself
    assert by_itself[1:] == ("a line\na thread ends\nall ends\n", 7)


def test_an_error_ends_a_forked_program_like_an_interpreter(
    tmp_path: Path, server: ForkServer, environ: dict[str, str]
) -> None:
    _, by_itself, code = started(None, tmp_path / "alone", environ, "")
    _, forked, same = started(server, tmp_path / "forked", environ, "")
    assert (code, same) == (1, 1)
    last = ["EOFError: EOF when reading a line", "all ends"]
    assert by_itself.strip().split("\n")[-2:] == forked.strip().split("\n")[-2:] == last


@pytest.mark.parametrize("code", ["0", "7"])
def test_a_failed_write_at_the_end_is_reported(
    server: ForkServer, tmp_path: Path, code: str
) -> None:
    environ = {"PYTHONPATH": str(HOME)}  # less to print, so it is written at the end
    ends = []
    for start in (server.start, alone):
        with Path("/dev/full").open("wb") as full, (tmp_path / "err").open("w+b") as err:
            read, written = os.pipe()
            os.write(written, b"a line\n")
            process = start(MODULE, [code], environ, [read, full.fileno(), err.fileno()])
            ends.append(process.wait(PATIENCE_S))
            os.close(read)
            os.close(written)
            err.seek(0)
            assert b"No space left on device" in err.read()
    assert ends == [120, 120]


def test_a_signal_ends_a_forked_program(
    tmp_path: Path, server: ForkServer, environ: dict[str, str]
) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "out").open("wb") as out:
        files = [reading, out.fileno(), out.fileno()]
        process = server.start(MODULE, ["0"], environ, files)
    os.close(reading)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(PATIENCE_S) == process.poll() == -signal.SIGKILL
    os.close(writing)


def test_a_temporary_environment_gets_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w+b") as out:
        files = [out.fileno()] * 3
        monkeypatch.setenv("TEMPORARY", "1")
        assert fork("fsmq.cli", ["--version"], environment(), files) is None
        monkeypatch.undo()
        process = fork("fsmq.cli", ["--version"], environment(), files)
        assert process is not None
        assert process.wait(PATIENCE_S) == 0
