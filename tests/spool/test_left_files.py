"""Small files that programs which died have left: a mover removes them, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from fsmq.spool import Queue, Spool
from fsmq.spool.durability import left_files
from fsmq.spool.durability.left_files import remove_left_files
from fsmq.spool.durability.locks import Lock, lock
from fsmq.spool.fsck import check
from fsmq.spool.layout.transitions import CONFIG
from fsmq.spool.layout.uuids import uuid7
from tests.spool.helpers import Clock

SHARED = (".orders.claims", ".orders.limits", ".orders.sends")


def dies(verb: Callable[[], object], root: Path, name: str) -> None:
    """A program does something, and is killed where a file gets the name that is meant."""
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


def test_what_was_held_when_its_queue_went_goes_later(spool: Spool, root: Path) -> None:
    spool.create_queue("orders", fifo=True)
    held = [hold(spool, name) for name in SHARED[:2]]
    spool.delete_queue("orders")
    assert config(root) == sorted(SHARED[:2])
    assert remove_left_files(spool.tree) == 0
    for one in held:
        one.unlock()  # as by a program that was stopped, and is killed now
    found = check(spool.tree, offline=True, pause=0).findings
    assert sorted(one.path for one in found) == [f"config/{name}" for name in SHARED[:2]]
    assert remove_left_files(spool.tree) == 2
    assert config(root) == []


def test_fsck_removes_it_too(spool: Spool, root: Path) -> None:
    hold(spool, SHARED[0]).unlock()
    assert len(check(spool.tree, repair=True, offline=True, pause=0).repaired) == 1
    assert config(root) == []


def test_what_is_shared_of_a_queue_that_is_there_stays(spool: Spool, root: Path) -> None:
    spool.create_queue("orders", fifo=True)
    spool.queue("orders").put("x", group="g")
    spool.queue("orders").claim()
    before = config(root)
    assert remove_left_files(spool.tree) == 0
    assert config(root) == before


@pytest.mark.parametrize("name", [".jobs.lock", "._topic:news.lock", "._log:users.lock"])
def test_a_lock_whose_holder_died_goes(spool: Spool, root: Path, name: str) -> None:
    held = hold(spool, name)
    assert remove_left_files(spool.tree) == 0
    held.unlock()
    assert remove_left_files(spool.tree) == 1
    assert config(root) == []


def test_a_draft_of_a_program_that_died_goes_when_it_is_old(
    jobs: Queue, spool: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies(lambda: jobs.configure(visibility_timeout=9), root, "jobs.json")
    draft, locked = config(root)
    assert (draft[-4:], locked) == (".tmp", ".jobs.lock")
    assert remove_left_files(spool.tree) == 1  # the lock
    assert config(root) == [draft]
    spool.topic("news", create=True)
    (root / "topics" / "news" / f".{uuid7()}.tmp").touch()
    (root / "topics" / "news" / ".other").touch()
    monkeypatch.setattr(left_files, "_OLD_S", 0.0)
    assert remove_left_files(spool.tree) == 2


def test_a_draft_is_young_for_a_host_whose_clock_is_ahead(
    jobs: Queue, spool: Spool, root: Path, clock: Clock
) -> None:
    """Who writes it lives: its change would be answered with 503."""
    dies(lambda: jobs.configure(visibility_timeout=9), root, "jobs.json")
    draft = config(root)[0]
    (root / "logs" / f".{uuid7()}").mkdir()
    clock.advance(7200)
    spool.deliver()
    spool.tend_logs()
    assert config(root)[0] == draft
    assert len(os.listdir(root / "logs")) == 1


def test_a_mover_does_it(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        hold(spool, SHARED[0]).unlock()
        spool.deliver()
        assert config(root) == []
