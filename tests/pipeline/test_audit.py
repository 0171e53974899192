"""The job audit finds what fsck finds: on every damage that fsck's own tests make, and in Spark."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from fsmq.spool import InvalidValue, Spool
from fsmq.spool.fsck import Finding, Links, check, links_of
from tests.pipeline.spools import every_kind, other_files
from tests.test_fsck import REPAIRED, REPORTED, Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAMAGES = REPAIRED | REPORTED


def _told(findings: list[Finding]) -> list[tuple[Any, ...]]:
    """Findings to be compared; of those that are told as one the example may be another."""
    return sorted(
        (f["kind"], f["severity"], f["path"] if f["count"] == 1 else "", f["count"])
        for f in (finding.as_dict() for finding in findings)
    )


def _by_tasks(root: Path) -> list[tuple[Any, ...]]:
    """What the tasks of an audit find, run one after the other in this process."""
    from fsmq.pipeline.jobs.audit import Plan, RangeShare, _checked, _rows
    from fsmq.pipeline.read.listing import Range

    edges = [Range().low, ("jobs", "a"), ("jobs", "b"), Range().high]
    plan = Plan(str(root), offline=True, bodies=True)
    outcomes = [_checked(plan, RangeShare(Range(*ends))) for ends in pairwise(edges)]
    links = Links(100)
    for outcome in outcomes:
        for link in outcome.links:
            links.add(*link)
    rows = [row for outcome in outcomes for row in outcome.findings]
    rows += _rows(links_of(root, links, offline=True))
    grouped: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for group, kind, *rest in rows:
        grouped[group, kind].append(rest)
    return sorted(
        (kind, some[0][0], some[0][1] if len(some) == 1 else "", sum(row[4] for row in some))
        for (_, kind), some in grouped.items()
    )


@pytest.mark.parametrize("case", DAMAGES.values(), ids=DAMAGES.keys())
def test_tasks_find_what_fsck_finds(tmp_path: Path, case: Case) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none", delivers=False) as spool:
        spool.queue("jobs", create=True).put_many([b"1", b"2"])
    case.make(root)
    expected = _told(check(root, offline=True, bodies=True).findings)
    assert expected
    assert _by_tasks(root) == expected


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    root = every_kind(tmp_path / "mq")
    other_files(root)
    with Spool(root, sync="none", delivers=False) as spool:
        spool.queue("more", create=True).put_many([b"x"] * 500)
    for number in range(5):
        (root / "new" / f"nobodys:{number}").write_bytes(b"")
    os.link(root / "queues/jobs/report-17", root / "new/jobs:report-17")
    os.link(root / "queues/jobs/notes.h", root / "queues/jobs:night/notes.h")
    (root / "config" / "gone.json").write_text("{}")
    return root


@pytest.fixture
def run(spark: SparkSession) -> Any:
    """The command, in the session of the tests."""

    def do(*arguments: object) -> Result:
        from fsmq.cli import main

        return CliRunner().invoke(main, ["pipeline", "audit", *map(str, arguments)])

    return do


def test_the_audit_of_a_damaged_tree_says_what_fsck_says(
    damaged: Path, tmp_path: Path, run: Any, spark: SparkSession
) -> None:
    expected = check(damaged, offline=True, bodies=True)
    table = tmp_path / "table"
    done = run("--root", damaged, "--offline", "--bodies", "--json", "--to", table)
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["messages"] == expected.messages
    assert (found["removed"], found["staged"]) == (expected.removed, expected.staged)
    assert found["queues"] == len(expected.queues)
    assert found["clean"] is expected.clean is False
    rows = [row.asDict() for row in spark.read.parquet(str(table)).collect()]
    assert sorted(rows, key=str) == sorted(found["findings"], key=str)
    assert sorted(
        (r["kind"], r["severity"], r["path"] if r["count"] == 1 else "", r["count"]) for r in rows
    ) == _told(expected.findings)


def test_the_table_as_csv_and_the_summary_for_people(
    damaged: Path, tmp_path: Path, run: Any
) -> None:
    table = tmp_path / "table"
    for _ in range(2):  # a second run replaces what the first one wrote
        done = run("--root", damaged, "--offline", "--to", table, "--format", "csv")
        assert done.exit_code == 1, done.output
    assert "unknown-queue: new/nobodys:" in done.stdout
    assert "and 4 more" in done.stdout
    rows = [
        row for part in table.glob("part-*") for row in csv.DictReader(part.read_text().split("\n"))
    ]
    assert {"two-names", "linked", "stray", "settings-without-queue"} <= {r["kind"] for r in rows}


def test_a_clean_tree_a_dry_run_and_a_folder_of_someone_else(tmp_path: Path, run: Any) -> None:
    with Spool(tmp_path / "mq", sync="none") as spool:
        spool.queue("jobs", create=True).put_many([b"1", b"2"])
    done = run("--root", tmp_path / "mq")
    assert done.exit_code == 0, done.output
    assert "messages   2" in done.stdout
    table = tmp_path / "home"
    done = run("--root", tmp_path / "mq", "--dry-run", "--to", table)
    assert done.exit_code == 0, done.output
    assert not table.exists()
    table.mkdir()
    (table / "letters").touch()
    done = run("--root", tmp_path / "mq", "--to", table)
    assert done.exit_code == 2
    assert "holds 'letters', which is not part of a table" in done.stderr
    assert (table / "letters").exists()


def test_a_place_that_cannot_be_a_table_is_refused(tmp_path: Path) -> None:
    from fsmq.pipeline.jobs.audit import check_place

    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match="is not a folder"):
        check_place(str(tmp_path / "file"))
    check_place(str(tmp_path / "new"))
    check_place("s3a://bucket/table")
