"""Reservations: many ids behind one lock, for as long as their holder lives."""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, Queue, Spool, Unavailable
from fsmq.spool.reservation import Reservations, clear_stale, reserve
from tests.spool import racing
from tests.spool.helpers import tree_of, visible
from tests.spool.racing import race


@pytest.fixture
def held(spool: Spool) -> Iterator[Reservations]:
    return Reservations(spool.tree)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def names(root: Path) -> list[str]:
    return tree_of(root)["new"]


def test_ids_of_one_holder_need_one_descriptor(
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


def test_more_ids_than_a_file_may_have_names(root: Path, held: Reservations) -> None:
    before = open_files()
    ids = [f"{n}" for n in range(65_100)]  # ext4 allows 65,000
    assert all(held.take("jobs", one) for one in ids)
    assert open_files() - before <= 2
    held.free("jobs", ids)
    assert (names(root), open_files()) == ([], before)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_where_there_are_no_links_each_id_has_a_file(
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


def test_what_a_killed_holder_left_keeps_no_one_out(
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
    assert not clear_stale(spool.tree, ".jobs:a:own")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert clear_stale(spool.tree, ".jobs:a:own")
    assert all(held.take("jobs", one) for one in "abcd")
    held.free("jobs", "abcd")
    assert names(root) == []


def test_a_name_that_cannot_be_removed_keeps_no_one_out(
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


def test_a_lock_that_someone_removed_is_made_anew(
    spool: Spool, root: Path, held: Reservations
) -> None:
    assert held.take("jobs", "a")
    (root / "new" / ".jobs:a:own").unlink()
    assert held.take("jobs", "b")
    assert not Reservations(spool.tree).take("jobs", "b")
    held.free("jobs", "ab")
    assert names(root) == []


def test_a_batch_of_own_ids_is_all_or_none(spool: Spool, jobs: Queue, root: Path) -> None:
    def batch(*ids: str) -> list[NewMessage]:
        return [NewMessage(b"x", id=one) for one in ids]

    under_way = spool.put("jobs", batch("d"))
    with pytest.raises(Unavailable, match="another put of the id 'd'"):
        spool.put("jobs", batch("a", "c", "d", "b"))
    spool.complete(under_way)
    with pytest.raises(DuplicateMessage) as caught:
        spool.put("jobs", batch("a", "d", "b", "d"))
    assert caught.value.index == 1
    assert visible(root) == [("jobs", "d")]
    assert names(root) == ["jobs:d"]


def test_of_batches_that_have_ids_in_common_one_gets_each(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs")
    won = race(racing.put_own_batches, root, 3, 12, 10)
    ids = [f"{n:02}-{i}" for n in range(12) for i in range(10)]
    assert Counter(one for part in won for one in part) == Counter(ids)
    assert [one for _, one in visible(root)] == sorted(ids)
    assert [name for name in names(root) if name[0] == "."] == []
