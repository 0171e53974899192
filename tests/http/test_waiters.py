"""Lines of those who wait: each has one place in the lines of all its queues."""

from __future__ import annotations

import pytest

from fsmq.http.running.turns import LoopTurns
from fsmq.http.service.waiters import Waiters
from fsmq.spool.errors import Unavailable

LONG_S = 60.0


class Waiting:
    """What became of those who wait, by their names."""

    def __init__(self, limit: int = 100) -> None:
        self.waiters = Waiters(limit, LoopTurns())
        self.woken: list[tuple[str, str | None]] = []

    def enter(self, name: str, *queues: str, place: int | None = None, only: str = "") -> None:
        self.waiters.enter(
            queues,
            LONG_S,
            lambda woken_by: self.woken.append((name, woken_by)),
            place=self.waiters.last_place() if place is None else place,
            fits=(lambda queue: queue.startswith(only)) if only else None,
        )


async def test_the_first_arrival_takes_it_out_of_all_lines() -> None:
    of = Waiting()
    of.enter("both", "a", "b")
    of.enter("b", "b")
    of.waiters.wake("a", 1)
    assert of.woken == [("both", "a")]
    assert of.waiters.queues() == ["b"]
    of.waiters.wake("b", 1)
    assert of.woken == [("both", "a"), ("b", "b")]
    assert (len(of.waiters), of.waiters.queues()) == (0, [])


async def test_it_has_its_place_in_each_line() -> None:
    of = Waiting()
    of.enter("first", "b")
    of.enter("both", "a", "b")
    of.enter("last", "b")
    of.waiters.wake("b", 2)
    assert [name for name, _ in of.woken] == ["first", "both"]


async def test_who_waits_again_stands_where_it_stood() -> None:
    of = Waiting()
    place = of.waiters.last_place()
    of.enter("both", "a", "b", place=place)
    of.enter("b", "b")
    of.waiters.wake("a", 1)
    of.enter("both again", "a", "b", place=place)
    of.waiters.wake("b", 1)
    assert of.woken == [("both", "a"), ("both again", "b")]


async def test_queues_that_come_wake_those_for_whom_they_are() -> None:
    of = Waiting()
    of.enter("none yet", only="t-")
    of.enter("has it", "t-1", only="t-")
    of.enter("others", "t-1", only="u-")
    of.waiters.wake_for_new(["t-1"])
    assert of.woken == [("none yet", "")]
    of.waiters.wake_for_new(["x", "t-2"])
    assert of.woken[1:] == [("has it", "")]


async def test_a_stop_wakes_everyone_once() -> None:
    of = Waiting()
    of.enter("none yet", only="t-")
    of.enter("two", "a", "b", only="t-")
    of.waiters.wake_all()
    assert sorted(name for name, _ in of.woken) == ["none yet", "two"]
    assert (len(of.waiters), of.waiters.queues(), of.waiters.has_any_for_new) == (0, [], False)


async def test_one_counts_once_in_however_many_lines() -> None:
    of = Waiting(limit=2)
    of.enter("one", *"abcdefgh")
    of.enter("two", *"abcdefgh")
    with pytest.raises(Unavailable):
        of.enter("three", "a")


async def test_lines_forget_those_who_have_left() -> None:
    of = Waiting()
    of.enter("stays", "quiet")
    for _ in range(10_000):
        of.enter("both", "quiet", "busy")
        of.waiters.wake("busy", 1)
    assert len(of.waiters._queues["quiet"]._heap) < 100
