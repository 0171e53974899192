"""Reading on Spark: a queue as a table, against Spark's own source of files on the same folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from fsmq.spool import Spool

from .. import fill
from ..bench import QUEUE, Bench
from ..measure import Bar, Measure, Outcome, rate, ratios, side_by_side
from ..procfs import command, descendants, resident_mb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORES = 2
# All that the names alone tell, and all that is known without opening a file.
_NAMES = ("queue", "id", "state", "created_at", "priority", "expires_at")
_UNOPENED = (*_NAMES, "visible_at", "deliveries", "size")
_ALL = ("*",)
# Of the processes of Spark's in which a source plans a read, and claims for a stream.
_PLANNER, _STREAM = "plan_data_source_read", "python_streaming_source_runner"
_PER_BATCH = 25_000


def why_not() -> str | None:
    """Why Spark cannot run here; None if it can."""
    try:
        from fsmq.pipeline.java import NoJava, find_java
    except ImportError:
        return "PySpark is not installed"
    try:
        find_java()
    except NoJava:
        return "Java is not installed"
    return None


@contextmanager
def spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    from fsmq.pipeline import session

    running = session("benchmarks", master=f"local[{_CORES}]")
    running.sparkContext.setLogLevel("ERROR")
    try:
        yield running
    finally:
        running.stop()


def snapshots(bench: Bench) -> Outcome:
    """A snapshot with bodies and without, to a sink that throws all of it away.

    Both sources give all of their columns, and both have listed and read the folder before.
    """
    if (reason := why_not()) is not None:
        return Outcome([Measure("Spark: a snapshot", [], note=reason)])
    count = bench.sizes.tabled
    with bench.place.fresh("mq") as folder, spark() as session:
        root = _filled(bench, folder / "mq", count)

        def messages(columns: Sequence[str]) -> DataFrame:
            reading = session.read.format("fsmq").options(root=str(root), queue=QUEUE)
            return reading.load().select(*columns)

        def files() -> DataFrame:
            return session.read.format("binaryFile").load(str(root / "queues" / QUEUE))

        def rate_of(load: Callable[[], DataFrame]) -> float:
            # From the load on: there binaryFile lists the folder, and fsmq does so later.
            began = time.perf_counter()
            load().write.format("noop").mode("overwrite").save()
            return count / (time.perf_counter() - began)

        known = files()  # and keeps what it has listed
        contenders = {
            "bodies": lambda: rate_of(lambda: messages(_ALL)),
            "unopened": lambda: rate_of(lambda: messages(_UNOPENED)),
            "names": lambda: rate_of(lambda: messages(_NAMES)),
            "binaryFile": lambda: rate_of(files),
            "listed": lambda: rate_of(lambda: known),
        }
        for run in contenders.values():
            run()  # loads classes, and starts the workers
        found = side_by_side(bench.repeat, contenders)
    note = f"{count:,} messages of {bench.sizes.body:,} bytes in the page cache, {_CORES} cores"
    return Outcome(
        [
            _measure("with bodies, against binaryFile", found, "bodies", "binaryFile", 10, note),
            _measure("the same without that one's listing", found, "bodies", "listed", None, ""),
            _measure("no file opened, against binaryFile", found, "unopened", "binaryFile", 20, ""),
            _measure("no file opened, against with bodies", found, "unopened", "bodies", 2, ""),
            _measure("what the names tell, against with bodies", found, "names", "bodies", 2, ""),
        ]
    )


def driver(bench: Bench) -> Outcome:
    """Memory of the driver: its heap, the process that plans a read, and the one of a stream."""
    if (reason := why_not()) is not None:
        return Outcome([Measure("Spark: memory of the driver", [], note=reason)])
    few, many = bench.sizes.tabled, bench.sizes.tabled * 10
    found: list[dict[str, float]] = []
    for count in (few, many):
        with bench.place.fresh("mq") as folder, spark() as session:
            root = _filled(bench, folder / "mq", count, size=0)
            _plan(session, root)
            heap = _heap_mb(session)
            planner = _peak_mb(_PLANNER)
            stream = _streaming_mb(session, root, folder / "checkpoint", count)
            found.append(
                {
                    "heap after planning": heap,
                    "heap after a stream has drained all": _heap_mb(session),
                    "the process that plans, at most": planner,
                    "the process of that stream, at most": stream,
                }
            )
    one, ten = found
    return Outcome(
        [
            Measure(
                f"Spark: memory of the driver, {what}, {many:,} messages against {few:,}",
                [ten[what] / one[what]],
                bar=Bar("<=", 1.2),
                measured=f"{ten[what]:.0f} MB",
                against=f"{one[what]:.0f} MB",
            )
            for what in one
        ]
    )


def _measure(
    name: str, found: dict[str, list[float]], subject: str, other: str, bar: float | None, note: str
) -> Measure:
    return Measure(
        f"Spark: a snapshot, {name}",
        ratios(found[subject], found[other]),
        bar=None if bar is None else Bar(">=", bar),
        measured=rate(found[subject]),
        against=rate(found[other]),
        note=note,
    )


def _filled(bench: Bench, root: Path, count: int, size: int | None = None) -> Path:
    Spool(root).close()
    fill.ready(root, count, bench.sizes.body if size is None else size)
    bench.place.settle()
    return root


def _plan(session: SparkSession, root: Path) -> None:
    table: Any = session.read.format("fsmq").options(root=str(root), queue=QUEUE).load()
    table._jdf.queryExecution().toRdd().getNumPartitions()


def _heap_mb(session: SparkSession) -> float:
    runtime = session._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def _peak_mb(worker: str) -> float:
    """The most that any of Spark's processes beside the driver with this module has had."""
    # Those that run are forks of the first of them, which imports nothing.
    found = [pid for pid in descendants(os.getpid()) if worker in command(pid)]
    return max(resident_mb(pid, peak=True) for pid in found)


def _streaming_mb(session: SparkSession, root: Path, checkpoint: Path, count: int) -> float:
    """The peak of the process that claims and acknowledges for a stream, after so many messages."""
    peaks: list[float] = []
    enough = Event()

    def note(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("append").save()
        peaks.append(_peak_mb(_STREAM))
        if len(peaks) * _PER_BATCH >= count:
            enough.set()

    query = (
        session.readStream.format("fsmq")
        .options(root=str(root), queue=QUEUE, consumer="benchmark")
        .options(maxMessagesPerBatch=_PER_BATCH, visibilityTimeout=300)
        .load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        while not enough.wait(1) and query.isActive:
            pass
    finally:
        query.stop()
    return max(peaks)
