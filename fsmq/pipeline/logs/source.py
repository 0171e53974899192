"""Reading a log: a snapshot of a range of offsets, and a stream whose progress is an offset.

The same range always has the same rows, so a batch that Spark runs again is the same batch. The
offsets that Spark stores contain the log's uuid: another log of the same name is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fsmq.pipeline.logs import sink
from fsmq.pipeline.logs.log_columns import SCHEMA, batch_of, check_schema, schema_of
from fsmq.pipeline.options import Options
from fsmq.spool import InvalidValue, Log, OffsetGone, Unavailable
from fsmq.spool.checks import check_queue
from fsmq.spool.resources import place_in
from fsmq.spool.shared_jobs import Piece

NAME = "fsmq_log"
_BOTH = ("root", "log", "columns", "startingOffsets", "minPartitions", "failOnDataLoss")
OPTIONS = (*_BOTH, "endingOffsets")
STREAM_OPTIONS = (*_BOTH, "maxMessagesPerBatch", "consumer")
_ALL_OPTIONS = (*dict.fromkeys((*OPTIONS, *STREAM_OPTIONS, *sink.OPTIONS)),)
_MESSAGES = 100_000
_PAGE, _PAGE_BYTES = 2000, 16 << 20

Offset = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass
class Part(InputPartition):
    """One task's share: a half-open range of offsets."""

    start: int
    end: int


