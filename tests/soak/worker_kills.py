"""Kills Python workers and executors of a driver that continues to run.

    python -m tests.soak.worker_kills --kills 10

In one driver, a stream writes rows into a queue and another takes them into a file sink. Random
processes are killed, first of one kind, then of the next:

    tasks      Python workers that run tasks: Spark runs the tasks again
    helpers    also those of the driver, which Spark does not restart: the query ends with an error,
               and the driver is restarted, as by a service manager
    executors  the JVMs of a cluster of two executors: Spark starts others

At the end the sink must have every row once. Otherwise the exit code is 1.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from fsmq.spool import Spool
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.pipeline.chain import QUEUE, drained, producing, running
from tests.pipeline.processes import PATIENCE_S, Program


class Kind(NamedTuple):
    """The processes to kill, by words of their command lines. longest: seconds between two."""

    master: str
    words: tuple[str, ...]
    longest: float


KINDS = {
    "tasks": Kind("local[2,4]", ("pyspark.daemon pyspark.worker",), 1.5),
    "helpers": Kind("local[2,4]", ("pyspark.daemon", "python_streaming_source_runner"), 1.5),
    # An executor takes seconds to start: with shorter pauses none would ever work.
    "executors": Kind("local-cluster[2,1,1024]", ("CoarseGrainedExecutorBackend",), 8.0),
}
_PAUSE_S = 0.2  # between files of rows


def wanted_rows(number: int) -> Counter[str]:
    """Each of the first rows of a feed once."""
    return Counter(f"row {n}" for n in range(number))


@dataclass
class Outcome:
    """rows: how many were written. found: those in the sink. left: how many are in the queue."""

    rows: int
    found: Counter[str]
    left: int
    kills: int
    restarts: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.found == wanted_rows(self.rows) and not self.left

    def __str__(self) -> str:
        lost = (wanted_rows(self.rows) - self.found).total()
        twice = sum(number > 1 for number in self.found.values())
        return (
            f"{self.kills} kills, {self.restarts} restarts of the driver; {self.rows:,} rows,"
            f" {self.found.total():,} in the sink; {lost} lost, {twice} twice,"
            f" {self.left} left in the queue; {self.seconds:.0f} s"
        )


def run(folder: Path, kind: Kind, kills: int, seed: object) -> Outcome:
    """Kill processes of one kind, then drain the queue and read the sink.

    folder: an empty one.
    """
    chance = random.Random(str(seed))
    began = time.monotonic()
    (folder / "in").mkdir(parents=True)
    done = starts = 0
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")
        with Spool(suite.root, delivers=False) as spool:
            spool.create_queue(QUEUE)
        with producing(folder / "in", _PAUSE_S) as rows:
            while done < kills:
                starts += 1
                with running(folder, folder, "--master", kind.master) as driver:
                    eventually(partial(is_at_work, driver, folder, batches(folder)), PATIENCE_S)
                    while done < kills and driver.is_running():
                        arbitrary_moment(chance, 0.0, kind.longest)
                        found = driver.descendants(*kind.words)
                        done += bool(found) and driver.kill_one(chance.choice(found))
                    # It has to continue after the last kill, too.
                    eventually(partial(is_at_work, driver, folder, batches(folder)), PATIENCE_S)
        found_rows = drained(folder, folder)
        with Spool(suite.root, delivers=False) as spool:
            left = spool.counts(QUEUE).total
    seconds = time.monotonic() - began
    return Outcome(rows[0], found_rows, left, done, starts - 1, seconds)


def batches(folder: Path) -> int:
    """The number of micro-batches in the sink."""
    log = folder / "out" / "_spark_metadata"
    return sum(1 for path in log.glob("*") if path.name[0] != ".") if log.exists() else 0


def is_at_work(driver: Program, folder: Path, before: int) -> bool:
    """Whether the sink has more micro-batches than before, or the driver has ended."""
    return not driver.is_running() or batches(folder) > before


@click.command(help=__doc__)
@click.option("--kills", default=10, show_default=True, help="Of each kind.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Only this one.")
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
def main(kills: int, kind: str | None, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    is_right = True
    for each in KINDS if kind is None else (kind,):
        with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
            outcome = run(Path(folder), KINDS[each], kills, (seed, each))
        print(f"{each}: {outcome}", flush=True)
        is_right &= outcome.is_right
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
