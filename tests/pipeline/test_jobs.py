"""The commands load, archive, replay and journal: output and results."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from fsmq.cli import main
from fsmq.pipeline.journal.tables import Tables
from fsmq.spool import Spool
from fsmq.spool.records.journal_files import close_abandoned
from tests.harness.suite import eventually

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)

Run = Callable[..., Result]


@pytest.fixture
def spool(root: Path) -> Iterator[Spool]:
    with Spool(root) as opened:
        opened.create_queue("jobs")
        yield opened


@pytest.fixture
def run(spark: SparkSession, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command of a job in the folder of the spool, with the session of the tests."""
    monkeypatch.chdir(spool.tree.root.parent)

    def do(job: str, *arguments: object) -> Result:
        words = [job, *map(str, arguments), f"--root={spool.tree.root.name}", "--json"]
        return CliRunner().invoke(main, ["pipeline", *words])

    return do


def output_of(done: Result) -> dict[str, Any]:
    """The JSON output of a command that succeeded."""
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def bodies(spool: Spool, queue: str) -> list[bytes]:
    spool.deliver()
    return [message.body for message in spool.queue(queue).peek(1000)]


def test_loaded_rows_are_archived_and_replayed(spool: Spool, run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nb\na\n")
    load = ("load", lines, "--queue=jobs")
    assert output_of(run(*load, "--dry-run"))["would_put"] == 3
    assert bodies(spool, "jobs") == []
    assert output_of(run(*load))["messages"] == 3
    assert output_of(run(*load))["done_before"] is True
    assert sorted(bodies(spool, "jobs")) == [b"a", b"a", b"b"]

    archive = tmp_path / "archive"
    assert output_of(run("archive", "jobs", f"--to={archive}"))["messages"] == 3
    assert bodies(spool, "jobs") == []
    assert output_of(run("replay", archive, "--dry-run"))["would_put"] == 3
    assert output_of(run("replay", archive))["messages"] == 3
    assert output_of(run("replay", archive))["done_before"] is True
    assert sorted(bodies(spool, "jobs")) == [b"a", b"a", b"b"]


def test_a_bad_row_fails_the_job_or_is_rejected(spool: Spool, run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "good", "priority": 1}\n{"body": "bad", "priority": 100}\n')
    done = run("load", rows, "--queue=jobs")
    assert done.exit_code == 2
    assert re.search(r"row 1: priority.* 99.*body='bad'", done.stderr)
    assert bodies(spool, "jobs") == []
    aside = tmp_path / "aside"
    assert output_of(run("load", rows, "--queue=jobs", f"--rejected-rows={aside}"))["messages"] == 1
    assert bodies(spool, "jobs") == [b"good"]
    [kept] = [json.loads(line) for file in aside.iterdir() for line in file.open()]
    assert kept["body"] == "bad"


def test_spark_writes_to_the_journal_of_a_spool(
    spark: SparkSession, spool: Spool, run: Run, tmp_path: Path
) -> None:
    with Spool(spool.tree.root, journal=True) as noting:
        noting.queue("jobs").put(b"0")
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nb\nc\nd\n")
    assert output_of(run("load", lines, "--queue=jobs"))["messages"] == 4
    assert output_of(run("archive", "jobs", "--to=archive", "--batch=3"))["messages"] == 5
    # With --no-journal nothing is written.
    spool.create_queue("silent")
    assert output_of(run("load", lines, "--queue=silent", "--no-journal"))["messages"] == 4
    drained = output_of(run("archive", "silent", "--to=silent", "--no-journal"))
    assert drained["messages"] == 4

    def all_is_closed() -> bool:
        """Close segments as the reaper does; processes of Spark end some time later."""
        close_abandoned(spool.tree)
        return not list((spool.tree.root / "journal").glob(".*.jsonl"))

    eventually(all_is_closed)

    # The folder may be relative.
    assert output_of(run("journal", "--to=tables"))["messages"] == 5
    looked = output_of(run("journal", f"--to={tmp_path / 'tables'}", "--dry-run"))
    assert looked["new_segments"] == 0
    rows = Tables(spark, str(tmp_path / "tables")).read()["messages"].collect()
    assert Counter((row.queue, row.outcome, row.attempts) for row in rows) == {
        ("jobs", "removed", 1): 5
    }
    for row in rows:
        assert row.accepted_at is not None
        assert row.wait_s >= 0
        assert row.processing_s >= 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("archive", "none", "--to=a"), 3, "there is no queue named 'none'"),
        (("archive", "two words", "--to=a"), 2, "'two words' is not a queue name"),
        (("archive", "jobs", "--to=file"), 2, "file can be no folder: File exists"),
        (("archive", "jobs", "--to=a", "--consumer=_x"), 2, "consumer: '_x' is not"),
        (("replay", "file"), 2, "Could not read footer"),
    ],
)
def test_errors_are_one_line(
    spool: Spool, run: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "file").write_text("no Parquet")
    done = run(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") <= 2
    assert not (tmp_path / "a").exists()
