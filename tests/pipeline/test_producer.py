"""Writing: DataFrames and streams become messages, as whole jobs and once."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fsmq.pipeline.write.rows import check_columns
from fsmq.pipeline.write.runs import WriteRun
from fsmq.spool import InvalidValue, Spool
from fsmq.spool.staging.abandoned import ABANDONED_AFTER_S, Abandoned
from tests.harness.suite import eventually
from tests.pipeline.processes import PATIENCE_S
from tests.pipeline.spools import bodies

FULL = (
    "queue string, id string, body binary, priority int, delay double, ttl long,"
    " content_type string, attributes map<string,string>"
)
# Format: the option that names its target.
FORMS = {"fsmq": "queue", "fsmq_log": "log"}


@pytest.fixture
def root(jobs_root: Path) -> Path:
    with Spool(jobs_root, sync="none") as spool:
        spool.create_queue("mail")
    return jobs_root


def write(frame: DataFrame, root: Path, **options: Any) -> None:
    writing = frame.write.format("fsmq").mode("append").option("root", str(root))
    writing.options(**options).save()


def written(spool: Spool, form: str) -> list[bytes]:
    """The bodies in the queue or log ``jobs``, sorted."""
    spool.deliver()
    found = spool.log("jobs").read() if form == "fsmq_log" else spool.queue("jobs").peek(100)
    return sorted(message.body for message in found)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """Remove Spark's note that a batch is done."""
    (checkpoint / f"commits/{batch}").unlink()
    (checkpoint / f"commits/.{batch}.crc").unlink(missing_ok=True)


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "staging").iterdir())


def texts(spark: SparkSession, *values: str | None) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "body string").coalesce(1)


def test_every_column_is_written(spark: SparkSession, root: Path) -> None:
    uuid = "01977420-dc00-7abc-8def-0123456789ab"
    rows = [
        ("mail", uuid, b"\x00\xff", 7, None, 10**9, "a/b", {"k": "v"}),
        (None, None, b"plain", None, None, None, None, None),
        ("jobs", "own-1", b"own", None, None, None, None, {}),
        ("jobs", None, b"later", None, 3600.0, None, None, None),
    ]
    write(spark.createDataFrame(rows, FULL), root, queue="jobs", journal="true")
    with Spool(root, sync="none") as spool:
        [mail] = spool.queue("mail").claim(9)
        assert (mail.body, mail.priority, mail.content_type) == (b"\x00\xff", 7, "a/b")
        assert uuid in mail.id
        assert mail.attributes == {"k": "v"}
        # A message with an own id is delivered after a second.
        assert {m.body for m in spool.queue("jobs").claim(9)} - {b"own"} == {b"plain"}
        own = spool.queue("jobs").find("own-1")
        assert own is not None
        assert own.body == b"own"
        assert spool.queue("jobs").counts().delayed == 1
    assert staged(root) == []
    lines = [json.loads(x) for p in (root / "journal").iterdir() for x in p.open()]
    assert [(x["event"], x["via"]) for x in lines if x["event"] == "accepted"] == [
        ("accepted", "spark")
    ] * 4


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("jobs", None, None, 0, None, None, None, None), "body: is null"),
        ((None, None, b"x", 0, None, None, None, None), "queue: is null, and the option queue"),
        (("none", None, b"x", 0, None, None, None, None), "there is no queue named 'none'"),
        (("a b", None, b"x", 0, None, None, None, None), "queue: 'a b' is not a queue name"),
        (("jobs", None, b"x", 100, None, None, None, None), "priority: .*99"),
        (("jobs", None, b"x", 0, -1.0, None, None, None), "delay: "),
        (("jobs", "a/b", b"x", 0, None, None, None, None), "id: 'a/b' is not an id"),
        (("jobs", None, b"x", 0, None, None, None, {"k": None}), "attribute k: is null"),
        (("mail", None, b"y" * 2000, 0, None, None, None, None), "2000 bytes .* 1000 bytes"),
    ],
)
def test_a_bad_row_is_rejected_with_its_error(
    tmp_path: Path, row: tuple[Any, ...], expected: str
) -> None:
    """Without Spark: only the task of the row."""
    import pyarrow as pa

    from fsmq.pipeline.write.rows import RejectedRow
    from fsmq.pipeline.write.writer import BatchWriter, Target
    from fsmq.spool.staging.part import Job

    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
        spool.queue("mail", create=True).configure(max_message_bytes=1000)
    names = [column.split()[0] for column in FULL.split(", ")]
    values = dict(zip(names, row, strict=True))
    kinds = {"attributes": pa.map_(pa.string(), pa.string()), "body": pa.binary()}
    arrays = {
        name: pa.array([list(value.items()) if isinstance(value, dict) else value], kinds.get(name))
        for name, value in values.items()
    }
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    target = Target(str(root), None, False, None, "own", None, 0, False)
    with pytest.raises(RejectedRow, match=expected) as error:
        BatchWriter(target, Job("bad")).write(iter([batch]))
    assert re.match("partition 0, row 0: ", str(error.value))
    assert len(str(error.value)) < 700
    assert staged(root) == []
    target = Target(str(root), None, False, str(tmp_path / "aside"), "own", None, 0, False)
    writer = BatchWriter(target, Job("bad"))
    writer.commit([writer.write(iter([batch]))])
    [line] = (tmp_path / "aside" / "bad-0.jsonl").read_text().splitlines()
    assert re.search(expected, json.loads(line)["error"])
    assert staged(root) == []


