"""The lifecycle journal: its events and segments, and that its faults block no message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool, prepare
from fsmq.spool.layout.tree import Tree
from fsmq.spool.records.alive import find_alive
from fsmq.spool.records.journal import Journal, via
from fsmq.spool.records.journal_files import close_abandoned, expire
from fsmq.spool.records.metrics import Metrics
from fsmq.spool.records.reports import Reports
from fsmq.spool.verbs import dedup
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)
from tests.harness.suite import HOME, eventually
from tests.spool.helpers import forked


def events_in(root: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for segment in sorted((root / "journal").glob("[!.]*.jsonl")):
        lines += [json.loads(line) for line in segment.read_text().splitlines()]
    return lines


def names_in(root: Path) -> list[str]:
    return [event["event"] for event in events_in(root)]


@pytest.fixture
def tree(root: Path) -> Iterator[Tree]:
    tree = Tree(root)
    yield tree
    tree.close()


def test_each_step_of_a_message_is_noted(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_deliveries=2, dead_letter_queue="dead")
        first = jobs.put(b"hello")
        [message] = jobs.claim(visibility=60)
        jobs.renew(first, 90)
        jobs.release(first)
        assert [m.id for m in jobs.claim(2, wait=5)] == [first]
        jobs.bury(first)
        second = jobs.put(b"later", delay=0.5)
        [late] = jobs.claim(wait=5)
        jobs.remove(late.id)
        spool.reap()
    events = events_in(root)
    assert {e["v"] for e in events} == {1}
    assert {e["via"] for e in events} == {"library"}
    assert all(
        isinstance(e["host"], str) and abs(e["at"] - message.created_at * 1000) < 60_000
        for e in events
    )
    of_first = [(e["event"], e["queue"]) for e in events if e["id"] == first]
    assert of_first == [
        (step, "jobs")
        for step in ("accepted", "delivered", "claimed", "renewed", "released", "claimed", "buried")
    ]
    of_second = [e["event"] for e in events if e["id"] == second]
    assert of_second == ["accepted", "deferred", "delivered", "claimed", "removed", "reaped"]
    by_event = {e["event"]: e for e in events if e["id"] == first}
    assert by_event["accepted"]["size"] == 5
    assert by_event["claimed"]["deliveries"] == 2
    # A renewal keeps the last two digits of the deadline, which name the claim.
    assert 80_000 < by_event["renewed"]["claim_ms"] < 90_100
    assert by_event["buried"]["deliveries"] == 2


def test_a_program_that_follows_others_writes_a_journal_if_they_do(root: Path) -> None:
    with Spool(root, sync="none", journal=None) as alone:
        alone.queue("jobs", create=True).put(b"1")
    assert events_in(root) == []
    # Another program writes a journal, which is empty yet.
    with Spool(root, sync="none", journal=True) as spool:
        reports = Reports(spool.tree, "a", "mq")
        spool.context.journal.measure_lag()
        reports.write(spool.context.metrics)
        with Spool(root, sync="none", journal=None) as following:
            following.queue("jobs").put(b"2")
        assert names_in(root) == ["accepted", "delivered"]
        reports.leave()
    with Spool(root, sync="none", journal=None) as following:
        following.queue("jobs").put(b"3")
    assert names_in(root) == ["accepted", "delivered"] * 2


def test_timers_and_expiry_are_noted(root: Path) -> None:
    now = [1_800_000_000.0]
    with Spool(root, sync="none", journal=True, clock=lambda: now[0]) as spool:
        jobs = spool.queue("jobs", create=True)
        back = jobs.put(b"x")
        jobs.claim(visibility=1)
        now[0] += 2
        spool.deliver()
        jobs.configure(retention=1)
        now[0] += 10**9
        assert jobs.claim() == []
    events = [(e["event"], e["at"]) for e in events_in(root) if e["id"] == back]
    names = [event for event, _ in events]
    assert names == ["accepted", "delivered", "claimed", "redelivered", "expired"]
    assert events[0][1] == 1_800_000_000_000


def test_the_lag_is_the_age_of_the_oldest_hidden_event(tree: Tree) -> None:
    metrics, now = Metrics(), [1_800_000_000.0]
    journal = Journal(tree, metrics, host="a", program="test", segment_s=3600, clock=lambda: now[0])

    def lag() -> float:
        journal.measure_lag()
        return metrics.snapshot().gauges["journal_lag",]

    assert lag() == 0
    journal.note("accepted", "jobs", "first")
    now[0] += 2
    assert lag() == 2  # whether the event waits or is in an open segment
    eventually(lambda: metrics.value(("journal",)) == 1)
    journal.note("accepted", "jobs", "second")
    now[0] += 5
    assert lag() == 7
    eventually(lambda: metrics.value(("journal",)) == 2)
    assert lag() == 7
    journal.close()
    assert lag() == 0


def steps(root: Path, message_id: str) -> list[dict[str, Any]]:
    """The events of a message, without the members that every event has."""
    common = ("v", "at", "host", "via", "id")
    found = [e for e in events_in(root) if e["id"] == message_id and e["event"] != "reaped"]
    return [{k: v for k, v in e.items() if k not in common} for e in found]


def test_a_move_and_a_burial_are_noted_with_both_queues(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs, _, third = (spool.queue(name, create=True) for name in ("jobs", "second", "third"))
        jobs.configure(max_deliveries=1, dead_letter_queue="dead")
        travels = jobs.put(b"12345")
        spool.deliver()
        jobs.move_to("second")
        spool.begin_move("second", "third")
        assert spool.make_moves() == 1
        assert [m.id for m in third.claim()] == [travels]
        dies = jobs.put(b"poison")
        jobs.claim(wait=5, visibility=60)
        jobs.bury(dies)
    assert [s for s in steps(root, travels) if s["event"] == "moved"] == [
        {"event": "moved", "queue": "second", "from": "jobs"},
        {"event": "moved", "queue": "third", "from": "second"},
    ]
    buried = {"event": "buried", "queue": "jobs", "size": 6, "deliveries": 1, "to": "dead"}
    assert steps(root, dies)[-1] == buried


def test_a_message_of_a_dedup_queue_is_noted_under_both_ids(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        spool.create_queue(dedup.write_side("changes"))
        spool.create_queue(dedup.read_side("changes"))
        [old] = spool.complete(prepare.dedup_send(spool.context, "changes", [b"same"]))
        spool.deliver()
        [message] = spool.complete(dedup.poll(spool.context, "changes", 1, 60))
        assert spool.complete(prepare.dedup_send(spool.context, "changes", [b"same"])) == [old]
        spool.begin_move("changes", "others", dedup=True)
        assert spool.make_moves() == 1
    assert [(s["event"], s["queue"]) for s in steps(root, message.id)] == [
        ("moved", "__dedupq_read:changes"),
        ("claimed", "__dedupq_read:changes"),
    ]
    assert steps(root, message.id)[0] == {
        "event": "moved",
        "queue": "__dedupq_read:changes",
        "from": "__dedupq_write:changes",
        "was": old,
    }
    moves = [(s["event"], s["queue"], s.get("was")) for s in steps(root, old)][-2:]
    assert moves == [
        ("moved", "__dedupq_write:others", message.id),
        ("purged", "__dedupq_write:changes", None),
    ]


@pytest.mark.parametrize("verb", ["purge", "delete"])
def test_purged_messages_are_not_noted_as_removed(root: Path, verb: str) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        hidden = jobs.put(b"worked on")
        jobs.claim(wait=5, visibility=60)
        getattr(jobs, verb)()
    assert [s["event"] for s in steps(root, hidden)][-1] == "purged"


def test_an_unseen_release_is_noted(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        unseen = jobs.put(b"x")
        [message] = jobs.claim(wait=5, visibility=60)
        spool.complete(prepare.release_unseen(spool.context, message))
    assert [s["event"] for s in steps(root, unseen)][-2:] == ["claimed", "released"]


def test_any_name_makes_a_line_of_json(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        name = 'a "quote"\n\\ é'
        (root / "new" / f"jobs:{name}").write_bytes(b"x")
        assert eventually(lambda: jobs.claim())[0].id == name
    assert {e["id"] for e in events_in(root)} == {name}


def test_readers_see_only_whole_segments(root: Path, tree: Tree) -> None:
    journal = Journal(tree, Metrics(), host="a", program="test", segment_s=0.05)
    token = via.set("native")
    journal.note("accepted", "jobs", "1")
    via.reset(token)
    eventually(lambda: events_in(root))
    journal.note("removed", "jobs", "1")
    eventually(lambda: len(events_in(root)) == 2)
    journal.close()
    assert [(e["event"], e["via"]) for e in events_in(root)] == [
        ("accepted", "native"),
        ("removed", "test"),
    ]
    assert [p.name for p in (root / "journal").iterdir() if p.name[0] == "."] == []


_WRITER = """
import signal, sys
from fsmq.spool.records.alive import find_alive
from fsmq.spool.records.journal import Journal
from fsmq.spool.records.metrics import Metrics
from fsmq.spool.layout.tree import Tree
from tests.harness.suite import eventually
metrics = Metrics()
journal = Journal(Tree(sys.argv[1]), metrics, host="a", program="test", segment_s=3600)
journal.note("accepted", "jobs", "1")
eventually(lambda: metrics.value(("journal",)))
print("written", flush=True)
signal.pause()
"""


def test_only_segments_of_dead_writers_are_closed(root: Path, tree: Tree) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(root)], cwd=HOME, stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        assert close_abandoned(tree) == 0
        [segment] = (root / "journal").iterdir()
        assert segment.name[0] == "."
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        with segment.open("ab") as torn:
            torn.write(b'{"v":1,"at":17')
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert close_abandoned(tree) == 1
    assert names_in(root) == ["accepted"]


def test_a_dead_writers_segment_is_closed_though_its_child_lives(root: Path, tree: Tree) -> None:
    parent = os.fork()
    if parent == 0:
        journal = Journal(tree, Metrics(), host="one", program="mq")
        journal.note("accepted", "jobs", "1")
        journal.flush()
        with forked() as child:
            (root / "child").write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        assert close_abandoned(tree) == 1
    finally:
        os.kill(int((root / "child").read_text()), signal.SIGKILL)
    assert names_in(root) == ["accepted"]


def test_a_forked_child_writes_no_event_of_its_parent(root: Path, tree: Tree) -> None:
    journal = Journal(tree, Metrics(), host="one", program="mq")
    journal.note("accepted", "jobs", "1")
    journal.flush()
    journal.note("accepted", "jobs", "2")
    child = os.fork()
    if child == 0:
        journal.flush()
        os._exit(0)
    os.waitpid(child, 0)
    journal.close()
    assert [e["id"] for e in events_in(root)] == ["1", "2"]
    assert len(list((root / "journal").iterdir())) == 1


def test_folders_in_place_of_segments_block_no_other_segment(root: Path, tree: Tree) -> None:
    folder = root / "journal"
    for n in range(9):
        for prefix in (".1700000000000-open", "1700000000000-closed"):
            (folder / f"{prefix}-1-{n}.jsonl").mkdir()
            (folder / f"{prefix}-2-{n}.jsonl").write_bytes(b"{}\n")
    with pytest.raises(IsADirectoryError):
        close_abandoned(tree)
    with pytest.raises(IsADirectoryError):
        expire(tree, 0, 0, 1_800_000_000)
    assert [path.name for path in folder.iterdir() if path.is_file()] == []


def test_a_full_disk_drops_events_and_blocks_no_message(tmp_path: Path, mount: Mount) -> None:  # noqa: F811
    small = mount(tmp_path / "small", "size=256k")
    with Spool(small / "mq", sync="none", journal=True) as spool:
        jobs = spool.queue("jobs", create=True)
        fill(small / "filler")
        (small / "mq" / "new" / "jobs:free").touch()  # an empty file needs no block here
        assert eventually(lambda: jobs.claim())[0].id == "free"
        eventually(lambda: spool.context.metrics.value(("journal_dropped",)))
        assert jobs.remove("free") == 1
    assert [p for p in (small / "mq" / "journal").iterdir() if p.stat().st_size] == []


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 1024):
            pass


def test_old_segments_are_removed_and_the_oldest_of_too_many(root: Path, tree: Tree) -> None:
    folder = root / "journal"
    for n in range(5):
        (folder / f"{1_800_000_000_000 + n * 1000}-a-1-{n}.jsonl").write_bytes(b"x" * 100)
    (folder / ".1700000000000-a-1-9.jsonl").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"of a user")
    assert expire(tree, 3600, 10**6, 1_800_000_010) == 0
    assert expire(tree, 8.5, 10**6, 1_800_000_010) == 2
    assert expire(tree, 3600, 250, 1_800_000_010) == 1
    assert sorted(os.listdir(folder)) == [
        ".1700000000000-a-1-9.jsonl",
        "1800000003000-a-1-3.jsonl",
        "1800000004000-a-1-4.jsonl",
        "notes.txt",
    ]


def test_a_check_for_living_programs_is_not_noted(root: Path) -> None:
    with Spool(root, sync="none", journal=True) as spool:
        spool.queue("jobs", create=True).put(b"x")
        asked = threading.Thread(target=find_alive, args=(spool.tree, 30.0))
        asked.start()
        # It waits for the work of a mover and a reaper.
        eventually(lambda: (spool.deliver(), spool.reap(), not asked.is_alive())[-1])
        asked.join()
    assert {event["queue"] for event in events_in(root)} == {"jobs"}
