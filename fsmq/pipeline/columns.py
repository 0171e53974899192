"""The columns of a message, and the making of Arrow record batches from messages.

A snapshot and a stream have the same columns. Whoever reads messages hands each to a `Batches` as
it was found on the disk and passes on the record batches that come out.

Times are null where nothing says them (the name of a message that a shell user put), and where they
lie beyond the year 9999, for which Python has no time. ``size`` is the file's, as in the journal:
it is known without opening the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fsmq.spool import InvalidValue, State
from fsmq.spool.compression import MAX_PLAIN_BYTES
from fsmq.spool.message import unpack
from fsmq.spool.names import MAX_EXPIRY_S, Facts, facts
from fsmq.spool.stamps import Stamp, Stamps

COLUMNS: dict[str, DataType] = {
    "queue": StringType(),
    "id": StringType(),
    "state": StringType(),
    "created_at": TimestampType(),
    "priority": IntegerType(),
    "expires_at": TimestampType(),
    "visible_at": TimestampType(),
    "deliveries": IntegerType(),
    "size": LongType(),
    "content_type": StringType(),
    "attributes": MapType(StringType(), StringType()),
    "body": BinaryType(),
}
"""Every column and its type; each may be null."""

SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])

STATES = ("new", "ready", "in_flight", "delayed", "removed")

OF_CONTENT = frozenset({"content_type", "attributes", "body"})
"""The columns for which a file is opened."""

OF_FILE = frozenset({"visible_at", "deliveries", "size"})
"""The columns for which a file is looked at (lstat); ``state`` needs it only in ``delay/``."""

MAX_ROWS = 10_000
MAX_BYTES = 16 * 1024 * 1024


class Found(NamedTuple):
    """A message as it was found.

    place: the folder in which it stands. size: bytes of the file. raw: the file's bytes, header
    block included; None if it was not read, for which the body is null. A reader that wants no
    body needs to read only what has a header block, and of that no more than MAX_HEADER_BYTES.
    """

    queue: str
    id: str
    place: State
    size: int = 0
    mtime_ns: int = 0
    raw: bytes | None = None


def check_schema(schema: StructType) -> StructType:
    """Return a user's choice of columns, in the user's order.

    Raises:
        InvalidValue: it has a column that no message has, or one of another type.
    """
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise InvalidValue(
                "schema", f"has the column {field.name!r}; there are: {', '.join(COLUMNS)}"
            )
        if field.dataType.simpleString() != kind.simpleString():
            raise InvalidValue(
                "schema",
                f"has the column {field.name!r} as {field.dataType.simpleString()};"
                f" it is {kind.simpleString()}",
            )
    return schema


class Batches:
    """Collects messages into record batches of a schema, bounded by rows and by bytes.

    schema: the columns wanted, checked. coarse: the filesystem keeps whole seconds only. limit:
    bytes that a compressed body may unpack to; one beyond stays as it is in the file.
    """

    def __init__(
        self, schema: StructType, *, coarse: bool = False, limit: int = MAX_PLAIN_BYTES
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._stamps = Stamps(coarse)
        self._reads = not OF_CONTENT.isdisjoint(schema.names)
        # None: no body is wanted, so none is unpacked.
        self._limit = limit if "body" in schema.names else None
        self._rows: list[Found] = []
        self._contents: list[_Content] = []
        self._bytes = 0

    def add(self, message: Found) -> pa.RecordBatch | None:
        """Take a message in; a batch when enough are together."""
        self._rows.append(message)
        if self._reads:
            # Unpacked here, one by one: what is small on disk may be large.
            content = self._content(message)
            self._contents.append(content)
            self._bytes += len(content[0] or b"")
        if len(self._rows) < MAX_ROWS and self._bytes < MAX_BYTES:
            return None
        return self._batch()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left when all were added: one batch, or none."""
        if self._rows:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        rows = _Rows(self._rows, self._contents, self._stamps)
        self._rows, self._contents, self._bytes = [], [], 0
        return pa.RecordBatch.from_arrays(
            [_array(rows, field) for field in self._schema], schema=self._schema
        )

    def _content(self, message: Found) -> _Content:
        if message.raw is None:
            return _NOTHING
        if not message.id.endswith(_FLAGS):
            return message.raw, None, _NO_ATTRIBUTES
        known = facts(message.id)
        if self._limit is None:
            return unpack(message.raw, known._replace(packed=False))
        return unpack(message.raw, known, self._limit)