def _one_is_null(spark: SparkSession, parts: int) -> DataFrame:
    rows = spark.range(0, 100, 1, parts)
    return rows.selectExpr("if(id = 77, null, cast(id as string)) body")


def test_a_bad_row_fails_the_job_and_leaves_nothing(spark: SparkSession, root: Path) -> None:
    with pytest.raises(Exception, match=r"partition 0, row 77: body: is null \(body=None\)"):
        write(_one_is_null(spark, 1), root, queue="jobs")
    assert staged(root) == []
    assert bodies(root) == []


def test_a_task_that_outlives_its_job_adds_nothing(spark: SparkSession, root: Path) -> None:
    with pytest.raises(Exception, match=r"partition 3, row 2: body: is null \(body=None\)"):
        write(_one_is_null(spark, 4), root, queue="jobs")

    def mover_comes_by() -> bool:
        with Spool(root, sync="none") as spool:
            faults: list[tuple[str, Exception]] = []
            clearing = Abandoned(spool.context, lambda name, error: faults.append((name, error)))
            clearing.step(time.time() + 2 * ABANDONED_AFTER_S)
            assert faults == []
        return staged(root) == []

    # Spark does not wait for other tasks of a failed job, which may begin their part late.
    eventually(mover_comes_by, PATIENCE_S)
    assert bodies(root) == []


