"""Movers remove locks and drafts that dead processes left, and no other files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable
from fsmq.spool.durability import left_files
from fsmq.spool.durability.left_files import remove_left_files
from fsmq.spool.durability.locks import Lock, lock
from fsmq.spool.fsck import check
from fsmq.spool.layout.names import is_scratch
from fsmq.spool.layout.transitions import CONFIG
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.log.idempotent import publish_once
from fsmq.spool.log.log import LogEntry
from fsmq.spool.probe import probe
from fsmq.spool.probe.trials import Trials
from fsmq.spool.records import peers
from tests.harness.calls import Trap, seen
from tests.spool.helpers import Clock

SHARED = (".orders.claims", ".orders.limits", ".orders.sends")


def kill_at_rename(verb: Callable[[], object], name: str) -> None:
    """Run a verb in a child that dies before it renames a file to this name."""
    if (child := os.fork()) == 0:
        rename = os.rename

        def kill(source: str, target: str, **more: int) -> None:
            if target.endswith(name):
                os._exit(9)
            rename(source, target, **more)

        with mock.patch("os.rename", kill):
            verb()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def hold(spool: Spool, name: str) -> Lock:
    held = lock(spool.tree, spool.tree.folder(CONFIG, name), os.O_CREAT)
    assert held is not None
    return held


def config(root: Path) -> list[str]:
    return sorted(os.listdir(root / "config"))


def test_what_a_killed_probe_left_is_removed(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is killed again and again when it starts leaves something each time."""
    if (child := os.fork()) == 0:
        with mock.patch.object(Trials, "_events", side_effect=partial(os._exit, 9)):
            probe(root)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    [left] = [name for name in config(root) if is_scratch(name)]
    assert os.listdir(root / "config" / left) != []
    remove_left_files(spool.tree)
    assert left in config(root)  # that probe may be stopped
    monkeypatch.setattr(left_files, "_OLD_S", 0.0)
    remove_left_files(spool.tree)
    assert left not in config(root)
    assert check(root).findings == []


def test_files_that_were_locked_when_their_queue_was_deleted_are_removed_later(
    spool: Spool, root: Path
) -> None:
    spool.create_queue("orders", fifo=True)
    held = [hold(spool, name) for name in SHARED[:2]]
    spool.delete_queue("orders")
    assert config(root) == sorted(SHARED[:2])
    assert remove_left_files(spool.tree) == 0
    for one in held:
        one.unlock()
    found = check(spool.tree, offline=True, pause=0).findings
    assert sorted(one.path for one in found) == [f"config/{name}" for name in SHARED[:2]]
    assert remove_left_files(spool.tree) == 2
    assert config(root) == []


def test_fsck_and_movers_remove_them(spool: Spool, root: Path) -> None:
    hold(spool, SHARED[0]).unlock()
    assert len(check(spool.tree, repair=True, offline=True, pause=0).repaired) == 1
    assert config(root) == []
    hold(spool, SHARED[0]).unlock()
    spool.deliver()
    assert config(root) == []


def test_the_shared_files_of_an_existing_queue_stay(spool: Spool, root: Path) -> None:
    spool.create_queue("orders", fifo=True)
    spool.queue("orders").put("x", group="g")
    spool.queue("orders").claim()
    before = config(root)
    assert remove_left_files(spool.tree) == 0
    assert config(root) == before


@pytest.mark.parametrize(
    "name", [".jobs.lock", "._topic:news.lock", "._log:users.lock", "._schedule:nightly.lock"]
)
def test_a_lock_whose_holder_died_is_removed(spool: Spool, root: Path, name: str) -> None:
    held = hold(spool, name)
    assert remove_left_files(spool.tree) == 0
    held.unlock()
    assert remove_left_files(spool.tree) == 1
    assert config(root) == []


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_mover_removes_the_files_of_a_failed_creation(
    root: Path, call: str, is_killed: bool
) -> None:
    """The client got an error and need not retry the name."""

    def create(spool: Spool) -> None:
        spool.create_queue("tmp", index=True)

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == call and (call != "mkdir" or arguments[0] == "queues/tmp"):
            if is_killed:
                os._exit(9)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Spool(root, sync="none") as spool:
        if is_killed:
            if (child := os.fork()) == 0:
                with seen(fail):
                    create(spool)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        else:
            with seen(fail), pytest.raises(Unavailable):
                create(spool)
    with Spool(root, sync="none") as spool:
        spool.deliver()
        assert spool.queues() == []
        assert [name for name in config(root) if not name.endswith(".tmp")] == []
        assert [name for name in os.listdir(root / "ids") if name[0] != "."] == []


