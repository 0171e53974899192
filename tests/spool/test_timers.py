"""Timers: deadlines that are added, removed and changed."""

from __future__ import annotations

from fsmq.spool.index.timers import Timers


def test_a_timer_that_is_renewed_often_takes_little_room() -> None:
    timers = Timers()
    for due_ms in range(20_000, 0, -1):  # a renewal may shorten a claim
        timers.start("one", due_ms)
        timers.start("two", due_ms + 1)
    assert len(timers._heap) < 2000
    assert [timers.pop_due(9), timers.pop_due(9), timers.pop_due(99_999)] == ["one", "two", None]
    assert len(timers) == 0
