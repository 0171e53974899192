"""The job ``archive``: a queue as Parquet files, and its messages acknowledged; or a copy of it.

    <folder>/queue=…/day=…/batch=…/*.parquet

The day is that of the message's creation, in UTC; if its name does not tell, that of its batch.
The columns are those of a stream (see `columns`), so that every message can be put back as it was.

Draining is a stream into this folder. A batch is written under its own name, which is the same
each time it is given (see `stream`), and replaces the files of an earlier attempt: so it is there
once, whatever was killed. The state of the stream is in the spool; its checkpoint is discarded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from fsmq.pipeline.cancellation import cancellable
from fsmq.pipeline.columns import SCHEMA
from fsmq.pipeline.read.finder import open_tree
from fsmq.pipeline.read.listing import Queues
from fsmq.pipeline.read.stream import BATCH_COLUMN
from fsmq.spool import InvalidValue, Spool
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import as_unavailable
from fsmq.spool.on_disk import MAX_PLAIN_BYTES, sync_filesystem, uuid7

STREAM_SCHEMA = StructType([*SCHEMA.fields, StructField(BATCH_COLUMN, StringType())])
ARCHIVE_SCHEMA = StructType([*SCHEMA.fields, StructField("day", StringType())])
MESSAGES, BYTES = 50_000, 1024**3
# Long, because writing a batch of this size can take long, and renewals cost time.
_VISIBILITY_S = 300
_PLACES = ("queue", "day", BATCH_COLUMN)
NO_GLOB = ("__globPaths__", "false")
"""An option for Spark's readers: the path is read as it is, even with wildcards in it."""
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Where Spark writes files before it moves them to their places.
_STAGED = (".spark-staging-*", "_temporary")


def read(spark: SparkSession, folder: str) -> DataFrame:
    """The messages of an archive, with their day as YYYY-MM-DD; empty if there is none yet."""
    try:
        # With a schema, because Spark would read a queue named 007 as a number.
        found = spark.read.option(*NO_GLOB).schema(ARCHIVE_SCHEMA).parquet(folder)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], ARCHIVE_SCHEMA)
    # Spark reads a queue of this name as null.
    return found.withColumn("queue", fn.coalesce("queue", fn.lit(_NO_PARTITION)))


def check(root: str, queues: Sequence[str], folder: str, consumer: str | None = None) -> None:
    """Check that the queues exist, and that the folder can be made. Raises FsmqError."""
    wanted = Queues(",".join(queues))
    if consumer is not None:
        check_queue(consumer, "consumer")
    tree = open_tree(root)
    try:
        with as_unavailable(f"cannot read {root}"):
            wanted.check(tree)
    finally:
        tree.close()
    if "://" not in folder:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise InvalidValue("to", f"{folder} can be no folder: {error.strerror}") from error


def look(root: str, queues: Sequence[str]) -> dict[str, Any]:
    """How many messages can be archived; ``hidden``: in flight or delayed. Raises FsmqError."""
    wanted = Queues(",".join(queues))
    with Spool(root, create=False, delivers=False) as spool:
        wanted.check(spool.tree)
        found = {name: seen.counts for name, seen in spool.survey().items() if wanted.holds(name)}
    waiting = sum(counts.new + counts.ready for counts in found.values())
    return {
        "queues": len(found),
        "messages": waiting,
        "hidden": sum(counts.total for counts in found.values()) - waiting,
    }


