"""The load for the library: put_many without any daemon, in a process of its own.

python -m benchmarks.library_load FOLDER --seconds 3 --size 1024 --group 1000
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from fsmq.spool import Spool

from .bench import QUEUE


def run(root: Path, seconds: float, size: int, group: int) -> float:
    bodies = [os.urandom(size)] * group
    with Spool(root / "mq", delivers=False) as spool:
        queue = spool.queue(QUEUE, create=True)
        queue.put_many(bodies)
        count = 0
        started = time.perf_counter()
        while (now := time.perf_counter()) - started < seconds or not count:
            count += len(queue.put_many(bodies))
    return count / (now - started)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many messages a second are put.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--group", type=int, default=1000)
    given = parser.parse_args()
    print(run(given.folder, given.seconds, given.size, given.group))


if __name__ == "__main__":
    main()
