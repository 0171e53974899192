"""The examples of docs/cli.md, run by a shell against a real suite, most of them on its server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.cli import COMMANDS
from fsmq.cli.config import config
from fsmq.cli.failures import Exit
from fsmq.spool.settings import DEFAULTS
from tests.cli.helpers import environment
from tests.suite import HOME, Suite, eventually

DOCUMENT = HOME / "docs" / "cli.md"
END = "-- end of a command --"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(\.h)?")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Example(NamedTuple):
    """One line of shell, and the lines that it prints."""

    line: int
    command: str
    output: list[str]


def examples() -> list[Example]:
    found: list[Example] = []
    inside = False
    for number, line in enumerate(DOCUMENT.read_text().split("\n"), 1):
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.startswith("# -> "):
            found[-1].output.append(line.removeprefix("# -> "))
        elif inside:
            found.append(Example(number, line, []))
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell whose fsmq works on a suite of its own; ``$root`` is the folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fsmq").write_text(f'#!/bin/sh\nexec {sys.executable} -m fsmq.cli "$@"\n')
    (programs / "fsmq").chmod(0o755)
    with Suite(tmp_path / "mq") as suite:
        env = environment(FSMQ_AT=suite.url, root=str(suite.root))
        process = subprocess.Popen(
            ["bash", "-u"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=env | {"PATH": f"{programs}:{env['PATH']}"},
        )
        yield process
        process.kill()
        process.communicate()


@pytest.mark.timeout(300)  # dozens of processes, on a machine that may be busy
def test_every_example_prints_what_the_document_says(
    shell: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert shell.stdin is not None
    assert shell.stdout is not None
    found = examples()
    assert len(found) > 30
    for example in found:
        shell.stdin.write(f"{example.command}\nprintf '\\n%s\\n' '{END}'\n")
        shell.stdin.flush()
        lines = "".join(iter(shell.stdout.readline, f"{END}\n")).rstrip("\n").splitlines()
        printed = [MOMENT.sub("TIME", UUID.sub("UUID", line)) for line in lines]
        assert printed == example.output, f"line {example.line}: {example.command}"
        # What was put is delivered in a moment; the next command counts on it.
        eventually(lambda: not list((tmp_path / "mq" / "new").iterdir()))


def test_every_verb_and_every_exit_code_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for verbs in COMMANDS.values():
        for verb in verbs:
            assert re.search(rf"`{verb}`|fsmq {verb}\b", text), verb
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert {int(code) for code in Exit} <= documented


def test_every_setting_is_in_the_help_of_config() -> None:
    assert config.help is not None
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^ *{name} ", config.help, re.MULTILINE), name
