"""Timers: deadlines that come, go and change."""

from __future__ import annotations

from fsmq.spool.index.timers import Timers


def test_what_is_renewed_again_and_again_has_few_places() -> None:
    timers = Timers()
    for due_ms in range(20_000, 0, -1):  # a renewal may shorten a claim
        timers.start("one", due_ms)
        timers.start("two", due_ms + 1)
    assert len(timers._heap) < 2000
    assert [timers.pop_due(9), timers.pop_due(9), timers.pop_due(99_999)] == ["one", "two", None]
    assert len(timers) == 0
