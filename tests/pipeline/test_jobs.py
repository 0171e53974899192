"""The commands load and replay: what they say, and what is in the queues then."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from fsmq.cli import main
from fsmq.pipeline.journal.tables import Tables
from fsmq.spool import Spool
from fsmq.spool.records.journal_files import close_abandoned
from tests.harness.suite import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """A job's command, in the session of the tests; beside the spool, as people type it."""
    monkeypatch.chdir(spool.tree.root.parent)

    def do(job: str, *arguments: object) -> Result:
        words = [job, *map(str, arguments), f"--root={spool.tree.root.name}", "--json"]
        return CliRunner().invoke(main, ["pipeline", *words])

    return do


def told(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def bodies(spool: Spool, queue: str) -> list[bytes]:
    spool.deliver()
    return [message.body for message in spool.queue(queue).peek(1000)]


def test_what_is_loaded_can_be_archived_and_replayed(
    spool: Spool, run: Run, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nb\na\n")
    load = ("load", lines, "--queue=jobs")
    assert told(run(*load, "--dry-run"))["would_put"] == 3
    assert bodies(spool, "jobs") == []
    assert told(run(*load))["messages"] == 3
    assert told(run(*load))["done_before"] is True
    assert sorted(bodies(spool, "jobs")) == [b"a", b"a", b"b"]

    archive = tmp_path / "archive"
    assert told(run("archive", "jobs", f"--to={archive}"))["messages"] == 3
    assert bodies(spool, "jobs") == []
    assert told(run("replay", archive, "--dry-run"))["would_put"] == 3
    assert told(run("replay", archive))["messages"] == 3
    assert told(run("replay", archive))["done_before"] is True
    assert sorted(bodies(spool, "jobs")) == [b"a", b"a", b"b"]


def test_a_bad_row_fails_the_job_by_name_or_goes_aside(
    spool: Spool, run: Run, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"body": "good", "priority": 1}\n{"body": "bad", "priority": 100}\n')
    done = run("load", rows, "--queue=jobs")
    assert done.exit_code == 2
    assert re.search(r"row 1: priority.* 99.*body='bad'", done.stderr)
    assert bodies(spool, "jobs") == []
    aside = tmp_path / "aside"
    assert told(run("load", rows, "--queue=jobs", f"--rejected-rows={aside}"))["messages"] == 1
    assert bodies(spool, "jobs") == [b"good"]
    [kept] = [json.loads(line) for file in aside.iterdir() for line in file.open()]
    assert kept["body"] == "bad"


def test_the_journal_has_what_spark_did_where_other_programs_note_their_steps(
    spark: SparkSession, spool: Spool, run: Run, tmp_path: Path
) -> None:
    with Spool(spool.tree.root, journal=True) as noting:
        noting.queue("jobs").put(b"0")
    lines = tmp_path / "lines.txt"
    lines.write_text("a\nb\nc\nd\n")
    assert told(run("load", lines, "--queue=jobs"))["messages"] == 4
    assert told(run("archive", "jobs", "--to=archive", "--batch=3"))["messages"] == 5
    # Nobody is told to, and nothing of it is noted.
    spool.create_queue("silent")
    assert told(run("load", lines, "--queue=silent", "--no-journal"))["messages"] == 4
    drained = told(run("archive", "silent", "--to=silent", "--no-journal"))
    assert drained["messages"] == 4

    def all_is_closed() -> bool:
        """As the reaper sees to it when a process has ended; those beside the driver take time."""
        close_abandoned(spool.tree)
        return not list((spool.tree.root / "journal").glob(".*.jsonl"))

    eventually(all_is_closed)

    # The job's folder can be named from where one stands.
    assert told(run("journal", "--to=tables"))["messages"] == 5
    assert told(run("journal", f"--to={tmp_path / 'tables'}", "--dry-run"))["new_segments"] == 0
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
def test_what_is_wrong_is_said_in_one_line(
    spool: Spool, run: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "file").write_text("no Parquet")
    done = run(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") <= 2
    assert not (tmp_path / "a").exists()
