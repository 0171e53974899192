"""Writing: ``df.write`` and ``writeStream`` with ``format("fsmq")``.

Tasks write parts of a staged job, the driver commits it; see fsmq/spool/staging/part.py. A
micro-batch of a stream is a job whose name is the query's id and whose number is the batch's id, so
that it is committed once, whatever dies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from fsmq.pipeline.options import Options
from fsmq.pipeline.write.rows import IDS, RejectedRow, check_columns, rows
from fsmq.pipeline.write.runs import WriteRun
from fsmq.spool import InvalidValue, MessageTooLarge, NoSuchQueue, Spool
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import as_unavailable
from fsmq.spool.on_disk import sync_filesystem, uuid7
from fsmq.spool.shared_jobs import Job, Part, Written, abort, check_job, commit, is_committed

OPTIONS = ("root", "queue", "createQueues", "rejectedRows", "ids", "job", "batch", "journal")

# Options of Spark itself, which it passes on.
_CHECKPOINT, _QUERY_NAME = "checkpointlocation", "queryname"


@dataclass(frozen=True)
class Target:
    """Where a write goes and how.

    queue: the default for rows that name none. aside: the folder for rows that cannot be written;
    None: they fail the job. ids: what an id is, one of `rows.IDS`. job: the name under which a job
    is committed once; None: none was given. journal: whether its messages are recorded as accepted;
    None: if other programs on the spool record their steps.
    """

    root: str
    queue: str | None
    create_queues: bool
    aside: str | None
    ids: str
    job: str | None
    batch: int
    journal: bool | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Target:
        """The target that the options describe. Raises InvalidValue."""
        options = Options(given, OPTIONS)
        queue, aside, job = options.text("queue"), options.text("rejectedRows"), options.text("job")
        if queue is not None:
            check_queue(queue, "option queue")
        if job is not None:
            check_job(job)
        if aside is not None and not Path(aside).is_absolute():
            raise InvalidValue(
                "option rejectedRows", f"{aside!r} is relative: give an absolute path"
            )
        return cls(
            options.root(),
            queue,
            options.flag("createQueues"),
            aside,
            options.choice("ids", IDS[0], IDS),
            job,
            options.integer("batch", 0, least=0),
            options.journal(),
        )

    def open(self, journal: bool | None = False) -> Spool:
        """The spool. journal: as in `Spool`. Raises InvalidValue, UnusableSpool."""
        root = Path(self.root)
        if not (root / "queues").is_dir():
            raise InvalidValue(
                "option root", f"{self.root} is not a spool: mq makes one when it starts there"
            )
        # Nothing is claimed, so there is no need to watch the tree.
        return Spool(root, delivers=False, watch="poll", journal=journal, program="spark")


@dataclass
class Staged(WriterCommitMessage):
    """What a task has written; None if the job is done already."""

    job: Job
    run: WriteRun
    written: Written | None


def writer(schema: StructType, given: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """The writer of ``df.write``. Raises InvalidValue, UnusableSpool."""
    target = _checked(schema, given, overwrite, 'mode "overwrite"', '.mode("append")')
    # The job is made here, and not in the tasks, because all of them write the same one.
    return BatchWriter(target, Job(target.job or uuid7(), target.batch))


def stream_writer(schema: StructType, given: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """The writer of ``writeStream``. Raises InvalidValue, UnusableSpool."""
    refused = 'output mode "complete"', '.outputMode("append")'
    ours, checkpoint = _of_stream(given)
    return StreamWriter(_checked(schema, ours, overwrite, *refused), checkpoint)


def check_stream(given: Mapping[str, str]) -> None:
    """Check that a stream can be written with these options; its columns are not known yet.

    Raises InvalidValue, UnusableSpool, Unavailable.
    """
    _can_stage(Target.of(_of_stream(given)[0]))


def _of_stream(given: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The options of a stream that are not Spark's, and the checkpoint. Raises InvalidValue."""
    ours = {name.lower(): value for name, value in given.items()}
    if "batch" in ours:
        raise InvalidValue("option batch", "is set by the stream: leave it out")
    ours.pop(_QUERY_NAME, None)
    return ours, ours.pop(_CHECKPOINT, None)


