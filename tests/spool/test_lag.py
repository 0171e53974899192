"""Lag and survey: how many messages wait, where, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import Counts, NewMessage, Spool
from fsmq.spool.layout.names import facts
from fsmq.spool.views.counts import measure_lag
from tests.spool.helpers import back_to_new

LATER_S = 100.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool without a mover."""
    with Spool(tmp_path / "mq", sync="none", delivers=False) as opened:
        opened.queue("jobs", create=True)
        yield opened


def test_undelivered_and_late_messages_have_an_age(spool: Spool) -> None:
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
    back_to_new(spool.tree.root, only=new)
    (spool.tree.root / "new" / "nowhere:a").touch()
    later = put_ms / 1000 + LATER_S
    spool.context.clock = lambda: later
    lag = measure_lag(spool.context)
    assert lag.undelivered == pytest.approx(LATER_S, abs=0.01)
    assert lag.late == pytest.approx(later - ends, abs=0.01)
    assert (lag.undeliverable, lag.redelivered, lag.removed) == ({"nowhere": 1}, {"jobs": 1}, 0)


def test_a_survey_and_counts_agree(spool: Spool) -> None:
    begun = time.time()
    with Spool(spool.tree.root, sync="none") as delivering:
        jobs = delivering.queue("jobs", create=True)
        jobs.put_many([b"a", b"b", NewMessage(b"c", priority=5), NewMessage(b"d", delay=60)])
        jobs.put(b"own", id="0-comes-first")
        delivering.queue("other", create=True).put(b"x")
        jobs.claim(count=2)
        last = jobs.put(b"last")
    back_to_new(spool.tree.root, only=last)
    found = spool.survey()
    assert list(found) == ["jobs", "other"]
    assert found["jobs"].counts == Counts(new=1, ready=2, in_flight=2, delayed=1)
    assert found["jobs"].counts == spool.counts("jobs")
    assert found["jobs"].oldest is not None
    assert begun - 0.001 <= found["jobs"].oldest <= time.time()
    assert spool.survey("other")["other"].counts == spool.counts("other")


def test_the_oldest_message_may_have_a_priority_or_follow_plain_names(spool: Spool) -> None:
    assert spool.survey("jobs")["jobs"].oldest is None
    queue = spool.tree.root / "queues" / "jobs"
    (queue / "a-plain-name").touch()
    assert spool.survey("jobs")["jobs"].oldest is None
    (queue / "01977420-dc00-7abc-8def-0123456789ab").touch()
    assert spool.survey("jobs")["jobs"].oldest == 1750000000
    (queue / "p09.01900000-0000-7000-8000-000000000000").touch()
    assert spool.survey("jobs")["jobs"].oldest == 1717986918.4
