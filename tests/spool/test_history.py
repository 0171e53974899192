"""The history: its lines, what is read from several hosts, and how old hours are thinned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool.layout.tree import Tree
from fsmq.spool.records.history import Figures, Moment, Recorder, read_history, step_of
from fsmq.spool.records.hour_totals import Happened, HourTotals
from fsmq.spool.records.metrics import Metrics, Snapshot
from fsmq.spool.records.thinning import expire, thin
from tests.spool.helpers import forked

NOON = 1_795_262_400.0  # a full hour
HOUR = 3600.0


@pytest.fixture
def tree(root: Path) -> Tree:
    return Tree(root)


def counted(**counts: int) -> Snapshot:
    metrics = Metrics()
    for event, number in counts.items():
        metrics.count((event, "jobs"), number)
    return metrics.snapshot()


def waiting(
    ready: int, created: float | None = None
) -> dict[str, tuple[tuple[int, int, int, int], float | None]]:
    return {"jobs": ((0, ready, 0, 0), created)}


def history(tree: Tree, since: float, until: float, step: float = 60) -> list[Moment]:
    return read_history(tree, ["jobs"], since, until, step)["jobs"]


def file_of(tree: Tree) -> Path:
    [file] = [path for path in (tree.root / "history").iterdir() if path.name[0] != "."]
    return file


def lines_of(tree: Tree) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file_of(tree).read_text().splitlines()]


def test_a_line_has_the_depths_and_what_happened_since_the_last_one(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    recorder.record(NOON, waiting(3, NOON - 9.5), {"mq": counted(put=5, claim=2)})
    recorder.record(NOON + 60, waiting(4), {"mq": counted(put=8, claim=2, remove=1)})
    # A restarted process counts from 0; all that a new process counted is new.
    new = {"mq": counted(put=1), "mover": counted(redeliver=4, bury=2)}
    recorder.record(NOON + 120, waiting(5), new)
    recorder.record(NOON + 180, {}, new)
    assert file_of(tree).name == "a-20261121T12.jsonl"
    lines = lines_of(tree)
    assert lines[0] == {
        "v": 1,
        "at": int(NOON * 1000),
        "whole": True,
        "queues": {"jobs": [0, 3, 0, 0, 9.5, 0, 0, 0, 0, 0]},
    }
    assert lines[1]["queues"] == {"jobs": [0, 4, 0, 0, None, 3, 0, 1, 0, 0]}
    assert lines[2]["queues"] == {"jobs": [0, 5, 0, 0, None, 1, 0, 0, 4, 2]}
    assert lines[3]["queues"] == {"jobs": [0, 0, 0, 0, None, 0, 0, 0, 0, 0]}


def test_an_unchanged_queue_is_not_written_and_still_read(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    for minute in range(5):
        recorder.record(NOON + 60 * minute, waiting(3), {"mq": counted(put=1)})
    assert [len(line["queues"]) for line in lines_of(tree)] == [1, 0, 0, 0, 0]
    found = history(tree, NOON + 60, NOON + 300)
    assert found == [Moment(NOON + 60 * n, Figures(0, 3)) for n in range(1, 5)]


def test_a_steady_rate_through_an_empty_queue_is_in_each_line(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    for minute in range(4):
        recorder.record(
            NOON + 60 * minute, waiting(0), {"mq": counted(put=9 * minute, remove=9 * minute)}
        )
    found = history(tree, NOON, NOON + 240)
    assert [(one.figures.sent, one.figures.deleted) for one in found] == [(0, 0), *[(9, 9)] * 3]


def test_a_depth_is_the_latest_and_events_are_the_sum_of_all_hosts(tree: Tree) -> None:
    a, b = Recorder(tree, "a"), Recorder(tree, "b")
    for minute in range(3):
        a.record(NOON + 60 * minute, waiting(minute), {"mq": counted(put=10 * minute)})
        b.record(NOON + 60 * minute + 5, waiting(minute + 1), {"mq": counted(put=minute)})
    found = history(tree, NOON, NOON + 180)
    assert [(m.figures.ready, m.figures.sent) for m in found] == [(1, 0), (2, 11), (3, 11)]
    [one] = history(tree, NOON, NOON + 180, 600)
    assert (one.figures.ready, one.figures.sent) == (3, 22)


def test_minutes_without_a_line_are_left_out(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    recorder.record(NOON, waiting(1), {})
    recorder.record(NOON + 600, waiting(2), {})
    assert [m.at for m in history(tree, NOON - HOUR, NOON + HOUR)] == [NOON, NOON + 600]
    assert history(tree, NOON + HOUR, NOON + 2 * HOUR) == []


def test_only_one_process_of_a_host_writes(tree: Tree) -> None:
    first, second = Recorder(tree, "a"), Recorder(tree, "a")
    assert first.record(NOON, waiting(1), {"mq": counted(put=1)})
    assert not second.record(NOON, waiting(1), {"mq": counted(put=1)})
    assert Recorder(tree, "b").record(NOON, waiting(1), {})
    first.close()
    assert second.record(NOON + 60, waiting(2), {"mq": counted(put=3)})
    assert [m.figures.sent for m in history(tree, NOON, NOON + 120)] == [0, 2]


def test_another_process_writes_when_one_with_a_forked_child_ends(tree: Tree) -> None:
    first, second = Recorder(tree, "a"), Recorder(tree, "a")
    assert first.record(NOON, waiting(1), {})
    with forked():
        assert not second.record(NOON, waiting(1), {})
        first.close()
        assert second.record(NOON + 60, waiting(2), {})


def test_unfinished_and_malformed_lines_are_skipped(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    recorder.record(NOON, waiting(1), {})
    with file_of(tree).open("a") as opened:
        opened.write('{"v":1,"at":17952')  # as a killed process leaves it
    recorder.record(NOON + 60, waiting(2), {})
    with file_of(tree).open("a") as opened:
        opened.write('[]\n{"at":1}\n{"at":"x","queues":{}}\n{"at":1,"queues":{"jobs":[1]}}\n')
        opened.write('{"at":1e400,"queues":{}}\n')
    assert [m.figures.ready for m in history(tree, NOON, NOON + 120)] == [1, 2]


def test_old_hours_are_thinned_to_steps_of_ten_minutes(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    for minute in range(60):
        recorder.record(NOON + 60 * minute, waiting(minute), {"mq": counted(put=minute)})
    before = history(tree, NOON, NOON + HOUR, 600)
    assert [m.figures.sent for m in before] == [9, 10, 10, 10, 10, 10]
    assert thin(tree, NOON + 6 * HOUR) == 0
    assert thin(tree, NOON + 7 * HOUR) == 1
    assert thin(tree, NOON + 8 * HOUR) == 0
    lines = lines_of(tree)
    assert [line["step"] for line in lines] == [600] * 6
    assert lines[0]["whole"]
    assert history(tree, NOON, NOON + HOUR, 600) == before


def test_the_oldest_hours_are_removed_first(tree: Tree) -> None:
    recorder = Recorder(tree, "a")
    for hour in range(4):
        recorder.record(NOON + HOUR * hour, waiting(hour + 1), {})
    folder = tree.root / "history"
    (folder / "notes").write_text("of a user")
    names = sorted(f.name for f in folder.glob("*.jsonl"))
    size = (folder / names[0]).stat().st_size
    assert expire(tree, 3 * HOUR, 2**30, NOON + 4.5 * HOUR) == 1
    assert expire(tree, 72 * HOUR, 2 * size + 10, NOON + 4.5 * HOUR) == 1
    assert sorted(f.name for f in folder.glob("*.jsonl")) == names[2:]
    assert (folder / "notes").exists()


def test_without_a_folder_the_history_is_empty(tree: Tree) -> None:
    assert history(tree, NOON, NOON + HOUR) == []
    assert thin(tree, NOON) == expire(tree, 1, 1, NOON) == 0


def test_the_number_of_steps_is_limited(tree: Tree) -> None:
    assert step_of(0, 3 * HOUR, 1) == 60
    assert step_of(0, 72 * HOUR, 1) == 600
    assert step_of(0, 72 * HOUR, 1, 60) == 60
    assert 10_000 * 72 * HOUR / step_of(0, 72 * HOUR, 10_000) <= 100_000


def test_totals_are_by_hour_and_queue(tree: Tree) -> None:
    a, b = Recorder(tree, "a"), Recorder(tree, "b")
    for minute in range(0, 180, 20):
        a.record(NOON + 60 * minute, waiting(0), {"mq": counted(put=minute, bury=minute // 40)})
        b.record(NOON + 60 * minute, waiting(0), {"mq": counted(remove=minute)})
    totals, now = HourTotals(tree), NOON + 3 * HOUR - 60
    first, second, third = NOON, NOON + HOUR, NOON + 2 * HOUR
    found = totals.read(now, 3)
    assert found == {
        first: {"jobs": Happened(40, 0, 40, 0, 1)},
        second: {"jobs": Happened(60, 0, 60, 0, 1)},
        third: {"jobs": Happened(60, 0, 60, 0, 2)},
    }
    assert totals.read(now, 2) == {hour: found[hour] for hour in (second, third)}
    # A past hour is read once; the current one is read again.
    for name in ("a-20261121T13.jsonl", "a-20261121T14.jsonl"):
        (tree.root / "history" / name).write_text("")
    assert totals.read(now, 2) == {second: found[second], third: {"jobs": Happened(deleted=60)}}
    thin(tree, NOON + 9 * HOUR)
    assert totals.read(now, 1)[third] == {"jobs": Happened(deleted=60)}
