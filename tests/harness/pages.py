"""Runs the examples of the docs and compares their output.

- All blocks of a page marked ``sh`` or ``python`` run in order, in one shell, in an empty folder.
  The root, ``/tmp/mq`` or ``/var/lib/fsmq``, and the port ``8080`` are replaced by those of the
  test.
- A real suite runs on that root, unless a block starts one itself (``fsmq up``).
- A command has to succeed. Lines that begin with ``# -> `` show its whole output; ``…`` stands for
  anything, and as a line for any number of lines. Without such lines the output is not compared.
- A block that no test can run begins with the line ``# not run by a test: WHY``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.desk import Forking
from tests.harness.ports import held
from tests.harness.suite import HOME, Suite, eventually

if TYPE_CHECKING:
    from tests.pipeline.sharing import Sharing

NOT_RUN = "# not run by a test: "
SHOWN = "# -> "
_DOCUMENTED_ROOTS = {"/tmp/mq": "mq", "/var/lib/fsmq": "mq"}
_DOCUMENTED_PORT = "8080"
_END = "-- end of a command --"
# A complete command: a program and words, some in quotes.
_PLAIN = re.compile(r"""(?:fsmq|curl|ls|cat|mv) (?:[\w./:=%@,+-]|'[^']*'|"[^"\\`]*"|[ >])+""")
_VARYING = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(\.h)?"), "UUID"),
    (re.compile(r"\.x[0-9a-f]+"), ".xTIME"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    # The width of a column depends on other lines.
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),
]


@dataclass
class Block:
    """A fenced block of a page. line: the number of its first line."""

    language: str
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def why_not_run(self) -> str | None:
        first = self.lines[0] if self.lines else ""
        return first.removeprefix(NOT_RUN) if first.startswith(NOT_RUN) else None

    @property
    def run(self) -> list[str]:
        """The lines that a test runs."""
        if self.why_not_run is not None:
            return []
        return [line for line in self.lines if line.strip() and not line.startswith(SHOWN)]


