"""The slow neighbour: writes at a steady rate to one file, as a backup or a log would.

    python -m benchmarks.writer FILE --megabytes 200

It says "writing" when it has begun, and goes on until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 20
# The file is written over from its start when it has this size.
_LONGEST = 1 << 30


@contextlib.contextmanager
def neighbour(file: Path, megabytes: int) -> Iterator[None]:
    """Have another process write ``megabytes`` (10^6 bytes) a second meanwhile."""
    command = [sys.executable, "-m", "benchmarks.writer", str(file), f"--megabytes={megabytes}"]
    home = Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def write(file: Path, megabytes: int) -> None:
    """Write for ever."""
    piece = os.urandom(_PIECE)
    interval = _PIECE / (megabytes * 1_000_000)
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    at = 0
    due = time.perf_counter()
    print("writing", flush=True)
    while True:
        os.pwrite(fd, piece, at)
        at = (at + _PIECE) % _LONGEST
        # Behind its rate it writes as fast as it can, but it does not make up for the past.
        due = max(due + interval, time.perf_counter() - 1)
        time.sleep(max(0.0, due - time.perf_counter()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write to a file at a steady rate.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--megabytes", type=int, default=200)
    given = parser.parse_args()
    write(given.file, given.megabytes)


if __name__ == "__main__":
    main()
