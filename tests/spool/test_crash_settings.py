"""Queues with settings are created, changed and deleted while a call fails or the process dies.

Then the queue exists as it was, with its kind, settings and index; or it does not exist, and the
next queue of its name has nothing of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import FsmqError, InvalidValue, NewMessage, NoSuchQueue, QueueSettings, Spool
from fsmq.spool.fsck import Severity, check
from fsmq.spool.layout.settings import DEFAULTS
from tests.harness.calls import Trap, failing, seen
from tests.spool.crashing import Verb, run_and_die
from tests.spool.helpers import Clock, visible

KINDS = ["fifo", "index"]
BURIES = {"max_deliveries": 3, "dead_letter_queue": "dead"}


def settings_of(kind: str) -> QueueSettings:
    return DEFAULTS.changed({kind: True, **BURIES})


def make(root: Path, kind: str, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        queue = spool.queue("jobs")
        spool.create_queue("jobs", **{kind: True})
        queue.configure(**BURIES)
        if kind == "index":
            spool.indexed("jobs").upsert([NewMessage(b"x", id="given")])
        else:
            queue.put(b"x", group="g", dedup_id="given")


def failures(
    root: Path, clock: Clock, kind: str, verb: Verb, *, is_there: bool
) -> Iterator[tuple[bool, Path]]:
    """The tree after each call of a verb that failed, or before which the process was killed."""
    for way in ("EIO", "kill"):
        for at in range(1000):
            tree = root / way / str(at)
            if is_there:
                make(tree, kind, clock)
            if way == "kill":
                acknowledged = run_and_die(tree, verb, at, clock)
                if acknowledged is None:
                    break
                yield acknowledged, tree
                continue
            acknowledged = False
            trap = Trap(at, failing(0))
            with Spool(tree, sync="fsync", workers=1, clock=clock) as spool:
                with seen(trap), suppress(FsmqError):
                    verb(spool)
                    acknowledged = True
                if not trap.is_sprung:
                    break
            yield acknowledged, tree
        else:
            raise AssertionError("the verb did not end")
        assert at > 3


def check_kind(tree: Path, kind: str, clock: Clock, settings: QueueSettings) -> None:
    """The queue has its settings, and asks for what messages of its kind need."""
    with Spool(tree, sync="none", clock=clock) as spool:
        assert spool.settings("jobs") == settings
        if kind == "fifo":
            with pytest.raises(InvalidValue):
                spool.queue("jobs").put(b"without a group")
        else:
            spool.indexed("jobs").upsert([NewMessage(b"y", id="another")])
            assert spool.indexed("jobs").find("another") is not None
    errors = [f for f in check(tree, offline=True).findings if f.severity is Severity.ERROR]
    assert errors == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_deletion_keeps_a_whole_queue_or_none(root: Path, clock: Clock, kind: str) -> None:
    outcomes = set()
    for acknowledged, tree in failures(
        root, clock, kind, lambda spool: spool.delete_queue("jobs"), is_there=True
    ):
        is_there = (tree / "queues" / "jobs").exists()
        outcomes.add(is_there)
        if is_there:
            assert not acknowledged
            check_kind(tree, kind, clock, settings_of(kind))
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failed_deletion_the_next_queue_is_new(root: Path, clock: Clock, kind: str) -> None:
    def delete(spool: Spool) -> None:
        spool.delete_queue("jobs")

    for number, (_, tree) in enumerate(failures(root, clock, kind, delete, is_there=True)):
        is_there = (tree / "queues" / "jobs").exists()
        with Spool(tree, sync="none", clock=clock) as spool:
            if is_there or number % 2:
                try:
                    spool.delete_queue("jobs")
                except NoSuchQueue:
                    assert not is_there
                assert list((tree / "config").iterdir()) == []
                assert not (tree / "ids" / "jobs").exists()
            assert spool.create_queue("jobs")
            assert spool.settings("jobs") == DEFAULTS
            assert list((tree / "config").iterdir()) == []
            assert not (tree / "ids" / "jobs").exists()
            spool.queue("jobs").put(b"plain")
            assert [m.body for m in spool.queue("jobs").claim(9)] == [b"plain"]
        assert [queue for queue, _ in visible(tree)] == ["jobs"]


def delete_while_another_puts(spool: Spool) -> None:
    """A message is put after the folders were listed, just before the queue's folder is moved."""
    rename = spool.tree.rename

    def renamed(source: str, target: str, *, replace: bool = False) -> bool:
        if source == "queues/jobs":
            with Spool(spool.tree.root, sync="none", delivers=False, watch="poll") as other:
                other.queue("jobs").put(b"old")
        return rename(source, target, replace=replace)

    spool.tree.rename = renamed  # type: ignore[method-assign]
    spool.delete_queue("jobs")


