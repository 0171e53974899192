"""Removing messages, purging and deleting queues, reaping."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, Message, NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.context import Context
from fsmq.spool.layout.transitions import Transition
from fsmq.spool.layout.tree import Tree
from fsmq.spool.reaper import reap
from fsmq.spool.verbs import remove_known
from fsmq.spool.verbs.latch import Latched
from fsmq.spool.verbs.removal import remove_ready
from tests.harness.calls import seen
from tests.spool.helpers import Clock, await_a_later_ctime, nest, tree_of, visible


@pytest.mark.parametrize("state", ["new", "ready", "in flight", "delayed"])
def test_a_message_is_removed_in_every_state(
    spool: Spool, jobs: Queue, root: Path, state: str
) -> None:
    message_id = jobs.put(b"x", delay=60 if state == "delayed" else None)
    if state != "new":
        spool.deliver()
    if state == "in flight":
        jobs.claim()
    assert jobs.remove(message_id) == 1
    assert visible(root) == []
    assert [p.name for p in (root / "remove").iterdir()] == [f"jobs:{message_id}"]
    assert jobs.remove(message_id) == 0


def test_a_removal_reports_which_messages_existed(spool: Spool, jobs: Queue) -> None:
    one, two = jobs.put_many([b"1", b"2"])
    removal = prepare.remove(spool.context, "jobs", [one, "not-there", two])
    assert spool.complete(removal) == [True, False, True]


def test_a_removal_with_an_invalid_id_removes_nothing(jobs: Queue) -> None:
    good = jobs.put(b"x")
    with pytest.raises(InvalidValue):
        jobs.remove(good, "../x")
    assert jobs.find(good) is not None


def test_purge_removes_messages_of_every_state_and_keeps_the_queue(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    other = spool.queue("other", create=True).put(b"kept")
    jobs.configure(max_depth=100)
    jobs.put_many([b"ready", b"in flight", NewMessage(b"delayed", delay=60)])
    jobs.claim()
    jobs.put(b"new")
    assert jobs.counts().total == 4
    jobs.purge()
    assert jobs.counts().total == 0
    assert jobs.claim() == []
    assert jobs.settings().max_depth == 100
    assert visible(root) == [("other", other)]
    jobs.put(b"again")
    assert [m.body for m in jobs.claim()] == [b"again"]


def test_a_purge_removes_unfinished_puts(spool: Spool, jobs: Queue, root: Path) -> None:
    prepare.put(spool.context, "jobs", [NewMessage(b"of a dead writer")])
    jobs.purge()
    with Spool(root, sync="none") as again:
        again.deliver()
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


def test_a_purge_removes_messages_that_are_delivered_meanwhile(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    for _ in range(8):
        jobs.put_many([b"x"] * 200)
        mover = threading.Thread(target=spool.deliver)
        mover.start()
        jobs.purge()
        mover.join()
        assert visible(root) == []


def test_a_purge_removes_messages_whose_claims_end_meanwhile(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    for _ in range(5):
        jobs.put_many([b"x"] * 200)
        assert len(jobs.claim(200, visibility=1)) == 200
        clock.advance(1)
        mover = threading.Thread(target=spool.deliver)
        mover.start()
        jobs.purge()
        mover.join()
        assert visible(root) == []


def test_a_reaper_at_work_does_not_disturb_a_purge(spool: Spool, jobs: Queue) -> None:
    over = threading.Event()

    def reap() -> None:
        while not over.is_set():
            spool.reap()

    reaper = threading.Thread(target=reap)
    reaper.start()
    try:
        for _ in range(300):
            jobs.purge()
    finally:
        over.set()
        reaper.join()


def test_a_deletion_removes_messages_and_settings(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    jobs.configure(max_depth=100)
    jobs.put_many([b"ready", b"in flight", NewMessage(b"delayed", delay=60)])
    jobs.claim(visibility=1)
    jobs.put(b"new")
    spool.delete_queue("jobs")
    assert spool.queues() == []
    assert tree_of(root) == {"new": [], "delay": []}
    assert list((root / "config").iterdir()) == []
    again = spool.queue("jobs", create=True)
    clock.advance(100)
    assert again.claim(10) == []
    assert again.settings().max_depth is None
    spool.reap()
    assert list((root / "remove").iterdir()) == []


def test_a_deletion_does_not_affect_queues_with_similar_names(spool: Spool, root: Path) -> None:
    names = ["a", "a:b", "a:", "aa", "b"]
    for name in names:
        spool.queue(name, create=True).put(b"x")
        spool.queue(name).put(b"x", delay=9)
    spool.deliver()
    spool.delete_queue("a")
    assert sorted({queue for queue, _ in visible(root)}) == sorted(set(names) - {"a"})


def test_a_queue_that_a_shell_creates_during_its_deletion_keeps_its_messages(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between the rename of the deletion and its next listing, a shell creates the queue without a
    # lock, and a message is put.
    old = spool.queue("jobs", create=True)
    old.put(b"old", id="old")
    await_a_later_ctime(root / "queues" / "jobs" / "old")
    listing = spool.tree.names

    def slow_listing(path: str) -> list[str]:
        with Spool(root, sync="none", delivers=False) as other:
            if not other.has_queue("jobs"):
                (root / "queues" / "jobs").mkdir()
                other.queue("jobs").put(b"new", id="new")
        return listing(path)

    monkeypatch.setattr(spool.tree, "names", slow_listing)
    spool.delete_queue("jobs")
    assert visible(root) == [("jobs", "new")]


def test_a_reaper_unlinks_files_and_whole_queues(spool: Spool, jobs: Queue, root: Path) -> None:
    jobs.put_many([b"x"] * 10)
    spool.deliver()
    removed = jobs.put(b"y")
    jobs.remove(removed)
    spool.delete_queue("jobs")
    assert spool.reap() == 11
    assert spool.reap() == 0
    assert list((root / "remove").iterdir()) == []


def test_a_reaper_does_not_follow_symbolic_links(spool: Spool, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    (root / "remove" / "jobs:link").symlink_to(outside)
    spool.reap()
    assert (outside / "precious").exists()
    assert list((root / "remove").iterdir()) == []


def test_a_reaper_can_be_stopped(spool: Spool, jobs: Queue) -> None:
    jobs.put_many([b"x"] * 25)
    jobs.purge()
    assert reap(spool.tree, stop=lambda: True, step=10) < 25
    spool.reap()
    assert reap(spool.tree) == 0


def test_a_reaper_removes_folders_nested_deeper_than_a_path_can_be(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    nest(root / "remove", 3000)
    nest(root / "queues" / "jobs", 10)
    jobs.put(b"x")
    spool.deliver()
    jobs.delete()
    assert spool.reap() == 1
    assert os.listdir(root / "remove") == []


class Restless:
    """A message that others claim or release just before each try to remove it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self._places = [root / "queues" / "jobs" / "x", root / "delay" / "jobs:x"]
        move = Tree.move

        def moving(tree: Tree, how: Transition, queue: str, message_id: str) -> bool:
            source = root / tree.path(how.source, queue, message_id)
            if self.left and source.exists():
                self.left -= 1
                [other] = [place for place in self._places if place != source]
                source.rename(other)
            return move(tree, how, queue, message_id)

        monkeypatch.setattr(Tree, "move", moving)


