"""The jobs load and replay: rows of files and archives become messages, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fsmq.pipeline.jobs.load import format_of, load
from fsmq.pipeline.jobs.replay import Wish, replay
from fsmq.pipeline.jobs.sending import Plan, name_of
from fsmq.spool import InvalidValue, NewMessage, Spool
from tests.pipeline.spools import bodies, every_kind


def source_of(form: str, folder: Path, spark: SparkSession) -> tuple[Path, dict[str, str]]:
    """A source with the texts one and two, and its mapping of columns."""
    if form == "text":
        (folder / "in.txt").write_text("one\ntwo\n")
        return folder / "in.txt", {}
    if form == "json":
        (folder / "in.jsonl").write_text('{"payload": "one", "n": 1}\n{"payload": "two", "n": 2}\n')
        return folder / "in.jsonl", {"body": "payload", "priority": "cast(n as int)"}
    if form == "csv":
        (folder / "in.csv").write_text('body,priority,ttl\none,3,60\n"two",,\n')
        return folder / "in.csv", {}
    if form == "parquet":
        spark.createDataFrame([("one",), ("two",)], "text string").write.parquet(
            str(folder / "in.parquet")
        )
        return folder / "in.parquet", {"body": "text", "content_type": "'a/b'"}
    (folder / "in" / "deeper").mkdir(parents=True)
    (folder / "in" / "1.bin").write_bytes(b"one")
    (folder / "in" / "deeper" / "2.bin").write_bytes(b"two")
    return folder / "in", {}


@pytest.mark.parametrize("form", ["text", "json", "csv", "parquet", "files"])
def test_a_source_is_loaded_once(
    spark: SparkSession, jobs_root: Path, tmp_path: Path, form: str
) -> None:
    source, columns = source_of(form, tmp_path, spark)
    assert form == "files" or format_of(str(source)) == form
    plan = Plan(str(jobs_root), name_of("load", str(source)), "jobs")
    looked = load(spark, plan, str(source), form, columns, dry_run=True)
    assert (looked["would_put"], looked["done_before"]) == (2, False)
    assert load(spark, plan, str(source), form, columns)["messages"] == 2
    assert load(spark, plan, str(source), form, columns)["done_before"]
    with Spool(jobs_root, sync="none") as spool:
        found = {m.body: m for m in spool.queue("jobs").claim(9)}
    assert sorted(found) == [b"one", b"two"]
    one = found[b"one"]
    expected = {"csv": one.priority == 3 and one.expires_at, "json": one.priority == 1}
    expected |= {"parquet": one.content_type == "a/b", "files": one.attributes == {"file": "1.bin"}}
    assert expected.get(form, True)


def test_rejected_rows_are_corrected_and_loaded(
    spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    rows = [(b"\xff\x00", 1), (b"fine", 1), (b"text", 100)]
    spark.createDataFrame(rows, "body binary, priority int").write.parquet(str(tmp_path / "in"))
    plan = Plan(str(jobs_root), "first", "jobs", rejected_rows=str(tmp_path / "bad"))
    columns = {"priority": "if(body = x'ff00', 200, priority)"}
    done = load(spark, plan, str(tmp_path / "in"), "parquet", columns)
    assert (done["messages"], done["rejected_rows"]) == (1, 2)
    mended = {"priority": "7"}
    again = load(
        spark,
        Plan(str(jobs_root), "second", "jobs"),
        str(tmp_path / "bad" / "first-0.jsonl"),
        "json",
        mended,
    )
    assert again["messages"] == 2
    assert bodies(jobs_root) == [b"fine", b"text", b"\xff\x00"]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({}, "column body: is missing; the source has: n, payload"),
        ({"boddy": "payload"}, "column boddy: unknown column; expected one of"),
        ({"body": "n"}, "column body: is bigint; expected binary or string"),
    ],
)
def test_wrong_columns_are_refused(
    spark: SparkSession, jobs_root: Path, tmp_path: Path, columns: dict[str, str], problem: str
) -> None:
    source, _ = source_of("json", tmp_path, spark)
    with pytest.raises(InvalidValue, match=problem):
        load(spark, Plan(str(jobs_root), "x", "jobs"), str(source), "json", columns)


def test_a_changed_input_is_another_job(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    names = {name_of("load", str(source), *more) for more in ((), (), ("jobs",))}
    source.write_text("one\ntwo\n")
    assert len(names | {name_of("load", str(source))}) == 3
    with pytest.raises(InvalidValue, match="does not exist"):
        name_of("load", str(tmp_path / "none"))
    with pytest.raises(InvalidValue, match="give --format"):
        format_of(str(tmp_path / "in.dat"))


def archived(spark: SparkSession, root: Path, to: Path) -> str:
    reading = spark.read.format("fsmq").option("root", str(root)).option("queue", "*")
    reading.load().where("state != 'removed'").write.partitionBy("queue").parquet(str(to))
    return str(to)


def facts(root: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The facts of every message by queue and id, also of delayed ones."""
    found = {}
    with Spool(root, sync="none") as spool:
        spool.deliver()
        for queue in spool.queues():
            for state in ("new", "ready", "delay"):  # own ids stay in new/ for a second
                for m in spool.queue(queue).peek(1000, state=state):
                    more = (m.priority, m.expires_at, m.content_type, dict(m.attributes))
                    found[queue, m.id] = (m.body, *more)
    return found


