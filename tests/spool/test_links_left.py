"""Links of given ids are removed with their messages, even when processes die."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import NewMessage, Spool, prepare, stale_links
from fsmq.spool.durability.ids import LOCK, hold
from fsmq.spool.fsck import check
from fsmq.spool.layout.tree import Tree
from fsmq.spool.reaper import Reaper
from fsmq.spool.stale_links import StaleLinks
from tests.harness.suite import Suite, eventually

IDS = [f"order-{number}" for number in range(5)]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "mq", sync="none")
    spool.create_queue("jobs", index=True)
    return spool


def new(given_id: str, body: bytes = b"x") -> NewMessage:
    return NewMessage(body, id=given_id)


def put(spool: Spool, queue: str = "jobs") -> None:
    spool.indexed(queue).upsert([new(one) for one in IDS])
    spool.deliver()


def links(root: Path) -> list[str]:
    return sorted(
        f"{index.name}/{link.name}"
        for index in (root / "ids").iterdir()
        if index.is_dir()
        for link in index.iterdir()
        if link.name != LOCK
    )


def assert_nothing_left(spool: Spool) -> None:
    assert links(spool.tree.root) == []
    assert check(spool.tree.root, offline=True).findings == []


def fail(monkeypatch: pytest.MonkeyPatch, call: str, code: int, part: str, at: int = 0) -> None:
    """Let a call of the tree fail for paths that contain ``part``. at: the index of the path."""
    real = getattr(Tree, call)

    def failing(tree: Tree, *arguments: Any, **more: Any) -> Any:
        if part in arguments[at] and (call != "rename" or tree.stat(arguments[0])):
            raise OSError(code, os.strerror(code), arguments[at])
        return real(tree, *arguments, **more)

    monkeypatch.setattr(Tree, call, failing)


def ack(spool: Spool) -> None:
    spool.queue("jobs").claim(len(IDS))
    assert spool.indexed("jobs").ack(*IDS) == [True] * len(IDS)


def remove(spool: Spool) -> None:
    assert spool.indexed("jobs").remove(*IDS) == [True] * len(IDS)


def purge(spool: Spool) -> None:
    spool.queue("jobs").purge()


def move_and_purge(spool: Spool) -> None:
    spool.create_queue("plain")
    spool.queue("jobs").move_to("plain")
    spool.queue("plain").purge()


def move_and_delete(spool: Spool) -> None:
    spool.create_queue("plain")
    spool.queue("jobs").move_to("plain")
    spool.delete_queue("plain")


@pytest.mark.parametrize("act", [ack, remove, purge, move_and_purge, move_and_delete])
def test_removals_free_space_on_a_full_disk(
    spool: Spool, act: Callable[[Spool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool)
    with monkeypatch.context() as full:
        fail(full, "rename", errno.ENOSPC, "remove/", at=1)
        fail(full, "make_entry", errno.ENOSPC, "remove/")
        act(spool)
    assert os.listdir(spool.tree.root / "remove") == []
    assert_nothing_left(spool)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM])
def test_a_file_that_cannot_be_opened_is_kept_with_its_links_for_a_retry(
    spool: Spool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool)
    remove(spool)
    reaper = Reaper(spool.tree)
    with monkeypatch.context() as failing:
        fail(failing, "open", code, "remove/")
        assert reaper.run() == 0
        assert reaper.fault is not None
        assert reaper.fault.errno == code
    assert len(os.listdir(spool.tree.root / "remove")) == len(IDS)
    assert Reaper(spool.tree).run() == len(IDS)
    assert_nothing_left(spool)


def prepare_and_die(spool: Spool, put: Callable[[Spool], object]) -> None:
    if not (child := os.fork()):
        try:
            with Spool(spool.tree.root, sync="none", delivers=False) as dying:
                put(dying)
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def ensure_all(spool: Spool) -> object:
    return prepare.ensure(spool.context, "jobs", [new(one) for one in IDS])


def upsert_all(spool: Spool) -> object:
    return prepare.upsert(spool.context, "jobs", [new(one, b"other") for one in IDS])


@pytest.mark.parametrize("exists", [False, True])
def test_a_purge_removes_the_links_of_dead_puts(spool: Spool, exists: bool) -> None:
    if exists:
        put(spool)
    prepare_and_die(spool, upsert_all if exists else ensure_all)
    assert len(links(spool.tree.root)) == len(IDS) * (1 + exists)
    purge(spool)
    spool.reap()
    assert_nothing_left(spool)


def test_a_purge_keeps_the_links_of_living_puts(spool: Spool) -> None:
    held = hold(spool.tree, {"jobs": IDS})  # like a stopped put
    assert held is not None
    with held:
        (spool.tree.root / "ids" / "jobs" / IDS[0]).touch()
        purge(spool)
        check_all_links(spool)
        assert links(spool.tree.root) == [f"jobs/{IDS[0]}"]
    check_all_links(spool)
    assert_nothing_left(spool)


def check_all_links(spool: Spool) -> list[str]:
    """Check all indexes once and return the paths that failed."""
    faults: list[str] = []
    one = StaleLinks(spool.tree, lambda path, error: faults.append(path))
    while one.step() < stale_links.EVERY_S:
        one._due = 0.0
    return faults


def test_a_check_removes_links_without_a_message(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale_links, "_STEP", 2)
    put(spool)
    spool.create_queue("other", index=True)
    put(spool, "other")
    before = links(spool.tree.root)
    for queue in ("jobs", "other"):
        for path in (spool.tree.root / "queues" / queue).iterdir():
            path.unlink()  # like a process that dies after it
        spool.indexed(queue).ensure(new("new"))
    (spool.tree.root / "ids" / "jobs" / ".next-order-1").touch()
    assert check_all_links(spool) == []
    assert links(spool.tree.root) == ["jobs/new", "other/new"]
    assert len(before) == 2 * len(IDS)
    assert spool.indexed("jobs").find("new") is not None


def test_a_check_keeps_the_links_of_messages(spool: Spool) -> None:
    put(spool)
    prepare_and_die(spool, upsert_all)
    spool.indexed("jobs").claim(IDS[0])
    before = links(spool.tree.root)
    assert check_all_links(spool) == []
    assert links(spool.tree.root) == before
    assert all(spool.indexed("jobs").find(one) is not None for one in IDS)


def test_a_check_looks_again_under_the_lock_before_it_removes_a_link(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(spool)
    before = links(spool.tree.root)
    monkeypatch.setattr(stale_links, "_leads_nowhere", lambda found: True)
    assert check_all_links(spool) == []
    assert links(spool.tree.root) == before


def test_a_link_that_cannot_be_read_does_not_stop_a_check(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in IDS:
        (spool.tree.root / "ids" / "jobs" / one).touch()
    with monkeypatch.context() as failing:
        fail(failing, "open", errno.EACCES, IDS[2])
        assert check_all_links(spool) == [f"ids/jobs/{IDS[2]}"]
    assert links(spool.tree.root) == [f"jobs/{IDS[2]}"]
    assert check_all_links(spool) == []
    assert_nothing_left(spool)


def test_the_reaper_checks_all_links_when_it_starts(spool: Spool) -> None:
    put(spool)
    for path in (spool.tree.root / "queues" / "jobs").iterdir():
        path.unlink()
    with Suite(spool.tree.root, mover=False):
        eventually(lambda: not links(spool.tree.root))
