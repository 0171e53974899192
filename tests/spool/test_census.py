"""The census: sizes and claims that are exact, and cost no listing and no look at each file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable
from fsmq.spool.layout.tree import Tree
from tests.spool.helpers import Clock


def test_claims_are_those_that_hold(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put_many([b"1", b"2", b"3", b"4"])
    jobs.put(b"5", delay=60)
    spool.deliver()
    census = spool.census
    assert (census.size("jobs"), census.claims("jobs")) == (5, 0)
    short, long, *_ = [jobs.claim(visibility=seconds)[0] for seconds in (10, 100, 100)]
    assert (census.size("jobs"), census.claims("jobs")) == (5, 3)
    clock.advance(20)  # nobody brings it back yet
    assert (census.size("jobs"), census.claims("jobs")) == (5, 2)
    with Spool(spool.tree.root, sync="none", clock=clock, delivers=False) as other:
        assert census.claims("jobs") == 2
        other.queue("jobs").renew(short.id, 100)  # by another process
        assert census.claims("jobs") == 3
        other.queue("jobs").release(long.id)
        assert census.claims("jobs") == 2
        other.queue("jobs").remove(short.id)
        assert (census.size("jobs"), census.claims("jobs")) == (4, 1)


def test_what_is_known_is_not_looked_up_again(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([b"%d" % n for n in range(20)])
    spool.deliver()
    claimed = jobs.claim(count=10)
    looked: list[str] = []
    stat, names = Tree.stat, Tree.names

    def spying_stat(tree: Tree, path: str) -> object:
        looked.extend([path] if path.startswith("delay/") else [])
        return stat(tree, path)

    def spying_names(tree: Tree, folder: str) -> list[str]:
        looked.append(folder)
        return names(tree, folder)

    monkeypatch.setattr(Tree, "stat", spying_stat)
    monkeypatch.setattr(Tree, "names", spying_names)
    assert (spool.census.claims("jobs"), spool.census.size("jobs")) == (10, 20)
    assert {path for path in looked if "/" in path} == {f"delay/jobs:{m.id}" for m in claimed}
    looked.clear()
    assert (spool.census.claims("jobs"), spool.census.size("jobs")) == (10, 20)
    assert looked == []
    jobs.renew(claimed[3].id, 60)
    looked.clear()
    assert spool.census.claims("jobs") == 10
    assert looked == [f"delay/jobs:{claimed[3].id}"]


def drop_events(spool: Spool) -> None:
    """Have more events in ``delay/`` than the kernel keeps, and take in what it tells of them."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip(f"{most} events are kept: too many to overflow them here")
    # Two, in turns: what happens to one alone is one event.
    paths = [spool.tree.root / "delay" / f"busy-{n}" for n in range(2)]
    for path in paths:
        path.touch()
    for tick in range(most + 1):
        os.utime(paths[tick % 2], (tick, tick))
    assert spool.context.ready.refresh() >= most


def on_listing_delay(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]
) -> None:
    """Let something happen between a listing of ``delay/`` and its use."""
    names = spool.tree.names

    def listing(folder: str) -> list[str]:
        found = names(folder)
        if folder == "delay":
            happens()
        return found

    monkeypatch.setattr(spool.tree, "names", listing)


def test_events_dropped_during_a_listing_do_not_freeze_the_counts(
    root: Path, clock: Clock, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"hidden", delay=60)
    jobs.spool.deliver()
    with Spool(root, sync="none", clock=clock, delivers=False) as counting:
        once = iter([lambda: drop_events(counting)])
        on_listing_delay(counting, monkeypatch, lambda: next(once, lambda: None)())
        assert counting.census.size("jobs") == 1
        jobs.put_many([NewMessage(b"more", delay=60)] * 5)
        assert counting.census.size("jobs") == 6
        jobs.spool.deliver()
        assert counting.census.size("jobs") == 6


def test_what_cannot_be_counted_is_not_told(
    root: Path, clock: Clock, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"x")
    with Spool(root, sync="none", clock=clock, delivers=False) as counting:
        on_listing_delay(counting, monkeypatch, counting.census._forget)
        with pytest.raises(Unavailable, match="dropped"):
            counting.census.size("jobs")
