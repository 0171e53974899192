"""What the jobs share: their options, the session, the progress bar, the summary."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fsmq.cli.failures import Exit, Failure
from fsmq.cli.output import bar, document, facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

F = TypeVar("F", bound=Callable[..., Any])

_LOOK_S = 0.5
# The last line of a traceback of ours, in Spark's text; and Spark's word for a wrong query.
_of_fsmq = re.compile(r"^fsmq\.[\w.]*\.(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)
_of_query = re.compile(r"\[(?!INTERNAL_ERROR)[A-Z_.]+\] (.+)")
_CODES = {
    "NoSuchQueue": Exit.NOT_FOUND,
    "QueueFull": Exit.UNAVAILABLE,
    "Unavailable": Exit.UNAVAILABLE,
    "UnusableSpool": Exit.UNUSABLE,
}

master_option = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[2], spark://host:7077.  [default: all cores of this machine]",
)
_putting = (
    click.option("--job", metavar="NAME", help="A name of your own, under which it is done once."),
    click.option("--create-queues", is_flag=True, help="Make queues that are missing."),
    click.option(
        "--bad-rows",
        metavar="DIR",
        help="Put rows that cannot be messages here, as JSON lines.  [default: one fails the job]",
    ),
)


def putting_options(command: F) -> F:
    """The options of a job that puts messages: job, create_queues and bad_rows."""
    for option in reversed(_putting):
        command = option(command)
    return command


def absolute(place: str) -> str:
    """A path as Spark's workers can use it, or a URL as it is."""
    return place if "://" in place else str(Path(place).resolve())


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and change nothing."
)


@contextmanager
def spark_session(job: str, master: str | None) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end. Raises NoJava, Failure."""
    if find_spec("pyspark") is None:
        raise Failure("PySpark is not installed", Exit.UNAVAILABLE, "pip install 'fsmq[spark]'")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from fsmq.pipeline.session import session

    try:
        # What goes wrong is told at the end in one line, and not by each task with its trace.
        spark = session(f"fsmq {job}", master=master, settings={"spark.log.level": "FATAL"})
    except (Py4JError, PySparkException) as error:
        raise _no_start(error, master) from error
    try:
        yield spark
    except PySparkException as error:
        failure = _failure(str(error))
        if failure is None:
            raise
        raise failure from error
    finally:
        spark.stop()


def _no_start(error: Exception, master: str | None) -> Failure:
    """Spark itself has not come up, which is never a bug of fsmq."""
    # Java's exception is on the second line of what py4j says, behind a colon.
    reason = str(error).strip("'").splitlines()[:2][-1].removeprefix(": ")
    where = f" with the master {master}" if master is not None else ""
    return Failure(
        f"Spark does not start{where}: {reason}",
        Exit.UNAVAILABLE,
        "see what it has said above; a cluster: do its master and driver reach each other?",
    )


def _failure(text: str) -> Failure | None:
    """What Spark says of an error in a task or a query, as a person is told it; None: a bug."""
    if ours := _of_fsmq.search(text):
        return Failure(ours["text"], _CODES.get(ours["kind"], Exit.USAGE))
    if wrong := _of_query.match(text):
        return Failure(wrong[1].strip(), Exit.USAGE)
    return None


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
