"""Streams: a query is a consumer whose batches are repeated until they are done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType, _parse_datatype_string

from fsmq.pipeline.datasource import FsmqDataSource
from fsmq.spool import FsmqError, NewMessage, NoSuchQueue, Spool
from fsmq.spool.consumers.batches import overview
from fsmq.spool.consumers.consumer import Consumer
from tests.harness.suite import eventually
from tests.pipeline.processes import PATIENCE_S
from tests.spool.helpers import visible

Seen = list[list[str]]


class Query:
    """A query with one checkpoint that collects the ids of each batch, in order."""

    def __init__(self, spark: SparkSession, spool: Spool, consumer: str = "spark") -> None:
        self.seen: Seen = []
        self.names: list[set[str]] = []
        self.within: Callable[[], object] = lambda: None  # called in each batch
        self.options: dict[str, str | float] = {"queue": "jobs", "consumer": consumer}
        self._spark = spark
        self._root = spool.tree.root
        self._checkpoint = self._root.parent / f"checkpoint-{consumer}"

    def start(self, **trigger: Any) -> StreamingQuery:
        stream = (
            self._spark.readStream.format("fsmq")
            .schema("id string, batch string, body binary")
            .option("root", str(self._root))
            .options(**self.options)
            .load()
        )

        def collect(batch: DataFrame, number: int) -> None:
            rows = batch.collect()
            self.seen.append([row.id for row in rows])
            self.names.append({row.batch for row in rows})
            self.within()

        writer = stream.writeStream.foreachBatch(collect)
        return (
            writer.option("checkpointLocation", str(self._checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    @property
    def sources(self) -> list[Any]:
        """The progress of the source in the last run."""
        return [progress.sources[0] for progress in self._ended.recentProgress]

    def drain(self) -> Seen:
        """Take all messages that are ready at the start; the batches."""
        self.seen.clear()
        self.names.clear()
        running = self.start()
        running.awaitTermination()
        self._ended = running
        return list(self.seen)


def fill(spool: Spool, queue: str, count: int, size: int = 10) -> list[str]:
    """Put ready messages; their ids in order."""
    ids = spool.queue(queue, create=True).put_many([NewMessage(b"x" * size) for _ in range(count)])
    spool.deliver()
    return ids


def test_a_queue_is_drained_in_order_and_acknowledged(spark: SparkSession, spool: Spool) -> None:
    query = Query(spark, spool)
    spool.create_queue("jobs")
    assert query.drain() in ([], [[]])
    ids = fill(spool, "jobs", 7)
    query.options["maxMessagesPerBatch"] = 3
    assert query.drain() == [ids[:3], ids[3:6], ids[6:]]
    # Progress shows the source and what was left after the first batch.
    assert query.sources[0].description == f"fsmq[jobs of {spool.tree.root}]"
    assert query.sources[0].metrics["messagesBehind"] == "4"
    assert query.sources[0].metrics["bytesBehind"] == "40"
    assert float(query.sources[0].metrics["oldestBehindSeconds"]) >= 0
    assert json.loads(query.sources[0].latestOffset)["queues"]["jobs"]["messagesBehind"] == 4
    assert visible(spool.tree.root) == []
    assert query.drain() == []
    more = fill(spool, "jobs", 3, size=40)
    query.options["maxBytesPerBatch"] = 100
    assert query.drain() == [more[:2], more[2:]]
    # Without waiting messages there is no age.
    [last] = fill(spool, "jobs", 1)
    assert query.drain() == [[last]]
    assert query.sources[0].metrics == {"messagesBehind": "0", "bytesBehind": "0"}
    # The process of the source ends some time later.
    eventually(lambda: overview(spool.context)["spark"] == (False, 0, 0))


def test_a_stream_has_all_columns_of_a_message(spark: SparkSession, spool: Spool) -> None:
    for name in ("jobs", "jobs:night", "mail"):
        spool.create_queue(name)
    spool.queue("jobs", create=True).put(b"\xff\x00", priority=7, ttl=9000, content_type="a/b")
    spool.queue("jobs:night", create=True).configure(compression="zlib")
    spool.queue("jobs:night").put(b"squeezed " * 50, attributes={"trace": "4bf9"})
    spool.queue("mail", create=True).put(b"not asked for")
    spool.deliver()
    stream = spark.readStream.format("fsmq").option("root", str(spool.tree.root))
    rows = stream.option("queue", "job*").option("consumer", "spark").load().writeStream
    query = rows.format("memory").queryName("columns").trigger(availableNow=True).start()
    query.awaitTermination()
    found = {row.queue: row for row in spark.table("columns").collect()}
    assert sorted(found) == ["jobs", "jobs:night"]
    row = found["jobs"]
    assert (bytes(row.body), row.priority, row.content_type) == (b"\xff\x00", 7, "a/b")
    assert (row.state, row.deliveries, row.attributes) == ("in_flight", 1, {})
    assert row.expires_at.timestamp() >= row.created_at.timestamp() + 9000 - 1
    assert bytes(found["jobs:night"].body) == b"squeezed " * 50
    assert found["jobs:night"].attributes == {"trace": "4bf9"}


def test_a_failed_batch_is_repeated_and_not_acknowledged(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 4)
    query = Query(spark, spool)
    query.options["maxMessagesPerBatch"] = 2

    def fail() -> None:
        assert spool.queue("jobs").counts().total == 4 - 2 * (len(query.seen) - 1)
        if len(query.seen) == 2:
            raise RuntimeError("the sink says no")

    query.within = fail
    with pytest.raises(Exception, match="the sink says no"):
        query.drain()
    failed = query.names[1]
    query.within = lambda: None
    assert query.drain() == [ids[2:]]
    assert query.names == [failed]
    assert visible(spool.tree.root) == []


def test_divide_buries_a_row_that_fails_alone(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 3)
    query = Query(spark, spool)
    query.options["failedBatch"] = "divide"
    with pytest.raises(Exception, match="'divide' buries a row that fails alone"):
        query.drain()
    spool.queue("jobs").configure(max_deliveries=1, dead_letter_queue="dead")

    def fail() -> None:
        if ids[1] in query.seen[-1]:
            raise RuntimeError("the sink says no")

    query.within = fail
    for _ in range(2):
        with pytest.raises(Exception, match="the sink says no"):
            query.drain()
    assert query.seen == [[ids[0]], [ids[1]]]
    assert query.drain() == [[], [ids[2]]]
    assert [message.id for message in spool.queue("dead").peek()] == [ids[1]]
    assert visible(spool.tree.root) == [("dead", ids[1])]


def test_a_message_claimed_by_others_is_not_repeated(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 4)
    query = Query(spark, spool)
    query.options["visibilityTimeout"] = 1

    def fail() -> None:
        raise RuntimeError("the sink says no")

    query.within = fail
    with pytest.raises(Exception, match="the sink says no"):
        query.drain()
    # Abandoned claims end, not all at once, and others can claim the messages.
    [other] = spool.queue("jobs").claim(wait=PATIENCE_S)
    spool.queue("jobs").remove(other.id)
    query.within = lambda: None
    assert query.drain() == [[message_id for message_id in ids if message_id != other.id]]
    assert visible(spool.tree.root) == []


def test_claims_are_renewed_while_a_batch_runs(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 3)
    query = Query(spark, spool)
    # Long enough for renewals that are late on a busy machine.
    query.options["visibilityTimeout"] = 9

    def deadline() -> float:
        """The first deadline of the claims."""
        return min(path.stat().st_mtime for path in (spool.tree.root / "delay").iterdir())

    def work() -> None:
        began = deadline()
        for renewal in (1, 2):
            eventually(lambda least=began + 2 * renewal: deadline() > least)
        assert spool.queue("jobs").claim() == []

    query.within = work
    assert query.drain() == [ids]
    assert visible(spool.tree.root) == []


def test_new_messages_do_not_prolong_a_drain(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 6)
    query = Query(spark, spool)
    query.options["maxMessagesPerBatch"] = 2
    query.within = lambda: fill(spool, "jobs", 2)
    assert query.drain() == [ids[:2], ids[2:4], ids[4:]]
    assert spool.queue("jobs").counts().ready == 6


def test_two_consumers_share_a_queue(spark: SparkSession, spool: Spool) -> None:
    queries = [Query(spark, spool, name) for name in ("one", "two")]
    spool.create_queue("jobs")
    running = []
    for query in queries:
        query.options["maxMessagesPerBatch"] = 2000
        running.append(query.start(processingTime="0 seconds"))
    ids: list[str] = []

    def both_have_some() -> bool:
        assert all(stream.isActive for stream in running)
        if not spool.queue("jobs").counts().ready:
            ids.extend(fill(spool, "jobs", 5))
        return all(query.seen for query in queries)

    try:
        eventually(both_have_some, PATIENCE_S)
        eventually(lambda: spool.queue("jobs").counts().total == 0, PATIENCE_S)
        assert all(stream.isActive for stream in running)
    finally:
        for stream in running:
            stream.stop()
    seen = Counter(i for query in queries for batch in query.seen for i in batch)
    assert seen == Counter(ids)


def test_a_lost_checkpoint_loses_no_message(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 3)
    with Consumer(spool, "spark") as consumer:
        assert consumer.claim("another checkpoint's", 41, ["jobs"], 2) is not None
    query = Query(spark, spool)
    assert query.drain() == [ids[:2], ids[2:]]
    assert visible(spool.tree.root) == []


def _reader(spool: Spool, schema: str = "id string", **options: object) -> Any:
    kind = _parse_datatype_string(schema)
    assert isinstance(kind, StructType)
    given = {"root": spool.tree.root, "queue": "jobs", "consumer": "spark", **options}
    return FsmqDataSource({k: str(v) for k, v in given.items() if v}).streamReader(kind)


def test_a_deleted_queue_fails_the_stream_or_is_awaited(
    spark: SparkSession, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    def take(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
        """Ask for an offset, as Spark does; it is new if something was claimed."""
        offset = reader.latestOffset(start, ReadAllAvailable())
        assert isinstance(offset, dict)
        return offset

    spool.create_queue("other")
    waiting = _reader(spool, missingQueue="wait", queue="jobs, o*")
    offset = take(waiting, {"batch": 0})
    assert "the stream waits for queue 'jobs', which does not exist" in caplog.text
    fill(spool, "jobs", 2)
    first = take(waiting, offset)
    assert first != offset
    assert "queue 'jobs' is there again" in caplog.text
    waiting.partitions(offset, first)
    waiting.commit(first)
    for queue in ("jobs", "other"):
        caplog.clear()
        spool.delete_queue(queue)
        assert take(waiting, first) == first
        assert f"queue {queue!r} is gone: it was deleted while the stream ran" in caplog.text
        assert (queue == "jobs") == ("waits for" in caplog.text)
    waiting.stop()

    fill(spool, "jobs", 1)
    failing = _reader(spool, consumer="another")
    offset = take(failing, {"batch": 0})
    failing.partitions({"batch": 0}, offset)
    spool.delete_queue("jobs")
    with pytest.raises(NoSuchQueue, match=r"queue 'jobs' is gone: .*create it again, or .*wait"):
        take(failing, offset)
    failing.stop()


def test_a_missing_queue_and_a_running_consumer_are_named(
    spark: SparkSession, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.pipeline.read.stream._PATIENCE_S", 0.1)
    with pytest.raises(NoSuchQueue, match="jobs"):
        _reader(spool).prepareForTriggerAvailableNow()
    spool.create_queue("jobs")
    with Consumer(spool, "spark"), pytest.raises(FsmqError, match="works as the consumer 'spark'"):
        _reader(spool).prepareForTriggerAvailableNow()
