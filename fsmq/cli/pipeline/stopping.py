"""SIGINT and SIGTERM while Spark works.

The thread that gets signals waits for Spark's answer within py4j, where another call is not
possible and an exception would break the connection. So the handler only notes the signal, and
another thread cancels Spark's jobs. The answer then says that they were cancelled; what they had
staged is removed.
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
    """A signal handler that interrupts at once."""
    raise KeyboardInterrupt


@contextmanager
def handled(handler: Callable[..., Any]) -> Iterator[None]:
    """Set the handler of SIGINT and SIGTERM within the block."""
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

    # Hides py4j's log lines about a broken connection; the code that waits gets the error, too.
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
