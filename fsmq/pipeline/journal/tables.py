"""The folder of the journal's tables: Parquet that can be read while it is being written.

    <folder>/
      events/   day=…/batch=N/*.parquet
      messages/ day=…/batch=N/*.parquet     only rows that are final
      minutes/  day=…/batch=N/*.parquet
      recent/   batch=N/{messages,minutes,counts}/*.parquet, progress.json

Micro-batch N writes its final rows into folders of its own. Then it stages all rows that can still
change in ``recent/_batch=N``, and renames that to ``recent/batch=N``: this rename commits the
batch, for readers and for the job itself, which goes on from there. After a crash before the
rename the batch is written again from the start. Readers take the rows of batches up to the newest
in ``recent/``, and those in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from fsmq.pipeline.journal import lives, minutes, segments
from fsmq.spool import InvalidValue

TABLES = ("events", "messages", "minutes")
_RECENT, _CHECKPOINT, _PROGRESS = "recent", "_checkpoint", "progress.json"
# How many batches stay in `recent/`: readers may still use the ones before the newest.
_KEPT = 3
_ROWS_PER_FILE = 1_000_000
_batch = re.compile(r"batch=(\d+)")


class Progress(NamedTuple):
    """The progress of the tables.

    batch: number of the micro-batch. mark_ms: rows before this time are final, in Unix
    milliseconds, a whole minute; 0: none is. latest_ms: time of the newest step. events, late:
    steps so far, and those that came after their minute was final. root: the spool.
    """

    batch: int = -1
    mark_ms: int = 0
    latest_ms: int = 0
    events: int = 0
    late: int = 0
    root: str = ""


class _Files:
    """The filesystem of a path, through Spark."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        # By the full name: py4j would look up each part of it as a class first.
        self._path: Any = getattr(spark.sparkContext._jvm, "org.apache.hadoop.fs.Path")
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        self._fs = self._path(path).getFileSystem(hadoop)

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        return sorted(found.getPath().getName() for found in self._fs.listStatus(self._path(path)))

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def rename(self, path: str, to: str) -> None:
        # Hadoop would move a folder into one that exists.
        if self.exists(to) or not self._fs.rename(self._path(path), self._path(to)):
            raise OSError(f"{path} could not become {to}")

    def matching(self, pattern: str) -> list[str]:
        found = self._fs.globStatus(self._path(pattern)) or []
        return [str(each.getPath()) for each in found]

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        stream = self._fs.create(self._path(path), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()


class Tables:
    """The tables in a folder, for the job that writes them and for readers.

    folder: a path, or any URL that Spark can write to.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")
        self._files = _Files(spark, self._folder)

    @property
    def checkpoint(self) -> str:
        """The folder in which Spark stores how far it has read."""
        return f"{self._folder}/{_CHECKPOINT}"

    def has_checkpoint(self) -> bool:
        """Whether a stream has been started here."""
        return self._files.exists(self.checkpoint)

    def offset(self, batch: int) -> dict[str, Any]:
        """Spark's offset in the journal after a batch; empty before the first."""
        path = f"{self.checkpoint}/offsets/{batch}"
        # The lines are the version, facts about the batch, and an offset for the only source.
        return json.loads(self._files.read(path).splitlines()[2]) if batch >= 0 else {}

    def progress(self) -> Progress:
        """The progress after the newest batch; ``batch`` is -1 before the first."""
        batches = self._batches()
        if not batches:
            return Progress()
        return Progress(**json.loads(self._files.read(f"{self._recent(batches[-1])}/{_PROGRESS}")))

    def _batches(self) -> list[int]:
        found = map(_batch.fullmatch, self._files.names(f"{self._folder}/{_RECENT}"))
        return sorted(int(match[1]) for match in found if match is not None)

    def _recent(self, batch: int) -> str:
        return f"{self._folder}/{_RECENT}/batch={batch}"

    # -- for the job ------------------------------------------------------------------------------

    def held(self, spark: SparkSession, name: str, batch: int) -> DataFrame | None:
        """Rows that a batch has stored for the next one; None before the first."""
        return None if batch < 0 else spark.read.parquet(f"{self._recent(batch)}/{name}")

    def remove(self, batch: int) -> None:
        """Remove the rows of an attempt at a batch that was not committed."""
        for table in TABLES:
            for path in self._files.matching(f"{self._folder}/{table}/day=*/batch={batch}"):
                self._files.remove(path)

    def append(self, table: str, rows: DataFrame, at: Column, batch: int, size: int) -> None:
        """Add rows that will never change. size: about how many; at: their time."""
        days = rows.withColumns({"day": fn.to_date(at), "batch": fn.lit(batch)})
        files = 1 + size // _ROWS_PER_FILE
        writer = days.coalesce(files).write.mode("append").partitionBy("day", "batch")
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            f"{self._folder}/{table}"
        )

    def commit(self, recent: Mapping[str, DataFrame], progress: Progress) -> None:
        """Write all rows that can still change, which commits the batch."""
        staged = f"{self._folder}/{_RECENT}/_batch={progress.batch}"
        self._files.remove(staged)
        for name, rows in recent.items():
            rows.write.parquet(f"{staged}/{name}")
        self._files.write(f"{staged}/{_PROGRESS}", json.dumps(progress._asdict()))
        self._files.rename(staged, self._recent(progress.batch))
        for old in self._batches()[:-_KEPT]:
            self._files.remove(self._recent(old))

    # -- for readers ------------------------------------------------------------------------------

    def read(self, since: date | None = None) -> dict[str, DataFrame]:
        """The tables, each as of the newest batch, by name; also as views of these names.

        since: rows of earlier days are left out, unless they can still change.

        Raises:
            InvalidValue: there are no tables.
        """
        batch = self.progress().batch
        if batch < 0:
            raise InvalidValue(
                "tables", f"{self._folder} holds none: fsmq pipeline journal writes them"
            )
        recent = self._recent(batch)
        messages = lives.is_message(self._spark.read.parquet(f"{recent}/messages"))
        by_minute = self._spark.read.parquet(f"{recent}/minutes")
        tables = {
            "events": self._settled("events", segments.COLUMNS, batch, since),
            "messages": self._with(messages.select(*lives.COLUMNS), "messages", batch, since),
            "minutes": self._with(by_minute.select(*minutes.COLUMNS), "minutes", batch, since),
        }
        for name, rows in tables.items():
            rows.createOrReplaceTempView(name)
        return tables

    def _with(self, recent: DataFrame, table: str, batch: int, since: date | None) -> DataFrame:
        columns = ", ".join(f"{c.name} {c.dataType.simpleString()}" for c in recent.schema)
        return recent.unionAll(self._settled(table, columns, batch, since))

    def _settled(self, table: str, columns: str, batch: int, since: date | None) -> DataFrame:
        path = f"{self._folder}/{table}"
        if not self._files.exists(path):
            return self._spark.createDataFrame([], columns)
        rows = self._spark.read.schema(f"{columns}, day date, batch long").parquet(path)
        if since is not None:
            rows = rows.where(fn.col("day") >= fn.lit(since))
        return rows.where(fn.col("batch") <= batch).drop("day", "batch")
