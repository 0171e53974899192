"""What NFS says and shows, and a disk of one's own does not.

An answer that was lost in a restart of the server: a rename was done, and ENOENT is told. What
callers are told then may be "not sure"; it must not be "nothing was done", where somebody would do
it once more. And what another host has done a moment ago: its old name may still be seen, and a
descriptor may be stale.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fsmq.spool import NewMessage, Queue, Spool
from fsmq.spool.commit import Outcome, commit, is_committed
from fsmq.spool.consumer import Consumer
from fsmq.spool.staging import Job, Part, Written
from fsmq.spool.transitions import DELIVER
from tests.spool.helpers import Clock, visible

JOB = Job("load-1")


class Answers:
    """Which answers are lost: of the next rename to a path with ``lost`` in it."""

    lost: str | None = None
    was_lost = False


@pytest.fixture
def answers(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The spool as on NFS: a rename knows no flags, and an answer can be lost."""
    spool.context.network = True
    spool.tree.can_noreplace = False
    told, rename = Answers(), os.rename

    def renamed(source: str, target: str, **of: int) -> None:
        rename(source, target, **of)
        if told.lost is not None and told.lost in target:
            told.lost, told.was_lost = None, True
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    monkeypatch.setattr(os, "rename", renamed)
    yield told
    assert told.was_lost


def write(spool: Spool, count: int) -> Written:
    part = Part(spool.context, spool.syncer.sync, JOB)
    for number in range(count):
        part.write("jobs", NewMessage(b"%d" % number))
    return part.finish()


def test_a_put_is_done(jobs: Queue, root: Path, answers: Answers) -> None:
    answers.lost = "new/jobs:"
    message_id = jobs.put(b"x")
    assert visible(root) == [("jobs", message_id)]


def test_a_removal_is_done(jobs: Queue, root: Path, answers: Answers) -> None:
    jobs.put(b"x")
    [held] = jobs.claim()
    answers.lost = "remove/"
    assert jobs.remove(held.id) == 1
    assert visible(root) == []


def test_a_claim_is_lost_and_its_timer_brings_the_message_back(
    spool: Spool, jobs: Queue, clock: Clock, answers: Answers
) -> None:
    message_id = jobs.put(b"x")
    answers.lost = "delay/"
    assert jobs.claim(visibility=10) == []
    clock.advance(9)
    spool.deliver()
    assert jobs.claim() == []
    clock.advance(1)
    spool.deliver()
    [again] = jobs.claim()
    assert (again.id, again.deliveries) == (message_id, 2)


def test_a_job_whose_commit_had_no_answer_counts(
    spool: Spool, jobs: Queue, answers: Answers
) -> None:
    part = write(spool, 3)
    answers.lost = f"staging/{JOB.name}:"
    assert commit(spool, JOB, [part]) == Outcome(3)
    assert is_committed(spool, JOB)
    assert jobs.counts().total == 3


@pytest.mark.parametrize("step", ["new/", "staging/.gone-"])
def test_so_does_each_step_of_bringing_a_job_forward(
    spool: Spool, jobs: Queue, answers: Answers, step: str
) -> None:
    part = write(spool, 3)
    answers.lost = step
    assert commit(spool, JOB, [part]) == Outcome(3)
    assert jobs.counts().total == 3
    assert commit(spool, JOB, [write(spool, 3)]) == Outcome(again=True)


def test_a_batch_whose_commit_had_no_answer_is_acknowledged(
    spool: Spool, jobs: Queue, root: Path, answers: Answers
) -> None:
    jobs.put_many([b"1", b"2"])
    spool.deliver()
    with Consumer(spool, "billing") as consumer:
        batch = consumer.claim("stream", 0, ["jobs"], 10)
        assert batch is not None
        answers.lost = ".done"
        assert consumer.commit("stream", batch.number) == 2
    assert visible(root) == []


@pytest.fixture
def network(spool: Spool) -> Spool:
    spool.context.network = True
    spool.tree.can_noreplace = False
    return spool


def test_a_name_that_another_host_has_brought_on_is_not_there(
    network: Spool, jobs: Queue, root: Path
) -> None:
    """Nor is it a second message of that id: nobody has to be told to look."""
    message_id = jobs.put(b"x")
    assert network.deliver() == 1
    # What a look at the old name shows until it is forgotten: the same file.
    old, new = root / "new" / f"jobs:{message_id}", root / "queues" / "jobs" / message_id
    old.hardlink_to(new)
    assert not network.tree.move(DELIVER, "jobs", message_id)
    old.unlink()
    old.write_bytes(b"another file")
    with pytest.raises(FileExistsError):
        network.tree.move(DELIVER, "jobs", message_id)


def stale() -> NoReturn:
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_message_that_another_host_unlinks_while_it_is_claimed_is_not_there(
    network: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    network.deliver()
    opened = os.fstat

    def unlinked(fd: int) -> os.stat_result:
        path = root / "queues" / "jobs" / message_id
        if path.exists() and os.path.samestat(opened(fd), path.stat()):
            path.unlink()
            stale()
        return opened(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", unlinked)
        assert jobs.claim() == []
    assert visible(root) == []


def test_a_folder_that_another_hosts_reaper_has_removed_is_gone(
    network: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.queue("brief").delete()
    [grave] = (root / "remove").iterdir()
    walk = network.tree.walk

    def walked(path: str) -> object:
        return stale() if grave.name in path else walk(path)

    with monkeypatch.context() as patched:
        patched.setattr(network.tree, "walk", walked)
        assert network.reap() == 0
