"""The job load: rows of files become messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from fsmq.pipeline.rows import WRITTEN, check_columns
from fsmq.pipeline.sending import Plan, is_done, send
from fsmq.spool import InvalidValue

FORMATS = ("parquet", "json", "csv", "text", "files")
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
    """What the files of a source are, by their names. Raises InvalidValue."""
    path = Path(source)
    inside = {p.suffix for p in path.glob("*") if p.name[0] not in "._"} if path.is_dir() else set()
    found = {_SUFFIXES.get(suffix) for suffix in (inside or {path.suffix})}
    [kind] = found if len(found) == 1 else [None]
    if kind is None:
        raise InvalidValue(
            "format", f"{source} does not tell it: say --format {' | '.join(FORMATS)}"
        )
    return kind


def frame_of(
    spark: SparkSession, source: str, form: str, columns: Mapping[str, str], queue: str | None
) -> DataFrame:
    """The rows of a source, with the columns of a write.

    columns: an expression of Spark SQL over the source's columns for each column of the write;
    those of the same name are taken without. A line of text, and a file, is a body by itself.

    Raises:
        InvalidValue: no such format or column, or a column of the wrong type.
    """
    if form not in FORMATS:
        raise InvalidValue("format", f"{form!r} is none of: {', '.join(FORMATS)}")
    if unknown := columns.keys() - WRITTEN.keys():
        raise InvalidValue(
            f"column {min(unknown)}", f"is none of a message; there are: {', '.join(WRITTEN)}"
        )
    source_frame, defaults = _read(spark, source, form)
    wanted: dict[str, Column] = {
        **{name: f.col(f"`{name}`") for name in source_frame.columns if name in WRITTEN},
        **defaults,
        **{name: f.expr(told) for name, told in columns.items()},
    }
    if "body" not in wanted:
        raise InvalidValue(
            "column body",
            f"is missing; the source has: {', '.join(source_frame.columns)}. Say which it is:"
            " --column body=payload, or the whole row: --column 'body=to_json(struct(*))'",
        )
    frame = source_frame.select(*(made.alias(name) for name, made in wanted.items()))
    if form == "csv":
        frame = frame.select(*(_typed(name) for name in frame.columns))
    check_columns(frame.schema, queue)
    return frame


def _read(spark: SparkSession, source: str, form: str) -> tuple[DataFrame, dict[str, Column]]:
    if form == "text":
        return spark.read.text(source), {"body": f.col("value")}
    if form == "files":
        name = f.element_at(f.split("path", "/"), -1)
        frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(source)
        return frame, {
            "body": f.col("content"),
            "attributes": f.create_map(f.lit("file"), name),
        }
    if form == "csv":
        return spark.read.csv(source, header=True, multiLine=True, escape='"'), {}
    frame = spark.read.format(form).load(source)
    # What a write has set aside can be mended and loaded again.
    if form == "json" and "body_base64" in frame.columns:
        plain = f.col("body").cast("binary") if "body" in frame.columns else f.lit(None)
        return frame, {"body": f.coalesce(f.unbase64("body_base64"), plain)}
    return frame, {}


def _typed(name: str) -> Column:
    """A column of CSV, which is text, as the write has it."""
    kind = {"priority": "int", "delay": "double", "ttl": "double"}.get(name)
    return f.col(name).cast(kind) if kind is not None else f.col(name)


def load(
    spark: SparkSession,
    plan: Plan,
    source: str,
    form: str,
    columns: Mapping[str, str],
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Put the rows of a source, all or none, and once for a job's name; what came of it.

    Raises:
        InvalidValue: what `frame_of` says.
        Exception: Spark's, with the text of what the spool says.
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
