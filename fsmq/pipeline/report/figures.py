"""The figures of a report, from the journal's tables; small for tables of any size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from fsmq.pipeline.journal.tables import Progress, Tables
from fsmq.spool import InvalidValue

# A chart has room for this many intervals.
_MOST_INTERVALS, _WIDTHS_MIN = 150, (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)
_QUEUES_IN_CHART, _MOST_QUEUES = 6, 100_000
# From this many claims on, a message counts as one that causes trouble.
_TROUBLESOME = 3
# The names of the dashboard's figures, and the columns of the table minutes.
_STEPS = {"sent": "accepted", "received": "claimed", "deleted": "removed"}
_STEPS |= {"redelivered": "repeated", "buried": "buried", "expired": "expired", "purged": "purged"}
_PERCENTILES, _SPANS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}, ("wait_s", "processing_s")


@dataclass(frozen=True)
class Figures:
    """What a report shows.

    begin, end: UTC. steps, wait_s, processing_s, depth: pandas' frames, a row for each interval and
    a column for each step, for p50, p95, p99 in seconds, for each queue's greatest depth. whole:
    the steps, and p50, p95, p99 or None as wait_s and processing_s. queues: the same of each queue,
    the busiest first, with its greatest depth, and depth and oldest_s at the end. worst: messages
    that were claimed most often. dead: from which queues to which messages were buried, how many,
    and how many are still there.
    """

    progress: Progress
    begin: datetime
    end: datetime
    interval_min: int
    steps: Any
    wait_s: Any
    processing_s: Any
    depth: Any
    whole: dict[str, Any]
    queues: list[Row]
    worst: list[Row]
    dead: list[Row]


def collect(spark: SparkSession, folder: str, days: float = 7.0) -> Figures:
    """Compute the figures of the last ``days`` days in the tables.

    Raises:
        InvalidValue: the folder has no tables, or nothing happened.
    """
    tables = Tables(spark, folder)
    progress = tables.progress()
    end = datetime.fromtimestamp(progress.latest_ms / 1000, UTC)
    read = tables.read((since := end - timedelta(days=days)).date())
    is_recent = fn.coalesce("ended_at", "last_claimed_at") >= since
    minutes = read["minutes"].where(fn.col("minute") >= since).persist()
    messages = read["messages"].where(is_recent | (fn.col("outcome") == "open")).persist()
    try:
        first = minutes.agg(fn.min("minute")).collect()[0][0]
        if first is None:
            raise InvalidValue("tables", f"{folder} has no steps")
        times = _times(begin := first.astimezone(UTC), end)
        queues = _queues(minutes, messages, end)
        steps = _by_time(minutes.groupBy(_interval("minute", times)).agg(*_sums()), times).fillna(0)
        spans = messages.agg(*map(_percentiles, _SPANS)).collect()[0].asDict()
        return Figures(
            progress=progress,
            begin=begin,
            end=end,
            interval_min=times.step // 60,
            steps=steps,
            wait_s=_latency(messages, "wait_s", "first_claimed_at", times),
            processing_s=_latency(messages, "processing_s", "ended_at", times),
            depth=_depth(minutes, queues, times),
            whole=steps.sum().astype(int).to_dict() | spans,
            queues=queues,
            worst=_worst(messages),
            dead=_dead(messages),
        )
    finally:
        minutes.unpersist()
        messages.unpersist()


def _times(begin: datetime, end: datetime) -> range:
    """The beginnings of the intervals, in Unix seconds."""
    minutes = (end - begin) / timedelta(minutes=1) + 1
    fitting = (width for width in _WIDTHS_MIN if minutes / width <= _MOST_INTERVALS)
    step = 60 * next(fitting, int(1440 * -(-minutes // (1440 * _MOST_INTERVALS))))
    first, last = (int(at.timestamp()) // step * step for at in (begin, end))
    return range(first - step * (first == last), last + 1, step)  # a line needs two points


def _interval(time: str, times: range) -> Column:
    return (fn.floor(fn.unix_seconds(time) / times.step) * times.step).alias("at")


def _by_time(rows: Any, times: range) -> Any:
    frame = rows.toPandas().set_index("at").reindex(times)
    return frame.set_axis(frame.index.astype("datetime64[s]"))


def _sums() -> list[Column]:
    return [fn.sum(column).alias(name) for name, column in _STEPS.items()]


def _percentiles(name: str) -> Column:
    shares = fn.array(*map(fn.lit, _PERCENTILES.values()))
    return fn.percentile_approx(name, shares, fn.lit(10_000)).alias(name)


def _latency(messages: DataFrame, name: str, at: str, times: range) -> Any:
    found = messages.groupBy(_interval(at, times)).agg(_percentiles(name))
    columns = [fn.col(name)[n].alias(label) for n, label in enumerate(_PERCENTILES)]
    return _by_time(found.where("at is not null").select("at", *columns), times)


def _queues(minutes: DataFrame, messages: DataFrame, end: datetime) -> list[Row]:
    is_last = fn.col("minute") == fn.lit(end.replace(second=0, microsecond=0))
    sums = minutes.groupBy("queue").agg(
        *_sums(),
        fn.max("depth").alias("deepest"),
        fn.coalesce(fn.max(fn.when(is_last, fn.col("depth"))), fn.lit(0)).alias("depth"),
        fn.max(fn.when(is_last, fn.col("oldest_age_s"))).alias("oldest_s"),
    )
    spans = messages.groupBy("queue").agg(*map(_percentiles, _SPANS))
    rows = sums.join(spans, "queue", "left").orderBy(fn.desc("sent"), "queue")
    return rows.limit(_MOST_QUEUES).collect()


def _depth(minutes: DataFrame, queues: list[Row], times: range) -> Any:
    """The greatest depth of the deepest queues, and of all others together."""
    deepest = sorted((queue for queue in queues if queue["deepest"]), key=lambda q: -q["deepest"])
    names = [queue["queue"] for queue in deepest[:_QUEUES_IN_CHART]]
    others = f"{len(deepest) - len(names)} others"
    name = fn.when(fn.col("queue").isin(names), fn.col("queue")).otherwise(others).alias("name")
    sums = minutes.groupBy(name, "minute").agg(fn.sum("depth").alias("depth"))
    most = sums.groupBy(_interval("minute", times)).pivot("name", [*names, others])
    shown = [*names, others] if len(deepest) > len(names) else names
    return _by_time(most.agg(fn.max("depth")), times).fillna(0)[shown]


def _worst(messages: DataFrame) -> list[Row]:
    often = messages.where(f"attempts >= {_TROUBLESOME}")
    return often.orderBy(fn.desc("attempts"), fn.desc("last_claimed_at"), "id").limit(15).collect()


def _dead(messages: DataFrame) -> list[Row]:
    came = messages.where("outcome = 'buried'").groupBy("went_to", "queue")
    here = messages.where("outcome = 'open'").groupBy("queue", "came_from").count()
    rows = came.agg(fn.count("*").alias("came"), fn.max("ended_at").alias("last_at")).join(
        here.toDF("went_to", "queue", "still"), ["went_to", "queue"], "left"
    )
    return rows.fillna(0, "still").orderBy(fn.desc("came")).limit(50).collect()
