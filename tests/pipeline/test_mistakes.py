"""What is wrong with a source's options is said by load() and start(), in one line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsmq.spool import Spool
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.create_queue("jobs")
    return tmp_path / "mq"


def sentence_of(attempt: Callable[[], Any]) -> str:
    """The one line that an attempt ends with."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Spark's own)
        attempt()
    assert "\n" not in str(caught.value)
    return re.sub(r"^fsmq\.[\w.]+: ", "", str(caught.value))


_MISSING = 'option root: is missing: .option("root", "/var/lib/fsmq")'


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"root": None}, _MISSING),
        ({"consumer": None}, 'option consumer: is missing: .option("consumer", "billing")'),
        ({"queue": None}, "option queue: is missing"),
        ({"queue": "nope"}, "there is no queue named 'nope'; create it first"),
        ({"root": "/nowhere/mq"}, "option root: [Errno 2] No such file or directory"),
        ({"visibilityTimeout": "soon"}, "option visibilityTimeout: 'soon' is not a number"),
        ({"maxOffsetsPerTrigger": "5"}, "did you mean maxMessagesPerBatch? expected one of:"),
        ({"maxFilesPerTrigger": "5"}, "did you mean maxMessagesPerBatch? expected one of:"),
        ({"maxBytesPerTrigger": "5"}, "did you mean maxBytesPerBatch? expected one of:"),
        ({"subscribe": "jobs"}, "did you mean queue? expected one of:"),
        ({"failOnDataLoss": "true"}, "did you mean missingQueue? expected one of:"),
    ],
)
def test_a_mistake_in_a_stream_is_told_when_it_is_loaded(
    spark: SparkSession, root: Path, options: dict[str, str | None], told: str
) -> None:
    given = {"root": str(root), "queue": "jobs", "consumer": "me", **options}
    stream = spark.readStream.format("fsmq")
    for name, value in given.items():
        if value is not None:
            stream = stream.option(name, value)
    assert told in sentence_of(stream.load)


def test_a_mistake_in_columns_is_told_when_they_are_loaded(spark: SparkSession, root: Path) -> None:
    read, stream = spark.read.format("fsmq"), spark.readStream.format("fsmq")
    for source in (read, stream.option("consumer", "me")):
        given = source.schema("weight int").options(root=str(root), queue="jobs")
        assert "unknown column 'weight'; expected some of: queue" in sentence_of(given.load)


def test_a_mistake_in_a_written_stream_is_told_when_it_is_started(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) body")
    written = rows.writeStream.format("fsmq").option("checkpointLocation", str(tmp_path / "cp"))
    assert sentence_of(written.option("queue", "jobs").start) == _MISSING
    written = written.option("root", str(root)).option("topic", "jobs")
    assert "option topic: unknown option; did you mean queue?" in sentence_of(written.start)


def test_a_write_that_may_not_be_is_told_by_the_driver(
    spark: SparkSession,
    root: Path,
    tmp_path: Path,
    mount: Mount,  # noqa: F811
) -> None:
    there = mount(tmp_path / "there", bind=root)
    subprocess.run(["mount", "-o", "remount,ro,bind", there], check=True)
    write = spark.createDataFrame([("x",)], "body string").write.format("fsmq").mode("append")
    denied = write.options(root=str(there), queue="jobs")
    assert "the filesystem is mounted read-only (EROFS)" in sentence_of(denied.save)
    missing = write.options(root=str(root), queue="nope")
    assert sentence_of(missing.save) == "there is no queue named 'nope'; create it first"


def test_a_session_that_was_not_registered_says_what_to_call(
    spark: SparkSession, root: Path
) -> None:
    reading = spark.newSession().read.format("fsmq").options(root=str(root), queue="jobs")
    assert "call fsmq.pipeline.register(spark) in each session" in sentence_of(reading.load)


def test_a_stream_that_fails_says_why_in_its_first_line(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("fsmq").options(root=str(root), queue="jobs", consumer="me")
    loaded = stream.load().writeStream.format("noop")
    with Spool(root, sync="none") as spool:
        spool.delete_queue("jobs")
    with pytest.raises(Exception, match="no queue named 'jobs'") as caught:
        loaded.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
    assert "no queue named 'jobs'" in str(caught.value).partition("\n")[0]
