"""The raw floors: plain loops that create, write and sync files, and do nothing else.

- a serial loop: create, write, fsync, close;
- groups with one syncfs, whose files may be renamed into another folder at the end;
- the steps of a durable message: groups under dot-names, one sync, then a rename of each into
  another folder. These are in C (`floor.c`) where there is a compiler, else in Python.

A process of its own, so that it shares nothing with what is measured against it:

    python -m benchmarks.floor FOLDER --seconds 3 --size 1024 [--group 1000 [--to OTHER [--each]]]
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SOURCE = Path(__file__).with_name("floor.c")


def floor(folder: Path, seconds: float, size: int, group: int = 0, to: Path | None = None) -> float:
    """Files a second; ``group`` 0 is an fsync for each, N one syncfs after each N.

    to: when all are written, each is renamed into this folder, with one more syncfs.
    """
    return _told(_python(folder, seconds, size, group, to))


def stored(folder: Path, seconds: float, size: int, group: int) -> float:
    """Files a second, stored as messages are: each group synced and then renamed, one by one."""
    written, shown = folder / "written", folder / "new"
    for made in (written, shown):
        made.mkdir()
    program = _program()
    if program is None:
        return _told([*_python(written, seconds, size, group, shown), "--each"])
    return _told([str(program), str(written), str(shown), str(seconds), str(size), str(group)])


def language() -> str:
    """What `stored` is written in, for notes."""
    return "Python: no C compiler" if _program() is None else "C"


@cache
def _program() -> Path | None:
    """The floor in C, compiled when it is first needed; None without a compiler that can."""
    folder = Path(tempfile.mkdtemp(prefix="fsmq-floor-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "floor"
    command = ["cc", "-O2", "-o", str(program), str(_SOURCE)]
    try:
        subprocess.run(command, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return program


def _python(folder: Path, seconds: float, size: int, group: int, to: Path | None) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.floor", str(folder), f"--group={group}"]
    command += [f"--seconds={seconds}", f"--size={size}"]
    return command + ([] if to is None else [f"--to={to}"])


def _told(command: list[str]) -> float:
    home = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


def serial(folder: Path, seconds: float, body: bytes) -> float:
    """One file after the other, each fsynced."""
    started = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) - started < seconds or not count:
        _write(folder / str(count), body, alone=True)
        count += 1
    return count / (now - started)


def grouped(folder: Path, seconds: float, body: bytes, group: int, to: Path | None = None) -> float:
    """Groups of files, one syncfs after each; then, if they are to go elsewhere, all renames."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    started = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) - started < seconds or not count:
        for index in range(count, count + group):
            _write(folder / str(index), body)
        _syncfs(directory)
        count += group
    if to is not None:
        for index in range(count):
            os.rename(folder / str(index), to / f"{folder.name}-{index}")
        _syncfs(directory)
        now = time.perf_counter()
    os.close(directory)
    return count / (now - started)


def shown(folder: Path, seconds: float, body: bytes, group: int, to: Path) -> float:
    """What `floor.c` does: groups under dot-names, one sync, then a rename of each."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    started = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) - started < seconds or not count:
        numbers = range(count, count + group)
        for index in numbers:
            _write(folder / f".{index}", body, alone=group == 1)
        if group > 1:
            _syncfs(directory)
        for index in numbers:
            os.rename(folder / f".{index}", to / str(index))
        count += group
    os.close(directory)
    return count / (now - started)


def _write(path: Path, body: bytes, *, alone: bool = False) -> None:
    """Write a file; ``alone`` is with an fsync of its own."""
    fd = os.open(path, _FLAGS, 0o600)
    os.write(fd, body)
    if alone:
        os.fsync(fd)
    os.close(fd)


def _syncfs(directory: int) -> None:
    if ctypes.CDLL(None, use_errno=True).syncfs(directory):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many files a second are made durable.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--each", action="store_true", help="rename each group behind its sync")
    given = parser.parse_args()
    body = os.urandom(given.size)
    if given.each:
        print(shown(given.folder, given.seconds, body, given.group, given.to))
    elif given.group:
        print(grouped(given.folder, given.seconds, body, given.group, given.to))
    else:
        print(serial(given.folder, given.seconds, body))


if __name__ == "__main__":
    main()
