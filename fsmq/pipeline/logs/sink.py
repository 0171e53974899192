"""Writing to a log: the rows of a job are published one after the other, all or none, and once.

Tasks pass their rows to the driver, which publishes them in the order of the partitions. A
micro-batch of a stream has the query's id and the batch's number; if it is committed again after a
crash, it is found in the log, and not published a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fsmq.pipeline.options import Options
from fsmq.pipeline.write.rows import PUBLISHED, RejectedRow, check_types, rows
from fsmq.pipeline.write.runs import WriteRun
from fsmq.spool import InvalidValue, Log, LogEntry, Spool
from fsmq.spool.checks import check_queue
from fsmq.spool.on_disk import uuid7
from fsmq.spool.shared_jobs import entry, publish_once

OPTIONS = ("root", "log", "job")
# Options of Spark itself, which it passes on.
OF_SPARK = ("checkpointlocation", "queryname")


@dataclass
class Rows(WriterCommitMessage):
    """The rows of a task."""

    partition: int
    run: WriteRun
    messages: list[LogEntry]


@contextmanager
def opened(root: str, name: str) -> Iterator[Log]:
    """A log. Raises UnusableSpool, NoSuchLog."""
    with Spool(root, create=False, delivers=False, watch="poll", program="spark") as spool:
        log = spool.log(name)
        log.settings()
        yield log


class _Target:
    def __init__(
        self, schema: StructType, given: Mapping[str, str], overwrite: bool, refused: str
    ) -> None:
        options = Options(given, OPTIONS)
        if overwrite:
            raise InvalidValue("mode", f"{refused}: a log is only added to")
        check_types(schema, PUBLISHED)
        self.root = options.root()
        self.log = check_queue(options.required("log", "orders"), "option log")
        self.job = options.text("job")
        if self.job is not None:
            check_queue(self.job, "option job")
        with opened(self.root, self.log):
            pass  # better now than when all rows are computed

    def publish(self, parts: Sequence[WriterCommitMessage | None], job: str | None = None) -> None:
        """Publish the rows of all tasks. job: the name under which; None: the query's.

        Raises NoSuchLog, MessageTooLarge, Unavailable, and InvalidValue: see `WriteRun.check`.
        """
        given = sorted((one for one in parts if isinstance(one, Rows)), key=lambda r: r.partition)
        run = WriteRun.of([one.run for one in given])
        writer, number = job or run.query or "", run.batch or 0
        if not given:
            return  # no task has begun
        with opened(self.root, self.log) as log:
            publish_once(
                log,
                writer,
                number,
                [message for one in given for message in one.messages],
                run=run._asdict(),
                check=lambda last: run.check(writer, number, last.number, last.run),
            )


def _rows(batches: Iterator[pa.RecordBatch]) -> Rows:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    messages: list[LogEntry] = []
    for row in rows(batches):
        try:
            body, key, content_type, attributes = row.published()
            entry(body, key, None, content_type, attributes)  # checks it
        except InvalidValue as error:
            raise RejectedRow(row.problem(partition, error)) from error
        messages.append(LogEntry(body, key, None, content_type, attributes))
    return Rows(partition, WriteRun.of_task(len(messages)), messages)


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame, once if the option ``job`` names it."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._job = target.job or uuid7()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """In a task."""
        return _rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver."""
        self._target.publish(messages, self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch once."""

    def __init__(self, target: _Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """In a task."""
        return _rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver."""
        self._target.publish(messages, self._target.job)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was published."""


def writer(schema: StructType, given: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """The writer of ``df.write``. Raises InvalidValue, UnusableSpool, NoSuchLog."""
    return BatchWriter(_Target(schema, given, overwrite, 'mode "overwrite"'))


def stream_writer(schema: StructType, given: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """The writer of ``writeStream``. Raises InvalidValue, UnusableSpool, NoSuchLog."""
    ours = {name: value for name, value in given.items() if name.lower() not in OF_SPARK}
    return StreamWriter(_Target(schema, ours, overwrite, 'output mode "complete"'))
