"""Ordered logs in Spark: ranges, streams and writes."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from fsmq.pipeline.logs.log_columns import SCHEMA
from fsmq.pipeline.logs.source import LogSource, Part, Reading, _joined
from fsmq.pipeline.options import Options
from fsmq.spool import InvalidValue, Spool
from fsmq.spool.log.log import LogEntry
from fsmq.spool.log.log_places import place_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "mq"
    with Spool(root) as spool:
        log = spool.log("users")
        log.create(segment_bytes=4096)
        for number in range(5):
            log.publish_many([b"%d" % n for n in range(number * 100, number * 100 + 100)])
        log.publish_many([LogEntry(b"last", key="ann", content_type="t/x", attributes={"a": "b"})])
    return root


def read(spark: SparkSession, root: Path, **more: str) -> DataFrame:
    return spark.read.format("fsmq_log").options(root=str(root), log="users", **more).load()


def test_a_range_is_read_in_parts(spark: SparkSession, root: Path) -> None:
    table = read(spark, root, minPartitions="7")
    assert table.rdd.getNumPartitions() >= 7
    rows = table.collect()
    assert [row.offset for row in rows] == list(range(501))
    assert [bytes(row.body) for row in rows[:3]] == [b"0", b"1", b"2"]
    last = rows[-1]
    assert (last.log, last.key, last.content_type, last.attributes) == (
        "users",
        "ann",
        "t/x",
        {"a": "b"},
    )
    assert last.published_at is not None
    some = read(spark, root, startingOffsets="10", endingOffsets="13", columns="body,offset")
    assert some.columns == ["body", "offset"]
    assert [row.offset for row in some.collect()] == [10, 11, 12]
    with pytest.raises(Exception, match="unknown column"):
        read(spark, root, columns="state")


def test_a_stream_continues_and_writes_once(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    with Spool(root) as spool:
        copies, log = spool.log("copies", create=True), spool.log("users")

        def run(**more: str) -> None:
            given = {"root": str(root), "log": "users", "startingOffsets": "first", **more}
            stream = spark.readStream.format("fsmq_log").options(**given).load()
            query: Any = (
                stream.select("body", "key")
                .writeStream.format("fsmq_log")
                .options(root=str(root), log="copies")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        run(maxMessagesPerBatch="200", consumer="spark", columns="body,key,offset")
        assert copies.end() == 501
        assert log.channel("spark").state().position == 501
        log.publish_many([b"more", b"and more"])
        # The last batch is repeated, as after a kill before the note of its end.
        commits = sorted(
            (tmp_path / "checkpoint/commits").glob("[0-9]*"), key=lambda p: int(p.name)
        )
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
        run(maxMessagesPerBatch="200", consumer="spark", columns="body,key,offset")
        found = [message.body for message in copies.read()]
        assert sorted(found) == sorted(message.body for message in log.read())
        assert found[-2:] == [b"more", b"and more"]
        assert log.channel("spark").state().position >= 501
        log.delete()
        log.create()
        with pytest.raises(Exception, match="made anew"):
            run(consumer="spark", columns="body,key,offset")


def test_removed_messages_fail_a_query_by_default(spark: SparkSession, root: Path) -> None:
    with Spool(root) as spool:
        log = spool.log("users")
        log.configure(retain_for=0)
        spool.tend_logs()
        first = log.first()
    assert first > 0
    with pytest.raises(Exception, match="retention has removed"):
        read(spark, root, startingOffsets="0").collect()
    rows = read(spark, root, startingOffsets="0", failOnDataLoss="false").collect()
    assert [row.offset for row in rows] == list(range(first, 501))


def damage(root: Path) -> None:
    """Overwrite a byte in the last message of the log."""
    [path] = (root / "logs/users/log").glob("0*")
    with path.open("r+b") as file:
        file.seek(-50, os.SEEK_END)
        file.write(b"?")


def test_damage_fails_a_query_by_default(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "damaged"
    with Spool(root) as spool:
        log = spool.log("users", create=True)
        for number in range(100):
            log.publish(b"%0100d" % number)
    damage(root)
    with pytest.raises(Exception, match="has damaged or lost messages"):
        read(spark, root).collect()
    rows = read(spark, root, failOnDataLoss="false").collect()
    assert [row.offset for row in rows] == list(range(99))


def test_a_table_is_written_in_order_and_a_job_once(spark: SparkSession, root: Path) -> None:
    rows = [(b"%d" % number, f"k{number % 3}", {"n": str(number)}) for number in range(50)]
    table = spark.createDataFrame(rows, "body binary, key string, attributes map<string,string>")
    writer = table.coalesce(1).write.format("fsmq_log").mode("append")
    for _ in range(2):
        writer.options(root=str(root), log="users", job="import").save()
    with Spool(root) as spool:
        found = list(spool.log("users").read(501))
    assert [message.body for message in found] == [body for body, _, _ in rows]
    assert (found[4].key, found[4].attributes) == ("k1", {"n": "4"})
    for wrong, options in (
        ("option root", {"root": "relative", "log": "users"}),
        ("option log", {"root": str(root)}),
        ("unknown option", {"root": str(root), "log": "users", "queue": "x"}),
    ):
        with pytest.raises(Exception, match=wrong):
            table.write.format("fsmq_log").mode("append").options(**options).save()
    with pytest.raises(Exception, match="only added"):
        table.write.format("fsmq_log").mode("overwrite").options(root=str(root), log="users").save()
    with pytest.raises(Exception, match="unknown column"):
        table.withColumnRenamed("key", "id").write.format("fsmq_log").mode("append").options(
            root=str(root), log="users"
        ).save()


def test_mistakes_are_told_when_a_log_is_loaded(spark: SparkSession, root: Path) -> None:
    good = {"root": str(root), "log": "users"}
    for reading in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="did you mean startingOffsets"):
            reading.format("fsmq_log").options(**good, startingOfset="5").load()
    for schema in ("body string", "key int", "state string"):
        with pytest.raises(Exception, match=r"it is (binary|string)|unknown column"):
            spark.read.format("fsmq_log").options(**good).schema(schema).load().collect()
    assert read(spark, root).schema["body"].dataType.simpleString() == "binary"


@pytest.mark.parametrize(
    ("columns", "row", "told"),
    [
        ("body binary", "null", "row 0: body: is null"),
        ("body string, key string", "'x', ''", "row 0: key: must have 1 to"),
        ("body string, key string", "'x', cast(X'80' as string)", "row 0: .*key"),
        (
            "body string, attributes map<string,string>",
            "'x', map('a', null)",
            "attribute a: is null",
        ),
        ("body int", "1", "column body.* is int; expected binary or string"),
    ],
)
def test_rows_that_no_log_takes(
    spark: SparkSession, root: Path, columns: str, row: str, told: str
) -> None:
    table = spark.sql(f"SELECT * FROM VALUES ({row})").toDF(
        *[one.split()[0] for one in columns.split(", ")]
    )
    types = [one.split()[1] for one in columns.split(", ")]
    table = table.select(*[table[c].cast(t) for c, t in zip(table.columns, types, strict=True)])
    with pytest.raises(Exception, match=told):
        table.write.format("fsmq_log").mode("append").options(root=str(root), log="users").save()
    with Spool(root) as spool:
        assert spool.log("users").end() == 501


def test_a_string_is_published_as_its_bytes(spark: SparkSession, root: Path) -> None:
    table = spark.createDataFrame([("é",)], "body string")
    table.write.format("fsmq_log").mode("append").options(root=str(root), log="users").save()
    with Spool(root) as spool:
        assert [message.body for message in spool.log("users").read(501)] == ["é".encode()]


def test_a_stream_tells_how_far_it_is_behind(root: Path) -> None:
    given = {"startingOffsets": "first", "maxMessagesPerBatch": "100"}
    reader: Any = LogSource({"root": str(root), "log": "users", **given}).streamReader(SCHEMA)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(100))["offset"] == 100
    assert reader.reportLatestOffset() == {"messagesBehind": 401}


def test_a_missing_log_fails_before_any_task(spark: SparkSession, root: Path) -> None:
    missing = {"root": str(root), "log": "nope"}
    for reading in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="no log named 'nope'"):
            reading.format("fsmq_log").options(**missing).load()
    computed = spark.sparkContext.accumulator(0)

    def compute(number: int) -> bytes:
        computed.add(1)
        return b"%d" % number

    rows = spark.sparkContext.range(9).map(lambda n: (compute(n),)).toDF("body binary")
    with pytest.raises(Exception, match="no log named 'nope'"):
        rows.write.format("fsmq_log").mode("append").options(**missing).save()
    assert computed.value == 0


def test_skipped_messages_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Spool(tmp_path / "mq") as spool:
        log = spool.log("users", create=True)
        log.publish_many([b"%0100d" % number for number in range(100)])
    damage(tmp_path / "mq")
    given = {"root": str(tmp_path / "mq"), "log": "users", "failOnDataLoss": "false"}
    reading = Reading(SCHEMA, Options(given, list(given)), "first")
    assert sum(batch.num_rows for batch in reading.rows(Part(0, 100))) < 100
    assert "has damaged or lost messages among 0 to 99: they are passed over" in caplog.text


def test_places_are_parsed_and_parts_joined() -> None:
    assert place_in("startingOffsets", "7") == 7
    assert place_in("startingOffsets", "2030-01-31T12:00:00Z") == datetime(
        2030, 1, 31, 12, tzinfo=UTC
    )
    east = timezone(timedelta(hours=2))
    for text in ("2030-01-31T12:00:00+02:00", "2030-01-31T12:00:00 02:00"):
        assert place_in("from", text) == datetime(2030, 1, 31, 12, tzinfo=east)
    before = datetime.now(UTC) - timedelta(hours=1, minutes=30)
    ago = place_in("from", "1h 30m ago")
    assert isinstance(ago, datetime)
    assert before <= ago <= before + timedelta(minutes=1)
    for wrong in (
        "",
        "earliest",
        "-1",
        "2030-01-31T12:00",
        "2030-01-31 12:00",
        "ago",
        "9e999h ago",
    ):
        with pytest.raises(InvalidValue):
            place_in("startingOffsets", wrong)
    parts = [Part(0, 1), Part(1, 2), Part(2, 12), Part(12, 14)]
    assert _joined(parts, 10) == [Part(0, 2), Part(2, 12), Part(12, 14)]