def test_messages_of_every_state_are_replayed(spark: SparkSession, tmp_path: Path) -> None:
    before = every_kind(tmp_path / "before")
    wanted = facts(before)
    archive = archived(spark, before, tmp_path / "archive")
    root = tmp_path / "after"
    with Spool(root, sync="none") as spool:
        for queue in {queue for queue, _ in wanted}:
            spool.create_queue(queue)
    plan = Plan(str(root), "back", rejected_rows=str(tmp_path / "bad"))
    done = replay(spark, plan, archive, Wish())
    assert done["rejected_rows"] == 1  # its queue does not exist
    assert done["messages"] == len(wanted) > 100
    assert facts(root) == wanted
    assert replay(spark, plan, archive, Wish())["done_before"]


def test_a_replay_selects_delays_and_redirects(
    spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    with Spool(jobs_root, sync="none") as spool:
        for queue in ("jobs", "jobs:night", "0017"):
            spool.queue(queue, create=True).put_many(
                NewMessage(f"{queue} {n}".encode(), priority=n) for n in range(3)
            )
    archive = archived(spark, jobs_root, tmp_path / "archive")
    with Spool(jobs_root, sync="none") as spool:
        spool.create_queue("to")
    wish = Wish("jobs*, 0017", where="priority < 2", to="to", renew=True, rate=0.01)
    plan = Plan(str(jobs_root), "replay", "to")
    looked = replay(spark, plan, archive, wish, dry_run=True)
    assert (looked["would_put"], looked["expired"]) == (6, 0)
    assert replay(spark, plan, archive, wish)["messages"] == 6
    with Spool(jobs_root, sync="none") as spool:
        spool.deliver()
        counts = spool.queue("to").counts()
        # One message in 100 seconds: only the first is ready.
        assert (counts.ready, counts.delayed) == (1, 5)
    none = Wish("nothing", since="2030-01-01")
    assert replay(spark, plan._replace(job="x"), archive, none)["messages"] == 0
    with pytest.raises(InvalidValue, match="over a year"):
        replay(spark, plan._replace(job="y"), archive, Wish(rate=1e-7))


def test_a_folder_that_is_not_an_archive_is_refused(
    spark: SparkSession, jobs_root: Path, tmp_path: Path
) -> None:
    spark.range(1).write.parquet(str(tmp_path / "other"))
    with pytest.raises(InvalidValue, match="has no column body: is it an archive"):
        replay(spark, Plan(str(jobs_root), "x"), str(tmp_path / "other"), Wish())
    assert json.dumps(Wish())  # the name of a job contains it
