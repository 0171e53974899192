"""What the tests of the command share: the real `fsmq`, run as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.forkserver import environment, run

FSMQ = [sys.executable, "-m", "fsmq.cli"]


class Command:
    """`fsmq` at one place."""

    def __init__(self, at: str | Path) -> None:
        self.at = str(at)

    def __call__(
        self, *arguments: str | Path, code: int | None = 0, stdin: bytes = b"", **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a verb to its end; its exit code is ``code``, unless that is None."""
        done = run("fsmq.cli", list(map(str, arguments)), environment(FSMQ_AT=self.at) | env, stdin)
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def out(self, *arguments: str | Path, **more: Any) -> str:
        """What a verb prints."""
        return self(*arguments, **more).stdout.decode()

    def json(self, *arguments: str | Path, **more: Any) -> Any:
        """The one document that a verb prints."""
        return json.loads(self(*arguments, "--json", **more).stdout)

    def lines(self, *arguments: str | Path, **more: Any) -> list[Any]:
        """The lines of JSON that a verb prints."""
        printed = self(*arguments, "--json", **more).stdout
        return [json.loads(line) for line in printed.splitlines()]

    def counts(self, queue: str) -> dict[str, int]:
        """A queue's messages by state, without zeros. A server's answer may be 0.2 seconds old."""
        found: dict[str, int] = self.json("stat", queue)["messages"]
        return {state: count for state, count in found.items() if count}


def completed(shell: str, words: list[str], alone: Command) -> list[str]:
    """What a shell is offered for the last of the words, one ``kind,value`` each."""
    env = {
        "_FSMQ_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return alone.out(**env).split()
