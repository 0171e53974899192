"""A batch of a stream that is cancelled."""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

_CANCELLED = "SPARK_JOB_CANCELLED"

Make = Callable[[DataFrame, int], None]


class BatchCancelled(Exception):
    """The query was stopped in the middle of a batch, which will be run again."""


def cancellable(make: Make) -> Make:
    """A function for ``foreachBatch`` whose error for a cancelled batch is a single line.

    Spark searches the text of an error for Java's words for an interruption, and its stack
    overflows on the traces of both sides that come with a cancelled job.

    Raises:
        BatchCancelled
        Exception: whatever the function raises.
    """

    def run(batch: DataFrame, number: int) -> None:
        try:
            make(batch, number)
        except (PySparkException, Py4JError) as error:
            if _CANCELLED in str(error):
                raise BatchCancelled(f"batch {number} was cancelled") from None
            raise

    return run
