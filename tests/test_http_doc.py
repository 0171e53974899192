"""The examples of docs/http.md, run by a shell with the real curl against a real suite."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fsmq.http.problems import STATUS
from fsmq.spool.settings import DEFAULTS
from tests.suite import HOME, Suite, eventually

DOCUMENT = HOME / "docs" / "http.md"
END = "-- end of a command --"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
EXPIRY = re.compile(r"\.x[0-9a-f]+")


class Example(NamedTuple):
    """One line of shell, and the lines that it prints."""

    line: int
    command: str
    output: list[str]


def examples(document: Path = DOCUMENT) -> list[Example]:
    """All examples, in the order of the document."""
    found: list[Example] = []
    inside = False
    for number, line in enumerate(document.read_text().split("\n"), 1):
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.startswith("# -> "):
            found[-1].output.append(line.removeprefix("# -> "))
        elif inside:
            found.append(Example(number, line, []))
    return found


class Shell:
    """A shell that remembers its variables from one command to the next."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._process = subprocess.Popen(
            ["bash", "-u"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.run(f"base={suite.url}")

    def run(self, command: str) -> list[str]:
        """What a command prints, when the mover has done with what it posted."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\nprintf '\\n%s\\n' '{END}'\n")
        stdin.flush()
        printed = "".join(iter(stdout.readline, END + "\n"))
        eventually(lambda: not list((self._suite.root / "new").iterdir()))
        return printed.strip("\n").split("\n") if printed.strip("\n") else []

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def shell(root: Path) -> Iterator[Shell]:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("there is no curl, or no bash")
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    if tuple(map(int, version.stdout.split()[1].split(".")[:2])) < (7, 84):
        pytest.skip("this curl cannot print a header of an answer")
    with Suite(root) as suite:
        opened = Shell(suite)
        try:
            yield opened
        finally:
            opened.close()


def normal(lines: list[str]) -> list[str]:
    """Lines with what differs from run to run taken out."""
    return [EXPIRY.sub(".xTIME", UUID.sub("UUID", line)).rstrip("\r") for line in lines]


def test_every_example_prints_what_the_document_says(shell: Shell) -> None:
    found = examples()
    assert len(found) > 20
    for example in found:
        printed = normal(shell.run(example.command))
        assert printed == normal(example.output), f"line {example.line}: {example.command}"


def test_every_type_of_error_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", text, re.MULTILINE))
    assert documented == {(kind, str(status)) for status, kind, _ in STATUS.values()}


def test_every_setting_of_a_queue_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^\| `{name}` \|", text, re.MULTILINE), name
