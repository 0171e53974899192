"""SIGINT and SIGTERM while Spark works.

The thread that gets signals waits for Spark's answer in the middle of py4j's work, where nothing
may be asked and an exception breaks the connection. So a signal is only noted. A thread of its own
cancels Spark's jobs, and the answer comes: that they were cancelled, and that what they had staged
is gone.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.1


def interrupt(*_: Any) -> None:
    """For a signal: end what runs at once."""
    raise KeyboardInterrupt


@contextmanager
def handled(handler: Callable[..., Any]) -> Iterator[None]:
    """Let this handle SIGINT and SIGTERM."""
    before = {of: signal.signal(of, handler) for of in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for of, handler_before in before.items():
            signal.signal(of, handler_before)


@contextmanager
def stoppable(spark: SparkSession) -> Iterator[threading.Event]:
    """Let SIGINT and SIGTERM set the event, and cancel Spark's jobs until the end of the body.

    A second signal ends it at once, with KeyboardInterrupt.
    """
    asked, over = threading.Event(), threading.Event()

    def note(*_: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    def cancel() -> None:
        from py4j.protocol import Py4JError

        while not over.wait(_LOOK_S):
            if asked.is_set():
                try:
                    spark.sparkContext.cancelAllJobs()
                except (Py4JError, OSError):
                    return  # the same signal has ended Spark's JVM

    # What py4j logs of a broken connection; the code that waits for an answer meets it, too.
    root = logging.getLogger()
    root.addFilter(_nothing)
    canceller = threading.Thread(target=cancel, daemon=True)
    canceller.start()
    try:
        with handled(note):
            yield asked
    finally:
        over.set()
        canceller.join()
        root.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False
