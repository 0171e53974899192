"""A paused queue: nothing can be claimed, other verbs work, and waiters notice the end."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fsmq.spool import InvalidValue, NewMessage, Queue, Spool, prepare
from fsmq.spool.consumers.claims import claim_ids
from fsmq.spool.consumers.window import Window
from fsmq.spool.verbs import dedup
from tests.spool.helpers import Clock


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def test_nothing_can_be_claimed_and_other_verbs_work(jobs: Queue) -> None:
    jobs.put(b"1")
    [held] = jobs.claim()
    jobs.configure(paused=True)
    jobs.put(b"2")
    assert jobs.claim() == []
    held.renew(60)
    held.release()
    assert jobs.claim(2) == []
    assert jobs.counts().ready == 2
    assert jobs.remove(held.id) == 1
    jobs.configure(paused=False)
    assert [m.body for m in jobs.claim(2)] == [b"2"]


def test_timers_end_in_a_paused_queue(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x", delay=10)
    jobs.put(b"y")
    jobs.claim(visibility=10)
    jobs.configure(paused=True)
    clock.advance(11)
    assert jobs.claim(2) == []
    assert jobs.counts().ready == 2


def test_a_pause_ends_at_its_time(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    jobs.configure(paused=at(clock.now + 10))
    clock.advance(9.9)
    assert jobs.claim() == []
    clock.advance(0.2)
    assert len(jobs.claim()) == 1


def test_the_end_is_stored_in_utc(jobs: Queue, root: Path) -> None:
    settings = jobs.configure(paused="2030-01-31T12:00:00.5+01:00")
    assert settings.paused == "2030-01-31T11:00:00.500Z"
    assert json.loads((root / "config" / "jobs.json").read_text())["paused"] == settings.paused
    assert jobs.configure(paused=None).paused is None


_NO_TIMES = "now 2030-01-31 2030-01-31T12:00:00 2030-02-31T12:00:00Z 9999-12-31T23:59:59-01:00"


@pytest.mark.parametrize("wrong", [*_NO_TIMES.split(), "", 1, 1.5, []])
def test_an_invalid_end_is_refused(jobs: Queue, wrong: object) -> None:
    with pytest.raises(InvalidValue, match="paused: must be true, false, or a moment"):
        jobs.configure(paused=wrong)


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_a_waiting_consumer_is_woken_by_the_end(root: Path, watch: str) -> None:
    with Spool(root, sync="none", watch=watch) as spool, Spool(root, sync="none") as other:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"x")
        jobs.configure(paused=True)
        found: list[bytes] = []

        def wait() -> None:
            found.extend(m.body for m in jobs.claim(wait=60))

        thread = threading.Thread(target=wait)
        thread.start()
        while "jobs" not in spool.context.limiter.shut:
            time.sleep(0.001)
        started = time.monotonic()
        other.queue("jobs").configure(paused=False)
        thread.join()
        assert found == [b"x"]
        assert time.monotonic() - started < 30


def test_waiting_for_a_paused_queue_uses_no_cpu(root: Path) -> None:
    """Although messages are ready in it."""
    with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(paused=True)
        other.queue("jobs").put(b"x")
        before, started = time.thread_time(), time.monotonic()
        assert jobs.claim(wait=1.5) == []
        assert time.monotonic() - started >= 1.5
        assert time.thread_time() - before < 0.2


def test_a_consumer_claims_nothing(jobs: Queue) -> None:
    jobs.put(b"x")
    jobs.spool.deliver()
    window = Window(jobs.spool.tree, "jobs")
    jobs.configure(paused=True)
    assert jobs.spool.complete(claim_ids(jobs.spool.context, window, 10)) == []
    jobs.configure(paused=False)
    assert len(jobs.spool.complete(claim_ids(jobs.spool.context, window, 10))) == 1


def test_a_message_cannot_be_claimed_by_its_id(spool: Spool) -> None:
    spool.create_queue("tasks", index=True)
    tasks = spool.indexed("tasks")
    tasks.upsert([NewMessage(b"x", id="a")])
    spool.configure("tasks", {"paused": True})
    assert tasks.claim("a") is None
    spool.configure("tasks", {"paused": None})
    assert tasks.claim("a") is not None


def test_messages_of_a_paused_dedup_queue_stay_in_its_write_side(spool: Spool) -> None:
    for side in (dedup.read_side("x"), dedup.write_side("x")):
        spool.create_queue(side)
    spool.configure(dedup.read_side("x"), {"paused": True})
    spool.complete(prepare.dedup_send(spool.context, "x", [b"1"]))
    spool.deliver()
    assert spool.complete(dedup.poll(spool.context, "x", 1, None)) == []
    assert spool.counts(dedup.write_side("x")).ready == 1


def test_an_older_version_can_read_the_file_after_a_pause(jobs: Queue, root: Path) -> None:
    jobs.configure(max_depth=5, paused=True)
    jobs.configure(paused=False)
    assert "paused" not in json.loads((root / "config" / "jobs.json").read_text())
