"""Power cuts of a filesystem with a spool, both checkpoints and the sink of Spark streams.

    python -m tests.soak.spark_power --rounds 10

A stream writes rows into a queue and another takes them into a file sink, until the power of their
disk is cut at a random moment. Then all restarts with the data on stable media. At the end the sink
must have every row once, and fsck no finding. Otherwise the exit code is 1. As root.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from fsmq.spool import Spool
from fsmq.spool.fsck import check
from tests.harness.suite import Suite, arbitrary_moment, eventually
from tests.pipeline.chain import QUEUE, TAKES, WRITES, drained, feed, running
from tests.pipeline.processes import PATIENCE_S
from tests.power.disk import CannotMount, Disk
from tests.soak.worker_kills import Outcome, batches, is_at_work

_LOGS = (WRITES, TAKES, "out/_spark_metadata")
_FILES = 10  # of rows, in each round
_LONGEST_S = 3.0  # from the first batch in the sink to the cut


def run(folder: Path, kind: str, rounds: int, seed: object) -> Outcome:
    """Cut the power in each round, then drain the queue and read the sink.

    folder: an empty one.
    """
    chance = random.Random(str(seed))
    began, mended, rows = time.monotonic(), 0, 0
    (folder / "in").mkdir(parents=True)
    with Disk(folder / "power", kind) as disk:
        suite = Suite(disk.place / "mq", logs=folder / "logs")
        try:
            with Spool(suite.root) as spool:
                spool.create_queue(QUEUE)
            for number in range(rounds):
                # Few files, because all rows may be on this small disk.
                for file in range(number * _FILES, (number + 1) * _FILES):
                    rows = feed(folder / "in", file)
                _start(suite)
                with running(folder, disk.place) as driver:
                    before = batches(disk.place)
                    eventually(partial(is_at_work, driver, disk.place, before), PATIENCE_S)
                    driver.check()
                    arbitrary_moment(chance, 0.0, _LONGEST_S)
                    disk.cut_power()
                suite.close()
                disk.unmount()
                disk.mount()
                mended += _mend(disk.place)
            _start(suite)
            found = drained(folder, disk.place)
            with Spool(suite.root, delivers=False) as spool:
                left = spool.counts(QUEUE).total
            findings = check(suite.root).findings
            assert not findings, findings
            print(f"{rounds} cuts left {mended} files of Spark empty")
        finally:
            suite.close()
    return Outcome(rows, found, left, rounds, rounds, time.monotonic() - began)


def _mend(place: Path) -> int:
    """Remove the files that a cut has left empty, as docs/spark.md says; their number."""
    folders = [path for path in (place / name for name in _LOGS) if path.exists()]
    command = ["find", *folders, "-type", "f", "-empty", "-print", "-delete"]
    return subprocess.run(command, capture_output=True, check=True).stdout.count(b"\n")


def _start(suite: Suite) -> None:
    for program in ("mover", "reaper"):
        suite.start(program)


@click.command(help=__doc__)
@click.option("--rounds", default=10, show_default=True, help="Power cuts.")
@click.option("--kind", default="ext4", show_default=True, type=click.Choice(["ext4", "xfs"]))
@click.option("--seed", type=int, help="Of the random moments; default: the time.")
def main(rounds: int, kind: str, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fsmq-cuts-") as folder:
        try:
            outcome = run(Path(folder), kind, rounds, seed)
        except CannotMount as error:
            print(f"NO POWER CUTS: {error}")
            return
    print(f"power cuts: {outcome}")
    sys.exit(not outcome.is_right)


if __name__ == "__main__":
    main()
