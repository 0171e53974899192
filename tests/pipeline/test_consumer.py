"""Streams: a query is a consumer, and whatever dies, its batches come again until they are done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsmq.spool import FsmqError, InvalidValue, NewMessage, NoSuchQueue, Spool
from fsmq.spool.consumers.batches import overview
from fsmq.spool.consumers.consumer import Consumer
from tests.harness.suite import eventually
from tests.pipeline.processes import PATIENCE_S
from tests.spool.helpers import visible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Seen = list[list[str]]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "mq", sync="none") as opened:
        yield opened


class Query:
    """A query that collects the ids of each batch, in order, under one checkpoint."""

    def __init__(self, spark: SparkSession, spool: Spool, consumer: str = "spark") -> None:
        self.seen: Seen = []
        self.names: list[set[str]] = []
        self.within: Callable[[], object] = lambda: None  # done while a batch works
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
        """What the last run has reported of its source, by now."""
        return [progress.sources[0] for progress in self._ended.recentProgress]

    def drain(self) -> Seen:
        """Run until nothing is left that was ready at the start; the batches."""
        self.seen.clear()
        self.names.clear()
        running = self.start()
        running.awaitTermination()
        self._ended = running
        return list(self.seen)


def fill(spool: Spool, queue: str, count: int, size: int = 10) -> list[str]:
    """Ready messages; their ids in order."""
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
    # Progress says what it is about, and what is left behind the first batch.
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
    # Who reads figures reads numbers: where nothing waits nothing is old.
    [last] = fill(spool, "jobs", 1)
    assert query.drain() == [[last]]
    assert query.sources[0].metrics == {"messagesBehind": "0", "bytesBehind": "0"}
    # The process beside the driver ends in its own time.
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


def test_a_batch_that_failed_is_given_again_and_not_before_acknowledged(
    spark: SparkSession, spool: Spool
) -> None:
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


def test_one_row_that_always_fails_is_buried_alone(spark: SparkSession, spool: Spool) -> None:
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


def test_what_others_had_after_its_timer_is_left_out(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 4)
    query = Query(spark, spool)
    query.options["visibilityTimeout"] = 1

    def fail() -> None:
        raise RuntimeError("the sink says no")

    query.within = fail
    with pytest.raises(Exception, match="the sink says no"):
        query.drain()
    # Abandoned claims go back by their timers, and are anyone's then; some may have been renewed
    # once more than the others.
    [other] = spool.queue("jobs").claim(wait=PATIENCE_S)
    spool.queue("jobs").remove(other.id)
    query.within = lambda: None
    assert query.drain() == [[message_id for message_id in ids if message_id != other.id]]
    assert visible(spool.tree.root) == []


def test_claims_are_renewed_while_a_batch_works(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 3)
    query = Query(spark, spool)
    # A third of it may pass while a busy machine has no time for a renewal that is due.
    query.options["visibilityTimeout"] = 9

    def deadline() -> float:
        """The first of those of the claims."""
        return min(path.stat().st_mtime for path in (spool.tree.root / "delay").iterdir())

    def work() -> None:
        began = deadline()
        for renewal in (1, 2):
            eventually(lambda least=began + 2 * renewal: deadline() > least)
        assert spool.queue("jobs").claim() == []

    query.within = work
    assert query.drain() == [ids]
    assert visible(spool.tree.root) == []


def test_what_comes_meanwhile_does_not_keep_a_drain_from_ending(
    spark: SparkSession, spool: Spool
) -> None:
    ids = fill(spool, "jobs", 6)
    query = Query(spark, spool)
    query.options["maxMessagesPerBatch"] = 2
    query.within = lambda: fill(spool, "jobs", 2)
    assert query.drain() == [ids[:2], ids[2:4], ids[4:]]
    assert spool.queue("jobs").counts().ready == 6


def test_queries_of_two_names_share_a_queue(spark: SparkSession, spool: Spool) -> None:
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


def test_a_checkpoint_that_is_lost_loses_no_message(spark: SparkSession, spool: Spool) -> None:
    ids = fill(spool, "jobs", 3)
    with Consumer(spool, "spark") as consumer:
        assert consumer.claim("another checkpoint's", 41, ["jobs"], 2) is not None
    query = Query(spark, spool)
    assert query.drain() == [ids[:2], ids[2:]]
    assert visible(spool.tree.root) == []


def _reader(spool: Spool, schema: str = "id string", **options: object) -> Any:
    from pyspark.sql.types import StructType, _parse_datatype_string

    from fsmq.pipeline.datasource import FsmqDataSource

    kind = _parse_datatype_string(schema)
    assert isinstance(kind, StructType)
    given = {"root": spool.tree.root, "queue": "jobs", "consumer": "spark", **options}
    return FsmqDataSource({k: str(v) for k, v in given.items() if v}).streamReader(kind)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"consumer": ""}, r'option consumer: is missing: .option\("consumer", "billing"\)'),
        ({"consumer": "../x"}, r"option consumer: '\.\./x' is not a"),
        ({"queue": ""}, "option queue: is missing"),
        (
            {"maxMessagesPerBatch": "none"},
            "option maxMessagesPerBatch: 'none' is not a whole number",
        ),
        ({"visibilityTimeout": 0.5}, "option visibilityTimeout: 0.5 is not a number of at least 1"),
        ({"schema": "weight int"}, "schema: unknown column 'weight'"),
        (
            {"maxMessages": 5},
            "option maxmessages: unknown option; did you mean maxMessagesPerBatch",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(
    spark: SparkSession, spool: Spool, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        _reader(spool, **options)


def test_a_queue_that_is_deleted_fails_the_stream_or_is_waited_for(
    spark: SparkSession, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    def take(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
        """One turn, as Spark asks for it; a new offset if there was something to claim."""
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


def test_a_consumer_that_is_at_work_is_named(
    spark: SparkSession, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.pipeline.read.stream._PATIENCE_S", 0.1)
    with pytest.raises(NoSuchQueue, match="jobs"):
        _reader(spool).prepareForTriggerAvailableNow()
    spool.create_queue("jobs")
    with Consumer(spool, "spark"), pytest.raises(FsmqError, match="works as the consumer 'spark'"):
        _reader(spool).prepareForTriggerAvailableNow()
