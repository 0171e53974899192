"""Wrong options of sources and sinks fail load() and start() with one line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fsmq.spool import Spool
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)


def sentence_of(attempt: Callable[[], Any]) -> str:
    """The error of an attempt, which must be one line."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own)
        attempt()
    assert "\n" not in str(caught.value)
    return re.sub(r"^fsmq\.[\w.]+: ", "", str(caught.value))


_MISSING = 'option root: is missing: .option("root", "/var/lib/fsmq")'


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"root": None}, _MISSING),
        ({"consumer": None}, 'option consumer: is missing: .option("consumer", "billing")'),
        ({"queue": None}, "option queue: is missing"),
        ({"queue": "nope"}, "there is no queue named 'nope'; create it first"),
        ({"root": "/nowhere/mq"}, "option root: [Errno 2] No such file or directory"),
        ({"consumer": "../x"}, "option consumer: '../x' is not a"),
        ({"visibilityTimeout": "soon"}, "option visibilityTimeout: 'soon' is not a number"),
        ({"visibilityTimeout": "0.5"}, "visibilityTimeout: 0.5 is not a number of at least 1"),
        ({"maxMessagesPerBatch": "none"}, "maxMessagesPerBatch: 'none' is not a whole number"),
        ({"maxMessages": "5"}, "option maxmessages: unknown option; did you mean maxMessagesPer"),
        ({"maxOffsetsPerTrigger": "5"}, "did you mean maxMessagesPerBatch? expected one of:"),
        ({"maxFilesPerTrigger": "5"}, "did you mean maxMessagesPerBatch? expected one of:"),
        ({"maxBytesPerTrigger": "5"}, "did you mean maxBytesPerBatch? expected one of:"),
        ({"subscribe": "jobs"}, "did you mean queue? expected one of:"),
        ({"failOnDataLoss": "true"}, "did you mean missingQueue? expected one of:"),
    ],
)
def test_wrong_options_of_a_stream_fail_its_load(
    spark: SparkSession, jobs_root: Path, options: dict[str, str | None], problem: str
) -> None:
    given = {"root": str(jobs_root), "queue": "jobs", "consumer": "me", **options}
    stream = spark.readStream.format("fsmq")
    for name, value in given.items():
        if value is not None:
            stream = stream.option(name, value)
    assert problem in sentence_of(stream.load)


def test_unknown_columns_fail_the_load(spark: SparkSession, jobs_root: Path) -> None:
    read, stream = spark.read.format("fsmq"), spark.readStream.format("fsmq")
    for source in (read, stream.option("consumer", "me")):
        given = source.schema("weight int").options(root=str(jobs_root), queue="jobs")
        assert "unknown column 'weight'; expected some of: queue" in sentence_of(given.load)


def test_wrong_options_of_a_sink_fail_its_start(
    spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) body")
    written = rows.writeStream.format("fsmq").option("checkpointLocation", str(tmp_path / "cp"))
    assert sentence_of(written.option("queue", "jobs").start) == _MISSING
    written = written.option("root", str(jobs_root)).option("topic", "jobs")
    assert "option topic: unknown option; did you mean queue?" in sentence_of(written.start)


def test_a_write_that_cannot_work_fails_in_the_driver(
    spark: SparkSession,
    jobs_root: Path,
    tmp_path: Path,
    mount: Mount,  # noqa: F811
) -> None:
    there = mount(tmp_path / "there", bind=jobs_root)
    subprocess.run(["mount", "-o", "remount,ro,bind", there], check=True)
    write = spark.createDataFrame([("x",)], "body string").write.format("fsmq").mode("append")
    denied = write.options(root=str(there), queue="jobs")
    assert "the filesystem is mounted read-only (EROFS)" in sentence_of(denied.save)
    missing = write.options(root=str(jobs_root), queue="nope")
    assert sentence_of(missing.save) == "there is no queue named 'nope'; create it first"


def test_an_unregistered_session_names_register(spark: SparkSession, jobs_root: Path) -> None:
    reading = spark.newSession().read.format("fsmq").options(root=str(jobs_root), queue="jobs")
    assert "call fsmq.pipeline.register(spark) in each session" in sentence_of(reading.load)


def test_the_first_line_of_a_failed_stream_names_the_cause(
    spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    options = {"root": str(jobs_root), "queue": "jobs", "consumer": "me"}
    stream = spark.readStream.format("fsmq").options(**options)
    loaded = stream.load().writeStream.format("noop")
    with Spool(jobs_root, sync="none") as spool:
        spool.delete_queue("jobs")
    with pytest.raises(Exception, match="no queue named 'jobs'") as caught:
        loaded.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
    assert "no queue named 'jobs'" in str(caught.value).partition("\n")[0]
