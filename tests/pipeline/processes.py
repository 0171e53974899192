"""Programs that tests kill, with all of their processes.

Most of a round of kills is the start of Spark, which is therefore made faster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.harness import suite
from tests.harness.suite import HOME

# How long a driver may take to start or to drain on a busy machine.
PATIENCE_S = 6 * suite.PATIENCE_S
CONF = HOME / "tests" / "pipeline" / "conf"


def _environment(folder: Path) -> dict[str, str]:
    """The environment of tests, for a faster start of Spark."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FSMQ_", "MQ_"))}
    return {
        **environ,
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_HOME": str(spark_home(folder)),
        "PYTHONPATH": os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")]),
    }


def spark_home(folder: Path) -> Path:
    """A copy of the installed Spark in links, without the folders ``work`` and ``python``.

    Workers of a cluster write into ``work``. ``python`` has PySpark in an archive without bytecode,
    which each Python process of Spark would compile for half a second.
    """
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = folder / "spark"
    if not home.exists():
        home.mkdir()
        for part in Path(found.origin).parent.iterdir():
            if part.name not in ("work", "python"):
                (home / part.name).symlink_to(part)
    return home


class Program:
    """A module that runs as a program; the context manager kills all of its processes.

    folder: for its log and the files of a cluster. under: a command line that starts it.
    environ: its environment.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        *arguments: object,
        under: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._log = folder / "programs.log"
        with self._log.open("ab") as log:
            self._log_from = log.tell()
            self._process = subprocess.Popen(
                [*under, sys.executable, "-m", module, *map(str, arguments)],
                cwd=HOME,
                env=environ or _environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Fail with the log if the program has ended."""
        assert self.is_running(), self.log()[-4000:]

    def output(self, patience: float = PATIENCE_S) -> str:
        """Wait for its end with exit code 0; its output."""
        out, _ = self._process.communicate(timeout=patience)
        assert self._process.returncode == 0, self.log()[-4000:] + out.decode()
        return out.decode()

    def log(self) -> str:
        """The log of this run."""
        return self._log.read_bytes()[self._log_from :].decode(errors="replace")

    def kill(self, *, alone: bool = False) -> None:
        """Kill all of its processes. alone: only the program and its JVM."""
        pid = self._process.pid
        if self.is_running():
            # By descent: Spark's Python processes are in groups of their own.
            for doomed in [pid, *_children(pid)] if alone else descendants(pid):
                _kill(doomed)
            self._process.wait()
        if not alone:
            try:  # remaining processes of its group
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def descendants(self, *words: str) -> list[int]:
        """Its processes, parents first; with words, those with one in their command line."""
        return descendants(self._process.pid, *words)

    def kill_one(self, pid: int) -> bool:
        """Kill one of its processes; False if it has ended already."""
        return _kill(pid)


def descendants(ancestor: int, *words: str) -> list[int]:
    """A process and its descendants; with words, those with one in their command line."""
    found, waiting = [], [ancestor]
    for pid in waiting:
        waiting.extend(_children(pid))
        if not words or any(word in _command(pid) for word in words):
            found.append(pid)
    return found


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants."""
    for doomed in descendants(process.pid):
        _kill(doomed)
    process.wait()


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.extend(map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found
