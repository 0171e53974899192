"""Processes that use a spool with every verb until they are stopped."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from fsmq.spool import DuplicateMessage, NewMessage, NoSuchMessage, NoSuchQueue, Spool, Unavailable

_PROCESSES = multiprocessing.get_context("spawn")
_PATIENCE_S = 30.0


@contextmanager
def busy(root: Path, processes: int = 1) -> Iterator[None]:
    """Use the spool in background processes; an error in them fails the test."""
    stop = _PROCESSES.Event()
    running = []
    for number in range(processes):
        started = _PROCESSES.Event()
        process = _PROCESSES.Process(target=_work, args=(root, number, started, stop))
        process.start()
        running.append(process)
        assert started.wait(_PATIENCE_S), "the busy process did not start"
    try:
        yield
    finally:
        stop.set()
        for process in running:
            process.join(_PATIENCE_S)
            process.kill()
    assert [process.exitcode for process in running] == [0] * processes


def _work(root: Path, number: int, started: Event, stop: Event) -> None:
    chance = random.Random(number)
    with Spool(root, sync="none") as spool:
        while not stop.is_set():
            try:
                _round(spool, number, chance)
            except (NoSuchQueue, NoSuchMessage, DuplicateMessage, Unavailable):
                continue  # another busy process was faster
            started.set()


def _round(spool: Spool, number: int, chance: random.Random) -> None:
    jobs = spool.queue("jobs", create=True)
    own = f"own-{number}-{chance.randrange(50)}"
    jobs.put_many([b"x" * 100] * 20)
    jobs.put(b"later", delay=0.001 * chance.randrange(100), content_type="text/plain")
    try:
        jobs.put(b"mine", id=own)
    except DuplicateMessage:
        jobs.remove(own)
    for message in jobs.claim(15, visibility=chance.choice([0.0, 0.001, 0.02, 30.0])):
        action = chance.randrange(4)
        if action == 0:
            jobs.renew(message.id, 0.005)
        elif action == 1:
            jobs.release(message.id)
        else:
            jobs.remove(message.id)
    brief = spool.queue(f"brief-{number}", create=True)
    brief.put_many([NewMessage(b"y", priority=3)] * 20)
    chance.choice([brief.delete, brief.purge, lambda: brief.move_to("jobs")])()
    if chance.randrange(10) == 0:
        spool.reap()
        jobs.purge()
