"""The columns of a message of a log, and record batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fsmq.spool import InvalidValue, LogEntry, LogMessage

COLUMNS: dict[str, DataType] = {
    "log": StringType(),
    "offset": LongType(),
    "published_at": TimestampType(),
    "key": StringType(),
    "id": StringType(),
    "content_type": StringType(),
    "attributes": MapType(StringType(), StringType()),
    "body": BinaryType(),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
_WRITTEN = ("body", "key", "content_type", "attributes")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(columns: str | None) -> StructType:
    """The columns that an option names, in its order. Raises InvalidValue."""
    found = StructType()
    for name in map(str.strip, (columns or ",".join(COLUMNS)).split(",")):
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise InvalidValue("option columns", f"unknown column {name!r}; expected: {known}")
        found = found.add(SCHEMA[name])
    return found


def batch_of(log: str, messages: Iterable[LogMessage], schema: StructType) -> pa.RecordBatch:
    """Messages as rows."""
    values: dict[str, list[Any]] = {name: [] for name in schema.names}
    for message in messages:
        row = {
            "log": log,
            "offset": message.offset,
            "published_at": _EPOCH + timedelta(microseconds=message.time_us),
            "key": message.key,
            "id": message.id,
            "content_type": message.content_type,
            "attributes": dict(message.attributes),
            "body": message.body,
        }
        for name, column in values.items():
            column.append(row[name])
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [pa.array(values[field.name], field.type) for field in arrow]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def check_written(schema: StructType) -> None:
    """Check that rows of these columns can be published. Raises InvalidValue."""
    for name in schema.names:
        if name not in _WRITTEN:
            known = ", ".join(_WRITTEN)
            raise InvalidValue("columns", f"unknown column {name!r}; expected some of: {known}")
    if "body" not in schema.names:
        raise InvalidValue("columns", "have no body")


def entries(rows: pa.RecordBatch) -> list[LogEntry]:
    """Rows as messages. Raises InvalidValue."""
    found: list[LogEntry] = []
    for row in rows.to_pylist():
        body, given = row["body"], row.get("attributes") or {}
        if body is None:
            raise InvalidValue("body", "is null in a row")
        attributes: Mapping[str, str] = dict(given)
        found.append(LogEntry(body, row.get("key"), None, row.get("content_type"), attributes))
    return found
