"""Loads for ordered logs, each in a process of its own; prints seconds, and those of the CPU.

python -m benchmarks.log_load WHAT FOLDER [--number 5000] [--size 4096] [--channels 0] [--threads 1]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.log.log import Log

_BATCH = 1000


def raw_batch(given: argparse.Namespace) -> float:
    """Seconds of one write of all bytes, and an fdatasync."""
    data = os.urandom(given.size) * given.number
    fd = _file(given.folder)
    started = time.perf_counter()
    os.write(fd, data)
    os.fdatasync(fd)
    return time.perf_counter() - started


def raw_one(given: argparse.Namespace) -> float:
    """Seconds of appends with an fdatasync each."""
    data = os.urandom(given.size)
    fd = _file(given.folder)
    started = time.perf_counter()
    for _ in range(given.number):
        os.write(fd, data)
        os.fdatasync(fd)
    return time.perf_counter() - started


def _file(folder: Path) -> int:
    fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fsync(fd)
    return fd


def batch(given: argparse.Namespace) -> float:
    """Seconds of one publish_many."""
    bodies = [os.urandom(given.size)] * given.number
    with _log(given) as log:
        return _timed(lambda: log.publish_many(bodies))


def one(given: argparse.Namespace) -> float:
    """Seconds of publishes one after the other."""
    body = os.urandom(given.size)

    def run(log: Log) -> None:
        for _ in range(given.number):
            log.publish(body)

    with _log(given) as log:
        return _timed(lambda: run(log))


def threads(given: argparse.Namespace) -> float:
    """Seconds of publishes by threads, one message each time."""
    body = os.urandom(given.size)
    left = iter(range(given.number))

    def work(log: Log) -> None:
        for _ in left:
            log.publish(body)

    def run(log: Log) -> None:
        workers = [threading.Thread(target=work, args=(log,)) for _ in range(given.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    with _log(given) as log:
        return _timed(lambda: run(log))


def consume(given: argparse.Namespace) -> float:
    """Seconds in which each channel claims and finishes all messages, in batches of 1000."""
    bodies = [os.urandom(given.size)] * _BATCH
    with _log(given) as log:
        for _ in range(given.number // _BATCH):
            log.publish_many(bodies)
        channels = [log.channel(f"c{number}") for number in range(given.channels)]

        def run() -> None:
            for channel in channels:
                got = 0
                while messages := channel.claim(_BATCH):
                    got += channel.done_through(messages[-1])
                assert got == given.number // _BATCH * _BATCH

        return _timed(run)


class _log:  # noqa: N801
    def __init__(self, given: argparse.Namespace) -> None:
        self._spool = Spool(given.folder / "mq", delivers=False)
        self._given = given

    def __enter__(self) -> Log:
        log = self._spool.log("bench", create=True)
        for number in range(self._given.channels):
            log.channel(f"c{number}", create=True)
        log.publish(b"first")
        for number in range(self._given.channels):
            log.channel(f"c{number}").seek("last")
        os.sync()  # what making all this has left to be written is no part of a load
        return log

    def __exit__(self, *exception: object) -> None:
        self._spool.close()


_cpu = [0.0]


def _timed(work: Callable[[], object]) -> float:
    started, before = time.perf_counter(), time.process_time()
    work()
    _cpu[0] = time.process_time() - before
    return time.perf_counter() - started


LOADS = {load.__name__: load for load in (raw_batch, raw_one, batch, one, threads, consume)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the seconds that a load has taken.")
    parser.add_argument("what", choices=sorted(LOADS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=5000)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--channels", type=int, default=0)
    parser.add_argument("--threads", type=int, default=64)
    given = parser.parse_args()
    print(LOADS[given.what](given), _cpu[0])


if __name__ == "__main__":
    main()
