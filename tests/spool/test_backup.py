"""Backups of spools at rest, of spools that change, and backups and restores that are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
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
from tests.harness.calls import Trap, seen
from tests.harness.forkserver import environment
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock, listed, present, visible

# A snapshot has no locks, no numbers, and no files that only running programs need.
_LEFT_OUT = ("remove/", "peers/", "metrics/", "ids/.puts", "ids/by-id/.lock")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def again(tmp_path: Path) -> Path:
    return tmp_path / "again"


@contextmanager
def restored(root: Path, where: Path, clock: Clock | None = None) -> Iterator[Spool]:
    """Back up a spool, restore the snapshot, and open what comes back."""
    copy = restore(backup(root, where).path, where.with_name("again")).root
    with Spool(copy, sync="none", clock=clock or time.time) as spool:
        yield spool


def files(root: Path) -> dict[str, tuple[object, ...]]:
    """All files of a tree, with what must be the same in a copy."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            status = path.stat()
            values = {key: os.getxattr(path, key) for key in os.listxattr(path)}
            relative = str(path.relative_to(root))
            found[relative] = (status.st_mtime_ns, status.st_mode, path.read_bytes(), values)
    return found


def inodes(root: Path) -> dict[str, int]:
    return {name: (root / name).stat().st_ino for name in files(root)}


@pytest.fixture
def rich(spool: Spool, jobs: Queue, clock: Clock) -> Spool:
    """A spool with messages in all states and queues, topics, schedules and logs of all kinds."""
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


def test_a_snapshot_has_all_lasting_files(rich: Spool, root: Path, where: Path) -> None:
    name = os.fsdecode(b"not-utf8-\xff")
    (root / "queues/jobs" / name).write_bytes(b"of a shell")
    taken = backup(root, where)
    copied, original = files(taken.path), files(root)
    assert json.loads(copied.pop(SNAPSHOT)[2])["root"] == str(root)  # type: ignore[arg-type]
    shared = (".lock", ".sends", ".claims", ".limits")
    segment = f"logs/visits/log/{1:020}"
    expected = {
        path: facts
        for path, facts in original.items()
        if not path.startswith((*_LEFT_OUT, "logs/visits/log/"))
        and not path.endswith(shared)
        and ".dedup/" not in path
    }
    of_log = {path: facts for path, facts in copied.items() if path.startswith("logs/visits/log/")}
    assert {p: f for p, f in copied.items() if p not in of_log} == expected
    assert sorted(of_log) == ["logs/visits/log/.sync", segment]
    assert original[segment][2].startswith(of_log[segment][2])  # type: ignore[attr-defined]
    assert (taken.messages, taken.queues, taken.logs) == (8, 4, 1)
    assert (taken.left_out, taken.faults) == ({}, [])
    assert name in os.listdir(taken.path / "queues/jobs")
    assert str(check(taken.path)) == "clean"


def test_a_restored_spool_works_as_before(
    rich: Spool, root: Path, where: Path, again: Path, clock: Clock
) -> None:
    snapshot = backup(root, where).path
    result = restore(snapshot, again)
    assert str(result.report) == "clean"
    assert visible(again) == visible(root)
    with Spool(again, sync="none", clock=clock) as spool:
        assert spool.queue("dead").peek()[0].dead_letter is not None
        assert spool.indexed("by-id").find("x/1") is not None
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
        clock.advance(600)
        spool.deliver()
        # The timer has ended; the ready message has expired, and the claimed one was buried.
        assert sorted(m.body for m in jobs.claim(9)) == [b"delayed"]
        assert sorted(m.body for m in spool.queue("dead").peek()) == [b"claimed", b"to be buried"]
    assert visible(snapshot) == visible(root)


def test_programs_refuse_to_work_on_a_snapshot(jobs: Queue, root: Path, where: Path) -> None:
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


