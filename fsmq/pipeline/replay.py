"""The job replay: messages of an archive go back into queues."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from fsmq.pipeline.archive import read
from fsmq.pipeline.sending import Plan, is_done, send
from fsmq.spool import InvalidValue
from fsmq.spool.names import UUID7
from fsmq.spool.settings import MAX_DELAY_S

_OUR_ID = rf"^(?:p[0-9]{{2}}\.)?({UUID7})(?:\.x[0-9a-f]{{1,10}})?(?:\.h)?(?:\.z)?$"


class Wish(NamedTuple):
    """Which messages of an archive, and how.

    queues: names and globs, comma between them. since, until: of the time of creation, as Spark
    reads a timestamp. where: an expression of Spark SQL over the archive's columns. to: the queue
    for all of them; None: each its own. renew: new ids, instead of those that they had. rate:
    messages a second, by delays that count from the commit.
    """

    queues: str | None = None
    since: str | None = None
    until: str | None = None
    where: str | None = None
    to: str | None = None
    renew: bool = False
    rate: float | None = None


def messages_of(spark: SparkSession, archive: str, wish: Wish) -> DataFrame:
    """The messages that are wished for, with the archive's columns. Raises InvalidValue."""
    found = spark.read.parquet(archive).columns
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


def as_written(frame: DataFrame, wish: Wish) -> DataFrame:
    """Messages as a write takes them; what has expired is left out."""
    now = f.current_timestamp()
    expires = f.col("expires_at")
    uuid = f.regexp_extract("id", _OUR_ID, 1)
    is_ours = uuid != ""
    # Half a millisecond less: the expiry is rounded up to the second, and comes out as it was.
    start = _seconds(now) if wish.renew else _seconds(f.col("created_at"))
    frame = frame.where(expires.isNull() | (expires > now))
    frame = frame.withColumns(
        {
            "_to": f.lit(wish.to) if wish.to is not None else f.col("queue"),
            "_ttl": f.when(is_ours, _seconds(expires) - start - f.lit(0.0005)),
            "_id": _id(uuid, wish),
            "_delay": _delay(f.col("state"), f.col("visible_at"), now),
        }
    )
    if wish.rate is not None:
        # In the order of the spool; the delays count from the commit, so the first comes at once.
        order = Window.orderBy("created_at", "id")
        paced = (f.row_number().over(order) - 1) / f.lit(wish.rate)
        frame = frame.withColumn("_delay", f.greatest(paced, f.coalesce("_delay", f.lit(0.0))))
    return frame.select(
        f.col("_to").alias("queue"),
        f.col("_id").cast("string").alias("id"),
        "priority",
        f.col("_delay").alias("delay"),
        f.col("_ttl").alias("ttl"),
        "content_type",
        "attributes",
        "body",
    )


def _id(uuid: Column, wish: Wish) -> Column:
    """The id to be put: without the prefix and the flags, which the columns say."""
    return f.lit(None) if wish.renew else f.when(uuid != "", uuid).otherwise(f.col("id"))


def _seconds(time: Column) -> Column:
    return f.unix_millis(time) / 1000


def _delay(state: Column, visible: Column, now: Column) -> Column:
    """What is left of a delay; of a claim nothing is."""
    left = _seconds(visible) - _seconds(now)
    # 0 rather than null: the delay that the queue has for new ones is not for these.
    return f.when((state == "delayed") & (left > 0), left).otherwise(f.lit(0.0))


def replay(
    spark: SparkSession, plan: Plan, archive: str, wish: Wish, *, dry_run: bool = False
) -> dict[str, Any]:
    """Put messages of an archive back, all or none, and once for a job's name; what came of it.

    Raises:
        InvalidValue: the archive is none, or the rate would take more than a year.
        Exception: Spark's, with the text of what the spool says.
    """
    wished = messages_of(spark, archive, wish)
    frame = as_written(wished, wish)
    if wish.rate is not None or dry_run:
        messages = frame.count()
        if wish.rate is not None and messages / wish.rate > MAX_DELAY_S:
            raise InvalidValue("rate", f"{messages:,} messages at {wish.rate:g}/s take over a year")
        if dry_run:
            return {
                "job": plan.job,
                "would_put": 0 if is_done(plan) else messages,
                "expired": wished.count() - messages,
                "done_before": is_done(plan),
            }
    return send(frame, plan)
