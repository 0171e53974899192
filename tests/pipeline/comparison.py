"""Compare tables with counts: figures of each queue exactly, waits within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from fsmq.pipeline.journal import job as journal
from fsmq.pipeline.journal.tables import Tables
from tests.soak.day import Tally

OUTCOMES = ("removed", "buried", "expired", "purged")
STEPS = ("accepted", "claimed", "released", "renewed", "redelivered", *OUTCOMES, "arrived")
# The journal has whole milliseconds.
_ROUNDED_S = 0.002


def make(spark: SparkSession, root: Path, folder: Path) -> dict[str, DataFrame]:
    """Run the job on a spool's journal; its tables."""
    journal.start(spark, str(root), str(folder)).awaitTermination()
    return Tables(spark, str(folder)).read()


def compare(tables: dict[str, DataFrame], tally: Tally, factor: float) -> None:
    """Raise AssertionError if a table differs from the counts.

    factor: by which the times of the journal were stretched.
    """
    by_minute = {
        row["queue"]: row.asDict()
        for row in tables["minutes"].groupBy("queue").sum(*STEPS).collect()
    }
    found = {
        queue: {step: row[f"sum({step})"] for step in STEPS} for queue, row in by_minute.items()
    }
    counted = {q: {step: tally.counts[q][step] for step in STEPS} for q in tally.counts}
    _same("minutes", found, counted)

    outcomes: dict[str, dict[str, Any]] = {queue: dict.fromkeys(OUTCOMES, 0) for queue in counted}
    for row in tables["messages"].groupBy("queue", "outcome").count().collect():
        if row["outcome"] != "open":
            outcomes[row["queue"]][row["outcome"]] = row["count"]
    expected = {q: {step: tally.counts[q][step] for step in OUTCOMES} for q in counted}
    _same("messages", outcomes, expected)

    delivery = fn.col("delivered_at").cast("double") - fn.col("accepted_at").cast("double")
    for row in (
        tables["messages"]
        .where("deferred_at is null and wait_s is not null")
        .groupBy("queue")
        .agg(
            fn.avg("wait_s").alias("wait"),
            fn.avg(fn.greatest(delivery, fn.lit(0.0))).alias("delivery"),
        )
        .collect()
    ):
        span = tally.waits(row["queue"])
        if span is None:
            continue
        (least, most), average = span, row["wait"] / factor
        # A wait begins with the delivery, which can be some time after the answer.
        least -= (row["delivery"] or 0.0) / factor
        if not least - _ROUNDED_S <= average <= most + _ROUNDED_S:
            raise AssertionError(
                f"waits in {row['queue']}: {average:.3f} s, measured {least:.3f} to {most:.3f} s"
            )


def _same(table: str, found: dict[str, Any], counted: dict[str, Any]) -> None:
    for queue in sorted(found.keys() | counted.keys()):
        if found.get(queue) != counted.get(queue):
            raise AssertionError(
                f"{table}: {queue} has {found.get(queue)}, but counted were {counted.get(queue)}"
            )
