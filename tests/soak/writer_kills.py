"""Kills a driver that writes rows into a queue, again and again at random moments.

    python -m tests.soak.writer_kills --rounds 20

It writes files of rows first as a stream, then with one ``df.write`` for each file, with the name
of a job and the number of the file. Every row must be one message, and ``staging/`` must be empty
at the end. Otherwise the exit code is 1.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import click

from fsmq.spool import Spool, prepare
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.pipeline.chain import producing
from tests.pipeline.processes import PATIENCE_S, Program
from tests.soak.worker_kills import wanted_rows

QUEUE, JOB = "jobs", "files"
WAYS = ("stream", "write")
_MODULE = "tests.soak.writer_kills"
_LONGEST_S = 2.0  # from the first part of a job to the kill
_LATE = 0.5  # the share of kills that wait for a commit, to be between it and its end
_PAUSE_S = 0.05  # between files of rows


@dataclass
class Written:
    """rows: how many were written. found: those in the queue. left: jobs in ``staging/``."""

    rows: int
    found: Counter[str]
    left: list[str]
    kills: int
    before: int
    after: int
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.found == wanted_rows(self.rows) and not self.left

    def __str__(self) -> str:
        lost = (wanted_rows(self.rows) - self.found).total()
        twice = sum(number > 1 for number in self.found.values())
        return (
            f"{self.kills} kills ({self.before} before a commit, {self.after} between a commit and"
            f" its end), {self.rows:,} rows, {self.found.total():,} messages; {lost} lost,"
            f" {twice} twice, left in staging: {self.left or 'nothing'}; {self.seconds:.0f} s"
        )


def drive(folder: Path, way: str, drains: bool) -> None:
    """The driver process: write files until it is killed. drains: only the files that exist."""
    from fsmq.pipeline import session

    spark = session("writer kills", master="local[2]")
    options = {"root": str(folder / "mq"), "queue": QUEUE}
    if way == "stream":
        lines = spark.readStream.option("maxFilesPerTrigger", "50" if drains else "3")
        rows = lines.text(str(folder / "in")).withColumnRenamed("value", "body").repartition(2)
        writing = rows.writeStream.format("fsmq").options(**options)
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        trigger = {"availableNow": True} if drains else {"processingTime": "0 seconds"}
        writing.trigger(**trigger).start().awaitTermination()
        spark.stop()
        return
    done = folder / "done"
    # Starts one file earlier than needed: a file may be written twice.
    for number in count(max(0, int(done.read_text()) - 1) if done.exists() else 0):
        source = folder / "in" / f"{number:09}.txt"
        if drains and not source.exists():
            break
        eventually(source.exists)
        rows = spark.read.text(str(source)).withColumnRenamed("value", "body").repartition(2)
        writing = rows.write.format("fsmq").mode("append").options(**options)
        writing.options(job=JOB, batch=number).save()
        draft = folder / ".done"
        draft.write_text(str(number))
        draft.rename(done)
    spark.stop()


def run(folder: Path, way: str, rounds: int, seed: object) -> Written:
    """Kill the driver in each round, then write the remaining rows and read the queue.

    folder: an empty one.
    """
    chance = random.Random(str(seed))
    began = time.monotonic()
    staging = folder / "mq" / "staging"
    (folder / "in").mkdir(parents=True)
    before = after = 0
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")
        with Spool(suite.root, delivers=False) as spool:
            spool.create_queue(QUEUE)
        # The remaining files are written at the end, and each write takes some time.
        files = 30 * rounds if way == "stream" else 4 * rounds + 4
        with producing(folder / "in", _PAUSE_S, files) as rows:
            for number in range(rounds):
                # The mover completes the jobs that the last driver has committed.
                eventually(partial(_is_settled, staging), PATIENCE_S)
                with Program(folder, _MODULE, "--drive", folder, "--way", way) as driver:
                    known = _open_jobs(staging)
                    eventually(partial(_is_at_work, driver, staging, known), PATIENCE_S)
                    arbitrary_moment(chance, 0.0, _LONGEST_S)
                    if chance.random() < _LATE:
                        eventually(partial(_has_committed, driver, staging), PATIENCE_S)
                    driver.kill(alone=number % 4 == 3)
                    states = _states(staging)
                    before += "open" in states
                    after += "committed" in states
        with Program(folder, _MODULE, "--drive", folder, "--way", way, "--drain") as last:
            last.output()
        eventually(partial(_is_settled, staging), PATIENCE_S)
        left = sorted(_open_jobs(staging))
        with Spool(suite.root, delivers=False) as spool:
            eventually(lambda: spool.counts(QUEUE).new == 0, PATIENCE_S)
            found: Counter[str] = Counter()
            while messages := spool.complete(prepare.claim(spool.context, QUEUE, 1000, 3600)):
                found.update(m.body.decode() for m in messages)
    return Written(rows[0], found, left, rounds, before, after, time.monotonic() - began)


def _states(staging: Path) -> list[str]:
    """The state of each job: open while it is written, then committed."""
    jobs = [name for name in os.listdir(staging) if ":" in name]
    return ["open" if name[0] == "." else "committed" for name in jobs]


def _has_committed(driver: Program, staging: Path) -> bool:
    driver.check()
    return not _is_settled(staging)


def _is_settled(staging: Path) -> bool:
    return "committed" not in _states(staging)


def _open_jobs(staging: Path) -> dict[str, set[str]]:
    """The parts of each job that is being written."""
    found = {}
    for name in os.listdir(staging):
        if ":" in name and name[0] == ".":
            try:
                found[name] = set(os.listdir(staging / name))
            except FileNotFoundError:
                continue  # committed meanwhile
    return found


def _is_at_work(driver: Program, staging: Path, known: dict[str, set[str]]) -> bool:
    driver.check()
    return any(parts - known.get(job, set()) for job, parts in _open_jobs(staging).items())


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True, help="Kills, half of them of each way.")
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
@click.option("--way", type=click.Choice(WAYS), help="Only this one.")
@click.option("--drive", "driven", type=click.Path(path_type=Path), hidden=True)
@click.option("--drain", is_flag=True, hidden=True)
def main(rounds: int, seed: int | None, way: str | None, driven: Path | None, drain: bool) -> None:
    if driven is not None:
        assert way is not None
        drive(driven, way, drain)
        return
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    is_right = True
    ways = WAYS if way is None else (way,)
    for each in ways:
        with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
            written = run(Path(folder), each, rounds // len(ways), seed)
        print(f"{each} into a queue: {written}", flush=True)
        is_right &= written.is_right
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
