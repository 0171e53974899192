"""One bad file or folder, or one bad moment, harms nothing but itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsmq.spool import Queue, Spool, Unavailable
from fsmq.spool.delivery import Delivery
from tests.spool.helpers import Clock, tree_of


def refuse(spool: Spool, monkeypatch: pytest.MonkeyPatch, verb: str, part: str) -> None:
    """Let a call of the tree fail for each path that has ``part`` in it."""
    real = getattr(spool.tree, verb)

    def call(path: str, *rest: object, **named: object) -> object:
        if any(part in str(name) for name in (path, *rest)):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)
        return real(path, *rest, **named)

    monkeypatch.setattr(spool.tree, verb, call)


def test_an_entry_that_cannot_be_delivered_stops_no_other_queue(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"claimed")
    jobs.claim(visibility=1)
    bad = spool.queue("bad").put(b"x")
    good = jobs.put(b"new")
    clock.advance(1)
    refuse(spool, monkeypatch, "rename", "queues/bad")
    with pytest.raises(Unavailable, match="cannot deliver"):
        spool.deliver()
    assert len(tree_of(root)["queues/jobs"]) == 2
    assert good in tree_of(root)["queues/jobs"]
    assert tree_of(root)["new"] == [f"bad:{bad}"]


def test_what_cannot_be_unlinked_keeps_nothing_else(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = jobs.put_many([b"x"] * 20)
    jobs.remove(*ids)
    refuse(spool, monkeypatch, "unlink", ids[7])
    with pytest.raises(Unavailable, match="cannot reap"):
        spool.reap()
    assert os.listdir(root / "remove") == [f"jobs:{ids[7]}"]


def test_a_message_that_reached_no_one_was_not_delivered(spool: Spool, jobs: Queue) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    message_id = jobs.put(b"x")
    for _ in range(3):
        assert [m.deliveries for m in jobs.claim()] == [1]
        spool.complete(spool.give_back("jobs", message_id))
    assert spool.counts("dead").total == 0
    assert [m.deliveries for m in jobs.claim()] == [1]


def test_a_claim_that_fails_is_no_delivery(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    spool.deliver()
    (root / "delay" / f"jobs:{message_id}").write_bytes(b"the same id")
    for _ in range(3):
        spool.context.ready.forget("jobs")
        assert spool.complete(spool.claim("jobs")) == []
    (root / "delay" / f"jobs:{message_id}").unlink()
    spool.context.ready.forget("jobs")
    assert [m.deliveries for m in jobs.claim()] == [1]


def test_a_deletion_that_was_broken_off_can_be_finished(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.configure(max_depth=7)
    jobs.put_many([b"new", b"claimed"])
    jobs.claim()
    with monkeypatch.context() as patched:
        refuse(spool, patched, "rename", "queues/jobs")
        with pytest.raises(Unavailable):
            jobs.delete()
    jobs.delete()
    again = spool.queue("jobs")
    assert again.counts().total == 0
    assert again.settings.max_depth is None


@pytest.mark.parametrize(("new", "timers"), [(True, False), (False, True), (True, True)])
def test_a_mover_of_any_leg_waits_when_nothing_is_to_be_done(
    spool: Spool, new: bool, timers: bool
) -> None:
    delivery = Delivery(spool.context, new=new, timers=timers)
    for _ in range(2):
        delivery.step()
        assert delivery.timeout() > 0.1
        delivery.rescan()
    delivery.close()
