"""The columns of a message, which a snapshot and a stream have in common.

Times are null if they are unknown (the name of a message that a shell user put does not tell), or
beyond the year 9999, where Python's times end. ``size`` is the file's, as in the journal: it is
known without opening the file.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

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
from fsmq.spool.on_disk import MAX_EXPIRY_S, Facts, Stamp, hidden_state

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

OF_CONTENT = frozenset({"content_type", "attributes", "body"})
"""The columns for which a file is opened."""

OF_FILE = frozenset({"visible_at", "deliveries", "size"})
"""The columns that need an lstat of the file; ``state`` needs it only in ``delay/``."""

RUN_MESSAGES = 2000
RUN_BYTES = 4 * 1024 * 1024

_escape = re.compile(rb"\\x([0-9a-f]{2})")


File = tuple[int, int, bytes | None]
"""A message's file: its size in bytes, its mtime in Unix nanoseconds, and its content.

The content includes the header block; it is None if it was not read, and the body is null then. A
reader that wants no body reads only files with a header block, and of them at most
MAX_HEADER_BYTES.
"""


class Run(NamedTuple):
    """Messages of one queue that were found in one folder, in order: their ids and their files.

    At most RUN_MESSAGES, with less than RUN_BYTES before the last of them.
    """

    queue: str
    place: State
    ids: list[str]
    files: list[File]


def check_schema(schema: StructType) -> StructType:
    """Return a user's choice of columns, in the user's order.

    Raises:
        InvalidValue: it has a column that no message has, or one of another type.
    """
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise InvalidValue(
                "schema", f"unknown column {field.name!r}; expected some of: {', '.join(COLUMNS)}"
            )
        if field.dataType.simpleString() != kind.simpleString():
            raise InvalidValue(
                "schema",
                f"has the column {field.name!r} as {field.dataType.simpleString()};"
                f" it is {kind.simpleString()}",
            )
    return schema


def shown(name: str) -> str:
    r"""A file name as text, with bytes that are not UTF-8, and the backslash, written as ``\xff``.

    Spark has only UTF-8; and if the backslash were not escaped, two names could look the same.
    """
    if name.isascii() and "\\" not in name:
        return name
    return os.fsencode(name).replace(b"\\", rb"\x5c").decode("utf-8", "backslashreplace")


def named(text: str) -> str:
    """The file name from which `shown` made this text."""
    if "\\" not in text:
        return text
    return os.fsdecode(_escape.sub(lambda m: bytes([int(m[1], 16)]), text.encode()))


def state_of(place: State, stamp: Stamp | None) -> str:
    """The value of the column ``state`` now, for a message in a folder with a stamp."""
    if place is State.DELAY:
        return hidden_state(stamp, time.time_ns() // 1_000_000)
    return "removed" if place is State.REMOVE else str(place.value)


def created_us(ms: int | None) -> int | None:
    """When a message was created, from Unix milliseconds to Unix microseconds."""
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
    """How often a message was claimed; None if the filesystem cannot store that."""
    if coarse:
        return None
    # Nothing in new/ has been delivered: an mtime there looks like a count only by chance.
    return stamp.deliveries if stamp is not None and place is not State.NEW else 0
