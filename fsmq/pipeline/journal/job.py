"""The job ``journal``: a stream from the lifecycle journal into the tables of `tables`.

Each micro-batch adds its steps to the lives of messages that are open, or ended a short while ago,
and to the counts of the last minutes. Rows before the watermark become final, and are not carried
on. So the state grows with the number of open messages, not with all that ever were.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from fsmq.pipeline.cancellation import cancellable
from fsmq.pipeline.journal import lives, minutes, segments
from fsmq.pipeline.journal.tables import Progress, Tables
from fsmq.spool import InvalidValue

LATE_S = 600.0
LOST_S = 30 * 86_400.0
EVERY_S = 60.0
_MINUTE_MS = 60_000
# How far a clock can be ahead of ours. Later times do not move the watermark, because all other
# steps would be late then.
_AHEAD_MS = 60_000
# How far back the minutes of a first batch go: with one wrong clock they could span decades.
_BACK_MS = 31 * 86_400_000


@dataclass(frozen=True)
class Rules:
    """When rows become final.

    late_s: how long to wait for late steps, in seconds of the journal's own time. lost_s: an open
    message without a step for this long is given up.
    """

    late_s: float = LATE_S
    lost_s: float = LOST_S


@contextmanager
def only_one(folder: str) -> Iterator[None]:
    """Keep other jobs out of a folder of tables, if it is on this machine.

    Raises:
        InvalidValue: another job is at work there.
    """
    if "://" in folder:
        yield  # Spark itself notices two streams with one checkpoint, though late
        return
    os.makedirs(folder, exist_ok=True)
    fd = os.open(os.path.join(folder, "_lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidValue("--to", f"another job writes into {folder}") from None
        yield
    finally:
        os.close(fd)


def start(
    spark: SparkSession,
    root: str,
    folder: str,
    *,
    every: float | None = None,
    rules: Rules | None = None,
    max_bytes: int = segments.MAX_BYTES,
    report: Callable[[Progress], None] = lambda progress: None,
) -> StreamingQuery:
    """Start the stream from the spool ``root`` into the tables in ``folder``.

    every: seconds between micro-batches; None: read what is there and end. max_bytes: of segments
    in one micro-batch. report: called after each with the progress of the tables.

    Raises:
        InvalidValue
    """
    segments.listing(root)
    tables = Tables(spark, folder)
    before = tables.progress()
    _check(tables, before, root)
    spark.dataSource.register(segments.JournalSource)
    batches = _Batches(tables, root, rules or Rules(), report)
    stream = spark.readStream.format(segments.NAME).option("root", root)
    writer = stream.option("maxBytesPerTrigger", max_bytes).load().writeStream
    writer = writer.foreachBatch(cancellable(batches.make)).option(
        "checkpointLocation", tables.checkpoint
    )
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every * 1000)} milliseconds").start()


def look(spark: SparkSession, root: str, folder: str) -> dict[str, int]:
    """What a run would read: segments that no batch has taken yet, and their bytes.

    Raises:
        InvalidValue
    """
    found = segments.listing(root)
    tables = Tables(spark, folder)
    before = tables.progress()
    _check(tables, before, root)
    taken = segments.Offset.of(tables.offset(before.batch))
    new = [segment for segment in found.segments if not taken.has(segment)]
    return {"new_segments": len(new), "bytes": sum(s.size for s in new)}


def summary(spark: SparkSession, folder: str) -> dict[str, int | str]:
    """The progress of the tables, for people."""
    tables = Tables(spark, folder)
    done = tables.progress()
    outcomes: dict[str, int] = {}
    if done.batch >= 0:
        counted = tables.read()["messages"].groupBy("outcome").count().collect()
        outcomes = {row["outcome"]: row["count"] for row in counted}
    return {
        "batches": done.batch + 1,
        "steps": done.events,
        "late_steps": done.late,
        "messages": sum(outcomes.values()),
        "open": outcomes.get("open", 0),
        "newest_step": _shown(done.latest_ms),
        "final_until": _shown(done.mark_ms),
    }


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat() if ms else "-"


def _check(tables: Tables, before: Progress, root: str) -> None:
    if before.batch >= 0 and not tables.has_checkpoint():
        raise InvalidValue(
            "--to",
            f"holds tables, and {tables.checkpoint} is gone, which knew how far the journal was"
            " read: name another folder, or remove this one to make its tables anew",
        )
    if before.batch >= 0 and before.root != root:
        raise InvalidValue("--to", f"holds the tables of {before.root}: one folder for each spool")


class _Batches:
    """Processes micro-batches; each stores the state with which the next one begins."""

    def __init__(
        self, tables: Tables, root: str, rules: Rules, report: Callable[[Progress], None]
    ) -> None:
        self._tables = tables
        self._root = root
        self._rules = rules
        self._report = report

    def make(self, events: DataFrame, number: int) -> None:
        """Process micro-batch ``number``; do nothing if it was committed before a crash."""
        before = self._tables.progress()
        if number <= before.batch:
            return
        if number != before.batch + 1:
            raise InvalidValue(
                "--to", f"ends with batch {before.batch}, and Spark's checkpoint with {number - 1}"
            )
        spark = events.sparkSession
        # A stream's default of 200 is for state that cannot be repartitioned; there is none here.
        spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
        self._tables.remove(number)
        events = events.persist()
        try:
            self._report(self._make(spark, events, number, before))
        finally:
            spark.catalog.clearCache()

    def _make(
        self, spark: SparkSession, events: DataFrame, number: int, before: Progress
    ) -> Progress:
        tables = self._tables
        steps = lives.steps(events)
        found = _facts(events, before)
        after = self._after(before, found, number)
        first = before.mark_ms or _minute(max(found["first_ms"] or 0, after.latest_ms - _BACK_MS))
        mark = _time(after.mark_ms)
        on_time = fn.col("at") >= _time(first)

        held = tables.held(spark, "messages", before.batch)
        known = lives.merge(held, steps)
        # Without this, a step that is too late for a final life would begin the life again.
        known = known.where(fn.col("is_held") | (fn.col("last_step_at") >= _time(before.mark_ms)))
        lost_before = _time(after.latest_ms - round(self._rules.lost_s * 1000))
        rows = lives.described(known, lost_before).persist()
        over = (fn.col("outcome") != "open") & (fn.col("ended_at") < mark)
        over &= fn.col("last_step_at") < mark

        counts = minutes.count(
            tables.held(spark, "counts", before.batch), steps.where(on_time)
        ).persist()
        last = _time(_minute(after.latest_ms))
        by_minute = minutes.table(counts, lives.is_message(rows), _time(first), last).persist()
        is_final = fn.col("minute") < mark

        size = after.events - before.events
        tables.append("events", events, fn.col("at"), number, size)
        has_moved = after.mark_ms > first  # else nothing has become final
        if has_moved:
            gone = lives.is_message(rows.where(over)).select(*lives.COLUMNS)
            tables.append("messages", gone, fn.col("ended_at"), number, size)
            tables.append("minutes", by_minute.where(is_final), fn.col("minute"), number, size)
        recent = {
            # While the mark has not moved, a late step can have ended a life before it.
            "messages": rows.where(~over) if has_moved else rows,
            "minutes": by_minute.where(~is_final),
            "counts": counts.where(~is_final),
        }
        tables.commit(recent, after)
        return after

    def _after(self, before: Progress, found: dict[str, Any], number: int) -> Progress:
        latest = max(before.latest_ms, found["latest_ms"] or 0)
        mark = _minute(latest - round(self._rules.late_s * 1000))
        return Progress(
            batch=number,
            mark_ms=max(before.mark_ms, mark, 0),
            latest_ms=latest,
            events=before.events + found["events"],
            late=before.late + (found["late"] or 0),
            root=self._root,
        )


def _facts(events: DataFrame, before: Progress) -> dict[str, Any]:
    at_ms = fn.unix_millis("at")
    row = events.agg(
        fn.count(fn.lit(1)).alias("events"),
        fn.min(at_ms).alias("first_ms"),
        fn.max(fn.when(at_ms <= int(time.time() * 1000) + _AHEAD_MS, at_ms)).alias("latest_ms"),
        fn.sum((at_ms < before.mark_ms).cast("long")).alias("late"),
    ).first()
    assert row is not None
    return row.asDict()


def _time(ms: int) -> Column:
    return fn.timestamp_millis(fn.lit(ms))


def _minute(ms: int) -> int:
    return ms - ms % _MINUTE_MS
