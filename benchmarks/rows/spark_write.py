"""Spark's write of a DataFrame into a queue."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from fsmq.spool import Spool

from ..bench import QUEUE, Bench
from ..floor import floor
from ..measure import Bar, Measure, Outcome, rate, side_by_side
from .spark import spark, why_not

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "Spark: write of durable messages"
_PROCESSES = 2
_WARM = 100
# Of a run: the spool syncs each 10,000 files of a task.
_GROUPS = 10


def durable(bench: Bench) -> Outcome:
    """df.write of 1 KiB messages, beside the same steps in plain loops in the same run."""
    if (reason := why_not()) is not None:
        return Outcome([Measure(_NAME, [], note=reason)])
    sizes = bench.sizes

    def subject() -> float:
        with bench.place.fresh("spark") as folder, spark() as session:
            return _written(session, folder.resolve() / "mq", sizes.contested, sizes.body)

    contenders = {
        "groups": lambda: _raw(bench, shown=False),
        "shown": lambda: _raw(bench, shown=True),
        "write": subject,
    }
    found = side_by_side(bench.repeat, contenders)
    measure = Measure(
        _NAME,
        found["write"],
        unit="messages/s",
        bar=Bar(">=", 15_000, "/s"),
        measured=rate(found["write"]),
        against=rate(found["shown"]),
        note=f"{sizes.contested:,} of {sizes.body:,} bytes on local[{_PROCESSES}], from rows in"
        " Spark's memory until all are in new/. Against: plain loops in as many processes that"
        " write files, one syncfs for each group, then rename each into one folder, as all or"
        f" nothing needs it; without these renames {rate(found['groups'])}",
    )
    return Outcome([measure])


def _written(session: SparkSession, root: Path, messages: int, size: int) -> float:
    """Messages a second of one write, which ends when all are in ``new/``; one went before."""
    with Spool(root) as spool:
        spool.create_queue(QUEUE)
    _put(_rows(session, _WARM, size), root)
    rows = _rows(session, messages, size).persist()
    rows.count()
    began = time.perf_counter()
    _put(rows, root)
    seconds = time.perf_counter() - began
    rows.unpersist()
    with Spool(root, delivers=False) as spool:
        assert spool.counts(QUEUE).new == messages + _WARM
    return messages / seconds


def _rows(session: SparkSession, messages: int, size: int) -> DataFrame:
    from pyspark.sql import functions as fn

    text = fn.lpad(fn.col("id").cast("string"), size, "x")
    return session.range(0, messages, 1, 2).select(text.alias("body"))


def _put(rows: DataFrame, root: Path) -> None:
    rows.write.format("fsmq").mode("append").options(root=str(root), queue=QUEUE).save()


def _raw(bench: Bench, *, shown: bool) -> float:
    """Files a second of all processes. ``shown``: in the end they are renamed into one folder."""
    with bench.place.fresh("floor") as folder, ThreadPoolExecutor(_PROCESSES) as threads:
        to = folder / "new"
        parts = [folder / str(number) for number in range(_PROCESSES)]
        for made in (to, *parts):
            made.mkdir()

        def one(part: Path) -> float:
            size, group = bench.sizes.body, bench.sizes.contested // _GROUPS
            return floor(part, bench.seconds, size, group, to if shown else None)

        return sum(threads.map(one, parts))
