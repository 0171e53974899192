"""Archives: every message of a queue in Parquet, once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from fsmq.cli import main
from fsmq.pipeline.jobs import archive
from fsmq.spool import InvalidValue, Message, NewMessage, Spool, State
from fsmq.spool.views.browse import ids
from tests.pipeline import spools
from tests.pipeline.archives import archived
from tests.spool.helpers import visible


def is_same(row: Any, message: Message) -> bool:
    return (bytes(row.body), row.content_type, row.attributes, row.priority) == (
        message.body,
        message.content_type,
        message.attributes,
        message.priority,
    ) and _times(row) == (message.created_at, message.expires_at)


def _times(row: Any) -> tuple[float | None, float | None]:
    created, expires = (
        None if t is None else t.timestamp() for t in (row.created_at, row.expires_at)
    )
    return created, expires


def archive_jobs(spool: Spool, folder: Path, *options: str) -> Result:
    """Run the command on the queue ``jobs``."""
    words = ["archive", "jobs", f"--root={spool.tree.root}", f"--to={folder}", "--json"]
    return CliRunner().invoke(main, ["pipeline", *words, *options])


def test_an_archive_keeps_all_facts_of_a_message(spark: SparkSession, tmp_path: Path) -> None:
    root = spools.every_kind(tmp_path / "mq")
    folder = tmp_path / "archive"
    with Spool(root, sync="none") as spool:
        spool.deliver()
        ready = {
            (queue, message_id): message
            for queue in spools.QUEUES
            for message_id, message in spools.messages(spool, queue).items()
            if message.state == "ready" and message_id.isascii()
        }
        hidden = sum(len(list(ids(spool.context, queue, State.DELAY))) for queue in spools.QUEUES)
        assert archive.look(str(root), ["jobs*", "mail@*"])["hidden"] == hidden
        done = archive.drain(spark, str(root), ["jobs*", "mail@*"], str(folder), messages=40)
        rows = archive.read(spark, str(folder)).collect()
        assert done["messages"] == len(rows) >= len(ready) > 40
        assert done["batches"] > 1
        found = {(row.queue, row.id): row for row in rows}
        assert len(found) == len(rows)
        far = [key for key in ready if key[1].startswith("ffffffff")]
        for key in ready.keys() - far:
            if not key[1].endswith(".xffffffffff"):  # which expires after the year 9999
                assert is_same(found[key], ready[key]), key
        assert bytes(found[far[0]].body) == b"far off"
        # Only hidden messages and those of other queues are left.
        left = [key for key in visible(root) if key[0] in spools.QUEUES]
        assert len(left) == hidden
        again = archive.drain(spark, str(root), ["jobs"], str(folder))
        assert (again["messages"], again["batches"]) == (0, 0)
        assert again["hidden"] == archive.look(str(root), ["jobs"])["hidden"] > 0
    with pytest.raises(InvalidValue, match="queue"):
        archive.look(str(root), ["two words"])


def test_a_copy_adds_what_is_missing_and_acknowledges_nothing(
    spark: SparkSession, spool: Spool, tmp_path: Path
) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.put_many([NewMessage(b"%d" % n) for n in range(20)])
    jobs.put(b"later", delay=600)
    spool.deliver()
    jobs.claim(2)
    folder, root = tmp_path / "archive", str(spool.tree.root)
    before = visible(spool.tree.root)
    assert archive.copy(spark, root, ["jobs"], str(folder))["messages"] == 21
    # A folder that a killed copy left: readers skip it and the next copy removes it.
    (folder / ".spark-staging-1" / "queue=jobs").mkdir(parents=True)
    jobs.put(b"new")
    assert archive.copy(spark, root, ["jobs"], str(folder))["messages"] == 1
    assert archive.copy(spark, root, ["jobs"], str(folder))["messages"] == 0
    found = archived(folder)
    assert Counter(row["id"] for row in found) == Counter(i for _, i in visible(spool.tree.root))
    assert set(before) <= set(visible(spool.tree.root))
    assert [path.name for path in folder.iterdir()] == ["queue=jobs"]


def test_a_message_beyond_max_body_bytes_fails_the_command(
    spark: SparkSession, spool: Spool, tmp_path: Path
) -> None:
    jobs = spool.queue("jobs", create=True)
    posted = jobs.put_many([b"small", b"a large one"])
    spool.deliver()

    folder = tmp_path / "archive"
    refused = archive_jobs(spool, folder, "--max-body-bytes=10")
    assert refused.exit_code == 2
    assert "has 11 bytes, and no more than 10 are read" in refused.stderr
    assert "--max-body-bytes" in refused.stderr
    assert len(visible(spool.tree.root)) == 2
    done = archive_jobs(spool, folder, "--max-body-bytes=11")
    assert (done.exit_code, json.loads(done.stdout)["messages"]) == (0, 2)
    assert sorted(row["id"] for row in archived(folder)) == sorted(posted)
    assert visible(spool.tree.root) == []


def test_a_dry_run_reports_and_changes_nothing(
    spark: SparkSession, spool: Spool, tmp_path: Path
) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.put_many([b"1", b"2", b"3"])
    spool.deliver()
    jobs.claim()

    def run(*options: str) -> Any:
        done = archive_jobs(spool, tmp_path / "archive", *options)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    would = run("--dry-run")
    assert (would["messages"], would["hidden"]) == (2, 1)
    assert not (tmp_path / "archive").exists()
    assert run()["messages"] == 2
    assert jobs.counts().total == 1