def test_rejected_rows_are_written_once(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    for _ in range(2):
        rejected = str(tmp_path / "bad")
        rows = texts(spark, "a", None, "b")
        write(rows, root, queue="jobs", rejectedRows=rejected, job="load-7")
    assert bodies(root) == [b"a", b"b"]
    [found] = (tmp_path / "bad").iterdir()
    [line] = found.read_text().splitlines()
    assert json.loads(line) == {"body": None, "error": "body: is null", "partition": 0, "row": 1}


def test_a_named_job_is_written_once_for_each_batch(spark: SparkSession, root: Path) -> None:
    for batch in (0, 0, 1, 0):
        write(texts(spark, f"of {batch}"), root, queue="jobs", job="nightly", batch=batch)
    assert bodies(root) == [b"of 0", b"of 1"]


def test_queues_are_created_on_request(spark: SparkSession, root: Path) -> None:
    write(texts(spark, "a"), root, queue="fresh", createQueues="true")
    assert bodies(root, "fresh") == [b"a"]


def test_a_full_queue_fails_the_job(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).configure(max_depth=2)
    with pytest.raises(Exception, match="'jobs' is full: its max_depth is 2"):
        write(texts(spark, "a", "b", "c"), root, queue="jobs")
    assert staged(root) == []


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("body string, prio int", {"queue": "jobs"}, "column prio: unknown column.*priority"),
        ("body int", {"queue": "jobs"}, "column body: is int; expected binary or string"),
        ("queue string", {}, "column body: is missing"),
        ("body string", {}, "option queue: is missing, and there is no column queue"),
        ("body string, attributes map<string,int>", {"queue": "jobs"}, "column attributes"),
    ],
)
def test_wrong_columns_are_refused(columns: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        check_columns(StructType.fromDDL(columns), options.get("queue"))


def test_wrong_options_are_refused(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    frame = texts(spark, "a")
    with pytest.raises(Exception, match="option rejected_rows: unknown option"):
        write(frame, root, queue="jobs", rejected_rows="/x")
    with pytest.raises(Exception, match="is not a spool"):
        write(frame, tmp_path / "no", queue="jobs")
    writing = frame.write.format("fsmq").options(root=str(root), queue="jobs")
    replaces = r'mode "overwrite": would replace .* use \.mode\("append"\)'
    with pytest.raises(Exception, match=replaces):
        writing.mode("overwrite").save()


def test_a_stream_writes_each_batch_once(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        lines = spark.readStream.format("text").load(str(source)).withColumnRenamed("value", "body")
        query = (
            lines.writeStream.format("fsmq")
            .options(root=str(root), queue="jobs", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    (source / "one").write_text("1\n2\n")
    run()
    (source / "two").write_text("3\n")
    run()
    # As after a kill between the commit and Spark's note of it.
    forget_commit(checkpoint, 1)
    run()
    assert bodies(root) == [b"1", b"2", b"3"]
    [note] = staged(root)
    assert json.loads((root / "staging" / note).read_text())["number"] == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_job_refuses_rows_of_another_query(
    spark: SparkSession, root: Path, tmp_path: Path, form: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    with Spool(root, sync="none") as spool:
        spool.log("jobs", create=True)
        target = {"root": str(root), FORMS[form]: "jobs"}

        def run(checkpoint: str, **options: str) -> None:
            lines = spark.readStream.format("text").load(str(source))
            writing = lines.withColumnRenamed("value", "body").writeStream.format(form)
            (
                writing.options(**target, **options)
                .option("checkpointLocation", str(tmp_path / checkpoint))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )

        (source / "one").write_text("1\n2\n")
        run("cp", job="nightly")
        shutil.copytree(tmp_path / "cp", tmp_path / "older")
        for more in ("3", "4"):
            (source / more).write_text(f"{more}\n")
            run("cp", job="nightly")
        with pytest.raises(Exception, match="job 'nightly': batch 2 was written by another query"):
            run("deleted", job="nightly")
        with pytest.raises(Exception, match="job 'nightly': batch 1 comes after batch 2, so"):
            run("older", job="nightly")
        forget_commit(tmp_path / "cp", 2)
        run("cp", job="nightly")  # as after a kill: with the same rows
        assert written(spool, form) == [b"1", b"2", b"3", b"4"]
        run("older", job="nightly-2")
        assert written(spool, form) == [b"1", b"2", b"3", b"3", b"4", b"4"]

        def save(count: int, **options: Any) -> None:
            frame = spark.range(0, count, 1, 2).selectExpr("cast(id as string) body")
            frame.write.format(form).mode("append").options(**target, **options).save()

        for _ in range(2):
            save(2, job="once")
        with pytest.raises(Exception, match="batch 0 was written with 2 rows, and has 3 now"):
            save(3, job="once")
        with pytest.raises(Exception, match="job 'nightly': batch 2 was written by another query"):
            save(3, job="nightly")
        assert written(spool, form) == [b"0", b"1", b"1", b"2", b"3", b"3", b"4", b"4"]
    assert [name for name in staged(root) if not name.endswith(".json")] == []


@pytest.mark.parametrize("form", FORMS)
def test_a_named_job_in_foreach_batch_needs_batch_numbers(
    spark: SparkSession, root: Path, tmp_path: Path, form: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    with Spool(root, sync="none") as spool:
        spool.log("jobs", create=True)
        target = {"root": str(root), FORMS[form]: "jobs"}

        def run(numbered: bool) -> None:
            def work(rows: DataFrame, number: int) -> None:
                writing = rows.write.format(form).mode("append").options(**target, job="nightly")
                (writing.option("batch", number) if numbered else writing).save()

            lines = spark.readStream.option("maxFilesPerTrigger", 1).format("text")
            query = lines.load(str(source)).withColumnRenamed("value", "body").writeStream
            checkpoint = str(tmp_path / "checkpoint")
            running = query.foreachBatch(work).option("checkpointLocation", checkpoint)
            running.trigger(availableNow=True).start().awaitTermination()

        (source / "one").write_text("1\n")
        (source / "two").write_text("2\n")
        if form == "fsmq_log":
            run(numbered=False)  # a log knows the numbers of Spark
        else:
            with pytest.raises(Exception, match="batch 0 was written in batch 0 of the query"):
                run(numbered=False)
            run(numbered=True)
        assert written(spool, form) == [b"1", b"2"]


@pytest.mark.parametrize("noted", [None, {"query": None, "batch": None, "rows": 2}])
def test_dropped_rows_are_logged(
    noted: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    WriteRun(None, None, 2).check("once", 0, 0, noted)
    assert "2 rows of batch 0 of job 'once' were written before, and are dropped" in caplog.text
