"""Reservations: one lock holds many ids as long as its holder lives."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, Queue, Spool, State, Unavailable, prepare
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.durability.locks import Reservations, reserve, settle
from fsmq.spool.layout.tree import Tree
from fsmq.spool.layout.uuids import uuid7
from tests.spool import racing
from tests.spool.crashing import leave
from tests.spool.helpers import Clock, forked, tree_of, visible
from tests.spool.racing import race


@pytest.fixture
def held(spool: Spool) -> Iterator[Reservations]:
    return Reservations(spool.tree)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def names(root: Path) -> list[str]:
    return tree_of(root)["new"]


def test_the_ids_of_one_holder_use_one_descriptor(
    spool: Spool, root: Path, held: Reservations
) -> None:
    before = open_files()
    ids = [f"id-{n}" for n in range(100)]
    assert all(held.take("jobs", one) for one in ids)
    assert open_files() == before + 1
    assert len({(root / "new" / f".jobs:{one}:own").stat().st_ino for one in ids}) == 1
    other = Reservations(spool.tree)
    assert not any(other.take("jobs", one) for one in ids)
    assert not any(reserve(spool.tree, "jobs", one) for one in ids)
    held.free("jobs", ids[:99])
    assert other.take("jobs", "id-0")
    assert not other.take("jobs", "id-99")
    held.free("jobs", ids[99:])
    assert other.take("jobs", "id-99")
    other.free("jobs", ["id-0", "id-99"])
    assert (names(root), open_files()) == ([], before)


def test_more_ids_than_a_file_may_have_links(root: Path, held: Reservations) -> None:
    before = open_files()
    ids = [f"{n}" for n in range(65_100)]  # ext4 allows 65,000
    assert all(held.take("jobs", one) for one in ids)
    assert open_files() - before <= 2
    held.free("jobs", ids)
    assert (names(root), open_files()) == ([], before)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_each_id_has_a_file_where_links_do_not_work(
    spool: Spool, root: Path, held: Reservations, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    before = open_files()
    assert all(held.take("jobs", one) for one in "abc")
    assert not any(Reservations(spool.tree).take("jobs", one) for one in "abc")
    held.free("jobs", "abc")
    assert (names(root), open_files()) == ([], before)


def test_ids_of_a_killed_holder_can_be_reserved(
    spool: Spool, root: Path, held: Reservations
) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with Spool(root, sync="none") as killed:
            theirs = Reservations(killed.tree)
            taken = [theirs.take("jobs", one) for one in "abcd"]
            os.write(writing, b"%d" % sum(taken))
            signal.pause()
    assert os.read(reading, 1) == b"4"
    assert not any(held.take("jobs", one) for one in "abcd")
    assert settle(spool.tree, [".jobs:a:own"]) is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert settle(spool.tree, [".jobs:a:own"]) == (0, 4)
    assert all(held.take("jobs", one) for one in "abcd")
    held.free("jobs", "abcd")
    assert names(root) == []


@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["python", "C"])
def test_a_freed_lock_is_not_kept_by_forked_children(
    spool: Spool, held: Reservations, fork: Callable[[], int]
) -> None:
    """Children have copies of all descriptors; Python does not notice a fork by C code."""
    assert held.take("jobs", "a")
    single = reserve(spool.tree, "jobs", "b")
    assert single is not None
    with forked(fork):
        held.free("jobs", "a")
        single.unlock()  # the name stays
        other = Reservations(spool.tree)
        assert other.take("jobs", "a")
        assert other.take("jobs", "b")
    other.free("jobs", "ab")


def test_children_of_a_killed_holder_keep_no_lock(root: Path, held: Reservations) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with Spool(root, sync="none") as killed:
            theirs = Reservations(killed.tree)
            theirs.take("jobs", "a")
            with forked() as grandchild:
                os.write(writing, b"%d\n" % grandchild)
                signal.pause()
    grandchild = int(os.read(reading, 20))
    try:
        assert not held.take("jobs", "a")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert held.take("jobs", "a")
        held.free("jobs", "a")
    finally:
        os.kill(grandchild, signal.SIGKILL)
        os.close(reading)
        os.close(writing)


def test_a_child_does_not_free_a_lock_of_its_parent(spool: Spool, root: Path) -> None:
    single = reserve(spool.tree, "jobs", "a")
    assert single is not None
    child = os.fork()
    if child == 0:
        single.free()
        os._exit(0)
    os.waitpid(child, 0)
    assert names(root) == [".jobs:a:own"]
    assert reserve(spool.tree, "jobs", "a") is None
    single.free()


def test_ids_are_free_although_a_name_cannot_be_removed(
    spool: Spool, held: Reservations, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(held.take("jobs", one) for one in "abc")
    unlink = os.unlink

    def refuse(path: str, **more: int) -> None:
        if path.endswith(":b:own"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        with pytest.raises(OSError, match="Input/output"):
            held.free("jobs", "abc")
    other = Reservations(spool.tree)
    assert all(other.take("jobs", one) for one in "abc")
    other.free("jobs", "abc")


def test_a_removed_lock_is_created_again(spool: Spool, root: Path, held: Reservations) -> None:
    assert held.take("jobs", "a")
    (root / "new" / ".jobs:a:own").unlink()
    assert held.take("jobs", "b")
    assert not Reservations(spool.tree).take("jobs", "b")
    held.free("jobs", "ab")
    assert names(root) == []


def test_a_batch_of_own_ids_is_atomic(spool: Spool, jobs: Queue, root: Path) -> None:
    def batch(*ids: str) -> list[NewMessage]:
        return [NewMessage(b"x", id=one) for one in ids]

    under_way = prepare.put(spool.context, "jobs", batch("d"))
    with pytest.raises(Unavailable, match="another put of the id 'd'"):
        prepare.put(spool.context, "jobs", batch("a", "c", "d", "b"))
    spool.complete(under_way)
    with pytest.raises(DuplicateMessage) as caught:
        spool.complete(prepare.put(spool.context, "jobs", batch("a", "d", "b", "d")))
    assert caught.value.index == 1
    assert visible(root) == [("jobs", "d")]
    assert names(root) == []


def test_each_id_of_racing_batches_is_stored_once(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
    won = race(racing.put_own_batches, root, 3, 12, 10)
    ids = [f"{n:02}-{i}" for n in range(12) for i in range(10)]
    assert Counter(one for part in won for one in part) == Counter(ids)
    assert [one for _, one in visible(root)] == sorted(ids)
    assert [name for name in names(root) if name[0] == "."] == []


def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed after this call."""
    listed: list[str] = []
    names = Tree.names

    def spying(tree: Tree, folder: str) -> list[str]:
        listed.append(folder)
        return names(tree, folder)

    monkeypatch.setattr(Tree, "names", spying)
    return listed