class Reading:
    """What a snapshot and a stream have in common. Raises InvalidValue."""

    def __init__(self, schema: StructType, given: Options, start: str) -> None:
        self.schema = check_schema(schema)
        self.root = given.root()
        self.log = check_queue(given.required("log", "orders"), "option log")
        self.start = place_in(
            "option startingOffsets", given.text("startingOffsets", start) or start
        )
        self.fails = given.flag("failOnDataLoss", True)
        self.parts = given.integer("minPartitions", os.cpu_count() or 1)

    def opened(self) -> AbstractContextManager[Log]:
        """The log. Raises UnusableSpool, NoSuchLog."""
        return sink.opened(self.root, self.log)

    def split(self, log: Log, start: int, end: int) -> list[Part]:
        """Shares of a range, cut where segments begin, and within them by the wanted number.

        Raises Unavailable if retention has removed some of it, unless failOnDataLoss is false.
        """
        first = log.first()
        if start < first:
            self._tell(f"retention has removed messages {start} to {first - 1} of log {log.name!r}")
            start = min(first, end)
        if start >= end:
            return []
        cuts = _cuts(log._store.known().pieces, start, end)
        step = max(1, -(-(end - start) // self.parts))
        found: list[Part] = []
        for low, high in zip(cuts, [*cuts[1:], end], strict=True):
            found += [Part(at, min(at + step, high)) for at in range(low, high, step)]
        return _joined(found, step)

    def _tell(self, problem: str) -> None:
        """Raise Unavailable, or warn with failOnDataLoss=false."""
        if self.fails:
            raise Unavailable(f"{problem}; with failOnDataLoss=false they are passed over")
        _log.warning("%s: they are passed over", problem)

    def rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        """In a task: the messages of a share, in order."""
        with self.opened() as log:
            offset = part.start
            while offset < part.end:
                try:
                    page = log.page(offset, min(_PAGE, part.end - offset), _PAGE_BYTES)
                except OffsetGone as error:
                    self._tell(f"retention has removed messages from {offset} on of {self.log!r}")
                    offset = error.first
                    continue
                messages = [message for message in page.messages if message.offset < part.end]
                if messages:
                    yield batch_of(self.log, messages, self.schema)
                reached = min(page.next, part.end)
                if len(messages) < reached - offset:
                    among = f"among {offset} to {reached - 1}"
                    self._tell(f"log {self.log!r} has damaged or lost messages {among}")
                if page.next <= offset:
                    raise Unavailable(f"log {self.log!r} ends at {offset}, before {part.end}")
                offset = page.next


def _cuts(pieces: list[Piece], start: int, end: int) -> list[int]:
    return sorted({start, *(piece.start for piece in pieces if start < piece.start < end)})


def _joined(parts: list[Part], step: int) -> list[Part]:
    """Parts, with neighbours joined as long as they are not larger than a share."""
    found: list[Part] = []
    for part in parts:
        if found and part.end - found[-1].start <= step:
            found[-1].end = part.end
        else:
            found.append(part)
    return found


class LogSource(DataSource):
    """``format("fsmq_log")`` with the options root and log."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return NAME

    def schema(self) -> StructType:
        """All columns, or those of the option ``columns``; the log has to exist.

        Problems are better told here, in ``load()``, than when a query runs. Whether that reads,
        streams or writes is not known, so options of all three are accepted.
        """
        ours = {n: v for n, v in self.options.items() if n.lower() not in sink.OF_SPARK}
        with Reading(SCHEMA, Options(ours, _ALL_OPTIONS), "last").opened():
            return schema_of(self.options.get("columns"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A range of offsets, whose rows never change."""
        return _Reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Messages as they are published, in order."""
        return _StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """All rows are published one after the other, or none."""
        return sink.writer(schema, self.options, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Each micro-batch is published once."""
        return sink.stream_writer(schema, self.options, overwrite)


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        given = Options(options, OPTIONS)
        self._reading = Reading(schema, given, "first")
        self._end = place_in("option endingOffsets", given.text("endingOffsets", "last") or "last")

    def partitions(self) -> Sequence[Part]:
        with self._reading.opened() as log:
            start, end = log.offset_of(self._reading.start), log.offset_of(self._end)
            return self._reading.split(log, start, min(end, log.end())) or [Part(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return self._reading.rows(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        given = Options(options, STREAM_OPTIONS)
        self._reading = Reading(schema, given, "last")
        self._most = given.integer("maxMessagesPerBatch", _MESSAGES)
        self._consumer = given.text("consumer")
        if self._consumer is not None:
            check_queue(self._consumer, "option consumer")
        self._until: int | None = None
        self._asked = 0

    def initialOffset(self) -> Offset:  # noqa: N802
        with self._reading.opened() as log:
            start = min(max(log.offset_of(self._reading.start), log.first()), log.end())
            if self._consumer is not None:
                log.channel(self._consumer).create(start)
            return {"offset": start, "log": log.stats().uuid}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._reading.opened() as log:
            self._until = log.end()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with self._reading.opened() as log:
            self._check(log, start)
            self._move_channel(log, start)  # the last batch of availableNow is followed by no other
            end = log.end() if self._until is None else self._until
            if not isinstance(limit, ReadAllAvailable):
                end = min(end, max(start["offset"], log.first()) + self._most)
            self._asked = max(end, start["offset"])
            return {**start, "offset": self._asked}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """How many messages wait after the offset that was asked for last."""
        with self._reading.opened() as log:
            return {"messagesBehind": max(0, log.end() - self._asked)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Part]:
        with self._reading.opened() as log:
            self._check(log, end)
            return self._reading.split(log, start["offset"], end["offset"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return self._reading.rows(partition)

    def commit(self, end: Offset) -> None:
        """Move the stream's channel, so that retention can remove messages before the offset."""
        if self._consumer is not None:
            with self._reading.opened() as log:
                self._move_channel(log, end)

    def _move_channel(self, log: Log, to: Offset) -> None:
        if self._consumer is not None:
            channel = log.channel(self._consumer)
            channel.create(to["offset"])
            if channel.state().position < to["offset"]:
                channel.seek(to["offset"])

    def _check(self, log: Log, offset: Offset) -> None:
        uuid = log.stats().uuid
        if offset["log"] != uuid:
            raise InvalidValue(
                "option log",
                f"log {log.name!r} was deleted and made anew: begin with another checkpoint",
            )
