"""Threads and Python programs that tests run."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable

from fsmq.spool import Spool
from tests.harness.suite import HOME


def in_threads(works: Iterable[Callable[[], object]]) -> None:
    """Run each in its own thread, wait for all, and raise the first error."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def start_python(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=HOME)


def waiting(spool: Spool, number: int) -> Callable[[], bool]:
    """A function that tells whether this many sends wait for their group."""
    return lambda: sum(len(some) for _, some in spool.context.sequencer._waiting.values()) == number
