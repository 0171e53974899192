"""The data source fsmq: which class reads, streams and writes."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import SCHEMA


class FsmqDataSource(DataSource):
    """``format("fsmq")``; docs/spark.md lists its options and columns."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format`` takes."""
        return "fsmq"

    def schema(self) -> StructType:
        """All columns, where the user's ``.schema(…)`` did not choose some."""
        return SCHEMA
