"""Dedup queues: which messages are equal, and how long (section 4 of EmoDB's contract)."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from aiohttp import ClientSession

from fsmq.spool import Spool, prepare
from tests.harness.suite import Suite
from tests.http.emodb.helpers import SUCCESS, Emo, payloads
from tests.http.helpers import ask
from tests.http.monitoring import page


async def test_equal_messages_between_two_polls_are_stored_once(dedup: Emo) -> None:
    await dedup.send("M", "M")
    assert payloads(await dedup.poll()) == ["M"]
    assert await dedup.poll() == []


async def test_a_message_that_was_polled_is_not_deduplicated_against(dedup: Emo) -> None:
    await dedup.send("M")
    assert payloads(await dedup.poll()) == ["M"]
    await dedup.send("M")
    assert payloads(await dedup.poll()) == ["M"]


async def test_a_released_message_and_a_new_equal_one_are_two(dedup: Emo) -> None:
    await dedup.send("M")
    [old] = await dedup.poll()
    await dedup.send("M", "M")
    await dedup.renew(old, ttl=0)
    assert payloads(await dedup.poll()) == ["M", "M"]


async def test_a_message_that_was_peeked_is_not_deduplicated_against(dedup: Emo) -> None:
    await dedup.send("M", "M")
    assert payloads(await dedup.peek()) == ["M"]
    assert await dedup.size() == 1
    await dedup.send("M")
    assert payloads(await dedup.peek()) == ["M", "M"]
    assert payloads(await dedup.poll()) == ["M", "M"]


async def test_a_peek_sees_a_message_that_was_just_sent(dedup: Emo) -> None:
    assert (await dedup.post("sendbatch", ["b", "a", "b"])).body == SUCCESS
    assert payloads(await dedup.peek()) == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b'{"a":1,"b":2}', b'{ "a": 1,\n"b": 2 }', True),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', False),
        (b"1", b"1.0", False),
        (b"1.0", b"1.00", True),
        (b"100.0", b"1e2", True),
        (b'"1"', b"1", False),
        (b'"\xc3\xa9"', b'"\\u00e9"', True),
        (b'"/"', b'"\\/"', True),
        (b'{"a":1,"a":2}', b'{"a":2}', True),
    ],
)
async def test_messages_are_equal_if_their_stored_bytes_are(
    dedup: Emo, one: bytes, other: bytes, equal: bool
) -> None:
    await dedup.post("send", one)
    await dedup.post("send", other)
    assert await dedup.size() == (1 if equal else 2)


async def test_a_batch_is_sorted_by_its_bytes(dedup: Emo) -> None:
    await dedup.send_all([3, {"x": 0}, "1", 2, 1.0, 1, 3])
    assert payloads(await dedup.poll()) == ["1", 1, 1.0, 2, 3, {"x": 0}]


async def test_bodies_with_a_common_prefix_are_sorted_too(dedup: Emo) -> None:
    alike = [f"the same beginning {n:03}" for n in range(40)]
    await dedup.send_all(alike[::-1])
    assert payloads(await dedup.poll(limit=100)) == alike


async def test_a_message_that_was_polled_before_comes_first(dedup: Emo) -> None:
    await dedup.send("z")
    [old] = await dedup.poll()
    await dedup.send("a")
    await dedup.renew(old, ttl=0)
    assert payloads(await dedup.poll()) == ["z", "a"]


async def test_a_duplicate_is_found_without_opening_a_file(dedup: Emo) -> None:
    await dedup.send("M")
    [file] = (dedup.suite.root / "queues" / f"__dedupq_write:{dedup.name}").iterdir()
    file.write_text("something else")  # now only the file name can show it
    await dedup.send("M")
    assert await dedup.size() == 1


@pytest.mark.parametrize("service", ["queue", "dedupq"])
async def test_a_batch_is_one_sync_and_needs_few_files(root: Path, service: str) -> None:
    with Suite(root) as suite:
        resource.prlimit(suite["mq"].pid, resource.RLIMIT_NOFILE, (600, 600))
        async with ClientSession(suite.url) as client:
            one, other = Emo(client, suite, service, "one"), Emo(client, suite, service, "other")
            distinct = 2100 if service == "dedupq" else 2500
            batch = [n % 2100 for n in range(2500)]
            await one.send_all(batch)
            assert (await page(client)).sum("fsmq_sync_duration_seconds_count", process="mq") == 1
            batches = {f"q{n}": ["x"] for n in range(700)}
            answer = await ask(client, "POST", f"/{service}/1/_sendbatch", json=batches)
            assert answer.body == SUCCESS
            batches = {"one": batch[:1], "other": batch}
            answer = await ask(client, "POST", f"/{service}/1/_sendbatch", json=batches)
            assert answer.body == SUCCESS
            assert await other.size() == distinct
            assert await one.size() == distinct + (service == "queue")
            assert await Emo(client, suite, service, "q699").size() == 1


async def test_a_batch_waits_for_an_equal_message_and_is_all_or_none(dedup: Emo) -> None:
    """Another process is storing an equal message; the batch waits for it."""
    await dedup.send("first")
    new = dedup.suite.root / "new"
    with Spool(dedup.suite.root, sync="none", delivers=False) as spool:
        under_way = prepare.dedup_send(spool.context, dedup.name, [b'"m"'])
        sending = asyncio.ensure_future(dedup.post("sendbatch", ["a", "m", "z"]))
        assert not (await asyncio.wait([sending], timeout=0.2))[0]
        assert [f.name for f in new.iterdir() if f.name[0] != "."] == []
        spool.complete(under_way)
    assert (await sending).body == SUCCESS
    assert sorted(payloads(await dedup.poll(limit=9))) == ["a", "first", "m", "z"]


async def test_concurrent_senders_and_pollers_lose_no_message(dedup: Emo) -> None:
    """Each send is seen by a later poll."""
    latest = dict.fromkeys("abc", 0)
    done = asyncio.Event()
    seen: list[str] = []

    async def sender(name: str) -> None:
        for number in range(60):
            assert (await dedup.post("send", name)).body == SUCCESS
            latest[name] = number

    async def poller() -> None:
        while not (done.is_set() and await dedup.size() == 0):
            messages = await dedup.poll(limit=5)
            seen.extend(payloads(messages))
            await dedup.ack(*messages)

    pollers = asyncio.gather(poller(), poller())
    await asyncio.gather(*map(sender, latest))
    done.set()
    await asyncio.wait_for(pollers, 30)
    assert set(seen) == set("abc")
    assert await dedup.size() == 0