def test_a_snapshot_removed_during_a_restore_is_not_restored_in_part(
    jobs: Queue, root: Path, where: Path, again: Path
) -> None:
    jobs.put_many([b"x"] * 20)
    snapshot = backup(root, where).path
    away = snapshot.with_name("away")

    def remove(done: int) -> None:
        if done == 5:
            shutil.rmtree(snapshot.rename(away))

    with pytest.raises(Unavailable, match="removed or replaced"):
        restore(snapshot, again, progress=remove)
    assert not again.exists()


# -- snapshots that are incomplete or were altered ------------------------------------------------


def copied(snapshot: Path, *command: str) -> Path:
    """A copy of a snapshot, made with a command."""
    copy = snapshot.with_name("copy")
    subprocess.run([*command, str(snapshot), str(copy)], check=True)
    return copy


def test_a_whole_snapshot_is_unchanged(rich: Spool, root: Path, where: Path, again: Path) -> None:
    backup(root, where)
    rich.log("visits").publish(b"3")
    rich.queue("jobs").put(b"more")
    taken = backup(root, where)  # with links to the first one
    assert taken.linked > 0
    assert restore(taken.path, again).changed == {}
    assert restore(copied(taken.path, "cp", "-a"), again.with_name("third")).changed == {}


def test_a_restore_reports_missing_files(rich: Spool, root: Path, where: Path, again: Path) -> None:
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


def test_a_restore_reports_altered_files(rich: Spool, root: Path, where: Path, again: Path) -> None:
    snapshot = backup(root, where).path
    [message] = (snapshot / "queues/by-id").iterdir()
    for path in (message, snapshot / f"logs/visits/log/{1:020}"):
        found = path.stat()
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
        os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    (snapshot / "queues/added").mkdir()
    assert restore(snapshot, again).changed == {
        "logs/visits/log": "names or contents of files have changed",
        "queues/added": "the folder was added",
        "queues/by-id": "names or contents of files have changed",
    }


def test_a_restore_reports_lost_times(rich: Spool, root: Path, where: Path, again: Path) -> None:
    copy = copied(backup(root, where).path, "cp", "-r")
    changed = restore(copy, again).changed
    assert changed.pop("ids/by-id") == "links of files were lost: copy snapshots with rsync -aHX"
    [text] = changed.values()
    assert re.fullmatch(
        "times of files were lost, as in [0-9]+ other folders: copy snapshots with rsync -aHX", text
    )


def test_no_backup_hides_a_bad_segment(spool: Spool, root: Path, where: Path, again: Path) -> None:
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


def test_an_old_snapshot_has_no_record(jobs: Queue, root: Path, where: Path, again: Path) -> None:
    snapshot = backup(root, where).path
    about = json.loads((snapshot / SNAPSHOT).read_text())
    del about["contents"]
    (snapshot / SNAPSHOT).write_text(json.dumps(about))
    assert restore(snapshot, again).changed == {}
    backup(root, where)


# -- incremental ----------------------------------------------------------------------------------


def test_unchanged_files_take_no_space(rich: Spool, root: Path, where: Path) -> None:
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
    # The links of an index are links to the same file in a snapshot, too.
    [link] = (third.path / "ids/by-id").iterdir()
    [message] = (third.path / "queues/by-id").iterdir()
    assert os.path.samefile(link, message)
    assert os.path.samefile(link, first.path / "ids/by-id" / link.name)


def test_a_new_file_of_equal_size_and_time_is_copied(jobs: Queue, root: Path, where: Path) -> None:
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


def test_damage_in_a_snapshot_is_not_in_the_next_one(jobs: Queue, root: Path, where: Path) -> None:
    jobs.put(b"good", id="own")
    first = backup(root, where).path / "queues/jobs/own"
    time_ns = first.stat().st_mtime_ns
    first.write_bytes(b"baad")
    os.utime(first, ns=(time_ns, time_ns))
    assert (backup(root, where).path / "queues/jobs/own").read_bytes() == b"good"


