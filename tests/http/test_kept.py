"""Cached results of listings: pages use the last one if a new one takes long."""

from __future__ import annotations

import asyncio

import pytest

from fsmq.http.service.monitoring.surveys import Kept
from fsmq.spool.errors import Unavailable

SOON_S, LONG_S = 0.01, 60.0


class Look:
    """A call that ends on demand and returns a growing number."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.number = 0
        self.problem: Exception | None = None

    async def __call__(self) -> int:
        self.number += 1
        await self.may_end.wait()
        if self.problem is not None:
            raise self.problem
        return self.number


async def test_there_is_no_result_before_the_first_look_has_ended() -> None:
    look = Look()
    kept = Kept(look)
    assert await kept.within(SOON_S) is None
    assert await kept.within(SOON_S) is None
    assert look.number == 1, "requests share a look"
    look.may_end.set()
    assert await kept.within(LONG_S) == 1


async def test_the_last_result_is_used_during_a_look() -> None:
    look = Look()
    kept = Kept(look, least_s=0.0)
    look.may_end.set()
    assert await kept.within(LONG_S) == 1
    look.may_end.clear()
    while look.number == 1:  # while it is valid there is no other call
        assert await kept.within(SOON_S) == 1
    assert await kept.within(SOON_S) == 1
    look.may_end.set()
    while await kept.within(LONG_S) == 1:
        assert look.number == 2


async def test_an_error_is_raised_for_waiting_callers_only() -> None:
    look = Look()
    kept = Kept(look)
    look.problem = Unavailable("the disk fails")
    assert await kept.within(SOON_S) is None
    look.may_end.set()
    with pytest.raises(Unavailable):
        await kept.within(LONG_S)
    look.problem = None
    assert await kept.within(LONG_S) is not None