def drain(
    spark: SparkSession,
    root: str,
    queues: Sequence[str],
    folder: str,
    *,
    consumer: str | None = None,
    messages: int = MESSAGES,
    limit: int = MAX_PLAIN_BYTES,
    journal: bool | None = None,
    run: Callable[[StreamingQuery], object] = lambda query: query.awaitTermination(),
) -> dict[str, Any]:
    """Move ready messages of some queues into an archive, and acknowledge them.

    queues: names and globs. folder: a path that Spark knows. consumer: the name under which they
    are claimed; None: one made from the folder. messages: how many are in a batch. limit: bytes of
    the largest message; a larger one fails the drain. journal: whether its steps are recorded;
    None: if other programs on the spool record theirs. run: waits for the end of the query.

    Batches that an earlier run began and did not finish are done first; messages that it had
    claimed, but not stored as a batch, are ``hidden`` until their timers end. Raises FsmqError,
    StreamingQueryException.
    """
    stream = (
        spark.readStream.format("fsmq")
        .schema(STREAM_SCHEMA)
        .options(root=root, queue=",".join(queues), consumer=consumer or consumer_of(folder))
        .options(maxMessagesPerBatch=messages, maxBytesPerBatch=BYTES)
        .options(visibilityTimeout=_VISIBILITY_S, maxBodyBytes=limit)
        .option("otherCheckpoint", "accept")  # each batch has files of its own name
    )
    if journal is not None:
        stream = stream.option("journal", journal)
    if "://" not in folder:
        os.makedirs(folder, exist_ok=True)
        _remove_folder(Path(folder))
        stream = stream.option("syncBeforeCommit", folder)
    with tempfile.TemporaryDirectory(prefix="fsmq-archive-") as checkpoint, _all_progress(spark):
        query = (
            stream.load()
            .writeStream.foreachBatch(cancellable(lambda batch, number: _write(batch, folder)))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            run(query)
        finally:
            query.stop()
        done = [p for p in query.recentProgress if p["numInputRows"]]
    return {
        "messages": sum(p["numInputRows"] for p in done),
        "batches": len(done),
        "hidden": look(root, queues)["hidden"],
    }


def copy(
    spark: SparkSession,
    root: str,
    queues: Sequence[str],
    folder: str,
    *,
    limit: int = MAX_PLAIN_BYTES,
) -> dict[str, Any]:
    """Add messages of some queues to an archive, if it does not have them; the queues stay as is.

    limit: bytes of the largest message; a larger one fails the copy.

    Raises FsmqError.
    """
    if "://" not in folder:
        _remove_folder(Path(folder))
    found = (
        spark.read.format("fsmq")
        .options(root=root, queue=",".join(queues), maxBodyBytes=limit)
        .load()
        .where("state <> 'removed'")
    )
    known = read(spark, folder).select("queue", "id")
    counted = fn.count(fn.lit(1)).alias("messages")
    seen = Observation()
    new = found.join(known, ["queue", "id"], "left_anti").observe(seen, counted)
    _write(new.withColumn(BATCH_COLUMN, fn.lit(uuid7())), folder, "append")
    if "://" not in folder:
        sync_filesystem(folder)
    return {"messages": seen.get["messages"], "batches": 1}


def consumer_of(folder: str) -> str:
    """The consumer that drains into a folder; always the same, so that it finishes its batches."""
    return f"archive-{zlib.crc32(folder.encode()):08x}"


def _write(rows: DataFrame, folder: str, mode: str = "overwrite") -> None:
    """Write rows to their places; "overwrite" replaces the files of their queue, day and batch."""
    created = fn.coalesce("created_at", _time_of(fn.col(BATCH_COLUMN)))
    placed = rows.withColumn("day", fn.date_format(created, "yyyy-MM-dd"))
    (
        placed.write.mode(mode)
        .option("partitionOverwriteMode", "dynamic")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*_PLACES)
        .parquet(folder)
    )


def _time_of(uuid: Column) -> Column:
    """The time in a UUIDv7."""
    digits = fn.concat(fn.substring(uuid, 1, 8), fn.substring(uuid, 10, 4))
    return fn.timestamp_millis(fn.conv(digits, 16, 10).cast("long"))


def _remove_folder(folder: Path) -> None:
    """Remove the staged files of a run that was killed."""
    for pattern in _STAGED:
        for left in folder.glob(pattern):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _all_progress(spark: SparkSession) -> Iterator[None]:
    """Let queries keep the progress of all their batches, so that these can be counted."""
    name = "spark.sql.streaming.numRecentProgressUpdates"
    before = spark.conf.get(name)
    spark.conf.set(name, "1000000")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(name, before)
