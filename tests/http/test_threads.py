"""Threads beside the loop: who asks for the same at the same time has it done once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from fsmq.http.running.threads import Threads
from tests.harness.suite import PATIENCE_S


@pytest.fixture
def threads() -> Iterator[Threads]:
    with closing(Threads(1)) as threads:
        yield threads


class Listing:
    """What takes long: it gives how often it has begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = threading.Event()

    def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        assert self.may_end.wait(PATIENCE_S)
        return number


async def test_it_runs_once_for_all_who_ask_meanwhile(threads: Threads) -> None:
    listing = Listing()
    asking = [asyncio.create_task(threads.share(listing)) for _ in range(5)]
    await asyncio.sleep(0)
    listing.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert await threads.share(listing) == 2


async def test_what_is_over_is_given_to_nobody(threads: Threads) -> None:
    """Else who asks until there is something new would never let the loop have its turn."""
    listing = Listing()
    first = asyncio.create_task(threads.share(listing))
    await asyncio.sleep(0)
    listing.may_end.set()

    async def ask_until_new() -> None:
        answers = [await threads.share(listing), await threads.share(listing)]
        assert answers[1] > 1, answers

    # At every turn of the loop, so also in that in which the first one ends.
    asking = []
    while not first.done():
        asking.append(asyncio.create_task(ask_until_new()))
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
