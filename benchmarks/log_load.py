"""Loads for ordered logs, each in a process of its own; prints seconds, and those of the CPU.

python -m benchmarks.log_load WHAT FOLDER [--number 5000] [--size 4096] [--channels 0] [--threads 1]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fsmq.spool import Spool
from fsmq.spool.log.log import Log

_BATCH = 1000
_DAY_S = 86_400.0


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


def held(given: argparse.Namespace) -> float:
    """Seconds of 2000 claims of one message and their dones, by as many processes as ``threads`` in
    turn, where every second message is done, and a fifth given up for a day, each by itself."""
    with ExitStack() as stack:
        # What is made before is not measured, so it needs no sync.
        spool = stack.enter_context(Spool(given.folder / "mq", sync="none", delivers=False))
        log = spool.log("bench", create=True)
        for _ in range(given.number // _BATCH):
            log.publish_many([b"x"] * _BATCH)
        log.channel("held").create("first", order="none")
        while messages := log.channel("held").claim(_BATCH, visibility=_DAY_S):
            log.channel("held").ack(*(message for message in messages if message.offset % 2))
        for offset in range(0, 2 * given.number // 5, 2):
            log.channel("held").release(offset, delay=_DAY_S)
        log.publish_many([b"x"] * 2100)
        spools = [
            stack.enter_context(Spool(given.folder / "mq", delivers=False))
            for _ in range(given.threads)
        ]
        channels = [spool.log("bench").channel("held") for spool in spools]
        for one in channels:
            one.ack(*one.claim(1))
        os.sync()

        def run() -> None:
            for turn in range(2000):
                one = channels[turn % len(channels)]
                assert one.ack(*one.claim(1)) == 1

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


LOADS = {load.__name__: load for load in (raw_batch, raw_one, batch, one, threads, consume, held)}


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
