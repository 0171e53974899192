"""A driver that tests kill: a stream from a queue into a Parquet sink, in its own process.

    python -m tests.pipeline.driver FOLDER    until it is killed

FOLDER has the spool ``mq``, the sink ``out`` and the checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fsmq.pipeline import session

QUEUE, CONSUMER = "jobs", "archive"
PER_BATCH, PER_DRAIN = 200, 5000


def start(spark: SparkSession, folder: Path, messages: int, **trigger: Any) -> StreamingQuery:
    """The stream, with at most ``messages`` in a batch."""
    stream = (
        spark.readStream.format("fsmq")
        .options(root=str(folder / "mq"), queue=QUEUE, consumer=CONSUMER)
        .options(maxMessagesPerBatch=messages, visibilityTimeout=2)
        .load()
    )
    return (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def drained(spark: SparkSession, folder: Path) -> Iterator[tuple[str, str]]:
    """Take all ready messages; the id and body of each message in the sink."""
    start(spark, folder, PER_DRAIN, availableNow=True).awaitTermination()
    for row in spark.read.parquet(str(folder / "out")).select("id", "body").toLocalIterator():
        yield row.id, bytes(row.body).decode()


if __name__ == "__main__":
    spark = session("kills", master="local[2]")
    start(spark, Path(sys.argv[1]), PER_BATCH, processingTime="0 seconds").awaitTermination()
