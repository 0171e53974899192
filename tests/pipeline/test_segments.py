"""The journal as a source: each segment is taken once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.pipeline.columns import named, shown
from fsmq.pipeline.journal.segments import JournalSource, Offset, _read, advance, listing
from fsmq.spool import InvalidValue
from tests.pipeline.journals import BEGIN_MS, segment, show, step

# Spark's start and the first batch take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000


def take(root: Path, start: Offset, now_ms: int, max_bytes: int | None = None) -> Offset:
    """Advance by one micro-batch; the offset must survive serialization."""
    after = advance(start, listing(str(root)), max_bytes, now_ms)
    assert Offset.of(after.as_dict()) == after
    return after


def taken(root: Path, start: Offset, end: Offset) -> list[str]:
    return [s.name for s in listing(str(root)).segments if end.has(s) and not start.has(s)]


def test_each_segment_is_taken_once_even_if_closed_late(root: Path) -> None:
    first = segment(root, [step(0, "accepted", "jobs", "1")])
    slow = segment(root, [step(1, "accepted", "jobs", "2")], host="b", shown=False)
    second = segment(root, [step(2, "accepted", "jobs", "3")])
    now = BEGIN_MS + 3000
    one = take(root, Offset(), now)
    assert taken(root, Offset(), one) == [first.name, second.name]
    assert take(root, one, now) == one
    # A day later the segment of a dead writer is closed.
    new = segment(root, [step(86_400, "accepted", "jobs", "4")])
    later = now + 86_400_000
    two = take(root, one, later)
    assert taken(root, one, two) == [new.name]
    show(slow)
    three = take(root, two, later)
    assert taken(root, two, three) == [slow.name[1:]]
    assert taken(root, Offset(), three) == sorted(
        [first.name, slow.name[1:], second.name, new.name]
    )


def test_an_offset_does_not_grow(root: Path) -> None:
    offset = Offset()
    longest = 0
    for hour in range(200):
        for minute in range(3):
            segment(root, [step(hour * 3600 + minute * 20, "accepted", "jobs", "x")])
        offset = take(root, offset, BEGIN_MS + hour * HOUR_MS + 60_000)
        longest = max(longest, len(offset.also))
    assert longest <= 6
    assert len(taken(root, Offset(), offset)) == 600


def test_a_batch_is_limited_in_bytes_but_takes_one_segment(root: Path) -> None:
    segments = [segment(root, [step(n, "accepted", "jobs", "x" * 100)]) for n in range(5)]
    size = segments[0].stat().st_size
    offset, parts = Offset(), []
    for most in (2 * size, 1, 10 * size):
        after = take(root, offset, BEGIN_MS + 10 * HOUR_MS, most)
        parts.append(len(taken(root, offset, after)))
        offset = after
    assert parts == [2, 1, 2]


def test_other_files_are_skipped(root: Path) -> None:
    good = segment(root, [step(0, "accepted", "jobs", "1")])
    (root / "journal" / "notes.txt").write_text("someone's own")
    (root / "journal" / ".nfs0001").write_text("")
    assert [s.name for s in listing(str(root)).segments] == [good.name]


def test_a_folder_that_is_not_a_spool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="is not a spool: it has no journal/"):
        listing(str(tmp_path))


def test_a_journal_is_read_as_a_table(spark: SparkSession, root: Path) -> None:
    lines = [
        step(0, "accepted", "jobs", "1", size=7, new_field={"of": "a later version"}),
        step(1.25, "buried", "jobs", "1", deliveries=3, to="dead"),
        step(2, "moved", "jobs", "1", from_="dead", was="0"),
    ]
    with segment(root, lines).open("a") as file:
        file.write('{"v":1,"at":17\n')  # a broken line
    spark.dataSource.register(JournalSource)
    table = spark.read.format("fsmq_journal").option("root", str(root)).load().orderBy("at")
    rows = [row.asDict() for row in table.collect()]
    assert [row["event"] for row in rows] == ["accepted", "buried", "moved"]
    assert rows[0]["size"] == 7
    assert rows[1]["at"].timestamp() * 1000 == BEGIN_MS + 1250
    assert (rows[1]["to_queue"], rows[1]["deliveries"]) == ("dead", 3)
    assert (rows[2]["from_queue"], rows[2]["from_id"], rows[2]["host"]) == ("dead", "0", "a")


def test_ids_are_encoded_as_in_a_snapshot(tmp_path: Path) -> None:
    ids = ["grüße", os.fsdecode(b"caf\xe9"), "\\xe9", "\U0001f480", 'say "x"\n', "\\", "é\udcff\\n"]
    path = segment(tmp_path, [step(0, "accepted", "jobs", i) for i in ids])
    found = [i for batch in _read(str(tmp_path), [path.name]) for i in batch["id"].to_pylist()]
    assert found == [shown(i) for i in ids]
    assert [named(i) for i in found] == ids
