"""What the jobs share: their options, the session, the progress bar, the summary."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fsmq.cli.failures import Exit, Failure
from fsmq.cli.output import bar, document, facts, json_option
from fsmq.cli.pipeline.spark_errors import AGAIN, failure_of
from fsmq.cli.pipeline.stopping import handled, interrupt, stoppable
from fsmq.parts import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

F = TypeVar("F", bound=Callable[..., Any])

_LOOK_S = 0.5
# Loggers that repeat in Python what Spark reports anyway.
_CHATTY = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_of_every_job = (
    click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[2], spark://host:7077.  [default: all cores of this machine]",
    ),
    click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing."),
    json_option,
)
_noting = (
    click.option(
        "--journal/--no-journal",
        "journal",
        default=None,
        help="Note the steps in the lifecycle journal.  [default: if the spool's programs do]",
    ),
)
_putting = (
    click.option(
        "--job", metavar="NAME", help="A name that you choose: a job of this name is done once."
    ),
    click.option("--create-queues", is_flag=True, help="Create missing queues."),
    click.option(
        "--rejected-rows",
        metavar="DIR",
        help="Folder for rows that cannot be messages, as JSON lines.  [default: one"
        " fails the job]",
    ),
)


def job_options(command: F) -> F:
    """The options of every job: master, dry_run and as_json."""
    return _with(_of_every_job, command)


def putting_options(command: F) -> F:
    """The options of a job that puts messages: job, create_queues, rejected_rows and journal."""
    return _with((*_putting, *_noting), command)


def noting_option(command: F) -> F:
    """The option of a job that changes what is in queues: journal."""
    return _with(_noting, command)


def _with(options: Sequence[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def absolute(place: str) -> str:
    """A path as Spark's workers can use it, or a URL as it is."""
    return place if "://" in place else str(Path(place).resolve())


@contextmanager
def spark_session(job: str, master: str | None) -> Iterator[SparkSession]:
    """A session for one job, stopped at its end; SIGINT and SIGTERM stop both.

    Raises NoJava, MissingExtra, Failure.
    """
    require(f"fsmq pipeline {job}", "spark", "pyspark")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from fsmq.pipeline.session import session

    for name in _CHATTY:
        logging.getLogger(name).disabled = True
    warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
    try:
        # Errors are reported in one line at the end, not by each task with a trace.
        with handled(interrupt):
            spark = session(f"fsmq {job}", master=master, settings={"spark.log.level": "FATAL"})
    except KeyboardInterrupt:
        raise _stopped() from None
    except (Py4JError, PySparkException) as error:
        raise _no_start(error, master) from error
    try:
        with stoppable(spark) as asked:
            yield spark
    except KeyboardInterrupt:
        raise _stopped() from None
    except (PySparkException, Py4JError, OSError) as error:
        if asked.is_set() or _is_undoing(error):
            raise _stopped() from None
        failure = None if isinstance(error, OSError) else failure_of(str(error))
        if failure is None:
            raise
        raise failure from error
    finally:
        # A signal to the whole process group has ended Spark's JVM, too.
        with suppress(Py4JError, OSError):
            spark.stop()


def _is_undoing(error: BaseException) -> bool:
    """Whether this followed a KeyboardInterrupt: its signal may have ended Spark's JVM, too."""
    while error.__context__ is not None:
        error = error.__context__
        if isinstance(error, KeyboardInterrupt):
            return True
    return False


def _stopped() -> Failure:
    return Failure("stopped", Exit.INTERRUPTED, AGAIN)


def _no_start(error: Exception, master: str | None) -> Failure:
    """Spark itself did not start, which is never a bug of fsmq."""
    # Java's exception is on the second line of py4j's text, after a colon.
    reason = str(error).strip("'").splitlines()[:2][-1].removeprefix(": ")
    where = f" with the master {master}" if master is not None else ""
    return Failure(
        f"Spark does not start{where}: {reason}",
        Exit.UNAVAILABLE,
        "see its output above; on a cluster: can its master and driver reach each other?",
    )


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """A bar of the tasks that Spark has done, while the body runs; nothing without a terminal."""
    from py4j.protocol import Py4JError

    over = threading.Event()
    with bar(label, 1) as show:

        def watch() -> None:
            while not over.wait(_LOOK_S):
                try:
                    done, of = _tasks(spark)
                except (Py4JError, OSError):
                    return  # the code that waits for Spark gets the error, too
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


def await_stream(query: StreamingQuery, *, endless: bool = False) -> None:
    """Wait for the end of a stream. endless: it ends by SIGINT or SIGTERM, which is no failure.

    Raises Failure, KeyboardInterrupt.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    with stoppable(SparkSession.active()) as asked:
        try:
            while not query.awaitTermination(1) and not asked.is_set():
                pass
            query.stop()
        except StreamingQueryException as error:
            if not asked.is_set():
                reason = str(error).partition("\n")[0]
                ended = Failure(f"the stream has ended: {reason}", Exit.UNAVAILABLE, AGAIN)
                raise (failure_of(str(error)) or ended) from error
        except (Py4JError, OSError):
            if not asked.is_set():
                raise
    if asked.is_set() and not endless:
        raise KeyboardInterrupt


def summary(found: Mapping[str, Any], as_json: bool) -> None:
    """Print what a job did: names with ``_`` for JSON, words for people."""
    if as_json:
        document(found)
        return
    facts([(name.replace("_", " "), _as_text(value)) for name, value in found.items()])


def _as_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