def test_the_newest_snapshots_are_kept(jobs: Queue, root: Path, where: Path) -> None:
    taken = [backup(root, where, keep=2).path.name for _ in range(4)]
    assert taken == sorted(taken)
    assert listed(where) == taken[-2:]


# -- unfinished work ------------------------------------------------------------------------------


def test_dot_names_are_recovered_in_the_snapshot(jobs: Queue, root: Path, where: Path) -> None:
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


@pytest.mark.parametrize("index", [False, True])
def test_a_backup_before_the_timer_is_set_shows_no_message_early(
    spool: Spool, root: Path, where: Path, again: Path, index: bool
) -> None:
    spool.create_queue("later", index=index)

    def take(name: str, of: tuple[Any, ...]) -> None:
        backup(root, where)

    with seen(Trap("utime", take)):
        if index:
            spool.indexed("later").upsert([NewMessage(b"x", id="x", delay=600)])
        else:
            spool.queue("later").put(b"x", delay=600)
    [taken] = where.glob("2*")
    with Spool(restore(taken, again).root, sync="none") as copy:
        copy.deliver()
        assert copy.queue("later").claim() == []


def test_two_messages_of_one_id_are_both_copied(jobs: Queue, root: Path, where: Path) -> None:
    jobs.put(b"ready", id="own")
    (root / "delay/jobs:own").write_bytes(b"hidden")
    taken = backup(root, where)
    assert (taken.path / "queues/jobs/own").read_bytes() == b"ready"
    assert (taken.path / "delay/jobs:own").read_bytes() == b"hidden"
    assert [fault.kind.value for fault in taken.faults] == ["duplicate"]


def test_a_staged_job_is_finished_in_a_copy(
    spool: Spool, jobs: Queue, root: Path, where: Path, clock: Clock
) -> None:
    job = Job("load", 7)
    part = Part(spool.context, spool.syncer.sync, job)
    for body in (b"1", b"2", b"3"):
        part.write("jobs", NewMessage(body))
    written = part.finish()
    open_job = backup(root, where)
    assert os.listdir(open_job.path / "staging") == []
    # The process that commits it dies when one message is in new/.
    commit(spool, job, [written])
    folder = root / "staging/load:7" / written.part
    folder.mkdir(parents=True)
    (folder.parent / "commit.json").write_text(
        json.dumps({"at_ms": 1, "keeps": True, "parts": {written.part: {**PART}}})
    )
    _, *rest = sorted((root / "new").glob("jobs:*"))
    for path in rest:
        path.rename(folder / path.name)
    (root / "staging/load.json").unlink()
    with restored(root, where, clock) as copy:
        copy.deliver()
        assert sorted(m.body for m in copy.queue("jobs").claim(9)) == [b"1", b"2", b"3"]
        assert os.listdir(copy.tree.root / "staging") == ["load.json"]


PART = {"messages": 3, "own": False, "delayed": False, "repeated": 0}


