"""Kills of the writer: a driver that streams rows into a queue dies at random, again and again.

    python -m tests.pipeline.writer_kills --rounds 20

A stream reads text files, one row a line, and writes them into a spool with its mover. Every row
has to be a message, once, and nothing may be left in ``staging/``. Exit code 1 otherwise.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from fsmq.spool import Spool
from tests.pipeline.kills import kill_group
from tests.suite import HOME, Suite, eventually

QUEUE = "jobs"
_PATIENCE_S = 180.0
_LONGEST_S = 2.0  # from the first sign of a batch to the kill
_LINES, _PAUSE_S = 100, 0.1


@dataclass
class Written:
    """How many rows there were, and what the queue has."""

    rows: int
    found: Counter[str]
    left: list[str]
    kills: int
    with_open_job: int
    seconds: float

    @property
    def is_right(self) -> bool:
        whole = Counter(f"row {n}" for n in range(self.rows))
        return self.found == whole and not self.left

    def __str__(self) -> str:
        lost = sum(1 for n in range(self.rows) if not self.found[f"row {n}"])
        twice = sum(1 for number in self.found.values() if number > 1)
        return (
            f"{self.kills} kills ({self.with_open_job} with an open job), {self.rows:,} rows,"
            f" {self.found.total():,} messages; {lost} lost, {twice} twice,"
            f" left in staging: {self.left or 'nothing'}; {self.seconds:.0f} s"
        )


def drive(folder: Path, drains: bool) -> None:
    """A driver, in a process of its own: streams until it is killed, or what is there."""
    from fsmq.pipeline import session

    spark = session("writer kills", master="local[2]")
    lines = spark.readStream.option("maxFilesPerTrigger", "50" if drains else "3")
    rows = lines.text(str(folder / "in")).withColumnRenamed("value", "body").repartition(2)
    writing = rows.writeStream.format("fsmq").options(root=str(folder / "mq"), queue=QUEUE)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    trigger = {"availableNow": True} if drains else {"processingTime": "0 seconds"}
    writing.trigger(**trigger).start().awaitTermination()
    spark.stop()


@contextmanager
def _producing(folder: Path) -> Iterator[list[int]]:
    """Files of rows come in meanwhile; how many rows, in a list of one."""
    over, rows = threading.Event(), [0]

    def produce() -> None:
        while not over.wait(_PAUSE_S):
            text = "".join(f"row {rows[0] + n}\n" for n in range(_LINES))
            draft = folder / f".{rows[0]}"
            draft.write_text(text)
            draft.rename(folder / f"{rows[0]:09}.txt")
            rows[0] += _LINES

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield rows
    finally:
        over.set()
        producer.join()


def run(folder: Path, rounds: int, seed: object) -> Written:
    """So many kills in an empty folder, then a drain, then a look at the queue."""
    chance = random.Random(str(seed))
    began = time.monotonic()
    staging = folder / "mq" / "staging"
    (folder / "in").mkdir()
    open_jobs = 0
    with Suite(folder / "mq", mover=True) as suite:
        suite.kill("mq")
        with Spool(suite.root, delivers=False) as spool:
            spool.create_queue(QUEUE)
        with _producing(folder / "in") as rows:
            for number in range(rounds):
                driver = _start(folder)
                try:
                    before = _numbers(staging)
                    eventually(partial(_is_at_work, driver, staging, before, folder), _PATIENCE_S)
                    time.sleep(chance.uniform(0.0, _LONGEST_S))  # the moment is to be arbitrary
                    kill_group(driver, alone=number % 2 == 1)
                    open_jobs += any(":" in name for name in os.listdir(staging))
                finally:
                    _end(driver)
        last = _start(folder, "--drain")
        try:
            assert last.wait(_PATIENCE_S) == 0, _log(folder)[-4000:]
        finally:
            _end(last)
        left = [name for name in os.listdir(staging) if ":" in name]
        with Spool(suite.root, delivers=False) as spool:
            eventually(lambda: spool.counts(QUEUE).new == 0, _PATIENCE_S)
            found: Counter[str] = Counter()
            while messages := spool.complete(spool.claim(QUEUE, 1000, 3600)):
                found.update(m.body.decode() for m in messages)
    return Written(rows[0], found, left, rounds, open_jobs, time.monotonic() - began)


def _start(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    with (folder / "drivers.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.writer_kills", "--drive", str(folder), *more],
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _end(driver: subprocess.Popen[bytes]) -> None:
    kill_group(driver, alone=False)


def _log(folder: Path) -> str:
    return (folder / "drivers.log").read_text(errors="replace")


def _numbers(staging: Path) -> list[str]:
    """What the stream has committed."""
    return sorted(
        f"{path.name} {json.loads(path.read_text())['number']}" for path in staging.glob("*.json")
    )


def _is_at_work(
    driver: subprocess.Popen[bytes], staging: Path, before: list[str], folder: Path
) -> bool:
    assert driver.poll() is None, _log(folder)[-4000:]
    return _numbers(staging) != before


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True, help="Kills.")
@click.option("--seed", type=int, help="Of the moments; the time if not given.")
@click.option("--drive", type=click.Path(path_type=Path), hidden=True)
@click.option("--drain", is_flag=True, hidden=True)
def main(rounds: int, seed: int | None, drive: Path | None, drain: bool) -> None:
    if drive is not None:
        _drive(drive, drain)
        return
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fsmq-kills-") as folder:
        written = run(Path(folder), rounds, seed)
    print(f"stream into a queue: {written}")
    sys.exit(not written.is_right)


_drive = drive

if __name__ == "__main__":
    main()
