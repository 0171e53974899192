"""The figures of a report, out of the journal's tables; small, whatever the tables' size."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from fsmq.pipeline.journal.tables import Tables
from fsmq.spool import InvalidValue

DAYS = 7.0
# A chart shows no more intervals than it has room for.
_MOST_INTERVALS = 150
_INTERVALS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_QUEUES_IN_CHART = 6
_MOST_QUEUES = 100_000
_DEAD_IN_TABLE = 50
_WORST = 15
# From so many claims on a message counts as one that troubles its consumers.
_TROUBLESOME = 3
_SUMS = (
    "accepted",
    "claimed",
    "removed",
    "repeated",
    "redelivered",
    "released",
    "buried",
    "expired",
    "purged",
    "bytes",
)
_SHARES = (0.5, 0.95, 0.99)


@dataclass
class Queue:
    """One queue over the whole time. Waits and processing: p50, p95, p99 in seconds, or Nones."""

    name: str
    sums: dict[str, int]
    wait: tuple[float | None, ...]
    processing: tuple[float | None, ...]
    depth: int
    oldest_s: float | None
    deepest: int


@dataclass
class Figures:
    """What a report tells.

    begin, end: UTC. interval_min: width of an interval of ``times`` and what follows it, in
    minutes. sums: for each step, a number for each interval. wait, processing: for each interval
    p50, p95, p99 in seconds. depth: for each queue its greatest depth in each interval. worst:
    messages that were claimed most often. dead: for each queue of dead letters how many came, from
    where, and how many are still there. late: steps that the minutes lack.
    """

    begin: datetime
    end: datetime
    interval_min: int
    late: int
    times: list[datetime]
    sums: dict[str, list[int]]
    wait: list[tuple[float | None, ...]]
    processing: list[tuple[float | None, ...]]
    depth: dict[str, list[int]]
    all_wait: tuple[float | None, ...]
    all_processing: tuple[float | None, ...]
    queues: list[Queue]
    worst: list[dict[str, Any]]
    dead: list[dict[str, Any]]
    spool: str
    totals: dict[str, int] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """How many messages are there at the end."""
        return sum(queue.depth for queue in self.queues)

    @property
    def repeat_share(self) -> float:
        """Which share of the claims was not a message's first, 0 to 1."""
        return self.totals["repeated"] / max(1, self.totals["claimed"])


def collect(spark: SparkSession, folder: str, days: float = DAYS) -> Figures:
    """Compute the figures of the last ``days`` days that the tables hold.

    Raises:
        InvalidValue: the folder holds no tables, or nothing happened.
    """
    tables = Tables(spark, folder)
    progress = tables.progress()
    end = datetime.fromtimestamp(progress.latest_ms / 1000, UTC)
    since = end - timedelta(days=days)
    read = tables.read(since.date())
    minutes = read["minutes"].where(fn.col("minute") >= since).persist()
    messages = read["messages"].where(
        (fn.coalesce("ended_at", "last_claimed_at") >= since) | (fn.col("outcome") == "open")
    )
    messages = messages.persist()
    try:
        begin = minutes.agg(fn.min("minute")).collect()[0][0]
        if begin is None:
            raise InvalidValue("tables", f"{folder} has no steps")
        begin = begin.astimezone(UTC)
        return _collect(minutes, messages, begin, end, progress.late, progress.root)
    finally:
        minutes.unpersist()
        messages.unpersist()


def _collect(
    minutes: DataFrame, messages: DataFrame, begin: datetime, end: datetime, late: int, spool: str
) -> Figures:
    width = _interval(begin, end)
    times = _times(begin, end, width)
    place = {time: n for n, time in enumerate(times)}
    by_time = minutes.groupBy(_bucket("minute", width)).agg(*map(_sum, _SUMS)).collect()
    sums = {name: [0] * len(times) for name in _SUMS}
    for row in by_time:
        for name in _SUMS:
            sums[name][place[row["time"].astimezone(UTC)]] = row[name]
    queues = _queues(minutes, messages, end)
    everything = messages.agg(_percentiles("wait_s"), _percentiles("processing_s")).collect()[0]
    return Figures(
        begin=begin,
        end=end,
        interval_min=width,
        late=late,
        times=times,
        sums=sums,
        wait=_over_time(messages, "first_claimed_at", "wait_s", width, place),
        processing=_over_time(messages, "ended_at", "processing_s", width, place),
        depth=_depth(minutes, queues, width, place),
        all_wait=_three(everything["wait_s"]),
        all_processing=_three(everything["processing_s"]),
        queues=queues,
        worst=_worst(messages),
        dead=_dead(messages),
        spool=spool,
        totals={name: sum(values) for name, values in sums.items()},
    )


