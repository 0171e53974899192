"""Writes a DataFrame into a queue and prints messages a second, durable and in new/.

    python -m benchmarks.spark_write FOLDER --messages 100000

The session is warm: a small write has gone before. The rows are made before, and are in Spark's
memory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fsmq.pipeline import session
from fsmq.spool import Spool

_QUEUE = "jobs"


def write(root: Path, messages: int, size: int) -> float:
    """Messages a second of one write, which ends when all are in ``new/``."""
    with Spool(root) as spool:
        spool.create_queue(_QUEUE)
    spark = session("benchmark", master="local[2]")
    try:
        _put(_rows(spark, 100, size), root)
        rows = _rows(spark, messages, size).persist()
        rows.count()
        began = time.perf_counter()
        _put(rows, root)
        seconds = time.perf_counter() - began
    finally:
        spark.stop()
    with Spool(root, delivers=False) as spool:
        assert spool.counts(_QUEUE).new == messages + 100
    return messages / seconds


def _rows(spark: SparkSession, messages: int, size: int) -> DataFrame:
    text = f.lpad(f.col("id").cast("string"), size, "x")
    return spark.range(0, messages, 1, 2).select(text.alias("body"))


def _put(rows: DataFrame, root: Path) -> None:
    rows.write.format("fsmq").mode("append").options(root=str(root), queue=_QUEUE).save()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a DataFrame into a queue.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024)
    given = parser.parse_args()
    print(write(given.folder / "mq", given.messages, given.size))


if __name__ == "__main__":
    main()