def test_a_staged_job_that_moves_forward_during_a_backup_is_stored_once(
    spool: Spool, jobs: Queue, root: Path, where: Path, monkeypatch: Any
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
    with restored(root, where) as copy:
        copy.deliver()
        part = Part(copy.context, copy.syncer.sync, job)
        part.write("jobs", NewMessage(b"once"))
        assert commit(copy, job, [part.finish()]).again
        assert [message.body for message in copy.queue("jobs").claim(9)] == [b"once"]


def test_a_numbered_batch_published_during_a_backup_is_in_the_log_once(
    spool: Spool, root: Path, where: Path, monkeypatch: Any
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
    with restored(root, where) as copy:
        log = copy.log("visits")
        assert publish_once(log, "spark", 2, [LogEntry(b"2")]) == range(1, 2)
        assert [message.body for message in log.read()] == [b"1", b"2"]


def test_a_redrive_that_ends_during_a_backup_ends_in_the_copy(
    spool: Spool, jobs: Queue, root: Path, where: Path, monkeypatch: Any
) -> None:
    spool.configure("jobs", {"max_deliveries": 9, "dead_letter_queue": "dead"})
    jobs.put(b"buried")
    jobs.claim()[0].bury()
    [letter] = spool.queue("dead").peek()
    begun = spool.begin_redrive("dead")
    write_found(spool.tree, begun.ref, {letter.id: present(letter.dead_letter).at})
    save(spool.tree, replace(begun, total=1))

    def late(self: Source, path: str) -> bool:
        taken = take(self, path)
        if path == f"moves/{begun.ref}.json":
            spool.make_moves()
        return taken

    take = Source.take
    monkeypatch.setattr(Source, "take", late)
    with restored(root, where) as copy:
        copy.make_moves()
        assert present(copy.find_move(begun.ref)).status == "complete"


@pytest.mark.parametrize("is_used_again", [False, True])
def test_a_commit_that_a_copy_finishes_removes_no_other_message(
    jobs: Queue, root: Path, where: Path, clock: Clock, is_used_again: bool
) -> None:
    jobs.put(b"done", id="x")
    with Consumer(jobs.spool, "spark", visibility=10) as consumer:
        batch = present(consumer.claim("s", 0, ["jobs"], 2))
    if is_used_again:
        jobs.remove("x")
        jobs.put(b"next", id="x")
        jobs.claim()[0].release()
    # The program was killed after it had removed the message, or before.
    folder = root / "consumers/spark"
    (folder / f"{batch.name}.json").rename(folder / f"{batch.name}.done")
    clock.advance(20)
    with restored(root, where, clock) as copy:
        copy.deliver()
        found = [message.body for message in copy.queue("jobs").claim()]
    assert found == [b"next"] * is_used_again


def test_a_backup_has_the_unnoted_end_of_a_log(spool: Spool, root: Path, where: Path) -> None:
    log = spool.log("visits", create=True)
    log.publish(b"0")
    note = root / "logs/visits/log/.sync"
    old = note.read_bytes()
    log.publish(b"1")
    note.write_bytes(old)
    with restored(root, where) as copy:
        assert [m.body for m in copy.log("visits").read()] == [b"0", b"1"]
        assert copy.log("visits").publish(b"2") == 2


def test_old_backups_expire_no_channel(spool: Spool, root: Path, where: Path, again: Path) -> None:
    log = spool.log("visits", create=True)
    log.publish(b"0")
    log.channel("c").create("first", expires=60)
    snapshot = backup(root, where).path
    old = time.time() - 3600
    for path in (snapshot / "logs/visits/channels/c").iterdir():
        os.utime(path, (old, old))
    with Spool(restore(snapshot, again).root, sync="none") as copy:
        copy.deliver()
        assert copy.log("visits").channel("c").delete_if_unused() is False
        assert copy.log("visits").channels() == ["c"]


# -- places and messages that move during a backup ------------------------------------------------


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


def test_only_a_spool_is_backed_up(tmp_path: Path, where: Path) -> None:
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(UnusableSpool, match="no spool"):
            backup(root, where)
    assert not where.exists() or listed(where) == []


def test_an_old_message_with_a_new_ones_id_is_copied(spool: Spool, root: Path, where: Path) -> None:
    """A new message goes with its purged folder; an older one of its id moves to the queue."""
    first, between, last = (spool.queue(name, create=True) for name in ("a", "b", "c"))
    first.put_many([b""] * 1100)  # a purge of this many moves the folder
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


def test_a_message_is_copied_while_its_id_is_reaped(spool: Spool, root: Path, where: Path) -> None:
    """A purged message of the same id is unlinked."""
    first, between, last = (spool.queue(name, create=True) for name in ("a", "b", "c"))
    first.put_many([b""] * 1100)  # a purge of this many moves the folder
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


def test_a_moved_message_with_a_reused_id_is_copied(spool: Spool, root: Path, where: Path) -> None:
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
    spool: Spool, root: Path, where: Path, again: Path, to: str | None
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
    with Spool(restore(taken.path, again).root, sync="none") as copy:
        assert present(copy.indexed(to or "by-id").find("x")).body == b"back"
        assert copy.indexed("dead").find("y") is None
        assert [message.body for message in copy.queue("dead").peek(9)] == [b"left"]


def test_symbolic_links_are_left_out(jobs: Queue, root: Path, where: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (root / "queues/jobs/link").symlink_to(secret)
    (root / "config/link.json").symlink_to(secret)
    os.mkfifo(root / "delay/jobs:pipe")
    taken = backup(root, where)
    assert set(taken.left_out) == {"queues/jobs/link", "delay/jobs:pipe"}
    assert "secret" not in str(files(taken.path))


def test_modes_are_kept(jobs: Queue, root: Path, where: Path, again: Path) -> None:
    modes = {".": 0o700, "new": 0o700, "queues/jobs": 0o750, "queues/jobs/own": 0o600}
    jobs.put(b"private", id="own")
    os.chmod(root / "queues/jobs", 0o750)
    taken = backup(root, where).path
    for copy in (taken, restore(taken, again).root):
        assert {path: (copy / path).stat().st_mode & 0o777 for path in modes} == modes


def test_two_backups_to_one_place_do_not_overlap(jobs: Queue, root: Path, where: Path) -> None:
    def start_another(step: str, done: int, of: int) -> None:
        if step == "checking":
            with pytest.raises(Unavailable, match="another backup"):
                backup(root, where)
            steps.append(step)

    steps: list[str] = []
    backup(root, where, progress=start_another)
    assert steps == ["checking"]
    assert len(listed(where)) == 1


def test_a_backup_of_a_removed_spool_leaves_nothing(jobs: Queue, root: Path, where: Path) -> None:
    jobs.put_many([b"x"] * 100)
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


def test_no_program_starts_in_a_restore(jobs: Queue, root: Path, where: Path, again: Path) -> None:
    jobs.put_many([b"x"] * 20)
    snapshot, tries = backup(root, where).path, []

    def start(done: int) -> None:
        with pytest.raises(UnusableSpool):
            Spool(again)
        tries.append(done)

    restore(snapshot, again, progress=start)
    assert len(tries) >= 20
    assert len(visible(again)) == 20


def test_a_failed_restore_leaves_nothing(jobs: Queue, root: Path, where: Path, again: Path) -> None:
    jobs.put(b"one")
    snapshot = backup(root, where).path
    empty = again.with_name("empty")
    empty.mkdir()

    def fail(done: int) -> None:
        raise OSError(28, "No space left on device")

    for target in (again, empty):
        with pytest.raises(Unavailable, match="cannot restore"):
            restore(snapshot, target, progress=fail)
    assert not again.exists()
    assert os.listdir(empty) == []


# -- kills ----------------------------------------------------------------------------------------


def test_a_killed_backup_leaves_no_partial_snapshot(
    rich: Spool, root: Path, where: Path, clock: Clock
) -> None:
    expected = backup(root, where)
    for at in count(0, 7):
        before = set(listed(where))
        died = run_and_die(root, lambda spool: backup(root, where), at, clock)
        if died is None:
            break
        # It may be complete if the process was killed after the last step.
        for name in set(listed(where)) - before:
            if name[0] != ".":
                assert str(check(where / name)) == "clean"
    assert at > 30
    taken = backup(root, where, keep=1)
    assert listed(where) == [taken.path.name]
    assert taken.messages == expected.messages


def test_a_killed_restore_leaves_nothing_or_the_whole_spool(
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
def test_events_of_a_rename_may_come_apart(root: Path, monkeypatch: Any, stopped_s: float) -> None:
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
