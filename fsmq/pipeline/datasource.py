"""The data source fsmq: which class reads, streams and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import COLUMNS, SCHEMA
from fsmq.pipeline.options import Options
from fsmq.pipeline.read import snapshot
from fsmq.pipeline.read import stream as consumer
from fsmq.pipeline.write import writer as producer
from fsmq.spool import InvalidValue

# Told by the class of Java: which method of Spark has named the source, and its own schema.
_USE, _SCHEMA = "fsmq.use", "fsmq.schema"


class FsmqDataSource(DataSource):
    """``format("fsmq")``; docs/spark.md lists its options and columns.

    What is wrong with the options is said here, where ``load()`` and ``start()`` come by, and not
    when a query runs. Without the class of Java nobody says which of them it was: then only what
    all uses have in common is looked at: the root.

    Raises:
        InvalidValue, UnusableSpool, NoSuchQueue
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._use = options.pop(_USE, "")
        schema = options.pop(_SCHEMA, None)
        super().__init__(options)
        if self._use == "DataStreamWriter":
            producer.check_stream(options)
        elif self._use and schema is not None:
            self._check_reading(StructType.fromJson(json.loads(schema)))

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return "fsmq"

    def schema(self) -> StructType:
        """All columns, or those of the option ``columns``."""
        if self._use == "DataStreamWriter":
            return SCHEMA
        columns = columns_of(self.options)
        if self._use:
            self._check_reading(columns)
        else:
            # Spark adds some of its own, by what it was named in: a view, a table, a sink.
            Options({n: v for n, v in self.options.items() if n == "root"}, ["root"]).root()
        return columns

    def _check_reading(self, schema: StructType) -> None:
        if self._use == "DataStreamReader":
            consumer.reader(schema, self.options).check()
        else:
            snapshot.SnapshotReader(schema, self.options).check()

    def reader(self, schema: StructType) -> DataSourceReader:
        """``spark.read``: a snapshot."""
        return snapshot.SnapshotReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's
        """``spark.readStream``: a consumer."""
        return consumer.reader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """``df.write``: all rows become messages, or none."""
        return producer.writer(schema, self.options, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """``writeStream``: each micro-batch, once."""
        return producer.stream_writer(schema, self.options, overwrite)


class PlannedDataSource(FsmqDataSource):
    """The same where queries of one DataFrame have a reader each: it takes their filters.

    Spark itself gives the reader with one query's filters to other queries, which then miss what
    those left out (4.3).
    """

    @classmethod
    def name(cls) -> str:
        """The name by which the class of Java finds it; to users that one is ``fsmq``."""
        return "fsmq.python"

    def reader(self, schema: StructType) -> DataSourceReader:
        """``spark.read``: a snapshot, of what a query needs."""
        return snapshot.PushingReader(schema, self.options)


def columns_of(options: Mapping[str, str]) -> StructType:
    """The columns that the option ``columns`` names, in its order; all where it is not given.

    Raises:
        InvalidValue: a name that is no column.
    """
    wanted = options["columns"] if "columns" in options else ",".join(COLUMNS)
    schema = StructType()
    for name in wanted.split(","):
        if name.strip() not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise InvalidValue(
                "option columns", f"unknown column {name.strip()!r}; expected some of: {known}"
            )
        schema = schema.add(SCHEMA[name.strip()])
    return schema
