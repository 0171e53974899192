"""The job ``journal``: from segments to tables, with late steps, restarts and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fsmq.pipeline.journal import job as journal
from fsmq.pipeline.journal.tables import Progress, Tables
from fsmq.spool import InvalidValue
from tests.harness.suite import eventually
from tests.pipeline.journals import BEGIN_MS, life, segment, step
from tests.pipeline.processes import PATIENCE_S


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def run(spark: SparkSession, root: Path, folder: Path, **more: Any) -> list[Progress]:
    """Run the job once; the progress after each batch."""
    reports: list[Progress] = []
    query = journal.start(spark, str(root), str(folder), report=reports.append, **more)
    query.awaitTermination()
    return reports


def rows(table: DataFrame, *columns: str) -> list[dict[str, Any]]:
    """A table as dictionaries, in the order of its first two columns; times in seconds."""
    found = []
    for row in table.orderBy(*table.columns[:2]).collect():
        values = row.asDict()
        for name, value in values.items():
            if hasattr(value, "timestamp"):
                values[name] = round(value.timestamp() - BEGIN_MS / 1000, 3)
        found.append({name: values[name] for name in columns} if columns else values)
    return found


class Crash(Exception):
    """The process is gone."""


def test_a_message_has_one_row(
    spark: SparkSession, root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = [
        step(10, "accepted", "jobs", "hard", size=50),
        step(10.5, "deferred", "jobs", "hard"),
        step(20, "delivered", "jobs", "hard"),
        step(25, "claimed", "jobs", "hard", deliveries=1),
        step(27, "renewed", "jobs", "hard"),
        step(55, "redelivered", "jobs", "hard", deliveries=1),
        step(60, "claimed", "jobs", "hard", deliveries=2),
        step(61, "released", "jobs", "hard"),
        step(62, "claimed", "jobs", "hard", deliveries=3),
        step(92, "buried", "jobs", "hard", deliveries=3, to="dead"),
    ]
    # The clock of the second host is a second behind: it removes before the acceptance.
    segment(root, [*hard, *life(0, "jobs", "plain"), step(30, "accepted", "jobs", "swift")])
    segment(
        root,
        [
            step(29.1, "claimed", "jobs", "swift", deliveries=1),
            step(29.2, "removed", "jobs", "swift"),
            step(29.3, "reaped", "jobs", "swift"),
            step(100, "accepted", "jobs", "purged"),
            step(101, "reaped", "jobs", "purged"),
            step(102, "accepted", "old", "travels"),
            step(103, "moved", "new", "other", from_="old", was="travels"),
            step(104, "reaped", "old", "unknown"),
        ],
        host="b",
    )
    # The process dies after the commit, before Spark knows it: the next run repeats nothing.
    commit = Tables.commit

    def crash(self: Tables, recent: Any, progress: Progress) -> None:
        commit(self, recent, progress)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "commit", crash)
        with pytest.raises(Exception, match="Crash"):
            run(spark, root, folder)
    assert run(spark, root, folder) == []
    progress = Tables(spark, str(folder)).progress()
    assert (progress.batch, progress.events, progress.late) == (0, 24, 0)
    columns = ("queue", "id", "outcome", "attempts", "wait_s", "processing_s", "total_s")
    tables = Tables(spark, str(folder)).read()
    assert [tuple(row.values()) for row in rows(tables["messages"], *columns)] == [
        ("dead", "hard", "open", 0, None, None, None),
        ("jobs", "hard", "buried", 3, 5.0, None, 82.0),
        ("jobs", "plain", "removed", 1, 0.999, 1.0, 2.0),
        ("jobs", "purged", "purged", 0, None, None, 1.0),
        ("jobs", "swift", "removed", 1, 0.0, 0.1, 0.0),
        ("new", "other", "open", 0, None, None, None),
        ("old", "travels", "moved", 0, None, None, 1.0),
    ]
    by_key = {(row["queue"], row["id"]): row for row in rows(tables["messages"])}
    assert by_key["dead", "hard"]["came_from"] == "jobs"
    assert by_key["old", "travels"]["went_to"] == "new"
    hard_row = by_key["jobs", "hard"]
    assert {name: value for name, value in hard_row.items() if value is not None} == {
        "queue": "jobs", "id": "hard", "outcome": "buried", "size": 50, "went_to": "dead",
        "attempts": 3, "redeliveries": 1, "releases": 1, "renewals": 1, "wait_s": 5.0,
        "total_s": 82.0, "began_at": 10.0, "ended_at": 92.0, "accepted_at": 10.0,
        "deferred_at": 10.5, "delivered_at": 20.0, "first_claimed_at": 25.0,
        "last_claimed_at": 62.0, "buried_at": 92.0,
    }  # fmt: skip
    counted = ("queue", "minute", "accepted", "claimed", "repeated", "redelivery_share", "removed")
    assert [tuple(row.values()) for row in rows(tables["minutes"], *counted)] == [
        ("dead", 60.0, 0, 0, 0, None, 0),
        ("jobs", 0.0, 3, 3, 0, 0.0, 2),
        ("jobs", 60.0, 1, 2, 2, 1.0, 0),
        ("new", 60.0, 0, 0, 0, None, 0),
        ("old", 60.0, 1, 0, 0, None, 0),
    ]
    found = {(row["queue"], row["minute"]): row for row in rows(tables["minutes"])}
    assert (found["jobs", 0.0]["depth"], found["jobs", 0.0]["oldest_age_s"]) == (1, 50.0)
    assert (found["jobs", 60.0]["depth"], found["jobs", 60.0]["buried"]) == (0, 1)
    assert found["jobs", 60.0]["purged"] == 1
    assert (found["dead", 60.0]["depth"], found["dead", 60.0]["oldest_age_s"]) == (1, 28.0)
    assert [found["jobs", 0.0][f"wait_p{p}_s"] for p in (50, 95, 99)] == [0.999, 4.6, 4.92]


def test_a_run_continues_where_the_last_one_ended(
    spark: SparkSession, root: Path, folder: Path, tmp_path: Path
) -> None:
    place = str(folder)
    begun = [*life(0, "jobs", "1"), *life(30, "jobs", "2")[:2], *life(3600, "jobs", "3")]
    busy = [s for n in range(300) for s in life(60 + n, "busy", f"{n:03}")]
    size = sum(segment(root, steps).stat().st_size for steps in (begun, busy))
    assert journal.look(spark, str(root), place) == {"new_segments": 2, "bytes": size}
    assert not folder.exists()
    # There is an hour between the steps: the first minutes are final after the batch.
    [done] = run(spark, root, folder)
    assert (done.batch, done.events, done.mark_ms) == (0, 1512, BEGIN_MS + 50 * 60_000)
    assert journal.look(spark, str(root), place) == {"new_segments": 0, "bytes": 0}
    # Only open messages and those that ended recently are held.
    held = Tables(spark, place).held(spark, "messages", done.batch)
    assert held is not None
    assert sorted(row["id"] for row in held.collect()) == ["2", "3"]

    # Late steps complete open messages, but begin none.
    late = [*life(30, "jobs", "2")[2:], step(41, "accepted", "jobs", "late")]
    reports: list[Progress] = []
    query = journal.start(spark, str(root), place, every=1, report=reports.append)
    try:  # a segment arrives while it follows
        eventually(lambda: query.status["message"].startswith("Waiting"), PATIENCE_S)
        segment(root, [*late, step(3650, "accepted", "jobs", "4")], host="b")
        eventually(lambda: reports or not query.isActive, PATIENCE_S)
    finally:
        query.stop()
    assert [(p.batch, p.events, p.late) for p in reports] == [(1, 1517, 4)]
    tables = Tables(spark, place).read()
    assert tables["events"].count() == 1517
    jobs = tables["messages"].where("queue = 'jobs'")
    assert [tuple(row.values()) for row in rows(jobs, "id", "outcome")] == [
        ("1", "removed"),
        ("2", "removed"),
        ("3", "removed"),
        ("4", "open"),
    ]
    assert tables["messages"].where("queue = 'busy' and outcome = 'removed'").count() == 300
    shown = ("minute", "accepted", "claimed", "removed", "depth")
    by_minute = tables["minutes"].where("queue = 'jobs'")
    assert [tuple(row.values()) for row in rows(by_minute, *shown)] == [
        (0.0, 2, 1, 1, 1),
        *((60.0 * n, 0, 0, 0, 1) for n in range(1, 50)),  # as known when they became final
        (3600.0, 2, 1, 1, 1),
    ]
    # Other readers of the folders find final messages only.
    final = spark.read.parquet(f"{place}/messages").where("queue = 'jobs'")
    assert [row["id"] for row in final.collect()] == ["1"]
    assert journal.summary(spark, place) == {
        "batches": 2,
        "steps": 1517,
        "late_steps": 4,
        "messages": 304,
        "open": 1,
        "newest_step": "2026-09-21T15:00:50+00:00",
        "final_until": "2026-09-21T14:50:00+00:00",
    }

    other = tmp_path / "other"
    segment(other, life(0, "jobs", "1"))
    with pytest.raises(InvalidValue, match=f"holds the tables of {root}"):
        journal.start(spark, str(other), place)
    (folder / "_checkpoint").rename(folder / "gone")
    with pytest.raises(InvalidValue, match="name another folder"):
        journal.start(spark, str(root), place)


def test_missing_tables_name_the_command_that_writes_them(
    spark: SparkSession, folder: Path
) -> None:
    with pytest.raises(InvalidValue, match="fsmq pipeline journal writes them"):
        Tables(spark, str(folder)).read()
