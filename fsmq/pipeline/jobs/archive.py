"""The job ``archive``: a queue as Parquet files, and its messages acknowledged; or a copy of it.

    <folder>/queue=…/day=…/batch=…/*.parquet

The day is that of the message's creation, in UTC; where its name does not tell, that of its batch.
All else is as a stream has it (see `columns`), so that every message can be put again as it was.

Draining is a stream into this folder. A batch is written under its own name, which it keeps
whenever it is given again (see `consumer`), and in the place of what an attempt before has left:
so it is there once, whatever was killed. What the stream has to know is in the spool, and its
checkpoint is thrown away.
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
from fsmq.spool.durability.sync import sync_filesystem
from fsmq.spool.errors import as_unavailable
from fsmq.spool.layout.messages.compression import MAX_PLAIN_BYTES
from fsmq.spool.layout.uuids import uuid7

STREAM_SCHEMA = StructType([*SCHEMA.fields, StructField(BATCH_COLUMN, StringType())])
ARCHIVE_SCHEMA = StructType([*SCHEMA.fields, StructField("day", StringType())])
MESSAGES, BYTES = 50_000, 1024**3
# A batch of this size may be written for long, and each renewal costs.
_VISIBILITY_S = 300
_PLACES = ("queue", "day", BATCH_COLUMN)
NO_GLOB = ("__globPaths__", "false")
"""For Spark's readers of one place, whatever characters its name has."""
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# What Spark writes before it moves it to its place.
_STAGED = (".spark-staging-*", "_temporary")


def read(spark: SparkSession, folder: str) -> DataFrame:
    """The messages of an archive, with their day as YYYY-MM-DD; empty where there is none yet."""
    try:
        # With a schema: Spark would take a queue named 007 for a number.
        found = spark.read.option(*NO_GLOB).schema(ARCHIVE_SCHEMA).parquet(folder)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return spark.createDataFrame([], ARCHIVE_SCHEMA)
    # A queue of this name is what Spark takes for none.
    return found.withColumn("queue", fn.coalesce("queue", fn.lit(_NO_PARTITION)))


def check(root: str, queues: Sequence[str], folder: str, consumer: str | None = None) -> None:
    """Whether there are such queues and can be such a folder. Raises FsmqError."""
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
    """What there is to be archived; ``hidden``: in flight, or delayed. Raises FsmqError."""
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
    """Move what is ready in some queues into an archive, and acknowledge it.

    queues: names and globs. folder: a path that Spark knows. consumer: who claims them; None: a
    name for this folder. messages: as many in a batch. limit: bytes of the largest message; a
    larger one fails the drain. journal: whether its steps are noted; None: if other programs on the
    spool note theirs. run: waits for the end of the query.

    What a run before this one had begun and not finished is done first; what it had claimed and not
    yet noted is among the ``hidden`` until its timer ends. Raises FsmqError,
    StreamingQueryException.
    """
    stream = (
        spark.readStream.format("fsmq")
        .schema(STREAM_SCHEMA)
        .options(root=root, queue=",".join(queues), consumer=consumer or consumer_of(folder))
        .options(maxMessagesPerBatch=messages, maxBytesPerBatch=BYTES)
        .options(visibilityTimeout=_VISIBILITY_S, maxBodyBytes=limit)
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
    """Add to an archive what stands in some queues and is not in it, and leave the queues alone.

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
    """The name of the consumer that drains into a folder: what it has begun, it finishes."""
    return f"archive-{zlib.crc32(folder.encode()):08x}"


def _write(rows: DataFrame, folder: str, mode: str = "overwrite") -> None:
    """Write rows where they belong; of a batch all that was there of these queues and days goes."""
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
    """Remove what a run that was killed has not moved to its place."""
    for pattern in _STAGED:
        for left in folder.glob(pattern):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _all_progress(spark: SparkSession) -> Iterator[None]:
    """Let queries remember all of their batches, so that they can be counted."""
    name = "spark.sql.streaming.numRecentProgressUpdates"
    before = spark.conf.get(name)
    spark.conf.set(name, "1000000")
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(name, before)