def test_a_message_that_moves_before_each_try_is_removed(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"x", id="x")
    spool.deliver()
    restless = Restless(root, monkeypatch, 5)
    assert jobs.remove("x") == 1
    assert restless.left == 0
    assert visible(root) == []


def test_a_message_that_always_escapes_is_not_reported_as_missing(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"x", id="x")
    spool.deliver()
    Restless(root, monkeypatch, 1_000_000)
    with pytest.raises(Unavailable, match="'x'"):
        jobs.remove("x")
    assert visible(root) == [("jobs", "x")]


def test_a_known_message_that_moves_before_each_try_is_removed(
    jobs: Queue, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = remove_known.pin
    held: list[Message] = []
    jobs.put(b"x", id="x")
    spool.deliver()
    inode = os.stat(spool.tree.root / "queues" / "jobs" / "x").st_ino

    def claim() -> None:
        held[:] = jobs.claim()

    def release() -> None:
        held[0].release()

    steps = iter([None, claim, None, release, claim])

    def pin(context: Context, path: str) -> Latched | None:
        step = next(steps, None)
        if step is not None:
            step()
        return real(context, path)

    monkeypatch.setattr(remove_known, "pin", pin)
    assert remove_known.remove_known(
        spool.context, "jobs", "x", lambda context, fd, found: found.st_ino == inode
    )
    assert jobs.counts().total == 0


@pytest.mark.parametrize("only_ready", [False, True])
def test_a_message_that_cannot_be_removed_holds_up_no_other(
    spool: Spool, jobs: Queue, only_ready: bool
) -> None:
    ids = jobs.put_many([b"1", b"2", b"3"])
    spool.deliver()

    def refuse_one(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "rename" and arguments[0].endswith(f"jobs/{ids[1]}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def remove() -> object:
        if only_ready:
            return spool.complete(remove_ready(spool.context, "jobs", ids))
        return jobs.remove_each(ids)

    with seen(refuse_one), pytest.raises(Unavailable, match="EIO"):
        remove()
    assert [message.id for message in jobs.peek(9)] == [ids[1]]
    assert remove() == (1 if only_ready else [False, True, False])
