"""The data source fsmq_journal: the lifecycle journal as a table, and as a stream of segments.

Spark's own file source would do, but it remembers every file that it ever read. Here an offset
means that all segments begun before some time have been read, and names those read that were begun
since, so it does not grow with time. docs/journal.md is the format of a segment.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from fsmq.pipeline.options import Options
from fsmq.spool import InvalidValue
from fsmq.spool.on_disk import JOURNAL, segment_created_ms

NAME = "fsmq_journal"
COLUMNS = (
    "at timestamp, event string, queue string, id string, size long, deliveries int, "
    "claim_ms long, from_queue string, to_queue string, from_id string, host string, via string"
)
# The most bytes of lines in a micro-batch; about a million and a half steps.
MAX_BYTES = 256 * 1024 * 1024
# How long a segment may still appear after its beginning. It is closed within seconds, or soon
# after its writer died, and unfinished ones are never skipped: this is for clocks that differ.
_OPEN_MS = 3_600_000
_TASK_BYTES = 16 * 1024 * 1024
_TASK_SEGMENTS = 200

_ON_DISK = pa.schema(
    [
        ("at", pa.int64()),
        ("event", pa.string()),
        ("queue", pa.string()),
        ("id", pa.string()),
        ("size", pa.int64()),
        ("deliveries", pa.int32()),
        ("claim_ms", pa.int64()),
        ("from", pa.string()),
        ("to", pa.string()),
        ("was", pa.string()),
        ("host", pa.string()),
        ("via", pa.string()),
    ]
)
_PARSE = pj.ParseOptions(explicit_schema=_ON_DISK, unexpected_field_behavior="ignore")
# A whole surrogate pair comes first, because its second half can look like such a byte.
_escape = re.compile(
    rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][cC](?P<byte>[89a-f][0-9a-f])|\\."
)
_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


class Segment(NamedTuple):
    """A closed segment; sorts by when it was begun."""

    created_ms: int
    name: str
    size: int


class Listing(NamedTuple):
    """The files in ``journal/``: closed segments, and when the oldest unfinished one was begun."""

    segments: list[Segment]
    unfinished_ms: int | None


class Offset(NamedTuple):
    """Which segments have been read: those begun before a time, and some begun since."""

    before_ms: int = 0
    also: frozenset[str] = frozenset()

    def has(self, segment: Segment) -> bool:
        """Whether a segment has been read."""
        return segment.created_ms < self.before_ms or segment.name in self.also

    def as_dict(self) -> dict[str, Any]:
        """For Spark, which stores numbers and texts."""
        return {"before": self.before_ms, "also": "/".join(sorted(self.also))}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Offset:
        """The offset from which `as_dict` made this."""
        return cls(
            int(kept.get("before", 0)),
            frozenset(filter(None, str(kept.get("also", "")).split("/"))),
        )


def listing(root: str) -> Listing:
    """Look at the segments of a spool. Raises InvalidValue if it has no journal."""
    folder = Path(root, JOURNAL)
    try:
        # Listed twice: a segment that is closed in between is unfinished in the first listing, and
        # closed in the second.
        begun = [segment_created_ms(name[1:]) for name in os.listdir(folder) if name[0] == "."]
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        raise InvalidValue(
            "option root", f"{root!r} is not a spool: it has no {JOURNAL}/"
        ) from None
    segments = []
    for entry in entries:
        created = segment_created_ms(entry.name)
        if created is None:
            continue
        try:
            segments.append(Segment(created, entry.name, entry.stat().st_size))
        except FileNotFoundError:
            continue  # its retention was over
    unfinished = [created for created in begun if created is not None]
    return Listing(sorted(segments), min(unfinished, default=None))


def advance(start: Offset, found: Listing, max_bytes: int | None, now_ms: int) -> Offset:
    """The offset after the next segments, in order: all, or as many as fit into ``max_bytes``."""
    taken: list[Segment] = []
    left: list[Segment] = []
    size = 0
    for segment in found.segments:
        if start.has(segment):
            taken.append(segment)
        elif left or (size and max_bytes is not None and size + segment.size > max_bytes):
            left.append(segment)
        else:
            taken.append(segment)
            size += segment.size
    if not size and all(start.has(segment) for segment in taken):
        return start
    # By the journal's own time; but one clock that is ahead must not hide other segments.
    newest = min(now_ms, max(segment.created_ms for segment in found.segments))
    limits = [newest - _OPEN_MS, *(segment.created_ms for segment in left[:1])]
    if found.unfinished_ms is not None:
        limits.append(found.unfinished_ms)
    before = max(start.before_ms, min(limits))
    return Offset(before, frozenset(s.name for s in taken if s.created_ms >= before))


@dataclass
class _Task(InputPartition):
    names: tuple[str, ...]


def _tasks(segments: Iterable[Segment]) -> Iterator[_Task]:
    names: list[str] = []
    size = 0
    for segment in segments:
        names.append(segment.name)
        size += segment.size
        if size >= _TASK_BYTES or len(names) == _TASK_SEGMENTS:
            yield _Task(tuple(names))
            names, size = [], 0
    if names:
        yield _Task(tuple(names))


def _read(root: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for name in names:
        try:
            data = Path(root, JOURNAL, name).read_bytes()
        except FileNotFoundError:
            continue  # its retention was over
        if data:
            found = _parse(data)
            of_queues = found.filter(pc.is_valid(found["queue"]))  # other lines are about logs
            yield from _columns(of_queues).to_batches()


def _parse(data: bytes) -> pa.Table:
    if b"\\" in data:
        data = _escape.sub(_shown, data)
    try:
        return pj.read_json(pa.BufferReader(data), parse_options=_PARSE)
    except pa.ArrowInvalid:
        # A line that we did not write: skip only that.
        return pa.Table.from_pylist([*filter(None, map(_line, data.splitlines()))], _ON_DISK)


def _shown(escape: re.Match[bytes]) -> bytes:
    r"""An escape of JSON, rewritten so that ids are as in all tables; see `columns.shown`.

    In the journal a byte of a name that is not UTF-8 is half of a surrogate pair, \udc80 to \udcff,
    which is not valid text.
    """
    if escape["byte"] is not None:
        return rb"\\x" + escape["byte"]
    return rb"\\x5c" if escape[0] == rb"\\" else escape[0]


def _line(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
        pa.RecordBatch.from_pylist([content], _ON_DISK)
    except (ValueError, TypeError, AttributeError, pa.ArrowException):
        return None
    return content if isinstance(content, dict) else None


def _columns(steps: pa.Table) -> pa.Table:
    at = steps["at"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    return steps.select(_ON_DISK.names).set_column(0, "at", at).rename_columns(_NAMES)


class JournalSource(DataSource):
    """``format("fsmq_journal")`` with the option root: a row for each step."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return NAME

    def schema(self) -> str:
        """The fields of docs/journal.md; ``from``, ``to`` and ``was`` have other names, for SQL."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there."""
        return _Reader(Options(self.options, ("root",)).root())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Read what is there and what comes; maxBytesPerTrigger limits a micro-batch."""
        options = Options(self.options, ("root", "maxBytesPerTrigger"))
        return _StreamReader(options.root(), options.integer("maxBytesPerTrigger", MAX_BYTES))


class _Reader(DataSourceReader):
    def __init__(self, root: str) -> None:
        self._root = root

    def partitions(self) -> Sequence[InputPartition]:
        return list(_tasks(listing(self._root).segments)) or [_Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        return _read(self._root, partition.names)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, root: str, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._until: Listing | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return Offset().as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = listing(self._root)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        found = self._until or listing(self._root)
        most = None if isinstance(limit, ReadAllAvailable) else self._max_bytes
        return advance(Offset.of(start), found, most, int(time.time() * 1000)).as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = Offset.of(start), Offset.of(end)
        segments = listing(self._root).segments
        return list(_tasks(s for s in segments if last.has(s) and not first.has(s)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Task)
        return _read(self._root, partition.names)
