"""Helpers of the tests of the command: the real `fsmq`, run as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fsmq.cli import main
from fsmq.cli.grammar import newer
from fsmq.daemons import mover, mq, reaper
from tests.harness.forkserver import environment, run

PROGRAMS = {"fsmq": main, "mq": mq.main, "mq-mover": mover.main, "mq-reaper": reaper.main}
FSMQ = [sys.executable, "-m", "fsmq.cli"]


def commands(*, groups: bool = False) -> Iterator[tuple[str, click.Command]]:
    """Commands by the words after `fsmq`. groups: whether to include groups of commands."""
    return _below(main, "", groups)


def _below(of: click.Group, typed: str, groups: bool) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(of)
    for word in of.list_commands(context):
        command = of.get_command(context, word)
        assert command is not None
        if groups or not isinstance(command, click.Group):
            yield typed + word, command
        if isinstance(command, click.Group):
            yield from _below(command, f"{typed}{word} ", groups)


def parsed(program: str, *words: str) -> str:
    """The command that click finds for some words; UsageError if it refuses them."""
    assert newer(words) == [*words], words
    command, name, rest = PROGRAMS[program], program, [*words]
    context: click.Context | None = None
    while isinstance(command, click.Group) and rest:
        context = click.Context(command, info_name=name, parent=context)
        found, below, rest = command.resolve_command(context, rest)
        assert found is not None
        assert below is not None
        name, command = found, below
    return command.make_context(name, rest, parent=context).command_path


class Command:
    """`fsmq` on one spool or server."""

    def __init__(self, at: str | Path) -> None:
        self.at = str(at)

    def __call__(
        self, *arguments: str | Path, code: int | None = 0, stdin: bytes = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command and check its exit code, unless ``code`` is None."""
        done = run("fsmq.cli", list(map(str, arguments)), environment(FSMQ_AT=self.at) | env, stdin)
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command as a process. options: of Popen."""
        return subprocess.Popen([*FSMQ, *arguments], env=environment(FSMQ_AT=self.at), **options)

    def out(self, *arguments: str | Path, **more: Any) -> str:
        """What a command prints."""
        return self(*arguments, **more).stdout.decode()

    def json(self, *arguments: str | Path, **more: Any) -> Any:
        """The JSON document that a command prints."""
        return json.loads(self(*arguments, "--json", **more).stdout)

    def lines(self, *arguments: str | Path, **more: Any) -> list[Any]:
        """The lines of JSON that a command prints."""
        printed = self(*arguments, "--json", **more).stdout
        return [json.loads(line) for line in printed.splitlines()]

    def counts(self, queue: str) -> dict[str, int]:
        """A queue's messages by state, without zeros. A server's answer may be 0.2 seconds old."""
        found: dict[str, int] = self.json("queue", "show", queue)["messages"]
        return {state: count for state, count in found.items() if count}


def completed(shell: str, words: list[str], alone: Command) -> list[str]:
    """The completions of the last word, each as ``kind,value``."""
    env = {
        "_FSMQ_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return alone.out(**env).split()
