"""Purges while others claim and release, on a full disk, and by an exchange of folders."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable, prepare
from fsmq.spool.durability import new_names
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.index.events import Event, Events, Kind
from fsmq.spool.layout.tree import Tree
from fsmq.spool.verbs import latch
from fsmq.spool.verbs.queues import deletion
from fsmq.spool.verbs.remove_known import remove_known
from tests.harness.rounds import part_of
from tests.spool import racing
from tests.spool.helpers import tree_of, visible
from tests.spool.racing import race

ROUNDS = part_of(6, 40)


@pytest.fixture(params=["few", "many"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether ready messages are removed one by one, or together."""
    if request.param == "many":
        monkeypatch.setattr(deletion, "_FEW", 0)
    return str(request.param)


def test_a_purge_removes_all_messages_of_a_queue_in_use(root: Path, way: str) -> None:
    Spool(root, sync="none").close()
    purged = set[str]().union(*race(racing.purge_in_use, root, 3, ROUNDS, way))
    assert len(purged) > ROUNDS
    assert purged & {message_id for _, message_id in visible(root)} == set()


def test_a_deletion_removes_all_messages_of_a_queue_in_use(root: Path, way: str) -> None:
    Spool(root, sync="none").close()
    race(racing.delete_in_use, root, 3, ROUNDS, way)
    assert visible(root) == []