def _can_stage(target: Target, needed: str | None = None) -> None:
    """Try on the driver what every task will do, because an error in a task is long and late.

    needed: the queue of all rows, if there is one.

    Raises InvalidValue, UnusableSpool, NoSuchQueue, Unavailable.
    """
    with target.open() as spool:
        if needed is not None and not target.create_queues and not spool.has_queue(needed):
            raise NoSuchQueue(needed)
        Part(spool.context, spool.syncer.sync, Job(uuid7())).abandon()


def _checked(
    schema: StructType, given: Mapping[str, str], overwrite: bool, refused: str, instead: str
) -> Target:
    target = Target.of(given)
    if overwrite:
        raise InvalidValue(
            refused, f"would replace what is in a queue, and consumers with it: use {instead}"
        )
    check_columns(schema, target.queue, target.ids)
    _can_stage(target, needed=target.queue if "queue" not in schema.names else None)
    return target


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame as one job."""

    def __init__(self, target: Target, job: Job) -> None:
        self._target = target
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: write a partition. Raises RejectedRow, Unavailable."""
        return _write(self._target, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: put all messages. Raises NoSuchQueue, QueueFull, Unavailable."""
        _commit(self._target, self._job, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: remove what tasks have written. Raises Unavailable."""
        _abort(self._target, self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch as a job of its own.

    checkpoint: the folder in which Spark stores which rows a batch has; None: unknown.
    """

    def __init__(self, target: Target, checkpoint: str | None = None) -> None:
        self._target = target
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """In a task: write a partition. Raises RejectedRow, Unavailable."""
        run = WriteRun.of_task(0)
        assert run.query is not None
        assert run.batch is not None
        return _write(self._target, Job(self._target.job or run.query, run.batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: put all messages. Raises NoSuchQueue, QueueFull, Unavailable."""
        # Spark does not sync its checkpoint. If it lost a batch in a power cut, it would make
        # another one, of other rows, with the number of the one that was committed here, or in the
        # name of another query.
        if self._checkpoint is not None:
            _sync(self._checkpoint)
        for job in _jobs(messages):
            _commit(self._target, job, messages, keeps=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: remove what tasks have written. Raises Unavailable."""
        # If no task succeeded, each has removed its own part.
        for job in _jobs(messages):
            _abort(self._target, job)


def _sync(folder: str) -> None:
    """Make a folder durable if it is on this machine. Raises Unavailable."""
    path = Path(unquote(urlsplit(folder).path) if folder.startswith("file:") else folder)
    if path.is_dir():
        with as_unavailable(f"cannot sync {path}"):
            sync_filesystem(path)


def _jobs(messages: Sequence[WriterCommitMessage | None]) -> set[Job]:
    return {message.job for message in messages if isinstance(message, Staged)}


def _write(target: Target, job: Job, batches: Iterator[pa.RecordBatch]) -> Staged:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    with target.open() as spool:
        if is_committed(spool, job):
            # Spark does not reuse a worker that leaves rows unread.
            return Staged(job, WriteRun.of_task(sum(batch.num_rows for batch in batches)), None)
        part = Part(spool.context, spool.syncer.sync, job, create_queues=target.create_queues)
        try:
            _write_rows(target, part, batches, partition)
            written = part.finish()
        except BaseException:
            part.abandon()
            raise
    count = written.messages + written.repeated + written.rejected
    return Staged(job, WriteRun.of_task(count), written)


def _write_rows(
    target: Target, part: Part, batches: Iterator[pa.RecordBatch], partition: int
) -> None:
    for row in rows(batches):
        try:
            part.write(*row.message(target.queue, target.ids), restores=target.ids != "own")
        except (InvalidValue, MessageTooLarge, NoSuchQueue) as error:
            if target.aside is None:
                raise RejectedRow(row.problem(partition, error)) from error
            part.reject(row.rejected(partition, error))


def _commit(
    target: Target,
    job: Job,
    messages: Sequence[WriterCommitMessage | None],
    *,
    keeps: bool | None = None,
) -> None:
    staged = [message for message in messages if isinstance(message, Staged)]
    run = WriteRun.of([one.run for one in staged])
    with target.open(target.journal) as spool:
        commit(
            spool,
            job,
            [one.written for one in staged if one.written is not None],
            keeps=target.job is not None if keeps is None else keeps,
            create_queues=target.create_queues,
            rejected_rows=None if target.aside is None else Path(target.aside),
            run=run._asdict(),
            check=lambda last: run.check(job.name, job.number, last.number, last.run),
        )


def _abort(target: Target, job: Job) -> None:
    with target.open() as spool:
        abort(spool, job)