def _array(rows: _Rows, field: pa.Field) -> pa.Array:
    if field.name == "attributes":
        return rows.attributes(field.type)
    return pa.array(_MAKERS[field.name](rows), field.type)


def shown(name: str) -> str:
    r"""A file name as text: what is no UTF-8 in it as ``\xff``, which Spark could not carry."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def state_of(place: State, stamp: Stamp | None) -> str:
    """What the column ``state`` says of a message in a folder with such a stamp."""
    if place is State.DELAY:
        return "delayed" if stamp is not None and stamp.deliveries == 0 else "in_flight"
    return "removed" if place is State.REMOVE else str(place.value)


def created_us(known: Facts) -> int | None:
    """When a message was created, in Unix microseconds."""
    ms = known.created_ms
    return None if ms is None or ms > MAX_EXPIRY_S * 1000 else ms * 1000


def expires_us(known: Facts) -> int | None:
    """When a message expires, in Unix microseconds."""
    seconds = known.expires_s
    return None if seconds is None or seconds > MAX_EXPIRY_S else seconds * 1_000_000


def visible_us(place: State, stamp: Stamp | None) -> int | None:
    """When the timer of a claim or of a delay ends, in Unix microseconds; None: none runs."""
    if place is not State.DELAY or stamp is None or stamp.deadline_ms > MAX_EXPIRY_S * 1000:
        return None
    return stamp.deadline_ms * 1000


def deliveries_of(place: State, stamp: Stamp | None, coarse: bool) -> int | None:
    """How often a message was claimed; None where the filesystem cannot keep it."""
    if coarse:
        return None
    # Nothing in new/ has been delivered: a count there is a chance hit.
    return stamp.deliveries if stamp is not None and place is not State.NEW else 0


class _Rows:
    """The messages of one batch, and what several columns read from them; each is read once."""

    def __init__(
        self, messages: Sequence[Found], contents: Sequence[_Content], stamps: Stamps
    ) -> None:
        self.messages = messages
        self.contents = contents
        self.coarse = stamps.coarse
        self._decode = stamps.decode

    @cached_property
    def ids(self) -> list[str]:
        return [m.id for m in self.messages]

    @cached_property
    def facts(self) -> list[Facts]:
        return [facts(i) for i in self.ids]

    @cached_property
    def stamped(self) -> list[tuple[State, Stamp | None]]:
        decode = self._decode
        return [(m.place, decode(m.id, m.mtime_ns)) for m in self.messages]

    def states(self) -> list[str]:
        ready, delay, decode = State.READY, State.DELAY, self._decode
        return [
            "ready"
            if m.place is ready
            else state_of(m.place, decode(m.id, m.mtime_ns) if m.place is delay else None)
            for m in self.messages
        ]

    def visible(self) -> list[int | None]:
        delay, decode = State.DELAY, self._decode
        return [
            visible_us(delay, decode(m.id, m.mtime_ns)) if m.place is delay else None
            for m in self.messages
        ]

    def attributes(self, kind: pa.DataType) -> pa.Array:
        ends = [0]
        names: list[str] = []
        values: list[str] = []
        for content in self.contents:
            if content[2]:
                names += content[2].keys()
                values += content[2].values()
            ends.append(len(names))
        flat = pa.array(names, pa.string()), pa.array(values, pa.string())
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *flat, type=kind)


_Content = tuple[bytes | None, str | None, Mapping[str, str]]
_NO_ATTRIBUTES: Mapping[str, str] = {}
_NOTHING: _Content = (None, None, _NO_ATTRIBUTES)
_FLAGS = (".h", ".z")

_MAKERS: dict[str, Callable[[_Rows], Any]] = {
    "queue": lambda rows: [m.queue for m in rows.messages],
    "id": lambda rows: [i if i.isascii() else shown(i) for i in rows.ids],
    "state": _Rows.states,
    "created_at": lambda rows: [created_us(known) for known in rows.facts],
    "priority": lambda rows: [known.priority for known in rows.facts],
    "expires_at": lambda rows: [expires_us(known) for known in rows.facts],
    "visible_at": _Rows.visible,
    "deliveries": lambda rows: [deliveries_of(*placed, rows.coarse) for placed in rows.stamped],
    "size": lambda rows: [m.size for m in rows.messages],
    "content_type": lambda rows: [content[1] for content in rows.contents],
    "body": lambda rows: [content[0] for content in rows.contents],
}
