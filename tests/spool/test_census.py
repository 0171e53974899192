"""The census: exact sizes and numbers of claims, without listings or a stat of each file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool, Unavailable
from fsmq.spool.layout.tree import Tree
from tests.spool.helpers import Clock


def test_the_census_counts_messages_and_claims(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put_many([b"1", b"2", b"3", b"4"])
    jobs.put(b"5", delay=60)
    spool.deliver()
    census = spool.census
    assert (census.size("jobs"), census.claims("jobs")) == (5, 0)
    short, long, *_ = [jobs.claim(visibility=seconds)[0] for seconds in (10, 100, 100)]
    assert (census.size("jobs"), census.claims("jobs")) == (5, 3)
    clock.advance(20)  # no mover has seen the end of the claim yet
    assert (census.size("jobs"), census.claims("jobs")) == (5, 2)
    with Spool(spool.tree.root, sync="none", clock=clock, delivers=False) as other:
        assert census.claims("jobs") == 2
        other.queue("jobs").renew(short.id, 100)  # by another process
        assert census.claims("jobs") == 3
        other.queue("jobs").release(long.id)
        assert census.claims("jobs") == 2
        other.queue("jobs").remove(short.id)
        assert (census.size("jobs"), census.claims("jobs")) == (4, 1)


def test_the_census_stats_only_what_has_changed(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([b"%d" % n for n in range(20)])
    spool.deliver()
    claimed = jobs.claim(count=10)
    seen: list[str] = []
    stat, names = Tree.stat, Tree.names

    def spying_stat(tree: Tree, path: str) -> object:
        seen.extend([path] if path.startswith("delay/") else [])
        return stat(tree, path)

    def spying_names(tree: Tree, folder: str) -> list[str]:
        seen.append(folder)
        return names(tree, folder)

    monkeypatch.setattr(Tree, "stat", spying_stat)
    monkeypatch.setattr(Tree, "names", spying_names)
    assert (spool.census.claims("jobs"), spool.census.size("jobs")) == (10, 20)
    assert {path for path in seen if "/" in path} == {f"delay/jobs:{m.id}" for m in claimed}
    seen.clear()
    assert (spool.census.claims("jobs"), spool.census.size("jobs")) == (10, 20)
    assert seen == []
    jobs.renew(claimed[3].id, 60)
    seen.clear()
    assert spool.census.claims("jobs") == 10
    assert seen == [f"delay/jobs:{claimed[3].id}"]


def drop_events(spool: Spool) -> None:
    """Cause more events in ``delay/`` than the kernel keeps, and read them."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip(f"{most} events are kept: too many to overflow them here")
    # Two files in turns: the kernel merges equal events in a row.
    paths = [spool.tree.root / "delay" / f"busy-{n}" for n in range(2)]
    for path in paths:
        path.touch()
    for tick in range(most + 1):
        os.utime(paths[tick % 2], (tick, tick))
    assert spool.context.ready.refresh() >= most


def after_listing(spool: Spool, monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Run a step between a listing of ``delay/`` and its use."""
    names = spool.tree.names

    def listing(folder: str) -> list[str]:
        found = names(folder)
        if folder == "delay":
            step()
        return found

    monkeypatch.setattr(spool.tree, "names", listing)


def test_events_dropped_during_a_listing_do_not_freeze_the_counts(
    root: Path, clock: Clock, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"hidden", delay=60)
    jobs.spool.deliver()
    with Spool(root, sync="none", clock=clock, delivers=False) as counting:
        once = iter([lambda: drop_events(counting)])
        after_listing(counting, monkeypatch, lambda: next(once, lambda: None)())
        assert counting.census.size("jobs") == 1
        jobs.put_many([NewMessage(b"more", delay=60)] * 5)
        assert counting.census.size("jobs") == 6
        jobs.spool.deliver()
        assert counting.census.size("jobs") == 6


def test_a_count_that_always_loses_events_is_unavailable(
    root: Path, clock: Clock, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(b"x")
    with Spool(root, sync="none", clock=clock, delivers=False) as counting:
        after_listing(counting, monkeypatch, counting.census._forget)
        with pytest.raises(Unavailable, match="dropped"):
            counting.census.size("jobs")
