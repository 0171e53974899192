"""Controls rivals on two hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.harness.hosts import Host


class Remote:
    """A rival on a host. Call it with a step, or begin one and read its answer later."""

    def __init__(self, host: Host, root: Path) -> None:
        command = [*host.enter, sys.executable, "-m", "tests.nfs.rival", str(root)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, step: str, *arguments: Any) -> Any:
        self.begin(step, *arguments)
        return self.end()

    def begin(self, step: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([step, *arguments]) + "\n")

    def end(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "a rival has ended; its traceback is above"
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Rivals:
    """A rival on each of two hosts, until the end of the ``with``."""

    def __init__(self, one: Host, two: Host, root: Path) -> None:
        self._both = (Remote(one, root), Remote(two, root))

    def __enter__(self) -> tuple[Remote, Remote]:
        return self._both

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for rival in self._both:
            rival.close()


def at_once(one: Remote, two: Remote, *step: Any) -> tuple[Any, Any]:
    """Run the same step on both at once; both answers."""
    one.begin(*step)
    two.begin(*step)
    return one.end(), two.end()