@pytest.mark.parametrize("is_retried", [False, True])
def test_after_a_killed_deletion_the_next_queue_gets_no_old_message(
    root: Path, clock: Clock, is_retried: bool
) -> None:
    outcomes = set()
    for at in range(1000):
        tree = root / str(at)
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.create_queue("jobs")
            spool.create_topic("news")
            spool.subscribe("news", "jobs")
        if run_and_die(tree, delete_while_another_puts, at, clock) is None:
            break
        is_there = (tree / "queues" / "jobs").exists()
        outcomes.add(is_there)
        with Spool(tree, sync="none", clock=clock) as spool:
            if is_there or is_retried:
                with suppress(NoSuchQueue):
                    spool.delete_queue("jobs")
                assert spool.subscriptions("news") == {}
                assert visible(tree) == []
            assert spool.create_queue("jobs")
            assert spool.subscriptions("news") == {}
            spool.deliver()
            assert spool.queue("jobs").claim(9) == []
            spool.reap()
            assert os.listdir(tree / "queues") == ["jobs"]
    assert outcomes == {True, False}


def test_a_message_of_a_shell_user_waits_for_its_queue(root: Path, spool: Spool) -> None:
    spool.create_topic("news")
    (root / "topics" / "news" / "jobs").touch()
    (root / "new" / "jobs:first").write_bytes(b"first")
    spool.create_queue("jobs")
    assert list(spool.subscriptions("news")) == ["jobs"]
    assert visible(root) == [("jobs", "first")]


def test_a_queue_made_by_hand_in_a_deletion_keeps_its_messages(root: Path, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        spool.create_queue("jobs")
        os.rename(root / "queues" / "jobs", root / "queues" / ".jobs")  # a deletion dies here
        os.mkdir(root / "queues" / "jobs")
        message_id = spool.queue("jobs").put(b"x")
        assert not spool.create_queue("jobs")
        assert visible(root) == [("jobs", message_id)]
        spool.delete_queue("jobs")
        assert os.listdir(root / "queues") == []
        assert visible(root) == []


def test_fsck_reports_an_unfinished_deletion(root: Path, spool: Spool) -> None:
    spool.create_queue("jobs")
    os.rename(root / "queues" / "jobs", root / "queues" / ".jobs")
    [finding] = check(root, offline=True).findings
    assert finding.path == "queues/.jobs"
    with pytest.raises(NoSuchQueue):
        spool.delete_queue("jobs")
    assert check(root, offline=True).findings == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_creation_makes_a_whole_queue_or_none(root: Path, clock: Clock, kind: str) -> None:
    outcomes = set()
    for acknowledged, tree in failures(
        root, clock, kind, lambda spool: spool.create_queue("jobs", **{kind: True}), is_there=False
    ):
        is_there = (tree / "queues" / "jobs").exists()
        outcomes.add(is_there)
        if is_there:
            check_kind(tree, kind, clock, DEFAULTS.changed({kind: True}))
            continue
        assert not acknowledged
        with Spool(tree, sync="none", clock=clock) as spool:
            assert spool.create_queue("jobs")  # a plain one
            assert spool.settings("jobs") == DEFAULTS
            assert not (tree / "ids" / "jobs").exists()
    assert outcomes == {True, False}


def test_leftovers_of_a_deletion_are_removed_after_its_rename_is_synced(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A deletion died between its rename and its sync: a power cut may bring the queue back.
    spool.create_queue("jobs", fifo=True)
    (root / "queues" / "jobs").rename(root / "remove" / "jobs:gone")
    steps: list[str] = []
    sync, unlink = spool.tree.sync_folder, spool.tree.unlink

    def noted_sync(folder: str) -> None:
        steps.append(folder)
        sync(folder)

    def noted_unlink(path: str) -> bool:
        steps.append(path)
        return unlink(path)

    monkeypatch.setattr(spool.tree, "sync_folder", noted_sync)
    monkeypatch.setattr(spool.tree, "unlink", noted_unlink)
    assert spool.create_queue("jobs")
    assert steps.index("queues") < steps.index("config/jobs.json")
    assert steps.index("remove") < steps.index("config/jobs.json")


def test_a_queue_is_deleted_on_a_full_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.create_queue("jobs", fifo=True)
    create = spool.tree.create

    def full(path: str, flags: int = os.O_CREAT) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(path, flags)

    monkeypatch.setattr(spool.tree, "create", full)
    spool.delete_queue("jobs")
    assert spool.queues() == []
    assert list((spool.tree.root / "config").iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_settings_can_be_changed_without_locks(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    assert spool.create_queue("jobs", fifo=True)
    assert spool.queue("jobs").configure(retention=60).retention == 60
    assert sorted(os.listdir(root / "config")) == [".jobs.claims", "jobs.json"]
    spool.delete_queue("jobs")
    assert os.listdir(root / "config") == []
