"""Logs and channels of the library and both clients have the same behaviour."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from fsmq import AsyncClient, Bury, Client, InvalidValue, MessageTooLarge, Retry, Spool
from fsmq.spool.errors import ClaimVoid, NoSuchChannel, NoSuchLog, NotInFlight, OffsetGone
from fsmq.spool.log.log import LogEntry
from tests.client.helpers import WAIT_S, done, inside, run, worker_of
from tests.client.proxy import Proxy
from tests.harness.suite import Suite


async def listed(iterator: Any) -> list[Any]:
    if hasattr(iterator, "__aiter__"):
        return [one async for one in iterator]
    return list(iterator)


@pytest.fixture
async def log(place: Any, queue: str) -> Any:
    return await done(place.log(queue, create=True))


async def test_a_log_is_created_changed_and_deleted(place: Any, log: Any) -> None:
    assert log.name in await done(place.logs())
    assert await done(log.create(retain_for=5)) is False
    assert (await done(log.settings())).retain_for == 7 * 86_400
    assert (await done(log.configure(retain_for=60))).retain_for == 60
    with pytest.raises(InvalidValue, match="retain"):
        await done(log.configure(retain=1))
    stats = await done(log.stats())
    assert (stats.first, stats.next, stats.channels, stats.oldest_at) == (0, 0, [], None)
    await done(log.delete())
    for verb in (log.delete, log.stats, log.end, lambda: log.publish(b"x"), log.channels):
        with pytest.raises(NoSuchLog) as caught:
            await done(verb())
        assert caught.value.log == log.name
    for name in ("_bad", "", "a/b"):
        with pytest.raises(InvalidValue, match="log"):
            place.log(name)
        with pytest.raises(InvalidValue, match="channel"):
            log.channel(name)


async def test_published_messages_are_read(log: Any) -> None:
    assert await done(log.publish("ä", key="k\u00fc", id="own", attributes={"a": "b"})) == 0
    assert await done(log.publish("ä", id="own")) == 0
    many = [b"\xff", "two", LogEntry(b"three", key="k", content_type="text/x")]
    assert await done(log.publish_many(many)) == range(1, 4)
    assert await done(log.publish_many([])) == range(4, 4)
    first, *_, last = await listed(log.read())
    assert (first.body, first.key, first.id) == ("ä".encode(), "k\u00fc", "own")
    assert (first.attributes, last.content_type, last.key) == ({"a": "b"}, "text/x", "k")
    assert [m.body for m in await listed(log.read(1))] == [b"\xff", b"two", b"three"]
    at = datetime.fromtimestamp(last.published_at, UTC)
    assert await done(log.offset_of(at)) == 1  # a batch has one time
    assert await done(log.offset_of(at + timedelta(hours=1))) == 4
    assert await done(log.offset_of("first")) == await done(log.first()) == 0
    assert await done(log.offset_of("last")) == await done(log.end()) == 4
    page = await done(log.page(1, 2))
    assert ([m.offset for m in page.messages], page.next, page.lost) == ([1, 2], 3, 0)
    assert [len(batch) for batch in await listed(log.batches(count=3))] == [3, 1]
    assert await done(log.wait(3, 0)) is True
    assert await done(log.wait(4, 0.1)) is False
    stats = await done(log.stats())
    assert stats.oldest_at == first.published_at
    for place in ("middle", -1, datetime.now()):
        with pytest.raises(InvalidValue):
            await done(log.offset_of(place))


async def test_any_text_is_read_unchanged(log: Any) -> None:
    signs = [chr(code) for code in (*range(0x80), 0x80, 0x9F, 0x2028, 0xFEFF, 0xFFFF, 0x1F600)]
    texts = ["", *signs, *(f"a{sign}b" for sign in signs), '\\u0041"', "\\"]
    assert await done(log.publish_many(texts)) == range(len(texts))
    assert [message.body.decode() for message in await listed(log.read())] == texts
    with pytest.raises(InvalidValue, match="cannot be in UTF-8") as caught:
        await done(log.publish_many(["a", "\ud800"]))
    assert (caught.value.field, caught.value.index) == ("body", 1)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"body": 7}, "body"),
        ({"body": b"", "key": ""}, "key"),
        ({"body": b"", "id": "x" * 257}, "id"),
        ({"body": b"", "attributes": {"Key": "x"}}, "attributes"),
    ],
)
async def test_invalid_messages_are_refused(log: Any, bad: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        await done(log.publish(**bad))
    assert (caught.value.field, caught.value.index) == (field, None)
    with pytest.raises(InvalidValue) as caught:
        await done(log.publish_many([b"fine", LogEntry(**bad)]))
    assert (caught.value.field, caught.value.index) == (field, 1)
    await done(log.configure(max_message_bytes=3))
    with pytest.raises(MessageTooLarge) as too_large:
        await done(log.publish(b"four"))
    assert too_large.value.limit == 3
    assert await done(log.end()) == 0


async def test_a_channel_is_created_claimed_from_and_deleted(log: Any) -> None:
    await done(log.publish_many([b"0", b"1", b"2", b"3"]))
    channel = await done(log.channel("c", create=True))
    assert await done(log.channels()) == ["c"]
    assert await done(channel.lag()) == 0
    assert await done(channel.seek("first")) == 0
    assert (await done(channel.configure(order="none"))).order == "none"
    messages = await done(channel.claim(3, visibility=60))
    assert [(m.offset, m.body, m.deliveries, m.generation) for m in messages] == [
        (n, b"%d" % n, 1, (await done(channel.state())).generation) for n in range(3)
    ]
    assert await done(messages[0].renew(600)) > messages[1].deadline + 500
    assert await done(messages[0].ack()) is True
    assert await done(messages[0].ack()) is False
    assert await done(channel.ack(messages[0], 1)) == 1
    await done(channel.release(messages[2], delay=60))
    state = await done(channel.state())
    assert (state.position, state.lag, state.delayed, state.in_flight) == (2, 2, 1, 0)
    await done(channel.release(2))
    [again] = await done(channel.claim(1, wait=WAIT_S))
    assert (again.offset, again.deliveries) == (2, 2)
    assert await done(channel.done_ranges([(2, 3)])) == 1
    await done(channel.claim())
    assert await done(channel.done_through(3)) == 1
    await done(channel.seek(3))
    with pytest.raises(ClaimVoid):
        await done(channel.ack(again))
    await done(channel.pause())
    assert await done(channel.claim()) == []
    await done(channel.resume())
    [last] = await done(channel.claim())
    with pytest.raises(InvalidValue, match="dead_letter_queue"):
        await done(last.bury())
    await done(channel.delete())
    for verb in (channel.delete, channel.state, channel.claim, lambda: channel.ack(3)):
        with pytest.raises(NoSuchChannel) as caught:
            await done(verb())
        assert (caught.value.log, caught.value.channel) == (log.name, "c")
    other = log.channel("d")
    assert await done(other.create(2, order="strict")) is True
    with pytest.raises(NotInFlight) as not_there:
        await done(other.ack(2))
    assert not_there.value.offset == 2


async def test_a_claim_of_a_deleted_channel_is_void_in_the_next_one(log: Any) -> None:
    await done(log.publish_many([b"0", b"1"]))
    channel = log.channel("c")
    for _ in range(9):  # equal names would be rare
        held: list[Any] = []
        for _ in range(2):
            await done(channel.create("first", order="none", dead_letter_queue="dead"))
            held.append(await done(channel.claim(2)))
            if len(held) == 1:
                await done(channel.delete())
        [[old, old_1], [_, new_1]] = held
        for verb in (
            old.ack,
            old.renew,
            old.release,
            old.bury,
            lambda: channel.ack(old, new_1),  # noqa: B023
            lambda: channel.done_through(old_1),  # noqa: B023
        ):
            with pytest.raises(ClaimVoid):
                await done(verb())
        assert (await done(channel.state())).in_flight == 2
        await done(channel.delete())


async def test_an_ended_claim_does_not_affect_the_next_one(log: Any) -> None:
    channel = await done(log.channel("c", create=True))
    await done(channel.configure(dead_letter_queue="dead"))
    await done(log.publish(b"x"))
    [late] = await done(channel.claim(visibility=0.01))
    [own] = await done(channel.claim(visibility=600, wait=WAIT_S))
    for act in (late.renew, late.release, late.bury):
        with pytest.raises(NotInFlight):
            await done(act())
    assert (await done(channel.state())).in_flight == 1
    await done(own.renew(600))
    assert await done(late.ack()) is True


async def test_a_with_statement_acknowledges_or_releases(log: Any) -> None:
    channel = await done(log.channel("c", create=True))
    await done(log.publish(b"x"))

    async def use(fails: bool) -> Any:
        [message] = await done(channel.claim(wait=WAIT_S))
        async with inside(message):
            if fails:
                raise ZeroDivisionError
        return message

    with pytest.raises(ZeroDivisionError):
        await use(True)
    assert (await use(False)).deliveries == 2
    assert await done(channel.lag()) == 0


async def test_retry_and_bury_end_a_with_statement(log: Any) -> None:
    channel = await done(log.channel("c", create=True))
    await done(channel.configure(dead_letter_queue=f"{log.name}.dead"))
    await done(log.publish(b"x"))

    async def use(error: Exception | None) -> int | None:
        async with inside(channel.claim_one(wait=WAIT_S)) as message:
            if error is not None:
                raise error
        return None if message is None else int(message.deliveries)

    await use(Retry(0.01))
    with pytest.raises(ZeroDivisionError):
        await use(ZeroDivisionError())
    await use(Bury("never"))
    assert (await done(channel.state())).buried == 1
    await done(log.publish(b"y"))
    assert await use(None) == 1
    assert await done(channel.lag()) == 0


async def test_methods_take_the_name_of_a_claim(log: Any) -> None:
    """An offset is a number or a text, and a claim has the name from the message."""
    channel = await done(log.channel("c", create=True))
    await done(channel.configure(order="none", dead_letter_queue=f"{log.name}.dead"))
    await done(log.publish_many([b"0", b"1", b"2"]))
    late, *others = await done(channel.claim(3, visibility=0.01))
    own, *_ = await done(channel.claim(3, visibility=600, wait=WAIT_S))
    assert own.queue == f"{log.name}/c"
    for verb in (channel.renew, channel.release, channel.bury):
        with pytest.raises(NotInFlight):
            await done(verb("0", claim=late.claim))
        for wrong in ("x", "c1-47", "1-"):
            with pytest.raises(InvalidValue, match="claim"):
                await done(verb(0, claim=wrong))
        with pytest.raises(InvalidValue, match="claim"):
            await done(verb(0, 1, claim=own.claim))
        with pytest.raises(InvalidValue, match="offset"):
            await done(verb("one"))
    await done(channel.renew("0", visibility=600, claim=own.claim))
    assert await done(channel.ack(0, claim=own.claim)) == 1
    found = await done(channel.ack_each(["0", 1, 7], [own.claim, None, None]))
    assert found == ["removed", "removed", "missing"]
    await done(channel.seek("first"))
    found = await done(channel.ack_each([own, others[1]]))
    assert found == ["ended", "ended"]
    assert await done(channel.ack_each([])) == []


async def test_reading_removed_messages_raises(log: Any, place: Any, suite: Suite) -> None:
    await done(log.configure(retain_for=0, retain_bytes=0, segment_bytes=4096))
    for _ in range(3):
        await done(log.publish(bytes(5000)))
    if isinstance(place, Spool):
        place.tend_logs()
    else:
        with Spool(suite.root, create=False) as spool:
            spool.tend_logs()
    first = await done(log.first())
    with pytest.raises(OffsetGone) as caught:
        await listed(log.read(0))
    assert caught.value.first == first > 0
    assert [m.offset for m in await listed(log.read("first"))] == list(range(first, 3))


async def test_follow_yields_new_messages(log: Any) -> None:
    await done(log.publish(b"0"))
    found: list[bytes] = []

    async def follow() -> None:
        async for message in log.read(follow=True):
            found.append(message.body)
            if len(found) == 2:
                return

    def follow_in_thread() -> None:
        found.extend(message.body for message in islice(log.read(follow=True), 2))

    is_async = hasattr(log.read(), "__aiter__")
    following = asyncio.ensure_future(follow() if is_async else asyncio.to_thread(follow_in_thread))
    await done(log.publish(b"1"))
    await asyncio.wait_for(following, WAIT_S)
    assert found == [b"0", b"1"]


@pytest.mark.parametrize("order", ["none", "key", "strict"])
async def test_a_worker_keeps_the_order_of_its_channel(place: Any, log: Any, order: str) -> None:
    """It handles all messages, redelivers failed ones, and keeps the order."""
    dead = f"{log.name}.dead"
    channel = log.channel("c")
    await done(channel.create("first", order=order, dead_letter_queue=dead))
    await done(log.publish_many([LogEntry(b"%d" % n, key="ab"[n % 2]) for n in range(12)]))
    begun: list[int] = []
    finished: list[int] = []
    lock = threading.Lock()

    async def work(message: Any, claim: Any) -> None:
        await done(message.renew(30))
        with lock:
            begun.append(message.offset)
            if message.body == b"3" and message.deliveries == 1:
                raise Retry(0.05)
            if message.body == b"5":
                raise Bury("never")
            finished.append(message.offset)
            if len(finished) == 11:
                worker.stop()

    worker = worker_of(place, channel, work, concurrency=3, visibility=30)
    await asyncio.wait_for(run(place, worker), WAIT_S)
    assert sorted(finished) == [n for n in range(12) if n != 5]
    if order == "key":
        for key in (0, 1):
            of_key = [n for n in begun if n % 2 == key]
            assert of_key == sorted(of_key), begun
    if order == "strict":
        assert begun == sorted(begun), begun
    state = await done(channel.state())
    assert (state.lag, state.in_flight) == (0, 0)
    assert (await done(place.queue(dead).counts())).total == 1


async def test_a_worker_counts_a_void_claim_as_lost(place: Any, log: Any) -> None:
    """The channel goes back while the handler runs: the message is delivered again."""
    channel = await done(log.channel("c", create=True))
    await done(log.publish(b"x"))
    seen: list[int] = []

    async def work(message: Any, claim: Any) -> None:
        seen.append(message.deliveries)
        if len(seen) == 1:
            await done(channel.seek("first"))
        else:
            worker.stop()

    worker = worker_of(place, channel, work, concurrency=1)
    await asyncio.wait_for(run(place, worker), WAIT_S)
    assert (seen, worker.lost) == ([1, 1], 1)
    assert await done(channel.lag()) == 0


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_retried_request_is_carried_out_once(
    suite: Suite, queue: str, is_async: bool
) -> None:
    """Each answer is lost once: nothing is stored twice, and no error is raised."""
    with Spool(suite.root, create=False) as spool, Proxy(suite.port) as proxy:
        there = spool.log(queue, create=True)
        there.channel("c", create=True)
        client: Any = (AsyncClient if is_async else Client)(proxy.url, retry_for=10)
        log = client.log(queue)
        channel = log.channel("c")

        async def losing(verb: Any) -> Any:
            proxy.lose_answers = 1
            if is_async:
                return await verb()
            return await asyncio.to_thread(verb)

        assert await losing(lambda: log.publish(b"x")) == 0
        assert await losing(lambda: log.publish_many([b"y", b"z"])) == range(1, 3)
        assert there.end() == 3
        claiming = channel.claim(3) if is_async else asyncio.to_thread(channel.claim, 3)
        [one, two, three] = await claiming
        assert await losing(lambda: channel.ack(one)) == 1
        await losing(lambda: channel.release(two, delay=60))
        await losing(three.ack)
        await losing(channel.delete)
        await losing(log.delete)
        assert there.name not in spool.logs()
        await done(client.close())
