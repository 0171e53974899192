"""Processes claim from a queue with `max_in_flight`; they are killed and stopped, and calls fail.

The claims in effect are counted in the tree, so those of all processes count.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from fsmq.spool import FsmqError, Spool
from tests.harness.calls import Trap, failing, seen

MOST, MESSAGES, WORKERS = 5, 900, 3
_FORK = get_context("fork")
_SHORT_S, _LONG_S = 0.4, 3.0
_CALLS = 400
# A claim that ends while the folder is listed could be counted with its successor.
_MARGIN_MS = 20
_BETWEEN_S = (1.0, 3.0)


def work(root: Path, seed: str) -> None:
    """Claim messages and acknowledge, release or abandon them; some calls fail."""
    chance = random.Random(seed)
    with Spool(root, sync="fsync") as spool:
        while True:
            trap = Trap(chance.randrange(_CALLS), failing(chance.randrange(4)))
            with seen(trap):
                for _ in range(10):
                    try:
                        _step(spool, chance)
                    except FsmqError:
                        time.sleep(0.01)


def _step(spool: Spool, chance: random.Random) -> None:
    queue = spool.queue("jobs")
    claimed = queue.claim(
        chance.randint(1, 4), visibility=chance.choice((_SHORT_S, _LONG_S)), wait=0.1
    )
    for message in claimed:
        dice = chance.random()
        if dice < 0.4:
            message.ack()
            queue.put(message.body)  # so that the queue never runs empty
        elif dice < 0.7:
            message.release()


def story(root: Path, seconds: float, seed: str) -> list[str]:
    """Let the workers run for some seconds; the broken promises."""
    chance = random.Random(seed)
    with Spool(root) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_in_flight=MOST)
        jobs.put_many([b"%d" % number for number in range(MESSAGES)])
        end = time.monotonic() + seconds
        workers = [_start(root, f"{seed}{number}") for number in range(WORKERS)]
        started, found = WORKERS, []
        due = time.monotonic() + chance.uniform(*_BETWEEN_S)
        try:
            while time.monotonic() < end:
                held = list(_held(spool))
                # A listing is no snapshot: only claims in two listings count.
                if len(held) > MOST and len(still := set(held) & set(_held(spool))) > MOST:
                    found.append(f"{len(still)} claims, at most {MOST} allowed: {sorted(still)}")
                if time.monotonic() > due:
                    due = time.monotonic() + chance.uniform(*_BETWEEN_S)
                    number = chance.randrange(WORKERS)
                    if chance.random() < 0.5:
                        _end(workers[number])
                        started += 1
                        workers[number] = _start(root, f"{seed}{started}")
                    else:
                        _stop(workers[number], chance.uniform(0.0, 1.0))
        finally:
            for worker in workers:
                _end(worker)
        jobs.configure(max_in_flight=None)
        time.sleep(_LONG_S)
        spool.deliver()
        left = jobs.counts().total
    return found if left >= MESSAGES - WORKERS * started else [*found, f"{left} messages are left"]


def _held(spool: Spool) -> Iterator[tuple[str, int]]:
    """The claimed messages and the ends of their claims, except of claims that end now."""
    now_ms = spool.context.now_ms() + _MARGIN_MS
    for name in spool.tree.names("delay"):
        found = spool.tree.stat(f"delay/{name}")
        stamp = found and spool.context.stamps.decode(name.rpartition(":")[2], found.st_mtime_ns)
        if stamp and stamp.is_claim and stamp.deadline_ms > now_ms:
            yield name, stamp.deadline_ms


def _start(root: Path, seed: str) -> BaseProcess:
    process = _FORK.Process(target=work, args=(root, seed), daemon=True)
    process.start()
    return process


def _stop(process: BaseProcess, seconds: float) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGCONT)


def _end(process: BaseProcess) -> None:
    process.kill()
    process.join()
