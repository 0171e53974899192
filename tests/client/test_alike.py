"""The library and both clients are alike: their methods, claimed messages, what a put takes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fsmq import (
    AsyncClient,
    AsyncQueue,
    Client,
    ClientQueue,
    InvalidValue,
    Message,
    NewMessage,
    NoSuchMessage,
    Queue,
    Spool,
)
from tests.suite import Suite, eventually_on_loop

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


# Where they still differ, and how; everything else is the same.
APART = {
    "client": "of the clients",
    "spool": "of the library",
    "move_to": "the clients have none",
    "purge": "the library tells of its progress",
    "settings": "a coroutine of the async client, a property of the others",
    "worker": "the library has none",
}


def methods(of: type) -> dict[str, Any]:
    public = {name for name in dir(of) if not name.startswith("_")}
    return {name: inspect.getattr_static(of, name) for name in public - APART.keys()}


@pytest.mark.parametrize("of", [ClientQueue, AsyncQueue])
def test_a_queue_has_the_methods_of_the_library(of: type) -> None:
    assert {"put", "claim", "claim_one", "ack"} <= methods(of).keys()
    assert methods(of).keys() == methods(Queue).keys()


@pytest.mark.parametrize("of", [ClientQueue, AsyncQueue])
@pytest.mark.parametrize("name", sorted(methods(Queue)))
def test_a_method_is_that_of_the_library(of: type, name: str) -> None:
    ours, theirs = methods(Queue)[name], methods(of)[name]

    def parameters(method: Any) -> list[Any]:
        given = inspect.signature(method).parameters.values()
        return [(p.name, p.kind, p.default, p.annotation) for p in given if p.name != "self"]

    assert parameters(theirs) == parameters(ours)
    assert theirs.__doc__.splitlines()[0] == ours.__doc__.splitlines()[0]


async def bodies(work: Any) -> list[bytes]:
    """What comes next, acknowledged."""
    messages = await done(work.claim(10, wait=WAIT_S))
    await done(work.ack(*messages))
    return [message.body for message in messages]


async def test_text_is_put_in_utf_8(work: Any) -> None:
    await done(work.put("Zürich"))
    assert await bodies(work) == ["Zürich".encode()]
    await done(work.put_many(["ä", NewMessage("ö")]))  # type: ignore[arg-type]
    got: list[bytes] = []
    while len(got) < 2:
        got += await bodies(work)
    assert sorted(got) == ["ä".encode(), "ö".encode()]
    for wrong in ("\ud800", 1, None, bytearray(b"x")):
        with pytest.raises(InvalidValue, match="body"):
            await done(work.put(wrong))
        with pytest.raises(InvalidValue, match="body"):
            await done(work.put_many([wrong]))


async def test_json_is_put_with_its_content_type(work: Any) -> None:
    await done(work.put_json({"name": "Zoë", "sizes": [1, None]}, priority=7))
    [message] = await done(work.claim(wait=WAIT_S))
    assert message.body == '{"name": "Zoë", "sizes": [1, null]}'.encode()
    assert (message.content_type, message.priority) == ("application/json", 7)
    for wrong in (object(), float("nan"), "\ud800"):
        with pytest.raises(InvalidValue, match="JSON"):
            await done(work.put_json(wrong))


async def delayed(work: Any, message_id: str) -> Message:
    """A message, once it is delivered; the library does that when it claims."""
    seen: list[Message] = []

    async def is_delayed() -> bool:
        assert await done(work.claim()) == []
        seen.append(await done(work.find(message_id)))
        return seen[-1].state == "delayed"

    await eventually_on_loop(is_delayed)
    return seen[-1]


async def test_a_delay_is_a_span_or_a_moment_too(work: Any) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    for delay in (3600, timedelta(hours=1), moment):
        message_id = await done(work.put(b"x", delay=delay))
        found = await delayed(work, message_id)
        assert found.deadline == pytest.approx(moment.timestamp(), abs=60)
        await done(work.remove(found))
    await done(work.put(b"at once", delay=moment - timedelta(days=1)))
    assert await bodies(work) == [b"at once"]
    for wrong in (moment.replace(tzinfo=None), timedelta(seconds=-1), "soon"):
        with pytest.raises(InvalidValue, match="delay"):
            await done(work.put(b"x", delay=wrong))
