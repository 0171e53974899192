"""The columns of a message of a log, and record batches of them."""

from __future__ import annotations

from collections.abc import Iterable
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

from fsmq.spool import InvalidValue, LogMessage

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


def check_schema(schema: StructType) -> StructType:
    """Return a user's choice of columns, in the user's order. Raises InvalidValue."""
    for name in schema.names:
        found = schema[name].dataType.simpleString()
        wanted = schema_of(name)[name].dataType.simpleString()
        if found != wanted:
            raise InvalidValue("schema", f"has the column {name!r} as {found}; it is {wanted}")
    return schema


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
