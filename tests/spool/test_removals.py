"""Removals of a worker: a single one is sent at once, and those that wait are sent together."""

from __future__ import annotations

import asyncio

import pytest

from fsmq.spool.errors import Unavailable
from fsmq.spool.worker.removals import Removals


class Queue:
    """A queue whose removals end when the test answers them."""

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


async def test_removals_that_wait_for_one_are_sent_together() -> None:
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


async def test_removals_of_one_turn_are_sent_together() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    for _ in range(3):
        queue.answers.put_nowait(None)
    await asyncio.gather(*map(removals.remove, "ab"))
    await removals.remove("c")
    assert queue.groups == [["a", "b"], ["c"]]


async def test_the_error_of_a_group_reaches_only_its_members() -> None:
    queue = Queue()
    removals = Removals(queue.remove)
    queue.answers.put_nowait(Unavailable("the disk is full"))
    failed = await asyncio.gather(*map(removals.remove, "ab"), return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    queue.answers.put_nowait(None)
    await removals.remove("c")


async def test_a_cancelled_removal_does_not_cancel_others() -> None:
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


async def test_a_close_cancels_unanswered_removals() -> None:
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
