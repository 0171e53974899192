"""Lives: one row for each message in each queue that it was in, made from the steps of the journal.

A life is what is known of a message in one queue: when each step was taken, and how often. Every
part is a minimum, a maximum or a sum, so steps can come in any order and in any number of batches,
from hosts whose clocks differ. A message that is moved or buried ends one life and begins another.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

# Steps that begin and that end a life, by the names that `steps` gives them.
_BEGINS = ("accepted", "arrived")
_ENDS = ("removed", "buried", "moved", "expired", "purged")
_FIRST = {
    "accepted_at": "accepted",
    "arrived_at": "arrived",
    "deferred_at": "deferred",
    "delivered_at": "delivered",
    "first_claimed_at": "claimed",
}
_LAST = {"last_claimed_at": "claimed", **{f"{end}_at": end for end in _ENDS}, "reaped_at": "reaped"}
_TIMES = {
    "attempts": ("claimed",),
    "renewals": ("renewed",),
    "releases": ("released",),
    "redeliveries": ("redelivered",),
    "begins": _BEGINS,
    "ends": _ENDS,
    "reaps": ("reaped",),
}

KEY = ("queue", "id")
COLUMNS = (
    *KEY,
    "outcome",
    "size",
    "came_from",
    "went_to",
    "attempts",
    "redeliveries",
    "releases",
    "renewals",
    "wait_s",
    "processing_s",
    "total_s",
    "began_at",
    "ended_at",
    *_FIRST,
    *(name for name in _LAST if name != "arrived_at"),
)
"""The columns of the table messages; docs/analytics.md describes them."""


def steps(events: DataFrame) -> DataFrame:
    """The steps of messages in queues: a move or a burial is one in each of two queues."""
    none = fn.lit(None).cast("string")
    stays = events.where("event <> 'moved'").select(
        *KEY,
        "at",
        fn.col("event").alias("step"),
        "size",
        "deliveries",
        none.alias("came_from"),
        fn.when(fn.col("event") == "buried", fn.col("to_queue")).alias("went_to"),
    )
    leaves = events.where("event = 'moved' and from_queue is not null").select(
        fn.col("from_queue").alias("queue"),
        fn.coalesce("from_id", "id").alias("id"),
        "at",
        fn.lit("moved").alias("step"),
        "size",
        "deliveries",
        none.alias("came_from"),
        fn.col("queue").alias("went_to"),
    )
    comes = events.where("event = 'moved' or (event = 'buried' and to_queue is not null)").select(
        fn.coalesce("to_queue", "queue").alias("queue"),
        "id",
        "at",
        fn.lit("arrived").alias("step"),
        "size",
        fn.lit(None).cast("int").alias("deliveries"),
        fn.when(fn.col("event") == "moved", fn.col("from_queue"))
        .otherwise(fn.col("queue"))
        .alias("came_from"),
        none.alias("went_to"),
    )
    return stays.unionAll(leaves).unionAll(comes)


def merge(held: DataFrame | None, new: DataFrame) -> DataFrame:
    """Lives after more steps. held: the lives of an earlier merge. new: steps.

    The column ``is_held`` marks lives that were known before.
    """
    parts = _parts(new)
    if held is not None:
        parts = held.select(*parts.columns[:-1], fn.lit(True).alias("is_held")).unionAll(parts)
    return parts.groupBy(*KEY).agg(
        *(fn.max(name).alias(name) for name in ("size", "came_from", "went_to", "last_step_at")),
        *(fn.min(name).alias(name) for name in (*_FIRST, "first_step_at")),
        *(fn.max(name).alias(name) for name in _LAST),
        *(fn.sum(name).alias(name) for name in _TIMES),
        fn.max("is_held").alias("is_held"),
    )


def _parts(new: DataFrame) -> DataFrame:
    step, at = fn.col("step"), fn.col("at")
    return new.select(
        *KEY,
        "size",
        "came_from",
        "went_to",
        at.alias("last_step_at"),
        at.alias("first_step_at"),
        *(fn.when(step == name, at).alias(column) for column, name in (_FIRST | _LAST).items()),
        *(step.isin(*names).cast("long").alias(column) for column, names in _TIMES.items()),
        fn.lit(False).alias("is_held"),
    )


def described(lives: DataFrame, lost_before: Column) -> DataFrame:
    """Lives with derived columns: outcome, began_at, ended_at, wait, processing, total.

    lost_before: an open message without a step since this time is ``lost``: it has ended, but the
    journal does not say how.
    """
    ended_at = fn.greatest(*(fn.col(f"{end}_at") for end in _ENDS))
    # A purge of a whole queue is seen only when its files are unlinked.
    is_open = fn.greatest("ends", "reaps") < fn.greatest(fn.col("begins"), fn.lit(1))
    outcome = fn.when(is_open & (fn.col("last_step_at") < lost_before), "lost").when(
        is_open, "open"
    )
    for end in _ENDS:
        outcome = outcome.when(fn.col(f"{end}_at") == ended_at, end)
    over = fn.coalesce(ended_at, fn.col("reaped_at"))
    began_at = fn.coalesce("accepted_at", "arrived_at", "first_step_at")
    ready_at = fn.coalesce("delivered_at", "arrived_at", "accepted_at")
    rows = lives.withColumns({"outcome": outcome.otherwise("purged"), "began_at": began_at})
    rows = rows.withColumn(
        "ended_at",
        fn.when(fn.col("outcome") == "lost", fn.col("last_step_at")).when(
            fn.col("outcome") != "open", over
        ),
    )
    was_processed = (fn.col("outcome") == "removed") & (fn.col("attempts") > 0)
    return rows.withColumns(
        {
            "wait_s": _between(ready_at, fn.col("first_claimed_at")),
            "processing_s": fn.when(
                was_processed, _between(fn.col("last_claimed_at"), fn.col("ended_at"))
            ),
            "total_s": _between(fn.col("began_at"), fn.col("ended_at")),
        }
    )


def is_message(lives: DataFrame) -> DataFrame:
    """Lives without those of which only the unlinking is known."""
    return lives.where("begins > 0 or ends > 0 or attempts > 0 or last_step_at > reaped_at")


def _between(start: Column, end: Column) -> Column:
    """Seconds from one time to another, at least 0 even if clocks disagree."""
    seconds = end.cast("double") - start.cast("double")
    return fn.when(
        start.isNotNull() & end.isNotNull(), fn.greatest(fn.lit(0.0), fn.round(seconds, 3))
    )
