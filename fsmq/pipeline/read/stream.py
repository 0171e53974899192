"""``spark.readStream.format("fsmq")``: a query as a consumer.

The offset that Spark stores is the number of a batch. The claims of a batch are stored in the spool
before Spark learns its number (see `fsmq.spool.consumers.batches`), so a query that is restarted
after any crash gets the same batch. Its messages are removed once Spark's log says that the batch
is done, which is when Spark asks for the next one. `checkpoints` tells what else is in an offset.

One object of this class answers Spark, in a process next to the driver; others, in the tasks, only
read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import OF_CONTENT, Run, check_schema
from fsmq.pipeline.options import Options
from fsmq.pipeline.read.arrow import Batches, no_collector
from fsmq.pipeline.read.checkpoints import Offset, is_of_other, problem_of, refused
from fsmq.pipeline.read.finder import Finder, open_tree
from fsmq.pipeline.read.listing import Group, Queues
from fsmq.pipeline.read.stream_queues import StreamQueues
from fsmq.spool import FsmqError, Spool, State
from fsmq.spool.checks import MAX_HEADER_BYTES, check_queue
from fsmq.spool.errors import as_unavailable
from fsmq.spool.on_disk import (
    MAX_PLAIN_BYTES,
    is_network,
    kind_of,
    looks_coarse,
    sync_filesystem,
    uuid7,
)
from fsmq.spool.shared_jobs import Batch, Consumer, find_alive

OPTIONS = (
    "root",
    "queue",
    "consumer",
    "columns",
    "maxMessagesPerBatch",
    "maxBytesPerBatch",
    "visibilityTimeout",
    "missingQueue",
    "failedBatch",
    "otherCheckpoint",
    "partitions",
    "maxBodyBytes",
    "syncBeforeCommit",
    "journal",
)

BATCH_COLUMN = "batch"
"""A column that a stream also has, if ``.schema(…)`` names it: the name of the batch, which is the
same each time the batch is given."""

_MESSAGES, _BYTES = 10_000, 256 * 1024 * 1024
_PER_PARTITION = 1000
_AGAIN, _DIVIDE = "again", "divide"
# How many parts a failed batch is divided into: three divisions find one row among 4,096.
_PARTS = 16
_LEAST_VISIBILITY_S = 1.0
# How long the process of a killed driver can take to end.
_PATIENCE_S = 15.0
# How long to wait for a sign of a mover. If it is missed, the stream delivers, too, but without the
# mover's --delay.
_EVENTS_PATIENCE_S, _POLL_PATIENCE_S = 0.25, 1.0

_log = logging.getLogger(__name__)


def reader(schema: StructType, options: Mapping[str, str]) -> StreamReader:
    """The reader of a stream with these options. Raises InvalidValue."""
    return StreamReader(schema, Options(options, OPTIONS))


@dataclass
class Part(InputPartition):
    """One task's share of a batch."""

    batch: str
    claims: list[tuple[str, list[str]]]  # ids by queue, in order


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a stream; docs/spark.md lists the options.

    Raises:
        InvalidValue: an option or a column is wrong.
    """

    def __init__(self, schema: StructType, given: Options) -> None:
        self._schema = schema
        self._of_message = StructType([f for f in schema.fields if f.name != BATCH_COLUMN])
        check_schema(self._of_message)
        self._root = given.root()
        waits = given.choice("missingQueue", "fail", ("fail", "wait")) == "wait"
        self._queues = StreamQueues(Queues(given.required("queue", "jobs")), waits=waits)
        self._name = check_queue(given.required("consumer", "billing"), "option consumer")
        self._messages = given.integer("maxMessagesPerBatch", _MESSAGES)
        self._bytes = given.integer("maxBytesPerBatch", _BYTES)
        self._visibility: float | None = None
        if given.text("visibilityTimeout") is not None:
            self._visibility = given.number("visibilityTimeout", 0.0, _LEAST_VISIBILITY_S)
        self._divides = given.choice("failedBatch", _AGAIN, (_AGAIN, _DIVIDE)) == _DIVIDE
        self._accepts = given.choice("otherCheckpoint", "fail", ("fail", "accept")) == "accept"
        self._partitions = given.integer("partitions", os.cpu_count() or 1)
        self._limit = given.integer("maxBodyBytes", MAX_PLAIN_BYTES)
        self._sync = [f.strip() for f in (given.text("syncBeforeCommit") or "").split(",") if f]
        self._journal = given.journal()
        self._stream = uuid7()  # if the query is new, or its checkpoint is another one
        self._spool: Spool | None = None
        self._consumer: Consumer | None = None
        self._claimed: set[str] = set()  # batches that were claimed here
        # Batches that were offered to Spark here; any other that it asks for is given again.
        self._offered: set[str] = set()

    def check(self) -> None:
        """Check that the spool and the queues exist. Raises UnusableSpool, NoSuchQueue."""
        tree = open_tree(self._root)
        try:
            with as_unavailable(f"cannot look into {self._root}"):
                self._queues.check(tree, buries=self._divides)
        finally:
            tree.close()

    # -- called by Spark, next to the driver -----------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name, as those below
        """The offset before the first batch."""
        return self._offset(self._stream, 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Claim only what is ready now. Raises FsmqError."""
        self._open().pass_once()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The number of the next batch, which is stored; ``start`` if nothing is ready.

        Spark has finished everything up to ``start``, so that is removed. Raises FsmqError.
        """
        consumer = self._open()
        stream, after = start.get("stream", self._stream), start["batch"]
        problem = problem_of(consumer, {**start, "stream": stream}, after)
        if problem is not None:
            if not self._accepts:
                raise refused(consumer, problem)
            stream, after = self._stream, 0
        self._commit(stream, after)
        consumer.adopt(stream, after)
        given_again = consumer.batches(stream, after)
        batch = given_again[0] if given_again else self._claim(consumer, stream, after, limit)
        if batch is None:
            return start
        self._offered = {batch.name}
        return self._offset(stream, batch.number)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The messages that wait after the batch, in total and by queue. Raises FsmqError."""
        return None if self._spool is None else self._queues.behind(self._spool)

    def partitions(self, start: Offset, end: Offset) -> Sequence[Part]:
        """The shares of the batches after ``start``, up to ``end``. Raises FsmqError."""
        consumer = self._open()
        stream = end.get("stream", self._stream)
        after = start["batch"] if start.get("stream") == stream else 0
        batches = consumer.batches(stream, after, end["batch"])
        problem = None if batches else problem_of(consumer, {**end, "stream": stream}, after)
        if problem is None or (self._accepts and stream == self._stream):
            # From here on a sink may have batches of this stream.
            self._begin(consumer, stream, after)
            self._commit(stream, after)
        elif not self._accepts or is_of_other(consumer, end):
            # Its own consumer would take this batch as done, too, if it was given here as empty.
            raise refused(consumer, problem)
        if not batches and end["batch"] > after:
            _log.warning(
                "batch %d is empty: %s does not have it (any more)", end["batch"], self._name
            )
        # Messages that an earlier process claimed may have returned to their queues.
        held = [b if b.name in self._claimed else consumer.renew_batch(b) for b in batches]
        if self._divides:
            held = [b if b.name in self._offered else self._divided(consumer, b) for b in held]
        return [part for batch in held for part in self._parts(batch)]

    def _divided(self, consumer: Consumer, batch: Batch) -> Batch:
        """The first part of a batch that Spark was given before, and has not finished."""
        first, *others = consumer.divide(batch, _PARTS)
        self._offered.add(first.name)
        _log.warning(
            "a batch of %d messages was not done: %d are given again, and the others in %d batches",
            len(batch),
            len(first),
            len(others),
        )
        return first

    def commit(self, end: Offset) -> None:
        """Remove the messages of all batches up to ``end``. Raises FsmqError."""
        if "stream" in end:
            self._commit(end["stream"], end["batch"])

    def stop(self) -> None:
        """Release the name of the consumer for another process."""
        if self._consumer is not None:
            self._consumer.close()
        if self._spool is not None:
            self._spool.close()
        self._consumer = self._spool = None

    # -- in the tasks ----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a share, in order.

        Raises:
            UnusableSpool, Unavailable
            InvalidValue: a message is larger than the option maxBodyBytes.
        """
        assert isinstance(partition, Part)
        tree = open_tree(self._root)
        try:
            with as_unavailable(f"cannot read {self._root}"), no_collector():
                batches = Batches(self._of_message, coarse=looks_coarse(tree), limit=self._limit)
                with closing(Finder(tree, self._limit)) as finder:
                    for run in self._runs(finder, partition):
                        for batch in batches.add(run):
                            yield self._with_name(batch, partition.batch)
                for batch in batches.rest():
                    yield self._with_name(batch, partition.batch)
        finally:
            tree.close()

    def _runs(self, finder: Finder, part: Part) -> Iterator[Run]:
        columns = self._of_message.names
        at_most = None if "body" in columns else MAX_HEADER_BYTES
        for queue, ids in part.claims:
            group = Group(queue, State.DELAY, ids)
            found = 0
            opens = not OF_CONTENT.isdisjoint(columns)
            for run in finder.read(group, at_most) if opens else finder.look(group):
                if run.place is not State.REMOVE:
                    found += len(run.ids)
                    yield run
            if found < len(ids):
                _log.warning(
                    "%d messages of %s are gone: others claimed them after their claims ended, or"
                    " the queue was deleted",
                    len(ids) - found,
                    queue,
                )

    def _with_name(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        if len(self._schema) == len(self._of_message):
            return batch
        columns = {field.name: batch.column(field.name) for field in batch.schema}
        columns[BATCH_COLUMN] = pa.array([name] * len(batch), pa.string())
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return pa.RecordBatch.from_arrays([columns[f.name] for f in schema], schema=schema)

    # -- within ----------------------------------------------------------------------------------

    def _open(self) -> Consumer:
        """The consumer, opened when Spark asks for the first time. Raises FsmqError."""
        if self._consumer is None or self._spool is None:
            tree = open_tree(self._root)
            try:
                with as_unavailable(f"cannot open {self._root}"):
                    self._queues.check(tree)
                    is_far = is_network(kind_of(tree.root))
                    patience = _POLL_PATIENCE_S if is_far else _EVENTS_PATIENCE_S
                    delivers = find_alive(tree, patience).mover is None
            finally:
                tree.close()
            self._spool = Spool(
                self._root, delivers=delivers, journal=self._journal, program="spark"
            )
            self._consumer = Consumer(
                self._spool,
                self._name,
                visibility=self._visibility,
                counts_again=not self._divides,
                reads=self._queues.patterns,
                patience=_PATIENCE_S,
                on_lost=_report_lost,
                on_problem=_report_problem,
            )
            self._spool.deliver()
        return self._consumer

    def _claim(self, consumer: Consumer, stream: str, after: int, limit: ReadLimit) -> Batch | None:
        assert self._spool is not None
        self._spool.deliver()
        count = self._messages
        if isinstance(limit, ReadMaxRows):
            count = min(count, limit.max_rows)
        queues = self._queues.now(self._spool)
        batch = consumer.claim(stream, after, queues, count, self._bytes)
        self._claimed = {batch.name} if batch is not None else set()
        return batch

    def _offset(self, stream: str, batch: int) -> Offset:
        return {"consumer": self._name, "stream": stream, "batch": batch}

    def _begin(self, consumer: Consumer, stream: str, after: int) -> None:
        known = consumer.committed()
        if known is None or known.stream != stream:
            self._sync_sink()  # a power cut must not take the checkpoint alone
            consumer.begin(stream, after)

    def _commit(self, stream: str, upto: int) -> None:
        consumer = self._open()
        if consumer.batches(stream, -1, upto):
            self._sync_sink()
            consumer.commit(stream, upto)

    def _sync_sink(self) -> None:
        for folder in self._sync:
            with as_unavailable(f"cannot sync {folder}"):
                sync_filesystem(folder)

    def _parts(self, batch: Batch) -> Iterator[Part]:
        """A batch in shares of about the same size, in order."""
        size = max(_PER_PARTITION, -(-len(batch) // self._partitions))
        pairs = ((queue, claim.id) for queue, claims in batch.claims.items() for claim in claims)
        while share := list(islice(pairs, size)):
            claims: dict[str, list[str]] = {}
            for queue, message_id in share:
                claims.setdefault(queue, []).append(message_id)
            yield Part(batch.name, list(claims.items()))


def _report_lost(queue: str, ids: list[str]) -> None:
    _log.warning(
        "%d messages of %s are no longer held: they were buried or moved, or others have had them"
        " after their timers: %s",
        len(ids),
        queue,
        ", ".join(ids[:3]),
    )


def _report_problem(error: FsmqError) -> None:
    _log.warning("claims could not be renewed, and will be tried again: %s", error)
