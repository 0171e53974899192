"""A driver with four jobs is killed, and each job continues: the short version.

`make soak` has long versions for the stream (`tests.soak.stream_kills`), the writer and commands of
jobs, `make day` for the command ``journal``. Here the four share one driver and one session.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.pipeline.jobs import archive
from fsmq.pipeline.journal import job as journal
from fsmq.pipeline.journal.tables import Tables
from fsmq.spool import InvalidValue, NewMessage, Spool
from fsmq.spool.consumers.batches import overview
from tests.harness.suite import eventually
from tests.pipeline.archives import archived
from tests.pipeline.driver import QUEUE
from tests.pipeline.four_works import COPIER, COPIES, LOG, PER_ARCHIVE_BATCH, PER_COPY, copy_log
from tests.pipeline.journals import life, segment
from tests.soak.stream_kills import Outcome, run
from tests.spool.helpers import visible

# The start of a driver takes long on a busy machine.
pytestmark = pytest.mark.timeout(400)

# More than the archive takes in small batches before the kill.
_POSTED = 3000
_PUBLISHED = 5000
_LONGEST_S = 0.5


@dataclass
class Scenario:
    """The state after the kill.

    posted: ids in the archived queue, in order. copied: the number of messages in the copied log.
    """

    folder: Path
    posted: list[str]
    copied: int
    stream: Outcome


@pytest.fixture(scope="module")
def scenario(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("kills")
    tables, journaled = folder / "tables", folder / "journaled"
    with Spool(folder / "archived", sync="none") as spool:
        jobs = spool.queue(QUEUE, create=True)
        posted = jobs.put_many([NewMessage(b"%d" % n) for n in range(_POSTED)])
        spool.deliver()
    with Spool(folder / "logs", sync="none") as spool:
        spool.log(LOG, create=True).publish_many([b"%d" % n for n in range(_PUBLISHED)])
        spool.log(COPIES, create=True)
    # The driver continues after this batch, which is made while it starts.
    segment(journaled, life(0, QUEUE, "1"))
    begun = journal.start(spark, str(journaled), str(tables))
    moments = _moments(folder)
    stream = run(
        spark,
        folder,
        1,
        8,
        module="tests.pipeline.four_works",
        others=lambda: next(moments, True),
        longest=_LONGEST_S,
    )
    begun.awaitTermination()
    with Spool(folder / "logs", sync="none") as spool:
        copied = spool.log(COPIES).end()
    return Scenario(folder, posted, copied, stream)


def _moments(folder: Path) -> Iterator[bool]:
    """Yields False until all jobs are in the middle of their work."""
    queue, tables = folder / "archived" / "queues" / QUEUE, folder / "tables"
    posted_ns = queue.stat().st_mtime_ns
    while queue.stat().st_mtime_ns == posted_ns:
        yield False
    with pytest.raises(InvalidValue, match="another job writes into"):
        journal.only_one(str(tables)).__enter__()
    segment(folder / "journaled", life(3600, QUEUE, "2"))
    while not (tables / "_checkpoint" / "offsets" / "1").exists():
        yield False
    while not (folder / "copying" / "commits" / "1").exists():
        yield False
    while len(os.listdir(queue)) > _POSTED - 2 * PER_ARCHIVE_BATCH:
        yield False


def test_a_killed_stream_writes_each_message_once(scenario: Scenario) -> None:
    assert scenario.stream.is_right, str(scenario.stream)
    assert scenario.stream.kills == 1


def test_a_killed_archive_has_each_message_once(spark: SparkSession, scenario: Scenario) -> None:
    root, folder = scenario.folder / "archived", scenario.folder / "archive"
    acknowledged = set(scenario.posted) - {message_id for _, message_id in visible(root)}
    assert acknowledged <= {row["id"] for row in archived(folder)}
    assert 0 < len(acknowledged) < _POSTED
    done = archive.drain(spark, str(root), [QUEUE], str(folder), messages=_POSTED)
    # After a kill between a claim and its note, only the timer releases the claim.
    left = [message_id for _, message_id in visible(root)]
    assert done["hidden"] == len(left) <= PER_ARCHIVE_BATCH
    with Spool(root, sync="none") as spool:
        if left:
            for message_id in left:
                spool.queue(QUEUE).release(message_id)
            archive.drain(spark, str(root), [QUEUE], str(folder), messages=_POSTED)
        assert visible(root) == []
        found = archived(folder)
        assert Counter(row["id"] for row in found) == Counter(scenario.posted)
        assert {row["id"]: int(row["body"]) for row in found} == {
            message_id: number for number, message_id in enumerate(scenario.posted)
        }
        eventually(lambda: [c.messages for c in overview(spool.context).values()] == [0])


def test_a_killed_journal_job_counts_each_step_once(
    spark: SparkSession, scenario: Scenario
) -> None:
    tables = Tables(spark, str(scenario.folder / "tables"))
    journaled = str(scenario.folder / "journaled")
    journal.start(spark, journaled, str(scenario.folder / "tables")).awaitTermination()
    assert tables.progress().batch == 1
    read = tables.read()
    assert read["events"].count() == 10
    assert sorted(row["id"] for row in read["messages"].collect()) == ["1", "2"]
    assert sum(row["removed"] for row in read["minutes"].collect()) == 2


def test_a_killed_copy_of_a_log_is_complete_and_in_order(
    spark: SparkSession, scenario: Scenario
) -> None:
    assert 0 < scenario.copied < _PUBLISHED
    assert scenario.copied % PER_COPY == 0, "a batch is published whole, or not at all"
    # The interrupted batch is repeated unchanged; the next ones are larger.
    copy_log(spark, scenario.folder, _PUBLISHED, availableNow=True).awaitTermination()
    with Spool(scenario.folder / "logs", sync="none") as spool:
        copies = [int(message.body) for message in spool.log(COPIES).read()]
        reached = spool.log(LOG).channel(COPIER).state().position
    assert copies == list(range(_PUBLISHED))
    assert reached == _PUBLISHED