def test_a_mover_completes_a_deletion(spool: Spool, root: Path) -> None:
    spool.create_queue("tmp", index=True)
    spool.indexed("tmp").upsert([NewMessage(b"x", id="1")])

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "_rename2" and arguments[2].startswith("remove/.ids"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with seen(fail), pytest.raises(Unavailable):
        spool.delete_queue("tmp")
    with Spool(root, sync="none") as other:
        other.deliver()
    assert config(root) == []
    assert os.listdir(root / "queues") == []
    assert [name for name in os.listdir(root / "ids") if name[0] != "."] == []


def test_settings_of_a_queue_that_does_not_exist_yet_stay(spool: Spool, root: Path) -> None:
    (root / "config" / "later.json").write_text("{}")
    spool.deliver()
    with Spool(root, sync="none") as other:
        other.deliver()
    assert config(root) == ["later.json"]


def test_an_old_draft_of_a_dead_process_is_removed(
    jobs: Queue, spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_rename(lambda: jobs.configure(visibility_timeout=9), "jobs.json")
    draft, locked = config(root)
    assert (draft[-4:], locked) == (".tmp", ".jobs.lock")
    assert remove_left_files(spool.tree) == 1  # the lock
    assert config(root) == [draft]
    spool.topic("news", create=True)
    (root / "topics" / "news" / f".{uuid7()}.tmp").touch()
    (root / "topics" / "news" / ".other").touch()
    monkeypatch.setattr(left_files, "_OLD_S", 0.0)
    assert remove_left_files(spool.tree) == 2


def test_old_drafts_of_moves_and_logs_are_removed(
    jobs: Queue, spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = spool.log("users", create=True)
    channel = log.channel("mailer", create=True)

    def publish() -> None:
        with Spool(root, sync="none") as other:
            publish_once(other.log("users"), "loader", 1, [LogEntry(b"x")])

    kill_at_rename(lambda: spool.begin_move("jobs", "jobs2"), ".json")
    kill_at_rename(lambda: log.configure(retain_for=77), "log.json")
    kill_at_rename(lambda: channel.configure(max_deliveries=7), "channel.json")
    kill_at_rename(publish, "loader.json")
    folders = ("moves", "logs/users", "logs/users/channels/mailer", "logs/users/writers")
    assert all(drafts(root / folder) for folder in folders)
    remove_left_files(spool.tree)
    assert all(drafts(root / folder) for folder in folders)
    monkeypatch.setattr(left_files, "_OLD_S", 0.0)
    remove_left_files(spool.tree)
    assert not any(drafts(root / folder) for folder in folders)
    assert channel.settings().max_deliveries is None


def drafts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_a_draft_is_young_for_a_host_whose_clock_is_ahead(
    jobs: Queue, spool: Spool, root: Path, clock: Clock
) -> None:
    """Its writer may be alive; its change would fail with 503."""
    kill_at_rename(lambda: jobs.configure(visibility_timeout=9), "jobs.json")
    draft = config(root)[0]
    (root / "logs" / f".{uuid7()}").mkdir()
    clock.advance(7200)
    spool.deliver()
    spool.tend_logs()
    assert config(root)[0] == draft
    assert len(os.listdir(root / "logs")) == 1


def test_zones_without_consumers_are_forgotten(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers.beat_zone(spool.tree, "east")
    spool.deliver()
    peers.forget_zones(spool.tree)
    assert os.listdir(root / "peers") == [".zone@east"]
    monkeypatch.setattr(peers, "_FORGOTTEN_S", 0.0)
    peers.forget_zones(spool.tree)
    assert os.listdir(root / "peers") == []


def test_zones_with_a_consumer_are_limited(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MOST_ZONES", 3)
    for zone in ("a", "b", "c"):
        peers.beat_zone(spool.tree, zone)
    with pytest.raises(Unavailable, match="3 zones have a consumer"):
        peers.beat_zone(spool.tree, "d")
    peers.beat_zone(spool.tree, "a")
    assert len(os.listdir(root / "peers")) == 3
    monkeypatch.setattr(peers, "DEAD_AFTER_S", 0.0)  # from now on they have none
    peers.beat_zone(spool.tree, "d")
    assert os.listdir(root / "peers") == [".zone@d"]


def test_a_subscriber_whose_draft_was_removed_may_retry(
    spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_files, "_OLD_S", -1.0)
    topic = spool.topic("news", create=True)
    spool.create_queue("jobs")

    def sweep(name: str, arguments: tuple[Any, ...]) -> None:
        with Spool(root, sync="none") as other:
            remove_left_files(other.tree)

    with seen(Trap("rename", sweep)), pytest.raises(Unavailable):
        topic.subscribe("jobs")
    topic.subscribe("jobs")
    assert list(topic.subscriptions()) == ["jobs"]
