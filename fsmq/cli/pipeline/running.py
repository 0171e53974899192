"""What the jobs share: their options, the session, the progress bar, the summary."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fsmq.cli.failures import Exit, Failure
from fsmq.cli.output import bar, document, facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

F = TypeVar("F", bound=Callable[..., Any])

_LOOK_S = 0.5

master_option = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[2], spark://host:7077.  [default: all cores of this machine]",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and change nothing."
)


@contextmanager
def spark_session(job: str, master: str | None) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. Raises NoJava, Failure."""
    if find_spec("pyspark") is None:
        raise Failure("PySpark is not installed", Exit.UNAVAILABLE, "pip install 'fsmq[spark]'")
    from fsmq.pipeline.session import session

    spark = session(f"fsmq {job}", master=master)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """A bar of the tasks that Spark has done, while the body runs; nothing without a terminal."""
    over = threading.Event()
    with bar(label, 1) as show:

        def watch() -> None:
            while not over.wait(_LOOK_S):
                done, of = _tasks(spark)
                if of:
                    show(done, of)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def await_stream(query: StreamingQuery) -> None:
    """Wait for the end of a stream; SIGINT and SIGTERM stop it, and that is no failure.

    Raises Failure.
    """
    from pyspark.errors import StreamingQueryException

    try:
        with _stoppable():
            query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    except StreamingQueryException as error:
        reason = str(error).partition("\n")[0]
        raise Failure(
            f"the stream has ended: {reason}",
            Exit.UNAVAILABLE,
            "run it again: it goes on with the batch that was not done",
        ) from error


@contextmanager
def _stoppable() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def summary(found: Mapping[str, Any], as_json: bool) -> None:
    """Print what a job did: names with ``_`` for JSON, words for people."""
    if as_json:
        document(found)
        return
    facts([(name.replace("_", " "), _told(value)) for name, value in found.items()])


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
