"""The raw floor: create, write, fsync, close in a plain loop, and groups with one syncfs.

A process of its own, so that it shares nothing with what is measured against it:

    python -m benchmarks.floor FOLDER --seconds 3 --size 1024 [--group 1000 [--to OTHER]]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def floor(folder: Path, seconds: float, size: int, group: int = 0, to: Path | None = None) -> float:
    """Files a second; ``group`` 0 is an fsync for each, N one syncfs after each N.

    to: when all are written, each is renamed into this folder, with one more syncfs.
    """
    command = [sys.executable, "-m", "benchmarks.floor", str(folder), f"--group={group}"]
    command += [f"--seconds={seconds}", f"--size={size}"]
    command += [] if to is None else [f"--to={to}"]
    home = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


def serial(folder: Path, seconds: float, body: bytes) -> float:
    """One file after the other, each fsynced."""
    started = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) - started < seconds or not count:
        fd = os.open(folder / str(count), _FLAGS, 0o600)
        os.write(fd, body)
        os.fsync(fd)
        os.close(fd)
        count += 1
    return count / (now - started)


def grouped(folder: Path, seconds: float, body: bytes, group: int, to: Path | None = None) -> float:
    """Groups of files, one syncfs after each; then, if they are to go elsewhere, all renames."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    started = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) - started < seconds or not count:
        for index in range(count, count + group):
            fd = os.open(folder / str(index), _FLAGS, 0o600)
            os.write(fd, body)
            os.close(fd)
        _syncfs(directory)
        count += group
    if to is not None:
        for index in range(count):
            os.rename(folder / str(index), to / f"{folder.name}-{index}")
        _syncfs(directory)
        now = time.perf_counter()
    os.close(directory)
    return count / (now - started)


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
    given = parser.parse_args()
    body = os.urandom(given.size)
    if given.group:
        print(grouped(given.folder, given.seconds, body, given.group, given.to))
    else:
        print(serial(given.folder, given.seconds, body))


if __name__ == "__main__":
    main()