def _interval(begin: datetime, end: datetime) -> int:
    minutes = (end - begin).total_seconds() / 60 + 1
    for width in _INTERVALS_MIN:
        if minutes / width <= _MOST_INTERVALS:
            return width
    return int(1440 * -(-minutes // (1440 * _MOST_INTERVALS)))


def _times(begin: datetime, end: datetime, width: int) -> list[datetime]:
    step = width * 60
    first = int(begin.timestamp()) // step * step
    last = int(end.timestamp()) // step * step
    if first == last:
        first -= step  # one point is no line
    return [datetime.fromtimestamp(at, UTC) for at in range(first, last + 1, step)]


def _bucket(time: str, width: int) -> Any:
    seconds = width * 60
    return fn.timestamp_seconds(fn.floor(fn.unix_seconds(fn.col(time)) / seconds) * seconds).alias(
        "time"
    )


def _sum(name: str) -> Any:
    return fn.sum(name).alias(name)


def _percentiles(name: str) -> Any:
    shares = fn.array(*(fn.lit(share) for share in _SHARES))
    return fn.percentile_approx(name, shares, fn.lit(10_000)).alias(name)


def _three(found: list[float] | None) -> tuple[float | None, ...]:
    return tuple(found) if found else (None, None, None)


def _over_time(
    messages: DataFrame, at: str, name: str, width: int, place: dict[datetime, int]
) -> list[tuple[float | None, ...]]:
    found: list[tuple[float | None, ...]] = [(None, None, None)] * len(place)
    timed = messages.where(fn.col(name).isNotNull())
    for row in timed.groupBy(_bucket(at, width)).agg(_percentiles(name)).collect():
        where = place.get(row["time"].astimezone(UTC))
        if where is not None:
            found[where] = _three(row[name])
    return found


def _queues(minutes: DataFrame, messages: DataFrame, end: datetime) -> list[Queue]:
    last = end.replace(second=0, microsecond=0)
    is_last = fn.col("minute") == fn.lit(last)
    sums = minutes.groupBy("queue").agg(
        *map(_sum, _SUMS),
        fn.max("depth").alias("deepest"),
        fn.max(fn.when(is_last, fn.col("depth"))).alias("depth"),
        fn.max(fn.when(is_last, fn.col("oldest_age_s"))).alias("oldest"),
    )
    times = messages.groupBy("queue").agg(_percentiles("wait_s"), _percentiles("processing_s"))
    rows = sums.join(times, "queue", "left").orderBy(fn.desc("accepted"), "queue")
    return [
        Queue(
            name=row["queue"],
            sums={name: row[name] for name in _SUMS},
            wait=_three(row["wait_s"]),
            processing=_three(row["processing_s"]),
            depth=row["depth"] or 0,
            oldest_s=row["oldest"],
            deepest=row["deepest"],
        )
        for row in rows.limit(_MOST_QUEUES).collect()
    ]


def _depth(
    minutes: DataFrame, queues: list[Queue], width: int, place: dict[datetime, int]
) -> dict[str, list[int]]:
    deepest = sorted(queues, key=lambda queue: -queue.deepest)[:_QUEUES_IN_CHART]
    depth = {queue.name: [0] * len(place) for queue in deepest if queue.deepest}
    chosen = minutes.where(fn.col("queue").isin(*depth)) if depth else minutes.limit(0)
    by_time = chosen.groupBy("queue", _bucket("minute", width)).agg(fn.max("depth").alias("depth"))
    for row in by_time.collect():
        depth[row["queue"]][place[row["time"].astimezone(UTC)]] = row["depth"]
    others = sum(1 for queue in queues if queue.deepest) - len(depth)
    if others:
        rest = [0] * len(place)
        together = minutes.where(~fn.col("queue").isin(*depth)).groupBy("minute").agg(_sum("depth"))
        for row in (
            together.groupBy(_bucket("minute", width)).agg(fn.max("depth").alias("depth")).collect()
        ):
            rest[place[row["time"].astimezone(UTC)]] = row["depth"]
        depth[f"{others} others"] = rest
    return depth


def _worst(messages: DataFrame) -> list[dict[str, Any]]:
    often = messages.where(fn.col("attempts") >= _TROUBLESOME)
    often = often.orderBy(fn.desc("attempts"), fn.desc("last_claimed_at"), "id")
    wanted = ("queue", "id", "attempts", "outcome", "began_at", "last_claimed_at", "size")
    return [row.asDict() for row in often.select(*wanted).limit(_WORST).collect()]


def _dead(messages: DataFrame) -> list[dict[str, Any]]:
    buried = messages.where("outcome = 'buried'").groupBy("went_to", "queue")
    came = buried.agg(fn.count(fn.lit(1)).alias("came"), fn.max("ended_at").alias("last_at"))
    still = (
        messages.where("outcome = 'open' and came_from is not null")
        .groupBy(fn.col("queue").alias("went_to"), fn.col("came_from").alias("queue"))
        .agg(fn.count(fn.lit(1)).alias("still"))
    )
    rows = came.join(still, ["went_to", "queue"], "left").orderBy(fn.desc("came"))
    return [row.asDict() for row in rows.limit(_DEAD_IN_TABLE).collect()]
