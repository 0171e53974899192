"""Every command has examples in its ``--help``, and they work."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import pytest

from tests.cli.helpers import PROGRAMS, commands, parsed
from tests.cli.prepared import UUID, prepare
from tests.harness.desk import Forking
from tests.harness.forkserver import environment
from tests.harness.rounds import part_of

COMMANDS = PROGRAMS | {f"fsmq {name}": command for name, command in commands(groups=True)}
# Examples that run until stopped, need a server, Spark or root, or measure.
NOT_RUN = re.compile(
    r"--follow|--watch|--exec|^tail|^fsmq (up|work|bench)|^fsmq top$|^mq|http:|pipeline|> /etc"
)
# Exit codes other than 0: nothing is recorded or that old; a warning.
CODES = {
    "fsmq queue history jobs": 1,
    "fsmq queue history jobs --since 2d --step 1h": 1,
    "fsmq peek jobs.dead --contains refund --older-than 1d": 1,
    "fsmq doctor": 1,
    "fsmq life jobs/order-4711": 3,
    "fsmq restore backups/20261130T020000Z --root restored": 2,
}


def examples(command: click.Command) -> list[str]:
    _, _, text = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    return [line.strip() for line in text.partition("\n\n")[0].splitlines()]


LINES = [(name, line) for name, command in COMMANDS.items() for line in examples(command)]


def called(line: str) -> Iterator[str]:
    """The commands that a line calls; UsageError if click refuses one."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    for _, part in groupby(lexer, lambda word: set(word) <= set("|<>")):
        words = [*part]
        for word in words:
            if nested := re.fullmatch(r"\$\((.*)\)", word):
                yield from called(nested[1])
        if words[0] in PROGRAMS:
            yield parsed(*words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_one_to_three_examples(name: str) -> None:
    assert 1 <= len(examples(COMMANDS[name])) <= 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "refund.json").write_text("{}")
    (tmp_path / "fsmq.toml").write_text("port = 8080")
    return tmp_path


@pytest.mark.parametrize(("name", "line"), LINES, ids=[line for _, line in LINES])
def test_an_example_is_parsed(name: str, line: str, folder: Path) -> None:
    paths = [*called(line)]
    assert any(path == name or path.startswith(f"{name} ") for path in paths), paths


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    running = Forking(environment())
    yield running
    running.close()


RUN = [line for _, line in LINES if not NOT_RUN.search(line)]


@pytest.mark.parametrize("line", part_of(RUN[:: len(RUN) // 10], RUN))
def test_an_example_runs(line: str, folder: Path, forking: Forking) -> None:
    root = folder / "mq"
    ref = prepare(root)
    (folder / "keys.toml").touch(0o600)
    env = environment(FSMQ_AT=str(root), FSMQ_ROOT=str(root))
    env["PATH"] = f"{forking.folder}:{env['PATH']}"
    here = line.replace("/var/lib/fsmq", str(root))
    if " move " in line:
        here = here.replace(UUID, ref)
    done = subprocess.run(
        ["bash", "-c", here], cwd=folder, env=env, capture_output=True, timeout=60
    )
    assert done.returncode == CODES.get(line, 0), (here, done.stdout, done.stderr)