class Evading:
    """A message that is ready while ``delay/`` is listed, and claimed while its queue is."""

    def __init__(self, jobs: Queue, message_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1
        self._jobs = jobs
        self._id = message_id
        self._names = jobs.spool.tree.names
        monkeypatch.setattr(jobs.spool.tree, "names", self._listing)

    def _listing(self, path: str) -> list[str]:
        if path != "delay" or not self.left:
            return self._names(path)
        self.left -= 1
        self._jobs.release(self._id)
        found = self._names(path)
        assert [m.id for m in self._jobs.claim(visibility=600)] == [self._id]
        return found


@pytest.mark.parametrize("network", [False, True])
def test_a_message_that_is_in_neither_listing_is_purged(
    spool: Spool, jobs: Queue, root: Path, way: str, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.tree.network = network
    message_id = jobs.put(b"x")
    jobs.claim(visibility=600)
    evading = Evading(jobs, message_id, monkeypatch)
    jobs.purge()
    assert not evading.left
    assert visible(root) == []


def test_a_message_that_is_in_neither_listing_is_purged_when_the_event_is_lost(
    jobs: Queue, root: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [[Event(Kind.LOST, "", "")]]
    read = Events.read

    def reading(events: Events, timeout_ms: int | None = 0) -> list[Event]:
        found = read(events, timeout_ms)
        of_purge = not any(event.folder.startswith("queues") for event in found)
        return lost.pop() if lost and found and of_purge else found

    message_id = jobs.put(b"x")
    jobs.claim(visibility=600)
    evading = Evading(jobs, message_id, monkeypatch)
    monkeypatch.setattr(Events, "read", reading)
    jobs.purge()
    assert not evading.left
    assert lost == []
    assert visible(root) == []


def die_with_taken(monkeypatch: pytest.MonkeyPatch, spool: Spool, message_id: str) -> None:
    """Like a process that is killed during a removal, after it has taken the message away."""

    def die(tree: Tree, path: str, queue: str, name: str) -> bool:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(latch, "discard", die)
        with pytest.raises(SystemExit):
            remove_known(spool.context, "jobs", message_id, latch.anyone)


def before_listing(
    monkeypatch: pytest.MonkeyPatch, tree: Tree, at: int, step: Callable[[], object]
) -> list[int]:
    """Call ``step`` before ``delay/`` is listed for the n-th time; the remaining listings."""
    real, left = tree.names, list(range(at))

    def names(path: str) -> list[str]:
        if path == "delay" and left and not left.pop():
            step()
        return real(path)

    monkeypatch.setattr(tree, "names", names)
    return left


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "ready"])
@pytest.mark.parametrize("network", [False, True])
def test_a_message_of_a_removal_that_is_killed_during_the_purge_does_not_come_back(
    spool: Spool,
    jobs: Queue,
    root: Path,
    way: str,
    claimed: bool,
    network: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spool.tree.network = network
    jobs.put(b"x", id="report")
    spool.deliver()
    if claimed:
        jobs.claim(visibility=600)
    die = partial(die_with_taken, monkeypatch, spool, "report")
    left = before_listing(monkeypatch, spool.tree, 1, die)
    jobs.purge()
    assert not left
    recover(spool.tree, time.time() + 3600)
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


def test_a_message_of_a_removal_that_is_killed_does_not_reach_a_later_queue(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_and_die() -> None:
        (root / "delay" / "jobs:report").touch()  # the last claim before the deletion
        die_with_taken(monkeypatch, spool, "report")

    left = before_listing(monkeypatch, spool.tree, 2, claim_and_die)
    spool.delete_queue("jobs")
    assert not left
    spool.create_queue("jobs")
    recover(spool.tree, time.time() + 3600)
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


@pytest.mark.parametrize("network", [False, True])
def test_a_purge_ends_while_others_put(
    spool: Spool, jobs: Queue, root: Path, way: str, network: bool
) -> None:
    spool.tree.network = network
    over = threading.Event()

    def put() -> None:
        number = 0
        with Spool(root, sync="none") as other:
            while not over.is_set():
                number += 1
                with suppress(Unavailable):  # it was purged unfinished
                    other.queue("jobs").put(b"x", id=f"own-{number}")
                    other.queue("jobs").claim(visibility=600)

    putting = threading.Thread(target=put)
    putting.start()
    try:
        for _ in range(5):
            jobs.purge()
    finally:
        over.set()
        putting.join()


def test_many_messages_are_purged_together(spool: Spool, jobs: Queue, root: Path) -> None:
    jobs.put_many([b"x"] * 1100)
    spool.deliver()
    jobs.purge()
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}
    [grave] = (root / "remove").iterdir()
    assert len(list(grave.iterdir())) == 1100
    assert spool.reap() == 1100


def test_a_name_that_is_too_long_for_another_folder_is_purged(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    (root / "queues" / "jobs" / ("n" * 255)).touch()
    jobs.purge()
    assert visible(root) == []


def fill_up(monkeypatch: pytest.MonkeyPatch, code: int, folder: str = "") -> None:
    """Let the disk, or a folder, have no room for new names."""
    rename = Tree.rename

    def refuse(tree: Tree, path: str, target: str = "", *, replace: bool = False) -> bool:
        if target and tree.stat(path) is None:
            return False
        if not (target or path).startswith(folder):
            return rename(tree, path, target, replace=replace)
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(Tree, "rename", refuse)
    monkeypatch.setattr(Tree, "make_entry", refuse)


@pytest.fixture(params=[errno.ENOSPC, errno.EDQUOT], ids=["space", "quota"])
def code(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def fill(spool: Spool, jobs: Queue, count: int = 1100) -> str:
    """Put messages in every state; the id of a claimed one."""
    jobs.put_many([*[b"x"] * count, NewMessage(b"delayed", delay=60)])
    [claimed] = jobs.claim()
    spool.deliver()
    jobs.put(b"new")
    return claimed.id


def test_a_full_disk_can_be_purged(
    spool: Spool, jobs: Queue, root: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, jobs)
    fill_up(monkeypatch, code)
    jobs.purge()
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


@pytest.mark.parametrize("count", [3, 1100])
def test_a_queue_can_be_deleted_on_a_full_disk(
    spool: Spool, jobs: Queue, root: Path, code: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, jobs, count)
    fill_up(monkeypatch, code)
    spool.delete_queue("jobs")
    assert tree_of(root) == {"new": [], "delay": []}


def test_a_message_can_be_removed_on_a_full_disk(
    spool: Spool, jobs: Queue, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = fill(spool, jobs, 3)
    fill_up(monkeypatch, code)
    assert jobs.remove(claimed) == 1
    assert jobs.remove(claimed) == 0


@pytest.mark.parametrize("full", ["remove/", "new/", ""])
def test_a_claimed_message_of_an_own_id_can_be_removed_on_a_full_disk(
    jobs: Queue, root: Path, code: int, full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"own", id="own")
    [message] = jobs.claim()
    fill_up(monkeypatch, code, full)
    assert message.ack()
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


def test_other_failures_are_reported(
    spool: Spool, jobs: Queue, root: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(spool, jobs, 3)
    before = visible(root)
    fill_up(monkeypatch, errno.EIO)
    for verb in (jobs.purge, jobs.delete):
        with pytest.raises(Unavailable, match="EIO"):
            verb()
    assert visible(root) == before


@pytest.fixture
def purging(root: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    """Another process, which purges while the test acts."""
    monkeypatch.setattr(new_names, "_PATIENCE_S", 0.0)
    with Spool(root, sync="none", delivers=False) as spool:
        yield spool


@pytest.mark.parametrize("where", ["delay", "ready"])
def test_a_message_that_is_postponed_during_a_purge_is_removed(
    spool: Spool, root: Path, purging: Spool, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It goes back to ``new/``, which the purge has already listed."""
    spool.create_queue("later", index=True)
    later = spool.indexed("later")
    later.upsert([NewMessage(b"x", 60.0 if where == "delay" else None, id="a")])
    spool.deliver()
    listing = purging.tree.names

    def names(path: str) -> list[str]:
        if path == "delay":
            with suppress(Unavailable):
                later.postpone("a", 120.0)
        return listing(path)

    monkeypatch.setattr(purging.tree, "names", names)
    purging.queue("later").purge()
    assert visible(root) == []


def test_what_a_dead_process_took_out_is_removed_though_it_is_brought_back_during_the_purge(
    spool: Spool, root: Path, purging: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets its name in ``new/``, which the purge has already listed."""
    spool.create_queue("later", index=True)
    later = spool.indexed("later")
    later.upsert([NewMessage(b"x", id="a")])
    child = os.fork()
    if not child:
        prepare.postpone(spool.context, "later", "a", 120.0, {})
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    listing, found = purging.tree.names, []

    def names(path: str) -> list[str]:
        names = listing(path)
        if path == "new" and not found:
            found.append(later.find("a"))
        return names

    monkeypatch.setattr(purging.tree, "names", names)
    purging.queue("later").purge()
    assert found[0] is not None
    assert visible(root) == []


def test_a_message_whose_priority_changes_during_a_purge_is_removed(
    jobs: Queue, spool: Spool, root: Path, purging: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = jobs.put(b"x")
    spool.deliver()
    listing = purging.tree.ready_names

    def ready_names(queue: str) -> list[str] | None:
        found = listing(queue)
        with suppress(Unavailable):
            jobs.set_priority(name, 7)
        return found

    monkeypatch.setattr(purging.tree, "ready_names", ready_names)
    purging.queue("jobs").purge()
    assert visible(root) == []


def test_a_purge_waits_for_a_message_that_is_being_postponed(
    spool: Spool, root: Path, purging: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("later", index=True)
    spool.indexed("later").upsert([NewMessage(b"x", id="a")])
    postponed = prepare.postpone(spool.context, "later", "a", 60.0, {})
    assert postponed is not None
    with pytest.raises(Unavailable, match="renamed"):
        purging.queue("later").purge()
    stored = spool.complete(postponed)
    with pytest.raises(Unavailable, match="renamed"):
        purging.queue("later").purge()
    assert stored.rest is not None
    spool.complete(stored.rest)
    purging.queue("later").purge()
    assert visible(root) == []


def test_a_waiting_purge_comes_before_new_names(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a purge might wait for ever."""
    tree, is_in = spool.tree, threading.Event()
    first = new_names.may_rename(tree, "jobs")
    assert first is not None

    def purge() -> None:
        with new_names.no_new_names(tree, "jobs"):
            is_in.set()

    purger = threading.Thread(target=purge)
    purger.start()
    time.sleep(0.2)
    monkeypatch.setattr(new_names, "_PATIENCE_S", 0.0)
    with pytest.raises(Unavailable):
        new_names.may_rename(tree, "jobs")
    assert not is_in.is_set()
    first.close()
    purger.join()
    assert is_in.is_set()
    later = new_names.may_rename(tree, "jobs")
    assert later is not None
    later.close()
