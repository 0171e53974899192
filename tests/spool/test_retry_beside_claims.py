"""A retry of a put with an own id while its message is claimed and released."""

from __future__ import annotations

import os
from itertools import cycle
from pathlib import Path

import pytest

from fsmq.spool import DuplicateMessage, Spool
from tests.harness.calls import seen

PLACES = {path: path for path in ("queues/jobs/order-1", "delay/jobs:order-1")}


def later(root: Path, than: Path) -> None:
    """Wait until changes get a later time; file times come from a slow clock."""
    beside = root / "beside"
    beside.touch()
    while beside.stat().st_mtime_ns <= than.stat().st_mtime_ns:
        os.utime(beside)


@pytest.mark.parametrize("flips", range(1, 16))
def test_a_retry_stores_nothing_however_often_the_message_moves(tmp_path: Path, flips: int) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
        jobs = other.queue("jobs", create=True)
        jobs.put(b"x", id="order-1")
        assert jobs.claim()
        acts = cycle([lambda: jobs.release("order-1"), jobs.claim])
        left, is_inside = flips, False

        def evade(name: str, arguments: tuple[object, ...]) -> None:
            """Move the message before each look at its place."""
            nonlocal left, is_inside
            at = PLACES.get(str(arguments[0])) if name == "stat" else None
            if is_inside or at is None or not left:
                return
            is_inside = True
            try:
                if (root / at).exists():
                    left -= 1
                    later(root, root / "queues" / "jobs")
                    next(acts)()
            finally:
                is_inside = False

        with seen(evade, looks=True), pytest.raises(DuplicateMessage):
            spool.queue("jobs").put(b"x", id="order-1")
        assert not left
        assert spool.counts("jobs").total == 1
