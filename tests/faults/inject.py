"""Injects faults of system calls into running programs with strace."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.suite import PATIENCE_S, Suite, eventually

SYNCS = "fsync,syncfs"
RENAMES = "renameat,renameat2"
# All calls of the spool on a disk.
WHOLE_DISK = f"{SYNCS},{RENAMES},openat,unlinkat,mkdirat,newfstatat,utimensat"
PROGRAMS = ("mq", "mover", "reaper")


class Fault:
    """An injected fault."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def log(self) -> str:
        """The trace of strace: calls behind the numbers of their threads."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def hits(self) -> int:
        """The number of affected calls."""
        return len(re.findall(r"(?m)\((?:INJECTED|DELAYED)\)$", self.log))


@contextmanager
def injected(
    suite: Suite,
    *rules: str,
    programs: Sequence[str] = PROGRAMS,
    paths: Sequence[Path] = (),
) -> Iterator[Fault]:
    """Inject faults with rules of strace's ``inject=``, such as ``fsync:error=EIO:when=2``.

    paths: only calls with one of these, as a path, a file or the folder of a relative path.
    """
    log = suite.log_folder / "strace"
    log.unlink(missing_ok=True)
    command = [*strace(log, rules, paths)]
    pids = [suite[name].pid for name in programs if suite[name].is_running()]
    for pid in pids:
        command += ["-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _await_attached(tracer, len(pids))
        yield Fault(log)
    finally:
        end(tracer)


def strace(log: Path, rules: Sequence[str], paths: Sequence[Path] = ()) -> list[str]:
    """A command of strace, without the program."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace, which injects the faults, is not installed")
    calls = ",".join(rule.partition(":")[0] for rule in rules)
    command = [found, "-f", "-o", str(log), "-e", f"trace={calls}"]
    for path in paths:
        command += ["-P", str(path)]
    for rule in rules:
        command += ["-e", f"inject={rule}"]
    return command


def end(tracer: subprocess.Popen[str]) -> None:
    """Detach a tracer from its programs."""
    tracer.send_signal(signal.SIGTERM)
    try:
        tracer.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.communicate()
        raise


def tracer_of(pid: int) -> int:
    """The tracer of a process; 0: none."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"(?m)^TracerPid:\s*(\d+)", status)[1])  # type: ignore[index]


def _await_attached(tracer: subprocess.Popen[str], number: int) -> None:
    assert tracer.stderr is not None
    attached = 0
    while attached < number:
        line = tracer.stderr.readline()
        if not line or "Operation not permitted" in line:
            pytest.skip(f"strace may not trace here: {line.strip()}")
        attached += " attached" in line


def limit_files(pid: int, number: int) -> tuple[int, int]:
    """Limit the open files of a running process; its limits before."""
    import resource

    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, before[1]))
    return before


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_s(pid: int) -> float:
    """The processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """The memory of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"(?m)^VmRSS:\s*(\d+)", status)[1]) * 1024  # type: ignore[index]


__all__ = ["PROGRAMS", "RENAMES", "SYNCS", "WHOLE_DISK", "Fault", "eventually", "injected"]
