"""Waiters have one place in the lines of all their queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from functools import partial

import pytest

from fsmq.http.connection.turns import LoopTurns
from fsmq.http.service.waiters import Waiters
from fsmq.spool.errors import Unavailable
from fsmq.spool.index.ready import EVERYONE

LONG_S = 60.0


class Names:
    """The queues with a prefix, with a count of calls."""

    def __init__(self, start: str) -> None:
        self.alike: Hashable = start
        self.asked = 0

    def fits(self, queue: str) -> bool:
        self.asked += 1
        return queue.startswith(str(self.alike))


class Waiting:
    """The results of waiters, by name."""

    def __init__(self, limit: int = 100) -> None:
        self.waiters = Waiters(limit, LoopTurns())
        self.woken: list[tuple[str, str | None]] = []

    def enter(self, name: str, *queues: str, place: int | None = None, only: str = "") -> None:
        self.waiters.enter(
            queues,
            LONG_S,
            lambda woken_by: self.woken.append((name, woken_by)),
            place=self.waiters.last_place() if place is None else place,
            wish=Names(only) if only else None,
        )


async def test_a_woken_waiter_leaves_all_lines() -> None:
    of = Waiting()
    of.enter("both", "a", "b")
    of.enter("b", "b")
    of.waiters.wake("a", 1)
    assert of.woken == [("both", "a")]
    assert of.waiters.queues() == ["b"]
    of.waiters.wake("b", 1)
    assert of.woken == [("both", "a"), ("b", "b")]
    assert (len(of.waiters), of.waiters.queues()) == (0, [])


async def test_a_waiter_has_one_place_in_all_lines() -> None:
    of = Waiting()
    of.enter("first", "b")
    of.enter("both", "a", "b")
    of.enter("last", "b")
    of.waiters.wake("b", 2)
    assert [name for name, _ in of.woken] == ["first", "both"]


async def test_a_waiter_that_waits_again_keeps_its_place() -> None:
    of = Waiting()
    place = of.waiters.last_place()
    of.enter("both", "a", "b", place=place)
    of.enter("b", "b")
    of.waiters.wake("a", 1)
    of.enter("both again", "a", "b", place=place)
    of.waiters.wake("b", 1)
    assert of.woken == [("both", "a"), ("both again", "b")]


async def test_a_new_queue_wakes_the_waiters_whose_pattern_it_matches() -> None:
    of = Waiting()
    of.enter("none yet", only="t-")
    of.enter("has it", "t-1", only="t-")
    of.enter("others", "t-1", only="u-")
    of.waiters.wake_for_new(["t-1"])
    await asyncio.sleep(0)
    assert of.woken == [("none yet", "")]
    of.waiters.wake_for_new(["x"])
    of.waiters.wake_for_new(["t-2"])
    await asyncio.sleep(0)
    assert of.woken[1:] == [("has it", "")]


async def test_many_new_queues_and_waiters_do_not_block_the_loop() -> None:
    """Equal waiters are checked once, and the loop has turns in between."""
    of = Waiting(2000)
    wishes = [Names(f"t-{number}-") for number in range(1000)]
    same = [Names("same") for _ in range(1000)]
    for wish in wishes + same:
        of.waiters.enter((), LONG_S, lambda woken_by: None, place=0, wish=wish)
    come = [f"x-{number}" for number in range(1000)]
    for queue in come:  # as with events
        of.waiters.wake_for_new((queue,))
    turns = 0
    while (
        not all(wish.asked == len(come) for wish in wishes)
        or sum(wish.asked for wish in same) < len(come)  # whose turn can be the last
    ):
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    assert sum(wish.asked for wish in same) == len(come)
    of.waiters.wake_for_new(["same-1"])
    while len(of.waiters) > 1000:
        await asyncio.sleep(0)


async def test_a_stop_wakes_everyone_once() -> None:
    of = Waiting()
    of.enter("none yet", only="t-")
    of.enter("two", "a", "b", only="t-")
    of.waiters.wake_all()
    assert sorted(name for name, _ in of.woken) == ["none yet", "two"]
    assert (len(of.waiters), of.waiters.queues(), of.waiters.has_any_for_new) == (0, [], False)


async def test_a_waiter_counts_once_in_all_lines() -> None:
    of = Waiting(limit=2)
    of.enter("one", *"abcdefgh")
    of.enter("two", *"abcdefgh")
    with pytest.raises(Unavailable):
        of.enter("three", "a")


async def test_lines_drop_waiters_that_have_left() -> None:
    of = Waiting()
    of.enter("stays", "quiet")
    for _ in range(10_000):
        of.enter("both", "quiet", "busy")
        of.waiters.wake("busy", 1)
    assert len(of.waiters._queues["quiet"]._heap) < 100


@pytest.mark.parametrize("how", ["all are woken", "a stop", "all hang up"])
async def test_many_waiters_leave_their_lines_in_turns(how: str) -> None:
    """The loop is not blocked for long, and other work is done in between."""
    of = Waiting(1000)
    queues = [f"q{number}" for number in range(1000)]
    waiters = [
        of.waiters.enter(queues, LONG_S, lambda _: None, place=of.waiters.last_place())
        for _ in range(300)
    ]
    if how == "all are woken":
        of.waiters.wake("q0", EVERYONE)
    elif how == "a stop":
        of.waiters.wake_all()
    else:
        for waiter in waiters:
            waiter.leave()
    turns = 0
    while len(of.waiters):
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5


async def test_a_waiter_that_leaves_passes_its_wake_up_on() -> None:
    of = Waiting(1000)
    waiters = [
        of.waiters.enter(
            ("a",), LONG_S, partial(_note, of, str(name)), place=of.waiters.last_place()
        )
        for name in range(30)
    ]
    of.waiters.turns.do(lambda: time.sleep(0.02))  # the turn is over
    of.waiters.wake("a", 20)
    assert len(of.woken) < 20
    waiters[18].end()
    while len(of.waiters) > 9:
        await asyncio.sleep(0)
    assert {name for name, woken_by in of.woken if woken_by} == {*map(str, range(21))} - {"18"}


def _note(of: Waiting, name: str, woken_by: str | None) -> None:
    of.woken.append((name, woken_by))
