"""Lag and survey: what waits, where, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import Counts, NewMessage, Spool
from fsmq.spool.layout.names import facts
from fsmq.spool.views.counts import measure_lag

LATER_S = 100.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool that nobody serves."""
    with Spool(tmp_path / "mq", sync="none", delivers=False) as opened:
        opened.queue("jobs", create=True)
        yield opened


def test_what_waits_for_a_mover_has_an_age(spool: Spool) -> None:
    with Spool(spool.tree.root, sync="none") as delivering:
        jobs = delivering.queue("jobs", create=True)
        jobs.put_many([b"claimed", NewMessage(b"held", delay=2 * LATER_S)])
        [claimed] = jobs.claim(visibility=10)
    assert claimed.deadline is not None
    ends = claimed.deadline
    spool.context.clock = lambda: ends - 1
    assert (lag := measure_lag(spool.context)).undelivered == lag.late == 0
    new = spool.queue("jobs").put(b"new")
    put_ms = facts(new).created_ms
    assert put_ms is not None
    root = spool.tree.root
    (root / "queues" / "jobs" / new).rename(root / "new" / f"jobs:{new}")
    (spool.tree.root / "new" / "nowhere:a").touch()
    later = put_ms / 1000 + LATER_S
    spool.context.clock = lambda: later
    lag = measure_lag(spool.context)
    assert lag.undelivered == pytest.approx(LATER_S, abs=0.01)
    assert lag.late == pytest.approx(later - ends, abs=0.01)
    assert (lag.undeliverable, lag.redelivered, lag.removed) == ({"nowhere": 1}, {"jobs": 1}, 0)


def test_a_survey_counts_as_a_count_does(spool: Spool) -> None:
    begun = time.time()
    with Spool(spool.tree.root, sync="none") as delivering:
        jobs = delivering.queue("jobs", create=True)
        jobs.put_many([b"a", b"b", NewMessage(b"c", priority=5), NewMessage(b"d", delay=60)])
        jobs.put(b"own", id="0-comes-first")
        delivering.queue("other", create=True).put(b"x")
        jobs.claim(count=2)
        last = jobs.put(b"last")
    root = spool.tree.root
    (root / "queues" / "jobs" / last).rename(root / "new" / f"jobs:{last}")
    found = spool.survey()
    assert list(found) == ["jobs", "other"]
    assert found["jobs"].counts == Counts(new=1, ready=2, in_flight=2, delayed=1)
    assert found["jobs"].counts == spool.counts("jobs")
    assert found["jobs"].oldest is not None
    assert begun - 0.001 <= found["jobs"].oldest <= time.time()
    assert spool.survey("other")["other"].counts == spool.counts("other")


def test_the_oldest_is_found_behind_priorities_and_plain_names(spool: Spool) -> None:
    assert spool.survey("jobs")["jobs"].oldest is None
    queue = spool.tree.root / "queues" / "jobs"
    (queue / "a-plain-name").touch()
    assert spool.survey("jobs")["jobs"].oldest is None
    (queue / "01977420-dc00-7abc-8def-0123456789ab").touch()
    assert spool.survey("jobs")["jobs"].oldest == 1750000000
    (queue / "p09.01900000-0000-7000-8000-000000000000").touch()
    assert spool.survey("jobs")["jobs"].oldest == 1717986918.4
