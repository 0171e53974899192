"""Rows to be written: their columns, and how they become messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from fsmq.pipeline.columns import named
from fsmq.spool import FsmqError, InvalidValue, NewMessage
from fsmq.spool.on_disk import renewed

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_INTEGERS, FloatType, DoubleType, DecimalType)

IDS = ("own", "whole", "renewed")
"""What a row's id is: "own", one that the client chose; "whole", the whole name that the message
had, from a snapshot or an archive, which is kept; "renewed", the same with a new UUID."""

BROKEN = "_corrupt_record"
"""A text column in which Spark puts what it could not parse; a row that has one is rejected."""

_OF_WHOLE = ("priority", "ttl")

WRITTEN: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "body": ("binary or string", (BinaryType, StringType)),
    "queue": ("string", (StringType,)),
    "id": ("string", (StringType,)),
    "priority": ("a whole number", _INTEGERS),
    "delay": ("a number of seconds", _NUMBERS),
    "ttl": ("a number of seconds", _NUMBERS),
    "content_type": ("string", (StringType,)),
    "attributes": ("map<string,string>", (MapType,)),
    "group": ("string", (StringType,)),
}
"""The columns that a write takes, with their types in words; only body is required."""

PUBLISHED: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "key": ("string", (StringType,)),
    **{name: WRITTEN[name] for name in ("body", "content_type", "attributes")},
}
"""The same for a write to a log."""

_SHOWN = 60


class RejectedRow(FsmqError):
    """A row that cannot become a message; the text names the row, the field and the limit."""


class Row(NamedTuple):
    """One row: its number in the partition from 0, and its values by column."""

    number: int
    values: dict[str, Any]

    def message(self, queue: str | None, ids: str) -> tuple[str, NewMessage]:
        """The queue that it goes to, and the message.

        queue: the default if the row names none. ids: what its id is, one of IDS.

        Raises:
            InvalidValue: a required value is null. (The spool checks everything else.)
        """
        values, body = self.values, self._body()
        to = values.get("queue") or queue
        if to is None:
            raise InvalidValue("queue", "is null, and the option queue names none")
        return to, NewMessage(
            body,
            delay=_number(values.get("delay")),
            priority=values.get("priority") or 0,
            ttl=_number(values.get("ttl")),
            id=_id(values.get("id"), ids),
            content_type=values.get("content_type"),
            attributes=_attributes(values.get("attributes")),
            group=values.get("group"),
        )

    def published(self) -> tuple[bytes, str | None, str | None, Mapping[str, str]]:
        """Body, key, content type and attributes of a message of a log.

        Raises InvalidValue: a required value is null.
        """
        body, given = self._body(), _attributes(self.values.get("attributes"))
        return body, self.values.get("key"), self.values.get("content_type"), given

    def _body(self) -> bytes:
        if self.values.get(BROKEN) is not None:
            raise InvalidValue("row", "cannot be parsed")
        body: bytes | None = self.values["body"]
        if body is None:
            raise InvalidValue("body", "is null")
        return body

    def problem(self, partition: int, error: FsmqError) -> str:
        """What is wrong with it, in words."""
        given = ", ".join(f"{name}={_short(value)}" for name, value in self.values.items())
        return f"partition {partition}, row {self.number}: {error} ({given})"

    def rejected(self, partition: int, error: FsmqError) -> bytes:
        """A line of JSON with all values of the row, and what is wrong."""
        values = dict(self.values)
        body = values["body"]
        if isinstance(body, bytes):
            try:
                values["body"] = body.decode()
            except UnicodeDecodeError:
                del values["body"]
                values["body_base64"] = base64.b64encode(body).decode()
        if values.get("attributes") is not None:
            values["attributes"] = dict(values["attributes"])
        values |= {"error": str(error), "partition": partition, "row": self.number}
        return json.dumps(values, default=float).encode() + b"\n"


def check_columns(schema: StructType, queue: str | None, ids: str = "own") -> None:
    """Check that rows of this schema can be written.

    queue: the one that the options name. ids: what an id is, one of IDS.

    Raises:
        InvalidValue: a column is missing, is unknown, or has the wrong type.
    """
    check_types(schema, WRITTEN)
    if ids != "own":
        _check_whole(schema.names, ids)
    if queue is None and "queue" not in schema.names:
        raise InvalidValue(
            "option queue", 'is missing, and there is no column queue: .option("queue", "jobs")'
        )


def check_types(
    schema: StructType, written: Mapping[str, tuple[str, tuple[type[DataType], ...]]]
) -> None:
    """Check that there is a body, and that all columns are among some, of their types.

    Raises InvalidValue.
    """
    for field in schema.fields:
        if field.name == BROKEN:
            continue
        if field.name not in written:
            raise InvalidValue(
                f"column {field.name}",
                f"unknown column; expected some of: {', '.join(written)}."
                " Select these, renamed if needed",
            )
        words, kinds = written[field.name]
        if not isinstance(field.dataType, kinds) or _is_other_map(field.dataType):
            found = field.dataType.simpleString()
            raise InvalidValue(f"column {field.name}", f"is {found}; expected {words}")
    if "body" not in schema.names:
        raise InvalidValue("column body", f"is missing; the columns are: {', '.join(schema.names)}")


def _check_whole(names: list[str], ids: str) -> None:
    if "id" not in names:
        raise InvalidValue("column id", f"is missing, and the option ids is {ids}")
    for name in _OF_WHOLE:
        if name in names:
            raise InvalidValue(f"column {name}", "is a part of a whole id: leave it out")


def _is_other_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and not (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )


def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of a partition."""
    number = 0
    for batch in batches:
        names = batch.schema.names
        columns = [_values(name, batch.column(name)) for name in names]
        for values in zip(*columns, strict=True):
            yield Row(number, dict(zip(names, values, strict=True)))
            number += 1


def _values(name: str, column: pa.Array) -> list[Any]:
    """A column in Python; a body as bytes. Spark's strings can contain bytes that are not UTF-8."""
    if name == "body":
        return list(column.cast(pa.binary()).to_pylist())
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        # Values that are not UTF-8 are refused later, with an error that names the row.
        if pa.types.is_map(column.type):
            pairs = column.cast(pa.map_(pa.binary(), pa.binary())).to_pylist()
            return [p if p is None else [(_text(k), _text(v)) for k, v in p] for p in pairs]
        return [_text(value) for value in column.cast(pa.binary()).to_pylist()]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _id(given: str | None, ids: str) -> str | None:
    if given is None or ids == "own":
        return given
    name = named(given)
    return renewed(name) if ids == "renewed" else name


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _attributes(pairs: list[tuple[str, str | None]] | None) -> Mapping[str, str]:
    if not pairs:
        return {}
    found: dict[str, str] = {}
    for name, value in pairs:
        if value is None:
            raise InvalidValue(f"attribute {name}", "is null")
        found[name] = value
    return found


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            pass
    if isinstance(value, bytes | str) and len(value) > _SHOWN:
        what = "bytes" if isinstance(value, bytes) else "characters"
        return f"{value[:_SHOWN]!r}… of {len(value):,} {what}"
    return repr(value)
