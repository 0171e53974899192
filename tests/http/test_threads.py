"""Calls in threads: concurrent equal calls are made once."""

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
    """A slow call, which returns how often it was made."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = threading.Event()

    def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        assert self.may_end.wait(PATIENCE_S)
        return number


async def test_concurrent_callers_share_one_call(threads: Threads) -> None:
    listing = Listing()
    asking = [asyncio.create_task(threads.share(listing)) for _ in range(5)]
    await asyncio.sleep(0)
    listing.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert await threads.share(listing) == 2


async def test_a_finished_call_is_not_shared(threads: Threads) -> None:
    """Else a caller that repeats until something changes would block the loop."""
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
