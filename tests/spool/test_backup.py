"""Snapshots of a spool that stands still, and their way back; and what ends in the middle."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable, UnusableSpool
from fsmq.spool.backup import backup, restore, small_files
from fsmq.spool.backup.open_spool import Source
from fsmq.spool.backup.renames import Renames
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.errors import InvalidValue
from fsmq.spool.fsck import check
from fsmq.spool.layout.names import seal_of, staged_entry
from fsmq.spool.layout.transitions import SNAPSHOT
from fsmq.spool.layout.tree import Tree
from fsmq.spool.log.idempotent import publish_once
from fsmq.spool.log.log import LogEntry
from fsmq.spool.moves.order import save, write_found
from fsmq.spool.probe import probe
from fsmq.spool.staging.commit import commit
from fsmq.spool.staging.forward import Forward, load
from fsmq.spool.staging.part import Job, Part
from tests.harness.forkserver import environment
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock, listed, visible

# What a snapshot does not have: locks, numbers, and what only running programs need.
_LEFT = ("remove/", "peers/", "metrics/", "ids/.puts", "ids/by-id/.lock")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


def files(root: Path) -> dict[str, tuple[object, ...]]:
    """All files of a tree, with what must be the same in a copy."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            there = path.stat()
            values = {key: os.getxattr(path, key) for key in os.listxattr(path)}
            relative = str(path.relative_to(root))
            found[relative] = (there.st_mtime_ns, there.st_mode, path.read_bytes(), values)
    return found


def inodes(root: Path) -> dict[str, int]:
    return {name: (root / name).stat().st_ino for name in files(root)}