@dataclass
class Step:
    """A command or program, and its output; without ``shown`` that is not compared."""

    line: int
    command: str
    shown: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    """The name of a page in tests."""
    return str(page.relative_to(HOME))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page with commands."""
    found: list[Block] = []
    inside: Block | None = None
    for number, line in enumerate(page.read_text().split("\n"), 1):
        if line.lstrip().startswith("```"):
            inside = None if inside else Block(line.strip("` "), number + 1)
            found += [inside] if inside else []
        elif inside:
            inside.lines.append(line)
    return [block for block in found if block.language in ("sh", "python")]


def steps(block: Block) -> list[Step]:
    """The commands of a block with their output."""
    if block.why_not_run is not None:
        return []
    if block.language == "python":
        program = "\n".join(line for line in block.lines if not line.startswith(SHOWN))
        shown = [line.removeprefix(SHOWN) for line in block.lines if line.startswith(SHOWN)]
        return [Step(block.line, f"python3 - <<'PROGRAM'\n{program}\nPROGRAM", shown)]
    found: list[Step] = []
    unfinished = False
    for number, line in enumerate(block.lines, block.line):
        if line.startswith(SHOWN):
            found[-1].shown.append(line.removeprefix(SHOWN))
        elif unfinished:
            found[-1].command += f"\n{line}"
        elif line.strip():
            found.append(Step(number, line))
        else:
            continue
        unfinished = not _is_whole(found[-1].command)
    return found


def _is_whole(command: str) -> bool:
    if _PLAIN.fullmatch(command):
        return True
    checked = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True)
    return not command.endswith("\\") and not checked.stderr


def pages_run() -> list[Path]:
    """The pages with commands that a test can run."""
    return [page for page in pages() if any(block.run for block in blocks(page))]


def uses_spark(page: Path) -> bool:
    """Whether a command of a page uses Spark."""
    return any("pipeline" in line for block in blocks(page) for line in block.run)


class Reader:
    """A shell that runs the commands of a page.

    sharing: runs the programs of the page that use Spark; without it each gets its own process.
    """

    def __init__(self, page: Path, folder: Path, sharing: Sharing | None = None) -> None:
        self.page = page
        self._sharing = sharing
        self._root = folder / "mq"
        self._suite: Suite | None = None
        self._holder: socket.socket | None = None
        starts_it = any("fsmq up" in line for block in blocks(page) for line in block.run)
        if starts_it:
            self._holder, self._port = held()
        else:
            self._suite = Suite(self._root)
            self._suite.__enter__()
            self._port = self._suite.port
        ours = ("FSMQ_", "MQ_", "PYSPARK_")
        variables = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        here = folder / "here"
        here.mkdir()
        # Without the progress meter that curl shows when it writes to a pipe.
        (here / ".curlrc").write_text("silent\nshow-error\n")
        variables |= {
            "PYTHONPATH": str(HOME),
            # In place of the real defaults.
            "FSMQ_ROOT": str(self._root),
            "FSMQ_PORT": str(self._port),
            "LC_ALL": "C.UTF-8",
            # The pytest of a page needs none of the plugins of this one.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "HOME": str(here),
        }
        self._forking = Forking(variables)
        programs = [self._forking.folder, Path(sys.executable).parent, variables["PATH"]]
        if sharing is not None:
            programs.insert(0, sharing.folder)
        self._shell = subprocess.Popen(
            ["bash", "-u"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=here,
            env=variables | {"PATH": os.pathsep.join(map(str, programs))},
            start_new_session=True,
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *of: object) -> None:
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._shell.communicate()
        self._forking.close()
        if self._suite is not None:
            self._suite.close()
        if self._holder is not None:
            self._holder.close()

    def follow(self, step: Step) -> None:
        """Run one command and compare; AssertionError if it fails or prints something else."""
        status, printed = self._run(step.command)
        where = f"{name(self.page)}, line {step.line}: {step.command}"
        assert status == 0, f"{where}\nended with {status}:\n" + "\n".join(printed)
        if step.shown:
            expected = list(map(_even, map(self._here, step.shown)))
            got = "".join(f"{_even(line)}\n" for line in printed)
            error = f"{where}\n{got}is not\n" + "\n".join(expected)
            assert re.fullmatch("".join(map(_pattern, expected)), got, re.DOTALL), error

    def follow_all(self) -> None:
        """Run every command of the page as `follow` does."""
        for block in blocks(self.page):
            for step in steps(block):
                self.follow(step)

    def _run(self, command: str) -> tuple[int, list[str]]:
        command = self._here(command)
        stdin = self._shell.stdin
        assert stdin is not None
        stdin.write(f"{command}\nprintf '\\n%s %s\\n' '{_END}' $?\n")
        stdin.flush()

        def read() -> tuple[int, list[str]]:
            return self._read(command)

        done = read() if self._sharing is None else self._sharing.until(read)
        if self._suite is not None:
            # Wait until messages are delivered, so that the next command finds them.
            eventually(lambda: not [n for n in os.listdir(self._root / "new") if n[0] != "."])
        return done

    def _read(self, command: str) -> tuple[int, list[str]]:
        """The exit code and the output of a command."""
        stdout = self._shell.stdout
        assert stdout is not None
        lines = []
        for line in stdout:
            if line.startswith(_END):
                break
            lines.append(line.rstrip("\r\n"))
        else:
            raise AssertionError(f"the shell ended at: {command}\n" + "\n".join(lines))
        while lines and not lines[-1]:
            lines.pop()
        return int(line.split()[-1]), lines

    def _here(self, text: str) -> str:
        """A text of the page with the root and the port of this run."""
        for root, ours in _DOCUMENTED_ROOTS.items():
            text = text.replace(root, str(self._root.with_name(ours)))
        return text.replace(_DOCUMENTED_PORT, str(self._port))


def missing_tool(page: Path) -> str | None:
    """Why the commands of a page cannot run on this machine; None if they can."""
    commands = "\n".join(line for block in blocks(page) for line in block.lines)
    for tool in ("bash", "curl", "gzip", "rsync", "jq"):
        if re.search(rf"\b{tool}\b", commands) and shutil.which(tool) is None:
            return f"there is no {tool}"
    for package in ("boto3", "flask", "fastapi"):
        is_used = f"import {package}" in commands or f"from {package} " in commands
        if is_used and find_spec(package) is None:
            return f"there is no {package}"
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True)
    if tuple(map(int, version.stdout.split()[1].split(".")[:2])) < (7, 84):
        return "this curl cannot print a header of an answer"
    return None


def _pattern(line: str) -> str:
    """A pattern for a line of the output and its end."""
    if line == "…":
        return r"(?:.*\n)?"
    return ".*".join(map(re.escape, line.split("…"))) + r"\n"


def _even(line: str) -> str:
    """A line without the parts that differ from run to run."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line
