"""Makes Arrow record batches from messages as they were found on the disk.

It works by columns, and computes what a whole run has in common only once: there are millions of
messages, and work for a single one is slow compared to the few system calls that read it.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import (
    OF_CONTENT,
    RUN_BYTES,
    RUN_MESSAGES,
    Run,
    created_us,
    deliveries_of,
    expires_us,
    shown,
    state_of,
    visible_us,
)
from fsmq.spool import State
from fsmq.spool.on_disk import MAX_PLAIN_BYTES, PLAIN, UUID7, Facts, Stamp, Stamps, facts, unpack

# Small, so that a batch is still in the processor's cache when it is sent, and Spark works on it
# while the next one is read. A full run is one batch.
MAX_ROWS = RUN_MESSAGES
# With the run that fills it, a batch has at most 16 MiB of bodies, and one more body.
MAX_BYTES = 12 * 1024 * 1024

_Content = tuple[bytes | None, str | None, Mapping[str, str]]  # body, content type, attributes
_NO_ATTRIBUTES: Mapping[str, str] = {}
_FLAGS = (".h", ".z")
_US_PER_MS = 1000
# No name has a slash in it.
_bare_ids = re.compile(rf"(?:{UUID7}/)*")


class Batches:
    """Collects messages into record batches of a schema, bounded by rows and by bytes.

    schema: the wanted columns, checked. coarse: the filesystem stores only whole seconds. limit:
    bytes that a compressed body may unpack to; a larger one is left as it is in the file.
    """

    def __init__(
        self, schema: StructType, *, coarse: bool = False, limit: int = MAX_PLAIN_BYTES
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._stamps = Stamps(coarse)
        self._reads = not OF_CONTENT.isdisjoint(schema.names)
        # None: bodies are not wanted, so they are not unpacked.
        self._limit = limit if "body" in schema.names else None
        self._collected: list[_Rows] = []
        self._count = 0
        self._bytes = 0

    def add(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Add messages; yields batches once there are enough rows."""
        for rows in self._rows(run):
            if self._count and self._count + len(rows.ids) > MAX_ROWS:
                yield self._batch()
            self._collected.append(rows)
            self._count += len(rows.ids)
            self._bytes += rows.bytes
            if self._count >= MAX_ROWS or self._bytes >= MAX_BYTES:
                yield self._batch()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if rows are left when all messages have been added."""
        if self._count:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        collected, self._collected, self._count, self._bytes = self._collected, [], 0, 0
        arrays = [_joined([_array(rows, field) for rows in collected]) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows(self, run: Run) -> Iterator[_Rows]:
        """A run with the contents of its files, in parts, because bodies can unpack to more."""
        whole = _Rows(run, self._stamps)
        if not self._reads or whole.bare or not any(i.endswith(_FLAGS) for i in run.ids):
            yield whole
            return
        first, size = 0, 0
        contents: list[_Content] = []
        for end, (message_id, file) in enumerate(zip(run.ids, run.files, strict=True), 1):
            content = self._content(message_id, file[2])
            contents.append(content)
            size += len(content[0] or b"")
            if size >= RUN_BYTES or end == len(run.ids):
                part = run._replace(ids=run.ids[first:end], files=run.files[first:end])
                yield _Rows(part, self._stamps, contents)
                first, size, contents = end, 0, []

    def _content(self, message_id: str, raw: bytes | None) -> _Content:
        if raw is None or not message_id.endswith(_FLAGS):
            return raw, None, _NO_ATTRIBUTES
        known = facts(message_id)
        if self._limit is None:
            return unpack(raw, known._replace(packed=False))
        return unpack(raw, known, self._limit)


class _Same(NamedTuple):
    """The same value in every row of a column."""

    value: str | int | None


_Column = Sequence[Any] | np.ndarray[Any, Any] | _Same


class _Rows:
    """The messages of a run, and what several columns need of them, computed once.

    contents: None if all files contain only bodies.
    """

    def __init__(
        self, run: Run, stamps: Stamps, contents: Sequence[_Content] | None = None
    ) -> None:
        self.queue, self.place, self.ids, files = run
        self._stamps = stamps
        self.sizes, self._mtimes, self.bodies = zip(*files, strict=True)
        self.types: _Column = _Same(None)
        self.attributes: Sequence[Mapping[str, str]] = ()  # none has any
        if contents is not None:
            self.bodies, self.types, self.attributes = zip(*contents, strict=True)

    @property
    def bytes(self) -> int:
        """The size of all bodies together."""
        return sum(len(body) for body in self.bodies if body is not None)

    @cached_property
    def bare(self) -> bool:
        """Whether all ids are only UUIDs, as most are."""
        return _bare_ids.fullmatch("/".join([*self.ids, ""])) is not None

    @cached_property
    def facts(self) -> list[Facts]:
        return [facts(i) for i in self.ids]

    @cached_property
    def stamps(self) -> list[Stamp | None]:
        return list(map(self._stamps.decode, self.ids, self._mtimes))

    def shown(self) -> _Column:
        return self.ids if self.bare else list(map(shown, self.ids))

    def states(self) -> _Column:
        if self.place is State.DELAY:
            return [state_of(self.place, stamp) for stamp in self.stamps]
        return _Same(state_of(self.place, None))

    def created(self) -> _Column:
        if self.bare:
            # The first 48 bits of each are the time; reading all at once takes a tenth of the time.
            words = np.frombuffer(bytes.fromhex("".join(self.ids).replace("-", "")), ">u8")
            times = (words[::2] >> 16).astype(np.int64)
            if created_us(int(times.max())) is not None:
                return times * _US_PER_MS
        return [created_us(known.created_ms) for known in self.facts]

    def priorities(self) -> _Column:
        return _Same(PLAIN.priority) if self.bare else [known.priority for known in self.facts]

    def expiries(self) -> _Column:
        return _Same(PLAIN.expires_s) if self.bare else [expires_us(known) for known in self.facts]

    def visible(self) -> _Column:
        if self.place is State.DELAY:
            return [visible_us(self.place, stamp) for stamp in self.stamps]
        return _Same(None)

    def deliveries(self) -> _Column:
        coarse = self._stamps.coarse
        if coarse or self.place is State.NEW:
            return _Same(deliveries_of(self.place, None, coarse))
        return [0 if stamp is None else stamp.deliveries for stamp in self.stamps]


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _array(rows: _Rows, field: pa.Field) -> pa.Array:
    if field.name == "attributes":
        return _attributes(rows, field.type)
    values = _MAKERS[field.name](rows)
    if isinstance(values, _Same):
        return pa.repeat(pa.scalar(values.value, field.type), len(rows.ids))
    return pa.array(values, field.type)


def _attributes(rows: _Rows, kind: pa.DataType) -> pa.Array:
    ends = [0] * (len(rows.ids) + 1)
    names: list[str] = []
    values: list[str] = []
    for end, attributes in enumerate(rows.attributes, 1):
        if attributes:
            names += attributes.keys()
            values += attributes.values()
        ends[end] = len(names)
    flat = pa.array(names, pa.string()), pa.array(values, pa.string())
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *flat, type=kind)


_MAKERS: dict[str, Callable[[_Rows], _Column]] = {
    "queue": lambda rows: _Same(rows.queue),
    "id": _Rows.shown,
    "state": _Rows.states,
    "created_at": _Rows.created,
    "priority": _Rows.priorities,
    "expires_at": _Rows.expiries,
    "visible_at": _Rows.visible,
    "deliveries": _Rows.deliveries,
    "size": lambda rows: rows.sizes,
    "content_type": lambda rows: rows.types,
    "body": lambda rows: rows.bodies,
}


@contextmanager
def no_collector() -> Iterator[None]:
    """Turn Python's garbage collector off: a million rows make no cycles, and it costs a tenth.

    Objects that are loaded by then are not scanned later either: Spark's workers collect after
    every task, which would take as long as reading ten thousand messages.
    """
    _keep_loaded()
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@cache
def _keep_loaded() -> None:
    gc.freeze()
