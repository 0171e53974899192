"""A worker's removals go in groups: a lone one at once, and what comes meanwhile together."""

from __future__ import annotations

import asyncio

import pytest

from fsmq.spool.errors import Unavailable
from fsmq.spool.worker.removals import Removals


class Queue:
    """Removes when it is told to."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.asked = asyncio.Semaphore(0)
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def remove(self, message_ids: list[str]) -> None:
        self.groups.append(message_ids)
        self.asked.release()
        error = await self.answers.get()
        if error is not None:
            raise error


async def test_what_comes_while_a_removal_is_under_way_goes_together() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    first = asyncio.create_task(removals.remove("a"))
    await queue.asked.acquire()
    others = [asyncio.create_task(removals.remove(name)) for name in "bcd"]
    await asyncio.sleep(0)
    queue.answers.put_nowait(None)
    await first
    await queue.asked.acquire()
    assert not any(other.done() for other in others)
    queue.answers.put_nowait(None)
    await asyncio.gather(*others)
    assert queue.groups == [["a"], ["b", "c", "d"]]


async def test_those_of_one_turn_go_together_and_the_next_at_once() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    for _ in range(3):
        queue.answers.put_nowait(None)
    await asyncio.gather(*map(removals.remove, "ab"))
    await removals.remove("c")
    assert queue.groups == [["a", "b"], ["c"]]


async def test_a_group_that_fails_tells_each_of_it_and_nobody_else() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    queue.answers.put_nowait(Unavailable("the disk is full"))
    failed = await asyncio.gather(*map(removals.remove, "ab"), return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    queue.answers.put_nowait(None)
    await removals.remove("c")


async def test_who_gives_up_ends_no_removal_of_others() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    impatient, patient = (asyncio.create_task(removals.remove(name)) for name in "ab")
    await queue.asked.acquire()
    impatient.cancel()
    queue.answers.put_nowait(None)
    await patient
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert queue.groups == [["a", "b"]]


async def test_a_close_gives_up_what_is_not_answered() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    waiting = [asyncio.create_task(removals.remove("a"))]
    await queue.asked.acquire()
    waiting.append(asyncio.create_task(removals.remove("b")))
    await asyncio.sleep(0)
    await removals.close()
    ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
    assert queue.groups == [["a"]]
