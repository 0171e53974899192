"""Kills the driver of a stream, again and again at random moments, while messages are put.

    python -m tests.soak.stream_kills --rounds 20

The file sink must have every message once. In every second round only the driver and the JVM are
killed, and their child processes must end by themselves. The exit code is 1 if a message is lost,
duplicated or changed.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
from pyspark.sql import SparkSession

from fsmq.pipeline import session
from fsmq.spool import NewMessage, Spool
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.pipeline.driver import CONSUMER, QUEUE, drained
from tests.pipeline.processes import PATIENCE_S, Program

DRIVER = "tests.pipeline.driver"
_LONGEST_S = 3.0  # from a driver's first batch to the kill
_PER_PUT, _PAUSE_S = 20, 0.1


@dataclass
class Outcome:
    """posted: bodies by id. found: ids in the sink. with_open_batch: kills during a batch."""

    posted: dict[str, str] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    others: int = 0  # messages with a changed body
    kills: int = 0
    with_open_batch: int = 0
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        return len(self.posted.keys() - self.found.keys())

    @property
    def twice(self) -> int:
        return sum(count > 1 for count in self.found.values())

    @property
    def is_right(self) -> bool:
        return self.found == Counter(self.posted.keys()) and not self.others

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.with_open_batch} with an open batch), {len(self.posted):,}"
            f" messages posted, {len(self.found):,} in the sink; {self.lost} lost,"
            f" {self.twice} twice, {self.others} others; {self.seconds:.0f} s"
        )


@contextmanager
def _producing(root: Path, outcome: Outcome) -> Iterator[None]:
    """Put messages until the ``with`` ends."""
    over = threading.Event()

    def produce() -> None:
        number = 0
        with Spool(root, delivers=False) as spool:
            queue = spool.queue(QUEUE, create=True)
            while not over.wait(_PAUSE_S):
                bodies = [f"message {number + n}" for n in range(_PER_PUT)]
                number += _PER_PUT
                ids = queue.put_many([NewMessage(body.encode()) for body in bodies])
                outcome.posted.update(zip(ids, bodies, strict=True))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join()


def run(
    spark: SparkSession,
    folder: Path,
    rounds: int,
    seed: object,
    *,
    module: str = DRIVER,
    others: Callable[[], bool] = lambda: True,
    longest: float = _LONGEST_S,
) -> Outcome:
    """Kill the driver in each round, then drain the queue in this process and read the sink.

    folder: an empty one. module: the driver. others: whether its other work has begun. longest:
    seconds from then to the kill.
    """
    chance = random.Random(str(seed))
    outcome = Outcome()
    began = time.monotonic()
    batches = folder / "mq" / "consumers" / CONSUMER
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")  # the library puts the messages
        with Spool(suite.root, delivers=False) as spool:
            spool.create_queue(QUEUE)
        with _producing(suite.root, outcome):
            for number in range(rounds):
                with Program(folder, module, folder) as driver:
                    before = _names(batches)
                    eventually(partial(_is_at_work, driver, batches, before), PATIENCE_S)
                    eventually(lambda driver=driver: driver.check() or others(), PATIENCE_S)
                    arbitrary_moment(chance, 0.0, longest)
                    driver.kill(alone=number % 2 == 1)
                    outcome.kills += 1
                    outcome.with_open_batch += any(n.endswith(".json") for n in _names(batches))
        with Spool(suite.root, delivers=False) as spool:
            # Claims of killed drivers that are in no batch end by their timers.
            eventually(partial(_all_are_ready, spool), PATIENCE_S)
            # This driver gets the batches of the others that Spark has not logged.
            rows = list(drained(spark, folder))
            left = spool.counts(QUEUE).total
            assert left == 0, f"{left} messages are left in the queue"
    outcome.found = Counter(message_id for message_id, _ in rows)
    outcome.others = sum(outcome.posted.get(message_id) != body for message_id, body in rows)
    outcome.seconds = time.monotonic() - began
    return outcome


def _names(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder) if name[0] != "."}
    except FileNotFoundError:
        return set()


def _all_are_ready(spool: Spool) -> bool:
    counts = spool.counts(QUEUE)
    return counts.ready == counts.total


def _is_at_work(driver: Program, batches: Path, before: set[str]) -> bool:
    driver.check()
    return bool(_names(batches) - before)


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True, help="Kills.")
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
def main(rounds: int, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
        outcome = run(session("drain", master="local[2]"), Path(folder), rounds, seed)
    print(f"stream into a file sink: {outcome}")
    sys.exit(not outcome.is_right)


if __name__ == "__main__":
    main()
