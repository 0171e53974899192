"""Claimed messages, and the `with` around one: in the library and in both clients alike."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmq import AsyncClient, Client, Message, NoSuchMessage, Spool
from tests.suite import Suite

WAIT_S = 15.0


async def done(result: Any) -> Any:
    """What a method gives, in whichever of the three."""
    return await result if inspect.isawaitable(result) else result


@asynccontextmanager
async def inside(context: Any) -> AsyncIterator[Any]:
    if hasattr(context, "__aenter__"):
        async with context as entered:
            yield entered
    else:
        with context as entered:
            yield entered


@pytest.fixture(params=["library", "client", "async client"])
async def work(
    request: pytest.FixtureRequest, tmp_path: Path, suite: Suite, queue: str
) -> AsyncIterator[Any]:
    """A queue in one of the three; its dead-letter queue exists."""
    if request.param == "library":
        with Spool(tmp_path / "mq") as spool:
            opened = spool.queue("work")
            opened.configure(max_deliveries=9, dead_letter_queue="work.dead")
            yield opened
        return
    with Client(suite.url) as client:
        client.queue(queue).configure(max_deliveries=9, dead_letter_queue=f"{queue}.dead")
        if request.param == "client":
            yield client.queue(queue)
            return
    async with AsyncClient(suite.url) as aclient:
        yield aclient.queue(queue)


async def test_a_with_acknowledges_at_its_end(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        assert (message.id, message.body) == (message_id, b"x")
        found = await done(work.find(message_id))
        assert found.state == "in_flight"
    assert await done(work.find(message_id)) is None


async def test_a_with_releases_when_it_ends_in_an_exception(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    with pytest.raises(ZeroDivisionError):
        async with inside(work.claim_one(wait=WAIT_S)):
            raise ZeroDivisionError
    [again] = await done(work.claim(wait=WAIT_S))
    assert (again.id, again.deliveries) == (message_id, 2)


async def test_the_error_of_a_with_is_seen_though_the_claim_is_lost(work: Any) -> None:
    await done(work.put(b"x"))

    async def fail_late() -> None:
        async with inside(work.claim_one(wait=WAIT_S)) as message:
            await done(work.remove(message))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_late()


async def test_a_with_has_none_when_there_is_nothing(work: Any) -> None:
    async with inside(work.claim_one()) as message:
        assert message is None


@pytest.mark.parametrize("settle", ["release", "bury"])
async def test_what_is_settled_within_is_not_acknowledged(work: Any, settle: str) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        await done(message.release(60) if settle == "release" else message.bury())
    found = await done(work.find(message_id))
    assert (found is None) == (settle == "bury")


async def test_each_of_several_is_used_in_a_with_of_its_own(work: Any) -> None:
    await done(work.put_many([b"1", b"2"]))
    left = 2
    while left:
        for message in await done(work.claim(2, wait=WAIT_S)):
            async with inside(message):
                left -= 1
    assert await done(work.claim()) == []


async def test_a_claimed_message_is_renewed_and_acknowledged(work: Any) -> None:
    await done(work.put(b"x"))
    [message] = await done(work.claim(visibility=30, wait=WAIT_S))
    assert await done(message.renew(600)) > message.deadline + 500
    assert await done(message.ack()) is True
    assert await done(message.ack()) is False
    with pytest.raises(NoSuchMessage):
        await done(message.renew(600))


async def test_a_queue_takes_messages_and_ids(work: Any) -> None:
    await done(work.put_many([b"1", b"2", b"3"]))
    claimed: list[Any] = []
    while len(claimed) < 3:
        claimed += await done(work.claim(3, wait=WAIT_S))
    one, two, three = claimed
    assert await done(work.renew(one, 60)) > 0
    await done(work.release(two, 60))
    await done(work.bury(three))
    assert await done(work.ack(one, two.id, three)) == 2
    assert await done(work.remove_each([one])) == [False]


async def test_a_claimed_message_is_a_message_like_others(work: Any) -> None:
    await done(work.put(b"x", attributes={"a": "b"}))
    [message] = await done(work.claim(wait=WAIT_S))
    seen = await done(work.find(message.id))
    assert isinstance(message, Message)
    assert message == seen
    assert seen == message
    assert message != message.id
    for copied in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
        assert type(copied) is Message
        assert copied == message
