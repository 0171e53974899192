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

# Options set by the Java class: which method of Spark named the source, and the user's schema.
_USE, _SCHEMA = "fsmq.use", "fsmq.schema"


class FsmqDataSource(DataSource):
    """``format("fsmq")``; docs/spark.md lists its options and columns.

    Options are checked here, in ``load()`` and ``start()``, and not when a query runs. Without the
    Java class the use is unknown: then only the root is checked, which all uses have in common.

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
            # Spark adds options of its own, depending on the use: a view, a table, a sink.
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
        """``writeStream``: each micro-batch is put once."""
        return producer.stream_writer(schema, self.options, overwrite)


class PlannedDataSource(FsmqDataSource):
    """The same with filters pushed down, if each query of a DataFrame has a reader of its own.

    Spark itself (4.3) gives the reader with the filters of one query to other queries as well,
    which then miss rows.
    """

    @classmethod
    def name(cls) -> str:
        """The name by which the Java class finds it; for users that class is ``fsmq``."""
        return "fsmq.python"

    def reader(self, schema: StructType) -> DataSourceReader:
        """``spark.read``: a snapshot of what a query needs."""
        return snapshot.PushingReader(schema, self.options)


def columns_of(options: Mapping[str, str]) -> StructType:
    """The columns that the option ``columns`` names, in its order; all if it is not given.

    Raises:
        InvalidValue: a name is not a column.
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