def test_a_retry_shows_the_complete_message_of_a_killed_put(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    leave(root, NewMessage(b"first", id="one"))
    with pytest.raises(DuplicateMessage):
        jobs.put(b"second", id="one")
    assert names(root) == ["jobs:one"]
    assert [m.body for m in jobs.claim()] == [b"first"]


def test_a_retry_replaces_the_incomplete_message_of_a_killed_put(
    spool: Spool, jobs: Queue, root: Path
) -> None:
    leave(root, NewMessage(b"first", id="one"))
    [staged] = (root / "new").glob(".jobs:one:*[0-9a-f]")
    staged.write_bytes(b"fir")
    assert jobs.put(b"second", id="one") == "one"
    assert names(root) == []
    assert [m.body for m in jobs.claim()] == [b"second"]


def test_the_retries_of_a_killed_batch_need_one_listing(
    jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(root, *(NewMessage(b"first", id=f"{n}") for n in range(20)))
    listed = listings(monkeypatch)
    jobs.put(b"usual", id="usual")
    assert listed == []
    for n in range(20):
        with pytest.raises(DuplicateMessage):
            jobs.put(b"second", id=f"{n}")
    assert listed == ["new"]
    assert [name for name in names(root) if name[0] == "."] == []


def test_a_mover_shows_the_complete_message_of_a_killed_put(
    spool: Spool, jobs: Queue, root: Path, clock: Clock
) -> None:
    leave(root, NewMessage(b"first", id="one"), NewMessage(b"torn", id="two"))
    [torn] = (root / "new").glob(".jobs:two:*[0-9a-f]")
    torn.write_bytes(b"to")
    assert recover(spool.tree, clock()).promoted == 1
    assert names(root) == ["jobs:one"]


def test_a_mover_keeps_the_reservation_of_a_message_that_it_cannot_show(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(root, NewMessage(b"first", id="one"), NewMessage(b"first", id="two"))
    fsync = os.fsync

    def refuse(fd: int) -> None:
        if ":one:" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with suppress(OSError):
            recover(spool.tree, clock())
        assert ".jobs:one:own" in names(root)
        assert "jobs:two" in names(root)
        with pytest.raises(Unavailable):
            jobs.put(b"second", id="one")
    recover(spool.tree, clock())
    assert names(root) == ["jobs:one", "jobs:two"]


@pytest.mark.parametrize("age", [0.0, 3600.0])
def test_a_mover_ignores_a_put_that_holds_its_id(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, age: float
) -> None:
    prepared = prepare.put(spool.context, "jobs", [NewMessage(b"slow", id="one")])
    before = names(root)
    assert recover(spool.tree, clock() + age, at_start=True) == (0, 0)
    assert names(root) == before
    assert spool.complete(prepared) == ["one"]
    assert names(root) == []
    assert visible(root) == [("jobs", "one")]


@pytest.mark.parametrize("state", [State.NEW, State.READY, State.DELAY])
@pytest.mark.parametrize("attributes", [{"attempt": "2"}, {}])
def test_an_unfinished_message_without_a_reservation_is_dropped_when_its_id_is_taken(
    spool: Spool, jobs: Queue, root: Path, state: State, attributes: dict[str, str], clock: Clock
) -> None:
    """A power cut may leave the file without its reservation."""
    own = uuid7()
    leave(root, NewMessage(b"first", id=own, attributes={"attempt": "1"}))
    (root / "new" / f".jobs:{own}:own").unlink()
    message_id = jobs.put(b"second", id=own, attributes=attributes)
    if state is State.NEW:
        os.rename(root / "queues" / "jobs" / message_id, root / "new" / f"jobs:{message_id}")
    if state is State.DELAY:
        claimed = spool.complete(prepare.claim(spool.context, "jobs", 1, 60.0))
        assert [m.body for m in claimed] == [b"second"]
    recover(spool.tree, clock(), at_start=True)
    assert visible(root) == [("jobs", message_id)]
    assert [name for name in names(root) if name[0] == "."] == []


def test_a_file_that_an_abandoned_put_cannot_remove_is_not_stored_beside_its_retry(
    jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = jobs.spool
    messages = [NewMessage(b"first", id="one"), NewMessage(b"first", id="two")]
    prepared = prepare.put(spool.context, "jobs", messages)
    unlink = os.unlink

    def refuse(path: str, **more: int) -> None:
        if path.startswith("new/.jobs:one:") and not path.endswith(":own"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        unlink(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        prepared.abort()
    jobs.put(b"second", id="two")
    with suppress(DuplicateMessage):
        jobs.put(b"second", id="one")
    assert jobs.remove("one", "two") == 2
    recover(spool.tree, clock(), at_start=True)
    assert visible(root) == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_messages_are_recovered_and_own_ids_refused(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(root, NewMessage(b"whole"))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fsmq.spool.durability.locks.fcntl.flock", refuse)
    assert recover(spool.tree, clock(), at_start=True).promoted == 1
    with pytest.raises(Unavailable):
        jobs.put(b"x", id="one")
    assert [name for name in names(root) if name[0] == "."] == []
    assert [m.body for m in jobs.claim()] == [b"whole"]
