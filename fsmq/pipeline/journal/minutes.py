"""Minutes: what happened in each queue in each minute, from steps and lives."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

KEY = ("queue", "minute")
COUNTED = (
    "accepted",
    "arrived",
    "delivered",
    "deferred",
    "claimed",
    "renewed",
    "released",
    "redelivered",
    "removed",
    "buried",
    "moved",
    "expired",
)
"""The steps that are counted in the minute in which they were taken."""

_SUMS = (*COUNTED, "repeated", "bytes")
_TOLD = ("wait", "processing")
_PERCENTS = (50, 95, 99)
_PERCENTILES = tuple(f"{name}_p{percent}_s" for name in _TOLD for percent in _PERCENTS)

COLUMNS = (
    *KEY,
    *COUNTED,
    "purged",
    "bytes",
    "repeated",
    "redelivery_share",
    *_PERCENTILES,
    "depth",
    "oldest_age_s",
)
"""The columns of the table minutes; docs/analytics.md describes them."""


def count(held: DataFrame | None, steps: DataFrame) -> DataFrame:
    """How often each step was taken, by queue and minute. held: an earlier count to add to."""
    step = fn.col("step")
    parts = steps.where(step.isin(*COUNTED)).select(
        "queue",
        minute_of(fn.col("at")).alias("minute"),
        *((step == name).cast("long").alias(name) for name in COUNTED),
        ((step == "claimed") & (fn.col("deliveries") > 1)).cast("long").alias("repeated"),
        fn.when(step == "accepted", fn.col("size")).alias("bytes"),
    )
    if held is not None:
        parts = held.select(*parts.columns).unionAll(parts)
    return parts.groupBy(*KEY).agg(*(fn.sum(name).alias(name) for name in _SUMS))


def minute_of(at: Column) -> Column:
    """The beginning of the minute of a time."""
    return fn.date_trunc("minute", at)


def table(counts: DataFrame, lives: DataFrame, first: Column, last: Column) -> DataFrame:
    """The minutes from ``first`` to ``last`` in which something happened or a message was there.

    lives: from `lives.described`, with all that were there, or ended, in these minutes.
    """
    parts = [counts, _purged(lives), *(_percentiles(lives, name) for name in _TOLD)]
    parts.append(_present(lives, first, last))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    counted = (*_SUMS, "purged", "depth")
    most = (*_PERCENTILES, "oldest_at")
    rows = (
        rows.where(fn.col("minute").between(first, last))
        .groupBy(*KEY)
        .agg(
            *(fn.coalesce(fn.sum(name), fn.lit(0)).alias(name) for name in counted),
            *(fn.max(name).alias(name) for name in most),
        )
    )
    age = _end_of("minute").cast("double") - fn.col("oldest_at").cast("double")
    share = fn.when(fn.col("claimed") > 0, fn.round(fn.col("repeated") / fn.col("claimed"), 4))
    rows = rows.withColumns({"oldest_age_s": fn.round(age, 3), "redelivery_share": share})
    return rows.select(*COLUMNS)


def _purged(lives: DataFrame) -> DataFrame:
    minute = minute_of(fn.col("ended_at")).alias("minute")
    purged = lives.where("outcome = 'purged'").groupBy("queue", minute)
    return purged.agg(fn.count(fn.lit(1)).alias("purged"))


def _percentiles(lives: DataFrame, name: str) -> DataFrame:
    """A wait counts in the minute of the first claim, processing in that of the removal."""
    at = fn.col("first_claimed_at" if name == "wait" else "ended_at")
    shares = fn.array(*(fn.lit(percent / 100) for percent in _PERCENTS))
    found = (
        lives.where(fn.col(f"{name}_s").isNotNull())
        .groupBy("queue", minute_of(at).alias("minute"))
        .agg(fn.percentile(f"{name}_s", shares).alias("found"))
    )
    each = (
        fn.round(fn.col("found")[n], 3).alias(f"{name}_p{percent}_s")
        for n, percent in enumerate(_PERCENTS)
    )
    return found.select(*KEY, *each)


def _present(lives: DataFrame, first: Column, last: Column) -> DataFrame:
    """How many messages were there at the end of each minute, and since when the oldest."""
    begin = fn.greatest(minute_of(fn.col("began_at")), first)
    # The last minute at whose end it was there.
    until = fn.coalesce(minute_of(fn.col("ended_at")) - fn.expr("interval 1 minute"), last)
    # Most messages begin and end in the same few minutes: count those before expanding minutes.
    groups = (
        lives.select(
            "queue", "began_at", begin.alias("begin"), fn.least(until, last).alias("until")
        )
        .where("until >= begin")
        .groupBy("queue", "begin", "until")
        .agg(fn.count(fn.lit(1)).alias("depth"), fn.min("began_at").alias("oldest_at"))
    )
    minutes = fn.explode(fn.sequence("begin", "until", fn.expr("interval 1 minute")))
    return (
        groups.select("queue", minutes.alias("minute"), "depth", "oldest_at")
        .groupBy(*KEY)
        .agg(fn.sum("depth").alias("depth"), fn.min("oldest_at").alias("oldest_at"))
    )


def _end_of(minute: str) -> Column:
    return fn.col(minute) + fn.expr("interval 1 minute")
