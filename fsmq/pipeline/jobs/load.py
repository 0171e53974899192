"""The job load: rows of files become messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import MapType, StringType, StructField, StructType

from fsmq.pipeline.jobs.archive import NO_GLOB
from fsmq.pipeline.jobs.sending import Plan, is_done, send
from fsmq.pipeline.write.rows import BROKEN, WRITTEN, check_columns
from fsmq.spool import InvalidValue

FORMATS = ("parquet", "json", "csv", "text", "files")
_TAKEN = {*WRITTEN, BROKEN}
_SUFFIXES = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".txt": "text",
    ".log": "text",
}


def format_of(source: str) -> str:
    """The format of the files of a source, by their names. Raises InvalidValue."""
    path = Path(source)
    inside = {p.suffix for p in path.glob("*") if p.name[0] not in "._"} if path.is_dir() else set()
    found = {_SUFFIXES.get(suffix) for suffix in (inside or {path.suffix})}
    [kind] = found if len(found) == 1 else [None]
    if kind is None:
        raise InvalidValue(
            "format", f"{source} does not show it: give --format {' | '.join(FORMATS)}"
        )
    return kind


def frame_of(
    spark: SparkSession, source: str, form: str, columns: Mapping[str, str], queue: str | None
) -> DataFrame:
    """The rows of a source, with the columns of a write.

    columns: for columns of the write, an expression of Spark SQL over the source's columns;
    columns of the same name need none. In text each line is a body, and with files each file.

    Raises:
        InvalidValue: there is no such format or column, or a column has the wrong type.
    """
    if form not in FORMATS:
        raise InvalidValue(
            "format", f"unknown format {form!r}; expected one of: {', '.join(FORMATS)}"
        )
    if unknown := columns.keys() - WRITTEN.keys():
        raise InvalidValue(
            f"column {min(unknown)}", f"unknown column; expected one of: {', '.join(WRITTEN)}"
        )
    source_frame, defaults = _read(spark, source, form)
    names = [name for name in source_frame.columns if name != BROKEN]
    if not names:
        raise InvalidValue("source", f"{source} is empty, or not {form}")
    wanted: dict[str, Column] = {
        **{name: f.col(f"`{name}`") for name in source_frame.columns if name in _TAKEN},
        **defaults,
        **{name: f.expr(expression) for name, expression in columns.items()},
    }
    if "body" not in wanted:
        raise InvalidValue(
            "column body",
            f"is missing; the source has: {', '.join(names)}. Name it:"
            " --column body=payload, or the whole row: --column 'body=to_json(struct(*))'",
        )
    if "queue" not in wanted and queue is None:
        raise InvalidValue("queue", "is missing: give --queue jobs, or --column queue=EXPR")
    frame = source_frame.select(*(made.alias(name) for name, made in wanted.items()))
    if form == "csv":
        frame = _with_numbers(frame)
    check_columns(frame.schema, queue)
    return frame


def _read(spark: SparkSession, source: str, form: str) -> tuple[DataFrame, dict[str, Column]]:
    reading = spark.read.option(*NO_GLOB)
    if form == "text":
        return reading.text(source), {"body": f.col("value").cast("binary")}
    if form == "files":
        name = f.element_at(f.split("path", "/"), -1)
        frame = reading.format("binaryFile").option("recursiveFileLookup", "true").load(source)
        return frame, {
            "body": f.col("content"),
            "attributes": f.create_map(f.lit("file"), name),
        }
    if form == "csv":
        return _read_csv(reading, source), {}
    if form == "parquet":
        return reading.parquet(source), {}
    frame = _read_json(reading, source)
    # Rows that a write has rejected can be corrected and loaded again.
    if "body_base64" in frame.columns:
        plain = f.col("body").cast("binary") if "body" in frame.columns else f.lit(None)
        return frame, {"body": f.coalesce(f.unbase64("body_base64"), plain)}
    return frame, {}


def _read_csv(reading: DataFrameReader, source: str) -> DataFrame:
    """Rows of text. A row with more or fewer values than the header is broken."""
    # Nothing between two commas is a null; two quotes are an empty text.
    reading = reading.options(header=True, escape='"', nullValue="\0")
    reading = reading.option("enforceSchema", False)  # the files of a folder have one header
    names = reading.csv(source).columns
    fields = [StructField(name, StringType()) for name in (*names, BROKEN)]
    return reading.schema(StructType(fields)).option("multiLine", True).csv(source)


def _read_json(reading: DataFrameReader, source: str) -> DataFrame:
    """Objects, one a line; attributes as a map, because rows can have different ones."""
    found = reading.json(source).schema
    if "attributes" not in found.names or not isinstance(found["attributes"].dataType, StructType):
        return reading.json(source)
    texts = MapType(StringType(), StringType())
    kinds = {**{field.name: field.dataType for field in found}, BROKEN: StringType()}
    fields = [StructField(n, texts if n == "attributes" else kind) for n, kind in kinds.items()]
    return reading.schema(StructType(fields)).json(source)


def _with_numbers(frame: DataFrame) -> DataFrame:
    """Rows of CSV, whose columns are all texts, with numbers in the columns that need them."""
    numbers = {
        name: kind
        for name, kind in {"priority": "int", "delay": "double", "ttl": "double"}.items()
        if name in frame.columns and isinstance(frame.schema[name].dataType, StringType)
    }
    wrong = [
        f.when(
            f.col(name).isNotNull() & f.col(name).try_cast(kind).isNull(),
            f.concat(f.lit(f"{name} is not a number: "), name),
        )
        for name, kind in numbers.items()
    ]
    frame = frame.withColumn(BROKEN, f.coalesce(BROKEN, *wrong))
    return frame.withColumns({name: f.col(name).try_cast(kind) for name, kind in numbers.items()})


def load(
    spark: SparkSession,
    plan: Plan,
    source: str,
    form: str,
    columns: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Put the rows of a source, all or none, and once for a job's name; returns the result.

    Raises:
        InvalidValue: as `frame_of`.
        Exception: Spark's, with the text of the spool's error.
    """
    frame = frame_of(spark, source, form, columns, plan.queue)
    if dry_run:
        return {
            "job": plan.job,
            "would_put": 0 if is_done(plan) else frame.count(),
            "columns": ", ".join(frame.columns),
            "done_before": is_done(plan),
        }
    return send(frame, plan)
