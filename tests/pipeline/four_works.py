"""A driver that tests kill, with four jobs at once: two streams, an archive and a journal.

    python -m tests.pipeline.four_works FOLDER    until it is killed

FOLDER has the files of `tests.pipeline.driver`, a spool ``logs`` with a log that a stream copies, a
spool ``archived`` whose queue a command takes into ``archive``, and a spool ``journaled`` whose
journal goes into ``tables``. The caller makes the first batch of the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fsmq.cli import main as fsmq
from fsmq.pipeline import session
from fsmq.pipeline.journal import job as journal
from tests.harness.suite import eventually
from tests.pipeline.driver import PER_BATCH, QUEUE, start
from tests.pipeline.files import without_processes
from tests.pipeline.processes import PATIENCE_S

PER_ARCHIVE_BATCH, PER_COPY = 10, 20
LOG, COPIES, COPIER = "numbers", "copies", "copier"


def main(folder: Path) -> None:
    spark = session("kills", master="local[2]")
    without_processes(spark)
    # One after the other: Spark waits at most ten seconds for the process of each.
    stream = start(spark, folder, PER_BATCH, processingTime="0 seconds")
    eventually(lambda: _has_done(folder) or not stream.isActive, PATIENCE_S)
    copying = copy_log(spark, folder, PER_COPY, processingTime="0 seconds")
    eventually(lambda: _has_done(folder, "copying") or not copying.isActive, PATIENCE_S)
    tables = folder / "tables"
    eventually(lambda: _has_done(tables, "_checkpoint"), PATIENCE_S)
    with journal.only_one(str(tables)):
        follows = journal.start(spark, str(folder / "journaled"), str(tables), every=1)
        eventually(lambda: follows.status["message"].startswith("Waiting"), PATIENCE_S)
        places = [f"--root={folder / 'archived'}", f"--to={folder / 'archive'}"]
        fsmq(["pipeline", "archive", QUEUE, *places, f"--batch={PER_ARCHIVE_BATCH}"])


def copy_log(spark: SparkSession, folder: Path, messages: int, **trigger: Any) -> StreamingQuery:
    """The stream from one log into another, with at most ``messages`` in a batch."""
    stream = (
        spark.readStream.format("fsmq_log")
        .options(root=str(folder / "logs"), log=LOG, consumer=COPIER, startingOffsets="first")
        .options(maxMessagesPerBatch=messages)
        .load()
    )
    return (
        stream.select("body")
        .writeStream.format("fsmq_log")
        .options(root=str(folder / "logs"), log=COPIES)
        .option("checkpointLocation", str(folder / "copying"))
        .trigger(**trigger)
        .start()
    )


def _has_done(folder: Path, checkpoint: str = "checkpoint") -> bool:
    """Whether a stream has committed its first batch."""
    return (folder / checkpoint / "commits" / "0").exists()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
