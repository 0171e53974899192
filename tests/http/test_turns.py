"""Turns: long work is done in order, and the loop goes on in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from fsmq.http.connection.turns import LoopTurns


def _busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_short_work_is_done_at_once() -> None:
    done: list[int] = []
    LoopTurns().do(lambda: done.append(1))
    assert done == [1]


async def test_long_work_yields_and_keeps_its_order() -> None:
    turns, seen = LoopTurns(), []

    def work(number: int) -> None:
        _busy(0.006)
        seen.append(number)

    for number in range(4):
        turns.do(lambda number=number: work(number))  # type: ignore[misc]
    assert seen == [0]
    for others in range(1, 4):
        await asyncio.sleep(0)
        assert seen == list(range(others + 1))


async def test_later_work_waits_behind_earlier_work() -> None:
    turns, seen = LoopTurns(), []
    turns.do(lambda: _busy(0.006))
    turns.do(lambda: (seen.append("first"), turns.do(lambda: seen.append("third"))))
    turns.do(lambda: seen.append("second"))
    while len(seen) < 3:
        await asyncio.sleep(0)
    assert seen == ["first", "second", "third"]


async def test_other_work_runs_between_steps() -> None:
    turns, seen = LoopTurns(), []

    def steps() -> Iterator[None]:
        for number in range(4):
            _busy(0.006)
            seen.append(number)
            yield

    turns.go_through(steps())
    turns.do(lambda: seen.append("other"))
    assert seen == [0]
    while len(seen) < 5:
        await asyncio.sleep(0)
    assert seen == [0, 1, "other", 2, 3]


async def test_failing_work_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    turns, seen = LoopTurns(), []
    turns.do(lambda: _busy(0.006))
    turns.do(lambda: 1 / 0)
    turns.do(lambda: seen.append("next"))
    while not seen:
        await asyncio.sleep(0)
    assert "ZeroDivisionError" in caplog.text
