"""A forked program cannot tell that it was forked, and ends like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.forkserver import Forked, ForkServer
from tests.harness.suite import HOME, PATIENCE_S

MODULE = "tests.harness.introduces_itself"


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HOME)}


@pytest.fixture(scope="module")
def server(environ: dict[str, str]) -> ForkServer:
    return ForkServer([MODULE], environ)


def started(server: ForkServer | None, folder: Path, environ: dict[str, str], told: str) -> Any:
    """What the program says of itself, its stderr, its exit code."""
    folder.mkdir()
    options = ["7", "--more=ä b"]
    (folder / "in").write_text(told)
    with (
        (folder / "in").open("rb") as stdin,
        (folder / "out").open("wb") as out,
        (folder / "err").open("wb") as err,
    ):
        process: Forked | subprocess.Popen[bytes]
        if server is not None:
            files = [file.fileno() for file in (stdin, out, err)]
            process = server.start(MODULE, options, environ, files)
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE, *options],
                cwd=HOME,
                env=environ,
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        code = process.wait(PATIENCE_S)
    said = json.loads((folder / "out").read_text())
    said["stdin"] = said["stdin"].removeprefix(str(folder))
    return said, (folder / "err").read_text(), code


def test_it_is_given_what_an_interpreter_is_given(
    tmp_path: Path, server: ForkServer, environ: dict[str, str]
) -> None:
    environ = {**environ, "OF_ITS_OWN": "ü"}
    alone = started(None, tmp_path / "alone", environ, "a line\n")
    assert started(server, tmp_path / "forked", environ, "a line\n") == alone
    assert alone[1:] == ("a line\n", 7)


def test_an_error_ends_it_as_an_interpreter(
    tmp_path: Path, server: ForkServer, environ: dict[str, str]
) -> None:
    _, alone, code = started(None, tmp_path / "alone", environ, "")
    _, forked, same = started(server, tmp_path / "forked", environ, "")
    assert (code, same) == (1, 1)
    last = "EOFError: EOF when reading a line"
    assert alone.strip().split("\n")[-1] == forked.strip().split("\n")[-1] == last


def test_a_signal_ends_it(tmp_path: Path, server: ForkServer, environ: dict[str, str]) -> None:
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
