"""The load of tasks: one sender, then one worker process; fsmq, or huey or RQ beside it.

A process of its own. The task does nothing but count; nothing keeps results.

    python -m benchmarks.task_load fsmq FOLDER --tasks 1000 --threads 8
"""

from __future__ import annotations

import argparse
import importlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Contender(NamedTuple):
    """send: sends one call, durably. work: makes all calls, and returns when they have been made.
    left: how many calls are left."""

    send: Callable[[], object]
    work: Callable[[], object]
    left: Callable[[], int]


class _Made:
    """Counts the calls that were made, in any thread."""

    def __init__(self, all: int) -> None:
        self.left = all
        self.over = threading.Event()
        self._lock = threading.Lock()

    def count(self) -> None:
        with self._lock:
            self.left -= 1
            if not self.left:
                self.over.set()


def fsmq(folder: Path, made: _Made, threads: int, port: int) -> Contender:
    """On a folder, without any program."""
    from fsmq.tasks import Tasks

    app = Tasks(folder / "mq")
    task = app.task(name="count")(made.count)

    def work() -> None:
        worker = app.worker(concurrency=threads)
        running = threading.Thread(target=worker.run)
        running.start()
        made.over.wait()
        worker.stop()
        running.join()

    def left() -> int:
        return int(app.place.queue("tasks").counts().total)

    return Contender(task.send, work, left)


def huey(folder: Path, made: _Made, threads: int, port: int) -> Contender:
    """On SQLite, synced at each commit. A call is removed before it is made."""
    huey: Any = importlib.import_module("huey")
    app = huey.SqliteHuey(filename=str(folder / "huey"), fsync=True, results=False)
    task = app.task(name="count")(made.count)

    def work() -> None:
        consumer = app.create_consumer(
            workers=threads, initial_delay=0.01, max_delay=0.01, check_worker_health=False
        )
        consumer.start()
        made.over.wait()
        consumer.stop(graceful=True)

    return Contender(task, work, app.pending_count)


def rq(folder: Path, made: _Made, threads: int, port: int) -> Contender:
    """On Redis, which the caller has started. Its worker has one thread; it keeps nothing."""
    global _counted
    rq: Any = importlib.import_module("rq")
    redis: Any = importlib.import_module("redis")
    connection = redis.Redis(port=port)
    queue = rq.Queue(connection=connection)
    _counted = made.count

    def work() -> None:
        rq.SimpleWorker([queue], connection=connection).work(burst=True, logging_level="WARNING")

    return Contender(lambda: queue.enqueue(_count, result_ttl=0), work, queue.__len__)


_counted: Callable[[], None]


def _count() -> None:
    """RQ finds its functions by their names."""
    _counted()


CONTENDERS = {"fsmq": fsmq, "huey": huey, "rq": rq}


def run(name: str, folder: Path, tasks: int, threads: int, port: int) -> dict[str, float]:
    """Calls a second: sent, made, and both one after the other. AssertionError if one is lost."""
    made = _Made(tasks)
    contender = CONTENDERS[name](folder, made, threads, port)
    began = time.perf_counter()
    for _ in range(tasks):
        contender.send()
    sent = time.perf_counter()
    contender.work()
    ended = time.perf_counter()
    assert (made.left, contender.left()) == (0, 0)
    return {
        "send": tasks / (sent - began),
        "work": tasks / (ended - sent),
        "both": tasks / (ended - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Print how many calls of a task a second.")
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    print(json.dumps(run(given.name, given.folder, given.tasks, given.threads, given.port)))


if __name__ == "__main__":
    from benchmarks.task_load import main as named

    named()  # so that RQ's worker finds the counter in the module that it imports