@pytest.fixture
def rich(spool: Spool, jobs: Queue, clock: Clock) -> Spool:
    """A spool with something of everything."""
    spool.configure("jobs", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    spool.create_queue("dead")
    jobs.put(b"to be buried")
    for message in jobs.claim(1):
        jobs.bury(message, reason="bad")
    jobs.put(b"claimed")
    jobs.claim(1, 60)
    jobs.put(b"delayed", delay=60)
    jobs.put(b"ready", attributes={"a": "b"}, ttl=60)
    spool.create_queue("by-id", index=True)
    spool.indexed("by-id").upsert([NewMessage(b"first", id="x/1")])
    spool.create_queue("ordered", fifo=True)
    for number in range(2):
        spool.queue("ordered").put(b"%d" % number, group="g", dedup_id=str(number))
    spool.topic("news", create=True).subscribe("jobs", {"type": ["a"]})
    spool.schedule("nightly").define("0 4 * * *", "jobs", b"tidy")
    log = spool.log("visits", create=True)
    log.publish_many([b"0", b"1", b"2"])
    channel = log.channel("c")
    channel.create("first")
    channel.ack_each(channel.claim(1))
    return spool


def test_a_snapshot_has_all_that_lasts(rich: Spool, root: Path, where: Path) -> None:
    name = os.fsdecode(b"not-utf8-\xff")
    (root / "queues/jobs" / name).write_bytes(b"of a shell")
    taken = backup(root, where)
    copied, there = files(taken.path), files(root)
    assert json.loads(copied.pop(SNAPSHOT)[2])["root"] == str(root)  # type: ignore[arg-type]
    shared = (".lock", ".sends", ".claims", ".limits")
    segment = f"logs/visits/log/{1:020}"
    expected = {
        path: facts
        for path, facts in there.items()
        if not path.startswith((*_LEFT, "logs/visits/log/"))
        and not path.endswith(shared)
        and ".dedup/" not in path
    }
    of_log = {path: facts for path, facts in copied.items() if path.startswith("logs/visits/log/")}
    assert {p: f for p, f in copied.items() if p not in of_log} == expected
    assert sorted(of_log) == ["logs/visits/log/.sync", segment]
    assert there[segment][2].startswith(of_log[segment][2])  # type: ignore[attr-defined]
    assert (taken.messages, taken.queues, taken.logs) == (8, 4, 1)
    assert (taken.left_out, taken.faults) == ({}, [])
    assert name in os.listdir(taken.path / "queues/jobs")
    assert str(check(taken.path)) == "clean"


def test_it_comes_back(rich: Spool, root: Path, where: Path, clock: Clock, tmp_path: Path) -> None:
    snapshot = backup(root, where).path
    restored = restore(snapshot, tmp_path / "again")
    assert str(restored.report) == "clean"
    assert visible(restored.root) == visible(root)
    with Spool(restored.root, sync="none", clock=clock) as spool:
        assert spool.queue("dead").peek()[0].dead_letter is not None
        found = spool.indexed("by-id").find("x/1")
        assert found is not None
        spool.indexed("by-id").upsert([NewMessage(b"second", id="x/1")])
        assert [m.body for m in spool.queue("by-id").claim(9)] == [b"second"]
        jobs = spool.queue("jobs")
        assert jobs.counts()._asdict() == {"new": 0, "ready": 1, "in_flight": 1, "delayed": 1}
        ordered = spool.queue("ordered")
        ordered.put(b"2", group="g")
        got = []
        while messages := ordered.claim(1):
            got += [message.body for message in messages]
            ordered.ack(*messages)
        assert got == [b"0", b"1", b"2"]
        log = spool.log("visits")
        assert log.publish(b"3") == 3
        assert [m.body for m in log.channel("c").claim(9)] == [b"1", b"2", b"3"]
        clock.advance(61)
        spool.deliver()
        # What had a timer is there at once; what has expired is not, nor what is dead by now.
        assert sorted(m.body for m in jobs.claim(9)) == [b"delayed"]
        assert sorted(m.body for m in spool.queue("dead").peek()) == [b"claimed", b"to be buried"]
    assert visible(snapshot) == visible(root)


def test_no_program_works_on_a_snapshot(jobs: Queue, root: Path, where: Path) -> None:
    snapshot = backup(root, where).path
    before = files(snapshot)
    for create in (True, False):
        with pytest.raises(UnusableSpool, match="is a snapshot"):
            Spool(snapshot, create=create)
    for work in (partial(check, repair=True), probe, partial(backup, where=where / "more")):
        with pytest.raises(UnusableSpool, match="is a snapshot"):
            work(snapshot)
    reaper = [sys.executable, "-m", "fsmq.daemons.reaper", "--root", snapshot]
    done = subprocess.run(reaper, capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 78
    assert files(snapshot) == before
    assert str(check(snapshot)) == "clean"


def test_a_snapshot_that_is_removed_is_not_restored_in_part(
    jobs: Queue, root: Path, where: Path, tmp_path: Path
) -> None:
    for number in range(20):
        jobs.put(b"%d" % number)
    snapshot = backup(root, where).path
    away = snapshot.with_name("away")
    with pytest.raises(Unavailable, match="removed or replaced"):
        restore(
            snapshot,
            tmp_path / "again",
            progress=lambda done: done == 5 and snapshot.rename(away) and shutil.rmtree(away),
        )
    assert not (tmp_path / "again").exists()


# -- snapshots that are incomplete or were altered ------------------------------------------------


@pytest.fixture
def again(tmp_path: Path) -> Path:
    return tmp_path / "again"


def copied(snapshot: Path, *how: str) -> Path:
    """A copy of a snapshot, made with a command."""
    copy = snapshot.with_name("copy")
    subprocess.run([*how, str(snapshot), str(copy)], check=True)
    return copy


def test_a_whole_snapshot_is_as_it_was_recorded(
    rich: Spool, root: Path, where: Path, again: Path
) -> None:
    backup(root, where)
    rich.log("visits").publish(b"3")
    rich.queue("jobs").put(b"more")
    taken = backup(root, where)  # with links to the first one
    assert taken.linked > 0
    assert restore(taken.path, again).changed == {}
    assert restore(copied(taken.path, "cp", "-a"), again.with_name("third")).changed == {}


def test_a_restore_tells_which_files_are_missing(
    rich: Spool, root: Path, where: Path, again: Path
) -> None:
    snapshot = backup(root, where).path
    next((snapshot / "queues/ordered").iterdir()).unlink()
    (snapshot / f"logs/visits/log/{1:020}").unlink()
    shutil.rmtree(snapshot / "topics")
    (snapshot / "topics").mkdir()
    shutil.rmtree(snapshot / "delay")
    (snapshot / "delay").mkdir()
    assert restore(snapshot, again).changed == {
        "delay": "it has 0 files, not 2",
        "logs/visits/log": "it has 1 file, not 2",
        "queues/ordered": "it has 1 file, not 2",
        "topics/news": "the folder is missing",
    }


def test_a_restore_tells_what_was_altered(
    rich: Spool, root: Path, where: Path, again: Path
) -> None:
    snapshot = backup(root, where).path
    [message] = (snapshot / "queues/by-id").iterdir()
    for path in (message, snapshot / f"logs/visits/log/{1:020}"):
        found = path.stat()
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    (snapshot / "queues/added").mkdir()
    changed = restore(snapshot, again).changed
    assert changed == {
        "logs/visits/log": "names or contents of files have changed",
        "queues/added": "the folder was added",
        "queues/by-id": "names or contents of files have changed",
    }


def test_a_copy_without_times_is_known(rich: Spool, root: Path, where: Path, again: Path) -> None:
    copy = copied(backup(root, where).path, "cp", "-r")
    changed = restore(copy, again).changed
    assert changed.pop("ids/by-id") == "links of files were lost: copy snapshots with rsync -aHX"
    [text] = changed.values()
    assert re.fullmatch(
        "times of files were lost, as in [0-9]+ other folders: copy snapshots with rsync -aHX", text
    )


def test_a_damaged_segment_is_not_hidden_by_the_next_backup(
    spool: Spool, root: Path, where: Path, again: Path
) -> None:
    log = spool.log("visits", create=True)
    for body in (b"first", b"second", b"third"):
        log.publish(body)
    segment = backup(root, where).path / f"logs/visits/log/{1:020}"
    found = segment.stat()
    segment.write_bytes(segment.read_bytes().replace(b"first", b"worst"))
    os.utime(segment, ns=(found.st_mtime_ns, found.st_mtime_ns))
    second = backup(root, where)
    assert os.path.samefile(second.path / f"logs/visits/log/{1:020}", segment)
    assert list(restore(second.path, again).changed) == ["logs/visits/log"]


def test_a_snapshot_of_an_older_version_has_no_record(
    jobs: Queue, root: Path, where: Path, again: Path
) -> None:
    snapshot = backup(root, where).path
    about = json.loads((snapshot / SNAPSHOT).read_text())
    del about["contents"]
    (snapshot / SNAPSHOT).write_text(json.dumps(about))
    assert restore(snapshot, again).changed == {}
    backup(root, where)


# -- incremental ----------------------------------------------------------------------------------


def test_what_is_unchanged_takes_no_space(rich: Spool, root: Path, where: Path) -> None:
    first = backup(root, where)
    rich.queue("jobs").put(b"new")
    rich.log("visits").publish(b"3")
    second = backup(root, where)
    before, after = inodes(first.path), inodes(second.path)
    changed = {name for name, inode in after.items() if before.get(name) != inode}
    new = {name for name in changed if name not in before}
    assert len(new) == 1
    segment = f"logs/visits/log/{1:020}"
    assert changed - new == {SNAPSHOT, "logs/visits/log/.sync", segment}
    assert second.before == first.path
    assert second.linked > 0
    assert str(check(second.path)) == "clean"
    third = backup(root, where)
    assert third.copied == (second.path / "logs/visits/log/.sync").stat().st_size
    # The links of an index are names of the same file, in the snapshot and after a restore.
    [link] = (third.path / "ids/by-id").iterdir()
    [message] = (third.path / "queues/by-id").iterdir()
    assert os.path.samefile(link, message)
    assert os.path.samefile(link, first.path / "ids/by-id" / link.name)


def test_equal_size_and_time_do_not_make_two_files_one(
    jobs: Queue, root: Path, where: Path
) -> None:
    jobs.put(b"one", id="own")
    path = root / "queues/jobs/own"
    time_ns = path.stat().st_mtime_ns
    first = backup(root, where)
    jobs.remove("own")
    jobs.put(b"two", id="own")
    os.utime(path, ns=(time_ns, time_ns))
    second = backup(root, where)
    assert (first.path / "queues/jobs/own").read_bytes() == b"one"
    assert (second.path / "queues/jobs/own").read_bytes() == b"two"


def test_damage_in_a_snapshot_is_not_carried_on(jobs: Queue, root: Path, where: Path) -> None:
    jobs.put(b"good", id="own")
    first = backup(root, where).path / "queues/jobs/own"
    time_ns = first.stat().st_mtime_ns
    first.write_bytes(b"baad")
    os.utime(first, ns=(time_ns, time_ns))
    assert (backup(root, where).path / "queues/jobs/own").read_bytes() == b"good"


def test_the_last_ones_are_kept(jobs: Queue, root: Path, where: Path) -> None:
    taken = [backup(root, where, keep=2).path.name for _ in range(4)]
    assert taken == sorted(taken)
    assert listed(where) == taken[-2:]


# -- what is in the middle of something -----------------------------------------------------------


def test_dot_names_become_what_recovery_makes_of_them(
    spool: Spool, jobs: Queue, root: Path, where: Path, tmp_path: Path
) -> None:
    new = root / "new"
    (new / staged_entry("jobs", "whole", seal_of(b"whole"))).write_bytes(b"whole")
    (new / staged_entry("jobs", "torn", seal_of(b"torn"))).write_bytes(b"to")
    (new / ".jobs:taken-1:taken").write_bytes(b"taken")
    (new / ".jobs:whole:own").touch()
    (new / ".copy-17").write_bytes(b"of a shell")
    (new / "jobs:put").write_bytes(b"put")
    jobs.put(b"here", id="here")
    (new / staged_entry("jobs", "here", seal_of(b"again"))).write_bytes(b"again")
    taken = backup(root, where)
    assert visible(taken.path) == [
        ("jobs", "here"),
        ("jobs", "put"),
        ("jobs", "taken-1"),
        ("jobs", "whole"),
    ]
    assert os.listdir(taken.path / "new") == ["jobs:put"]
    assert (taken.path / "queues/jobs/here").read_bytes() == b"here"


def test_two_of_one_id_are_both_there_if_the_spool_has_both(
    jobs: Queue, root: Path, where: Path
) -> None:
    jobs.put(b"ready", id="own")
    (root / "delay/jobs:own").write_bytes(b"hidden")
    taken = backup(root, where)
    assert (taken.path / "queues/jobs/own").read_bytes() == b"ready"
    assert (taken.path / "delay/jobs:own").read_bytes() == b"hidden"
    assert [fault.kind.value for fault in taken.faults] == ["duplicate"]


def test_a_job_goes_forward_from_a_copy(
    spool: Spool, jobs: Queue, root: Path, where: Path, clock: Clock, tmp_path: Path
) -> None:
    job = Job("load", 7)
    part = Part(spool.context, spool.syncer.sync, job)
    for body in (b"1", b"2", b"3"):
        part.write("jobs", NewMessage(body))
    written = part.finish()
    open_job = backup(root, where)
    assert os.listdir(open_job.path / "staging") == []
    # Its committer dies when one message is in new/.
    commit(spool, job, [written])
    folder = root / "staging/load:7" / written.part
    folder.mkdir(parents=True)
    (folder.parent / "commit.json").write_text(
        json.dumps({"at_ms": 1, "keeps": True, "parts": {written.part: {**PART}}})
    )
    _, *behind = sorted((root / "new").glob("jobs:*"))
    for path in behind:
        path.rename(folder / path.name)
    (root / "staging/load.json").unlink()
    restored = restore(backup(root, where).path, tmp_path / "again").root
    with Spool(restored, sync="none", clock=clock) as again:
        again.deliver()
        assert sorted(m.body for m in again.queue("jobs").claim(9)) == [b"1", b"2", b"3"]
        assert os.listdir(restored / "staging") == ["load.json"]


PART = {"messages": 3, "own": False, "delayed": False, "repeated": 0}


def test_a_job_that_goes_forward_meanwhile_is_not_put_again(
    spool: Spool, jobs: Queue, root: Path, where: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    job = Job("load", 7)
    part = Part(spool.context, spool.syncer.sync, job)
    part.write("jobs", NewMessage(b"once"))
    with monkeypatch.context() as dying:
        dying.setattr(Forward, "run", lambda self: os.stat("/nowhere"))
        with pytest.raises(Unavailable):
            commit(spool, job, [part.finish()])

    def late(*given: Any) -> Any:
        spool.deliver()
        return load(*given)

    monkeypatch.setattr(small_files, "load", late)
    restored = restore(backup(root, where).path, tmp_path / "again").root
    with Spool(restored, sync="none") as again:
        again.deliver()
        part = Part(again.context, again.syncer.sync, job)
        part.write("jobs", NewMessage(b"once"))
        assert commit(again, job, [part.finish()]).again
        assert [message.body for message in again.queue("jobs").claim(9)] == [b"once"]


def test_a_numbered_batch_that_is_published_meanwhile_is_in_the_log_once(
    spool: Spool, root: Path, where: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    log = spool.log("visits")
    log.create(dedupe_window=0)
    publish_once(log, "spark", 1, [LogEntry(b"1")])
    numbers = iter([2])

    def late(self: Source, path: str, **given: Any) -> None:
        take_folder(self, path, **given)
        for number in numbers if path.endswith("/writers") else ():
            publish_once(log, "spark", number, [LogEntry(b"2")])

    take_folder = Source.take_folder
    monkeypatch.setattr(Source, "take_folder", late)
    restored = restore(backup(root, where).path, tmp_path / "again").root
    with Spool(restored, sync="none") as again:
        log = again.log("visits")
        assert publish_once(log, "spark", 2, [LogEntry(b"2")]) == range(1, 2)
        assert [message.body for message in log.read()] == [b"1", b"2"]


def test_a_redrive_that_ends_meanwhile_does_not_wait_for_ever(
    spool: Spool, jobs: Queue, root: Path, where: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    spool.configure("jobs", {"max_deliveries": 9, "dead_letter_queue": "dead"})
    jobs.put(b"buried")
    jobs.claim()[0].bury()
    [letter] = spool.queue("dead").peek()
    assert letter.dead_letter is not None
    begun = spool.begin_redrive("dead")
    write_found(spool.tree, begun.ref, {letter.id: letter.dead_letter.at})
    save(spool.tree, replace(begun, total=1))

    def late(self: Source, path: str) -> bool:
        taken = take(self, path)
        if path == f"moves/{begun.ref}.json":
            spool.make_moves()
        return taken

    take = Source.take
    monkeypatch.setattr(Source, "take", late)
    restored = restore(backup(root, where).path, tmp_path / "again").root
    with Spool(restored, sync="none") as again:
        again.make_moves()
        ended = again.find_move(begun.ref)
        assert ended is not None
        assert ended.status == "complete"


@pytest.mark.parametrize("is_used_again", [False, True])
def test_a_commit_that_a_copy_finishes_removes_no_other_message(
    jobs: Queue, root: Path, where: Path, tmp_path: Path, clock: Clock, is_used_again: bool
) -> None:
    jobs.put(b"done", id="x")
    with Consumer(jobs.spool, "spark", visibility=10) as consumer:
        batch = consumer.claim("s", 0, ["jobs"], 2)
        assert batch is not None
    if is_used_again:
        jobs.remove("x")
        jobs.put(b"next", id="x")
        jobs.claim()[0].release()
    # The program was killed after it had removed the message, or before.
    folder = root / "consumers/spark"
    (folder / f"{batch.name}.json").rename(folder / f"{batch.name}.done")
    restored = restore(backup(root, where).path, tmp_path / "again").root
    clock.advance(20)
    with Spool(restored, sync="none", clock=clock) as again:
        again.deliver()
        found = [message.body for message in again.queue("jobs").claim()]
    assert found == [b"next"] * is_used_again


def test_a_crash_has_left_more_of_a_log_than_it_noted(
    spool: Spool, root: Path, where: Path, tmp_path: Path
) -> None:
    log = spool.log("visits", create=True)
    log.publish(b"0")
    note = root / "logs/visits/log/.sync"
    old = note.read_bytes()
    log.publish(b"1")
    note.write_bytes(old)
    restored = restore(backup(root, where).path, tmp_path / "again").root
    with Spool(restored, sync="none") as again:
        assert [m.body for m in again.log("visits").read()] == [b"0", b"1"]
        assert again.log("visits").publish(b"2") == 2


def test_a_channel_does_not_expire_for_the_age_of_a_backup(
    spool: Spool, root: Path, where: Path, clock: Clock, tmp_path: Path
) -> None:
    log = spool.log("visits", create=True)
    log.publish(b"0")
    log.channel("c").create("first", expires=60)
    snapshot = backup(root, where).path
    old = time.time() - 3600
    for path in (snapshot / "logs/visits/channels/c").iterdir():
        os.utime(path, (old, old))
    restored = restore(snapshot, tmp_path / "again").root
    with Spool(restored, sync="none") as again:
        again.deliver()
        assert again.log("visits").channel("c").delete_if_unused() is False
        assert again.log("visits").channels() == ["c"]


# -- places ---------------------------------------------------------------------------------------


def test_a_spool_is_not_copied_into_itself(jobs: Queue, root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    for place in (root, root / "snapshots", tmp_path / "link" / "snapshots"):
        with pytest.raises(InvalidValue, match="in the spool"):
            backup(root, place)
    assert not (root / "snapshots").exists()
    other = tmp_path / "other"
    Spool(other, sync="none").close()
    with pytest.raises(InvalidValue, match="is a spool"):
        backup(root, other)


def test_there_has_to_be_a_spool(tmp_path: Path, where: Path) -> None:
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(UnusableSpool, match="no spool"):
            backup(root, where)
    assert not where.exists() or listed(where) == []


def test_a_message_that_comes_where_a_new_one_was_is_not_new(
    spool: Spool, root: Path, where: Path
) -> None:
    """An own id is in two queues: one is new, and goes with the folder; the other comes there."""
    first, between, last = (spool.queue(name, create=True) for name in ("a", "b", "c"))
    first.put_many([b""] * 1100)  # so many go with their folder
    between.put_many([b""] * 400)
    last.put(b"old", id="x")

    def change(step: str, done: int, of: int) -> None:
        if step == "messages" and done > 1000 and not steps:
            first.put(b"new", id="x")
            first.purge()
            steps.append("new")
        elif step == "messages" and done > 1000 and steps == ["new"]:
            last.move_to("a")
            for message in spool.queue("a").claim():
                message.release()
            steps.append("moved")

    steps: list[str] = []
    taken = backup(root, where, progress=change)
    assert steps == ["new", "moved"]
    assert [path.read_bytes() for path in taken.path.glob("queues/*/x")] == [b"old"]


def test_what_goes_with_an_old_folder_is_not_what_came_into_the_new_one(
    spool: Spool, root: Path, where: Path
) -> None:
    """The reaper unlinks a purged message while another one of its id is in the queue."""
    first, between, last = (spool.queue(name, create=True) for name in ("a", "b", "c"))
    first.put_many([b""] * 1100)  # so many go with their folder
    first.put(b"purged", id="x")
    between.put_many([b""] * 400)
    last.put(b"old", id="x")

    def change(step: str, done: int, of: int) -> None:
        if step == "messages" and done > 1101 and steps:
            steps.pop(0)()

    steps: list[Any] = [first.purge, partial(last.move_to, "a"), spool.reap]
    taken = backup(root, where, progress=change)
    assert steps == []
    assert [path.read_bytes() for path in taken.path.glob("queues/*/x")] == [b"old"]


def test_a_message_is_copied_though_its_id_is_used_again_where_it_was(
    spool: Spool, root: Path, where: Path
) -> None:
    first, second, last = (spool.queue(name, create=True) for name in ("a", "b", "c"))
    first.put(b"old", id="x")
    last.put_many([b""] * 40)

    def change(step: str, done: int, of: int) -> None:
        if step == "messages" and done > 16 and not second.counts().ready:
            first.move_to("b")
            first.put(b"new", id="x")
            first.claim(1, 60)  # delay/ is copied last

    taken = backup(root, where, progress=change)
    assert (taken.path / "queues/b/x").read_bytes() == b"old"
    assert (taken.path / "delay/a:x").read_bytes() == b"new"


@pytest.mark.parametrize("to", [None, "other"])
def test_a_redriven_message_keeps_its_id(
    spool: Spool, root: Path, where: Path, tmp_path: Path, to: str | None
) -> None:
    spool.create_queue("dead", index=True)
    for queue in ("by-id", "other"):
        spool.create_queue(queue, index=True)
        spool.configure(queue, {"max_deliveries": 9, "dead_letter_queue": "dead"})
    spool.indexed("by-id").upsert([NewMessage(b"left", id="y"), NewMessage(b"back", id="x")])
    letters = spool.queue("by-id").claim(2)
    for letter in letters:
        letter.bury(reason="bad")
    spool.queue("dead").redrive(only=[letters[1].id], to=to)
    taken = backup(root, where)
    assert taken.faults == []
    restore(taken.path, tmp_path / "again")
    with Spool(tmp_path / "again", sync="none") as again:
        found = again.indexed(to or "by-id").find("x")
        assert found is not None
        assert found.body == b"back"
        assert again.indexed("dead").find("y") is None
        assert [message.body for message in again.queue("dead").peek(9)] == [b"left"]


def test_symbolic_links_are_left_out(jobs: Queue, root: Path, where: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (root / "queues/jobs/link").symlink_to(secret)
    (root / "config/link.json").symlink_to(secret)
    os.mkfifo(root / "delay/jobs:pipe")
    taken = backup(root, where)
    assert set(taken.left_out) == {"queues/jobs/link", "delay/jobs:pipe"}
    assert "secret" not in str(files(taken.path))


def test_modes_are_kept(jobs: Queue, root: Path, where: Path, tmp_path: Path) -> None:
    jobs.put(b"private", id="own")
    os.chmod(root / "queues/jobs", 0o750)
    taken = backup(root, where).path
    again = restore(taken, tmp_path / "again").root
    for copied in (taken, again):
        assert {path: (copied / path).stat().st_mode & 0o777 for path in MODES} == MODES


MODES = {".": 0o700, "new": 0o700, "queues/jobs": 0o750, "queues/jobs/own": 0o600}


def test_one_backup_at_a_time(jobs: Queue, root: Path, where: Path) -> None:
    def again(step: str, done: int, of: int) -> None:
        if step == "checking":
            with pytest.raises(Unavailable, match="another backup"):
                backup(root, where)
            told.append(step)

    told: list[str] = []
    backup(root, where, progress=again)
    assert told == ["checking"]
    assert len(listed(where)) == 1


def test_a_spool_that_goes_away_is_no_snapshot(jobs: Queue, root: Path, where: Path) -> None:
    for number in range(100):
        jobs.put(b"%d" % number)
    for away in (lambda: root.rename(root.with_name("away")), lambda: shutil.rmtree(root / "new")):
        with pytest.raises(Unavailable, match="removed or replaced"):
            backup(root, where, progress=lambda step, done, of: step == "messages" and away())  # noqa: B023
        assert listed(where) == []
        if not root.exists():
            root.with_name("away").rename(root)


def test_a_restore_needs_an_empty_folder(jobs: Queue, root: Path, where: Path) -> None:
    snapshot = backup(root, where).path
    with pytest.raises(UnusableSpool, match="is a spool already"):
        restore(snapshot, root)
    other = where / "other"
    other.mkdir()
    (other / "file").touch()
    with pytest.raises(UnusableSpool, match="is not empty: it has file"):
        restore(snapshot, other)
    with pytest.raises(InvalidValue, match="no snapshot"):
        restore(root, where / "new")
    with pytest.raises(InvalidValue, match="in the snapshot"):
        restore(snapshot, snapshot / "new-root")
    assert not (where / "new").exists()


def test_no_program_starts_on_what_is_being_restored(
    jobs: Queue, root: Path, where: Path, tmp_path: Path
) -> None:
    for number in range(20):
        jobs.put(b"%d" % number)
    snapshot, again, tries = backup(root, where).path, tmp_path / "again", []

    def start(done: int) -> None:
        with pytest.raises(UnusableSpool):
            Spool(again)
        tries.append(done)

    restore(snapshot, again, progress=start)
    assert len(tries) >= 20
    assert len(visible(again)) == 20


def test_a_restore_that_fails_leaves_nothing(
    jobs: Queue, root: Path, where: Path, tmp_path: Path
) -> None:
    jobs.put(b"one")
    snapshot = backup(root, where).path
    empty = tmp_path / "empty"
    empty.mkdir()

    def fail(done: int) -> None:
        raise OSError(28, "No space left on device")

    for again in (tmp_path / "again", empty):
        with pytest.raises(Unavailable, match="cannot restore"):
            restore(snapshot, again, progress=fail)
    assert not (tmp_path / "again").exists()
    assert os.listdir(empty) == []


# -- deaths ---------------------------------------------------------------------------------------


def test_a_backup_that_dies_leaves_no_snapshot(
    rich: Spool, root: Path, where: Path, clock: Clock
) -> None:
    expected = backup(root, where)
    for at in count(0, 7):
        before = set(listed(where))
        died = run_and_die(root, lambda spool: backup(root, where), at, clock)
        if died is None:
            break
        # None, or a complete one if it died behind the last step.
        for name in set(listed(where)) - before:
            if name[0] != ".":
                assert str(check(where / name)) == "clean"
    assert at > 30
    taken = backup(root, where, keep=1)
    assert listed(where) == [taken.path.name]
    assert taken.messages == expected.messages


def test_a_restore_that_dies_leaves_nothing_or_all(
    jobs: Queue, root: Path, where: Path, tmp_path: Path, clock: Clock
) -> None:
    jobs.put(b"new", id="new")
    (root / "queues/jobs/new").rename(root / "new/jobs:new")
    jobs.put(b"ready", id="ready")
    snapshot, counted = backup(root, where).path, []
    for at in count():
        again = tmp_path / str(at)
        again.mkdir()
        died = run_and_die(root, lambda spool: restore(snapshot, again), at, clock)  # noqa: B023
        if os.listdir(again):
            with suppress(UnusableSpool), Spool(again, clock=clock) as spool:
                counted.append(spool.queue("jobs").counts().total)
            shutil.rmtree(again)
        if died is None:
            break
    assert at > 30
    assert counted
    assert set(counted) == {2}


@pytest.mark.parametrize("stopped_s", [0, 60])
def test_the_halves_of_a_rename_may_come_apart(
    tmp_path: Path, monkeypatch: Any, stopped_s: float
) -> None:
    root = tmp_path / "mq"
    with Spool(root) as spool:
        spool.create_queue("q")
    part, target = "new/.part", "new/q:1"
    (root / part).mkdir()
    (root / part / "1").touch()
    with closing(Tree(root)) as tree, closing(Renames(tree)) as renames:
        renames.watch(part)
        renames.watch("new")
        renames.begin()
        os.rename(root / part / "1", root / target)
        inotify: Any = renames._inotify
        first, second = inotify.read(timeout=0)
        now = time.monotonic()
        for events in ([first], [second]) if stopped_s else ([first], [], [second]):
            monkeypatch.setattr(inotify, "read", lambda events=events, **_: events)
            monkeypatch.setattr(time, "monotonic", lambda now=now: now)
            renames.read()
            now += stopped_s
        assert list(renames.moved) == [target]
