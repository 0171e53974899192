"""A consumer knows its checkpoint: every acknowledged message is in a sink."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fsmq.pipeline.columns import SCHEMA
from fsmq.pipeline.read.stream import reader
from fsmq.spool import InvalidValue, NewMessage, Spool
from fsmq.spool.consumers.batches import forget
from tests.spool.helpers import visible

OTHER = (
    r"consumer 'a': it works with another checkpoint, and .* batch \d+ of it: .*bring it back, or"
)
OLDER = (
    r"consumer 'a': it has committed batch \d+, and this checkpoint ends with batch \d+: .*older"
)
RENAMED = "consumer 'b': this checkpoint is of consumer 'a': use that name again, or take a new"
FORGOTTEN = (
    r"consumer 'a': it does not know this checkpoint, which ends with batch \d+: .*forgotten"
)
ANY = re.sub("'[ab]'", "'[ab]'", "|".join([OTHER, OLDER, RENAMED, FORGOTTEN]))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "mq", sync="none") as opened:
        opened.create_queue("jobs")
        yield opened


def fill(spool: Spool, count: int) -> list[str]:
    ids = spool.queue("jobs").put_many([NewMessage(b"x") for _ in range(count)])
    spool.deliver()
    return ids


class Sinks:
    """Queries into sinks of one kind; each message must be in a sink or in the queue."""

    def __init__(self, spark: SparkSession, spool: Spool, folder: Path, kind: str) -> None:
        self._spark, self._spool, self._folder, self._kind = spark, spool, folder, kind
        self._batches: dict[str, dict[int, list[str]]] = {}
        self._put: list[str] = []

    def put(self, count: int) -> None:
        self._put += fill(self._spool, count)

    def run(self, checkpoint: str, sink: str = "one", consumer: str = "a", **options: str) -> None:
        given = {"root": str(self._spool.tree.root), "queue": "jobs", "consumer": consumer}
        stream = self._spark.readStream.format("fsmq").options(**given, **options).load()
        try:
            (
                self._into(stream.selectExpr("id", "cast(id as binary) body"), sink)
                .option("checkpointLocation", str(self._folder / checkpoint))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )
        finally:
            left = {message_id for queue, message_id in visible(self._spool.tree.root)}
            lost = set(self._put) - left - set(self.rows())
            assert lost == set()

    def refuses(self, problem: str, *given: str, **options: str) -> None:
        with pytest.raises(Exception, match=problem) as caught:
            self.run(*given, **options)
        assert re.search(problem, str(caught.value).partition("\n")[0])

    def _into(self, rows: DataFrame, sink: str) -> Any:
        if self._kind == "parquet":
            return rows.writeStream.format("parquet").option("path", str(self._folder / sink))
        if self._kind == "foreachBatch":
            has = self._batches.setdefault(sink, {})

            def work(batch: DataFrame, number: int) -> None:
                has.setdefault(number, [row.id for row in batch.collect()])

            return rows.writeStream.foreachBatch(work)
        target = {"fsmq": "queue", "fsmq_log": "log"}[self._kind]
        (self._spool.log if target == "log" else self._spool.queue)(sink, create=True)
        writing = rows.select("body").writeStream.format(self._kind)
        return writing.options(**{"root": str(self._spool.tree.root), target: sink, "job": sink})

    def rows(self) -> list[str]:
        """The ids in all sinks."""
        if self._kind == "parquet":
            # Spark cannot read a sink whose first batch is not 0.
            files = self._folder.glob("*/*.parquet")
            return [i for file in files for i in read_table(file)["id"].to_pylist()]
        if self._kind == "foreachBatch":
            return [i for of in self._batches.values() for ids in of.values() for i in ids]
        if self._kind == "fsmq_log":
            return [
                m.body.decode() for log in self._spool.logs() for m in self._spool.log(log).read()
            ]
        self._spool.deliver()
        sinks = set(self._spool.queues()) - {"jobs"}
        return [m.body.decode() for q in sinks for m in self._spool.queue(q).peek(1000)]

    def copy(self, checkpoint: str, target: str) -> None:
        shutil.rmtree(self._folder / target, ignore_errors=True)
        shutil.copytree(self._folder / checkpoint, self._folder / target)


@pytest.mark.parametrize("kind", ["parquet", "foreachBatch", "fsmq", "fsmq_log"])
def test_a_checkpoint_of_another_consumer_is_refused(
    spark: SparkSession, spool: Spool, tmp_path: Path, kind: str
) -> None:
    sinks = Sinks(spark, spool, tmp_path, kind)
    sinks.run("cp")  # an empty batch: every sink has its number from now on
    sinks.put(3)
    sinks.refuses(OTHER, "deleted")
    sinks.run("cp")
    sinks.copy("cp", "older")
    sinks.put(2)
    sinks.run("cp")
    sinks.put(2)
    sinks.refuses(OTHER, "deleted")
    sinks.refuses(OLDER, "older")
    sinks.refuses(RENAMED, "cp", consumer="b")
    sinks.run("cp")  # renamed back
    assert len(sinks.rows()) == 7
    sinks.put(2)
    sinks.run("cp", "other")  # a new sink is always allowed
    sinks.put(2)
    sinks.run("anew", "two", otherCheckpoint="accept")
    sinks.refuses(OTHER, "cp")
    sinks.run("anew", "two")
    forget(spool.context, "a")
    sinks.refuses(FORGOTTEN, "anew", "two")
    sinks.put(2)
    sinks.run("anew", "three", otherCheckpoint="accept")
    assert len(sinks.rows()) == 13
    assert visible(spool.tree.root) == [] or kind == "fsmq"


def test_an_unfinished_batch_is_finished_under_its_own_name(
    spark: SparkSession, spool: Spool, tmp_path: Path
) -> None:
    sinks = Sinks(spark, spool, tmp_path, "foreachBatch")
    sinks.put(3)
    into = sinks._into

    def fail(rows: DataFrame, number: int) -> None:
        raise RuntimeError("the sink says no")

    sinks._into = lambda rows, sink: rows.writeStream.foreachBatch(fail)  # type: ignore[method-assign]
    with pytest.raises(Exception, match="the sink says no"):
        sinks.run("cp")
    sinks._into = into  # type: ignore[method-assign]
    for more in ({}, {"otherCheckpoint": "accept"}):
        sinks.refuses(RENAMED, "cp", consumer="b", **more)
    sinks.refuses(OTHER, "deleted")
    sinks.run("cp")
    assert len(sinks.rows()) == 3


# -- without Spark: its calls in its order, until a kill -------------------------------------------


class Killed(Exception):
    pass


@dataclass
class Checkpoint:
    """sink: rows by batch. commits: the number of batches that are done."""

    sink: dict[int, list[str]] = field(default_factory=dict)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    commits: int = 0

    def copy(self) -> Checkpoint:
        return Checkpoint(self.sink, [*self.offsets], self.commits)

    def deleted(self) -> Checkpoint:
        return Checkpoint(self.sink)


@dataclass
class Driver:
    """One run of a query into a sink that skips known batches, as the file sink of Spark."""

    reader: Any
    checkpoint: Checkpoint
    step: Callable[[], None]

    def run(self) -> None:
        log, reader = self.checkpoint, self.reader
        reader.prepareForTriggerAvailableNow()
        start = log.offsets[log.commits - 1] if log.commits else reader.initialOffset()
        if len(log.offsets) > log.commits:
            start = self._batch(start)
        while True:
            end = reader.latestOffset(start, ReadAllAvailable())
            self.step()
            if end == start and log.offsets:
                return
            log.offsets.append(end)
            self.step()
            if log.commits:
                reader.commit(start)
            start = self._batch(start)

    def _batch(self, start: dict[str, Any]) -> dict[str, Any]:
        number, end = self.checkpoint.commits, self.checkpoint.offsets[-1]
        parts = self.reader.partitions(start, end)
        self.step()
        rows = [i for part in parts for _, ids in part.claims for i in ids]
        self.checkpoint.sink.setdefault(number, rows)
        self.step()
        self.checkpoint.commits += 1
        self.step()
        return end


def _reader(spool: Spool, **options: str) -> Any:
    root = str(spool.tree.root)
    return reader(SCHEMA, {"root": root, "queue": "jobs", "maxMessagesPerBatch": "2", **options})


class World:
    """Two consumers, a and b, and accidents with their checkpoint."""

    def __init__(self, spool: Spool, chance: random.Random) -> None:
        self._spool, self._chance = spool, chance
        self._put: set[str] = set()
        self._used = self._right = Checkpoint()  # the next one, and the last without error
        self._saved = [self._used.copy()]
        self._sinks: list[dict[int, list[str]]] = []
        self.refused = 0

    def change(self) -> dict[str, str]:
        """At most one accident; the options of the next run."""
        chance = self._chance
        if chance.random() < 0.4:
            self._used = self._right  # the right one is found again
        used = self._used
        match chance.randrange(10):
            case 0:
                self._saved.append(used.copy())
            case 1:
                self._saved.append(used.copy())
                self._used = chance.choice(self._saved).copy()
            case 2 if used.offsets and used.offsets[-1]["consumer"] == "a":
                self._used = used.deleted()
            case 3:
                used.sink = {}
            case 4 if used.offsets:  # a new name with a new checkpoint is a new query
                return {"consumer": "b"}
            case 5:
                self._saved.append(used.copy())
                self._used = chance.choice([*self._saved, Checkpoint()]).copy()
                self._used.sink = {}  # with a new sink, as docs/spark.md demands
                return {"consumer": chance.choice("aab"), "otherCheckpoint": "accept"}
            case 6 if chance.random() < 0.3:
                forget(self._spool.context, chance.choice("ab"))
                self._used = Checkpoint()
                self._saved = [self._used.copy()]
        return {"consumer": "a"}

    def run(self, options: dict[str, str]) -> None:
        """Put messages and run a query, which ends, is killed, or is refused."""
        self._put.update(fill(self._spool, self._chance.randrange(4)))
        self._sinks.append(self._used.sink)
        left = self._chance.choice([99, 99, *range(12)])

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        reader = _reader(self._spool, **options)
        try:
            Driver(reader, self._used, step).run()
            self._right = self._used
        except Killed:
            self._right = self._used
        except InvalidValue as error:
            if re.search(ANY, str(error)) is None:
                raise
            self.refused += 1
        finally:
            reader.stop()

    @property
    def lost(self) -> set[str]:
        """Messages that are neither in the spool nor in a sink."""
        rows = {i for sink in self._sinks for ids in sink.values() for i in ids}
        return self._put - rows - {i for _, i in visible(self._spool.tree.root)}


@pytest.mark.parametrize("seed", range(6))
def test_every_acknowledged_message_is_in_a_sink(
    spool: Spool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are deleted, restored and exchanged, consumers renamed, drivers killed."""
    monkeypatch.setattr("fsmq.pipeline.read.stream._EVENTS_PATIENCE_S", 0.0)
    world = World(spool, random.Random(f"{seed}"))
    for _ in range(60):
        world.run(world.change())
        assert world.lost == set()
    assert 0 < world.refused < 50
