"""The jobs dedup and rebalance: ready messages are removed, or go to other queues, where they are.

Each message is one rename, so both can be stopped at any point; run again they do the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from fsmq.pipeline.columns import named
from fsmq.spool import InvalidValue, NoSuchQueue, Spool
from fsmq.spool.layout.names import check_queue, split_shard
from fsmq.spool.verbs.removal import remove_ready

_PART = 10_000


def _ready(spark: SparkSession, root: str, queues: str) -> DataFrame:
    reading = spark.read.format("fsmq").option("root", root).option("queue", queues)
    return reading.load().where("state = 'ready'")


def duplicates(spark: SparkSession, root: str, queues: str, key: str) -> DataFrame:
    """Queue and id of each ready message that has the key of an older one in its queue.

    key: an expression of Spark SQL over the columns of a message; a null is no key. Older: before
    it in the spool's order.
    """
    keyed = _ready(spark, root, queues).select("queue", "id", f.expr(key).alias("_key"))
    order = Window.partitionBy("queue", "_key").orderBy("id")
    numbered = keyed.where("_key is not null").withColumn("_number", f.row_number().over(order))
    return numbered.where("_number > 1").select("queue", "id")


def dedup(
    spark: SparkSession, root: str, queues: str, key: str, *, dry_run: bool = False
) -> dict[str, Any]:
    """Remove ready messages that have the key of an older one; what came of it.

    Raises:
        Exception: Spark's, with the text of what is wrong with the key or the spool.
    """
    found = duplicates(spark, root, queues, key)
    if dry_run:
        return {"would_remove": found.count()}

    def remove(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _open(root) as spool:
            for queue, ids in _groups(batches, "queue"):
                done = spool.complete(remove_ready(spool.context, queue, ids))
                yield _counts(found=len(ids), removed=done)

    done = _sum(found.mapInArrow(remove, "found long, removed long"))
    return {**done, "taken_meanwhile": done["found"] - done["removed"]}


def shares_of(given: str) -> dict[str, int]:
    """Queues with their shares, from ``a=2,b=1,c``. Raises InvalidValue."""
    shares: dict[str, int] = {}
    for part in given.split(","):
        queue, _, share = part.strip().partition("=")
        check_queue(queue, "to")
        if not (share or "1").isdecimal() or int(share or 1) < 1:
            raise InvalidValue("to", f"{part.strip()!r}: a share is a whole number from 1 on")
        shares[queue] = int(share or 1)
    return shares


def with_shards(names: Sequence[str], shares: Mapping[str, int]) -> dict[str, int]:
    """The shares, where a queue of dyno-queues gives its own to each of its shards."""
    found: dict[str, int] = {}
    for queue, share in shares.items():
        shards = [name for name in names if (split_shard(name) or ("",))[0] == queue]
        found |= dict.fromkeys([queue] if queue in names or not shards else shards, share)
    return found


def placed(spark: SparkSession, root: str, queues: str, shares: Mapping[str, int]) -> DataFrame:
    """Queue, id and target of each ready message that stands in another queue than it should.

    Where a message should stand follows from its id alone, so that a second run finds nothing.
    """
    slots = [queue for queue, share in shares.items() for _ in range(share)]
    number = f.pmod(f.xxhash64("id"), f.lit(len(slots)))
    target = f.array(*map(f.lit, slots))[number.cast("int")]
    standing = _ready(spark, root, queues).select("queue", "id")
    return standing.select("queue", "id", target.alias("target")).where("queue != target")


def rebalance(
    spark: SparkSession, root: str, queues: str, shares: Mapping[str, int], *, dry_run: bool = False
) -> dict[str, Any]:
    """Spread the ready messages of queues over others by share; what came of it.

    Raises:
        NoSuchQueue: of the targets.
        Exception: Spark's, with the text of what is wrong with the spool.
    """
    with _open(root) as spool:
        shares = with_shards(spool.queues(), shares)
        for queue in shares:
            if not spool.has_queue(queue):
                raise NoSuchQueue(queue)
    found = placed(spark, root, queues, shares)
    if dry_run:
        rows = found.groupBy("target").count().collect()
        return {"would_move": sum(row["count"] for row in rows)} | {
            f"to_{row['target']}": row["count"] for row in rows
        }

    def move(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _open(root) as spool:
            for (queue, target), ids in _groups(batches, "queue", "target"):
                done = spool.queue(queue).move_to(target, only=ids)
                yield _counts(found=len(ids), moved=done.moved, conflicts=done.conflicts)

    done = _sum(found.mapInArrow(move, "found long, moved long, conflicts long"))
    return {**done, "taken_meanwhile": done["found"] - done["moved"] - done["conflicts"]}


def _open(root: str) -> Spool:
    """The spool, in a task."""
    return Spool(root, delivers=False, watch="poll", create=False, journal=None, program="spark")


def _groups(batches: Iterator[pa.RecordBatch], *by: str) -> Iterator[tuple[Any, list[str]]]:
    """The ids of a partition by queue, in parts that share a sync; memory stays within one."""
    waiting: dict[Any, list[str]] = {}
    total = 0
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in by), strict=True)
        for key, name in zip(keys, batch.column("id").to_pylist(), strict=True):
            waiting.setdefault(key if len(by) > 1 else key[0], []).append(named(name))
            total += 1
        if total >= _PART:
            yield from waiting.items()
            waiting, total = {}, 0
    yield from waiting.items()


def _counts(**numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([n], pa.int64()) for n in numbers.values()], names=[*numbers])


def _sum(frame: DataFrame) -> dict[str, int]:
    [row] = frame.select(
        *(f.coalesce(f.sum(c), f.lit(0)).alias(c) for c in frame.columns)
    ).collect()
    return row.asDict()
