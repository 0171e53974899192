"""Streaming on Spark: a queue is drained into Parquet, and every message acknowledged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from fsmq.spool import Spool

from .. import fill
from ..bench import QUEUE, Bench
from ..measure import Bar, Measure, Outcome
from .spark import spark, why_not

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "Spark: a stream drains a queue into Parquet, messages acknowledged"
_PER_BATCH = 25_000
_WARM = 2_000


def drain(bench: Bench) -> Outcome:
    """From the start of the query to its end; the JVM runs already."""
    if (reason := why_not()) is not None:
        return Outcome([Measure(_NAME, [], note=reason)])
    count = bench.sizes.tabled
    rates = []
    with bench.place.fresh("warm") as folder, spark() as session:
        _seconds(bench, session, folder, min(count, _WARM))  # loads classes, starts the workers
        for _ in range(bench.repeat):
            with bench.place.fresh("mq") as fresh:
                rates.append(count / _seconds(bench, session, fresh, count))
    note = (
        f"{count:,} messages of {bench.sizes.body:,} bytes, batches of up to {_PER_BATCH:,}, sink"
        " and spool on one disk"
    )
    return Outcome([Measure(_NAME, rates, unit="/s", bar=Bar(">=", 5_000.0, "/s"), note=note)])


def _seconds(bench: Bench, session: SparkSession, folder: Path, count: int) -> float:
    root = folder / "mq"
    Spool(root).close()
    fill.ready(root, count, bench.sizes.body)
    bench.place.settle()
    began = time.perf_counter()
    query = (
        session.readStream.format("fsmq")
        .options(root=str(root), queue=QUEUE, consumer="benchmark")
        .options(maxMessagesPerBatch=_PER_BATCH, visibilityTimeout=300)
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = time.perf_counter() - began
    with Spool(root, delivers=False) as spool:
        assert spool.counts(QUEUE).total == 0, "not all messages are acknowledged"
    assert session.read.parquet(str(folder / "out")).select("id").distinct().count() == count
    return took
