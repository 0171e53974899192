"""Programs that are to be killed: a command with all of its processes.

A round of kills is mostly Spark's start, so that it compiles less than it does for long work.
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

# A driver may need so long to start, and to drain, on a machine that does other things, too.
PATIENCE_S = 6 * suite.PATIENCE_S
CONF = HOME / "tests" / "pipeline" / "conf"


def _environment(folder: Path) -> dict[str, str]:
    """Ours, with what makes Spark start sooner."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FSMQ_", "MQ_"))}
    return {
        **environ,
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_HOME": str(spark_home(folder)),
        "PYTHONPATH": os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")]),
    }


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, without two of its parts: one is what a cluster's workers write.

    In the other, ``python``, PySpark stands once more, in an archive without bytecode. Python
    processes of Spark find it there first, and each compiles for half a second what it imports.
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
    """A module that runs as a program, with all of its processes, until it ends or is killed.

    folder: keeps its log, and what a cluster writes. under: a command line that starts it.
    environ: another environment. Use it in a ``with``: nothing outlives that.
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
        """Fail with what it has logged if it has ended by itself."""
        assert self.is_running(), self.log()[-4000:]

    def output(self, patience: float = PATIENCE_S) -> str:
        """Wait for its end, which has to be a good one; what it has printed."""
        out, _ = self._process.communicate(timeout=patience)
        assert self._process.returncode == 0, self.log()[-4000:] + out.decode()
        return out.decode()

    def log(self) -> str:
        """What this run has logged."""
        return self._log.read_bytes()[self._log_from :].decode(errors="replace")

    def kill(self, *, alone: bool = False) -> None:
        """End all of its processes at once; alone: it and its JVM, and the others find out."""
        pid = self._process.pid
        if self.is_running():
            # By descent: Spark's Python processes are in groups of their own.
            for doomed in [pid, *_children(pid)] if alone else descendants(pid):
                _kill(doomed)
            self._process.wait()
        if not alone:
            try:  # what it has left behind
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def descendants(self, *words: str) -> list[int]:
        """Its processes, or those whose command line has one of these words; parents first."""
        return descendants(self._process.pid, *words)

    def kill_one(self, pid: int) -> bool:
        """End one of its processes; False if it has ended before."""
        return _kill(pid)


def descendants(ancestor: int, *words: str) -> list[int]:
    """A process with those below it; or those whose command line has one of these words."""
    found, waiting = [], [ancestor]
    for pid in waiting:
        waiting.extend(_children(pid))
        if not words or any(word in _command(pid) for word in words):
            found.append(pid)
    return found


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End a process with all below it."""
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
