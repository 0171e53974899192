"""The job replay: messages of an archive go back into queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from fsmq.pipeline.jobs.archive import NO_GLOB, read
from fsmq.pipeline.jobs.sending import Plan, is_done, send
from fsmq.spool import InvalidValue
from fsmq.spool.checks import MAX_DELAY_S


class Wish(NamedTuple):
    """Which messages of an archive to replay, and how.

    queues: names and globs, separated by commas. since, until: limits of the time of creation, as
    Spark reads a timestamp. where: an expression of Spark SQL over the archive's columns. to: the
    queue for all of them; None: each its own. renew: give new ids, instead of those that they had.
    rate: messages a second, by delays that count from the commit.
    """

    queues: str | None = None
    since: str | None = None
    until: str | None = None
    where: str | None = None
    to: str | None = None
    renew: bool = False
    rate: float | None = None


def messages_of(spark: SparkSession, archive: str, wish: Wish) -> DataFrame:
    """The messages to replay, with the archive's columns. Raises InvalidValue."""
    found = spark.read.option(*NO_GLOB).parquet(archive).columns
    if missing := {"queue", "id", "body"} - set(found):
        raise InvalidValue("archive", f"{archive} has no column {min(missing)}: is it an archive?")
    frame = read(spark, archive)
    if wish.queues is not None:
        globs = "|".join(_pattern(part.strip()) for part in wish.queues.split(","))
        frame = frame.where(f.col("queue").rlike(f"^(?:{globs})$"))
    if wish.since is not None:
        frame = frame.where(f.col("created_at") >= f.lit(wish.since).cast("timestamp"))
    if wish.until is not None:
        frame = frame.where(f.col("created_at") < f.lit(wish.until).cast("timestamp"))
    return frame if wish.where is None else frame.where(wish.where)


def _pattern(glob: str) -> str:
    words = {"*": ".*", "?": "."}
    return "".join(words.get(c, c if c.isalnum() else f"\\{c}") for c in glob)


def as_written(frame: DataFrame, wish: Wish, now: Column) -> DataFrame:
    """Messages as rows of a write with whole ids; those that have expired are left out."""
    frame = frame.where(~has_expired(now)).withColumn("delay", _delay(now))
    if wish.to is not None:
        frame = frame.withColumn("queue", f.lit(wish.to))
    if wish.rate is not None:
        # In the order of the spool; delays count from the commit, so the first message has none.
        order = Window.orderBy("created_at", "id")
        paced = (f.row_number().over(order) - 1) / f.lit(wish.rate)
        frame = frame.withColumn("delay", f.greatest(paced, "delay"))
    return frame.select("queue", "id", "delay", "content_type", "attributes", "body")


def has_expired(now: Column) -> Column:
    """Whether the time to live of a message is over."""
    return f.coalesce(f.col("expires_at") <= now, f.lit(False))


def _seconds(time: Column) -> Column:
    return f.unix_millis(time) / 1000


def _delay(now: Column) -> Column:
    """What is left of a delay; 0 for a claim."""
    left = _seconds(f.col("visible_at")) - _seconds(now)
    return f.when((f.col("state") == "delayed") & (left > 0), left).otherwise(f.lit(0.0))


def replay(
    spark: SparkSession, plan: Plan, archive: str, wish: Wish, *, dry_run: bool = False
) -> dict[str, Any]:
    """Put messages of an archive back, all or none, and once for a job's name; returns the result.

    Raises:
        InvalidValue: it is not an archive, or the rate would take more than a year.
        Exception: Spark's, with the text of the spool's error.
    """
    wished = messages_of(spark, archive, wish)
    # One time for both, so that exactly those that are left out are counted as expired.
    now = f.lit(datetime.now(UTC))
    frame = as_written(wished, wish, now)
    counted = wished.select(has_expired(now).alias("over")).groupBy("over").count().collect()
    messages, expired = (
        sum(row["count"] for row in counted if row["over"] is over) for over in (False, True)
    )
    if wish.rate is not None and messages / wish.rate > MAX_DELAY_S:
        raise InvalidValue("rate", f"{messages:,} messages at {wish.rate:g}/s take over a year")
    if dry_run:
        done = is_done(plan)
        return {
            "job": plan.job,
            "would_put": 0 if done else messages,
            "expired": expired,
            "done_before": done,
        }
    found = send(frame, plan._replace(ids="renewed" if wish.renew else "whole"))
    return {**found, "expired": expired}
