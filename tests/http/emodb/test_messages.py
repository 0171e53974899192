"""Messages: sections 2 to 4 of EmoDB's contract, on both services."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections import Counter
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.emodb.helpers import EXCEPTION, ILLEGAL, SUCCESS, Emo, payloads, sides
from tests.http.helpers import ask, fetch, post


async def test_a_sent_message_is_polled_and_acknowledged(emo: Emo) -> None:
    await emo.send({"provision": "TestCustomer"})
    [message] = await emo.poll()
    assert list(message) == ["id", "payload"]
    assert message["payload"] == {"provision": "TestCustomer"}
    assert re.fullmatch("[0-9a-f]{40}", message["id"])
    assert await emo.poll() == []
    await emo.ack(message)
    await emo.ack(message)  # again, and it is gone
    assert await emo.size() == 0


@pytest.mark.parametrize("message", [None, True, 0, "", "é😀", [], {}, [None], {"a": [1.5]}])
async def test_every_json_value_is_a_message(emo: Emo, message: Any) -> None:
    await emo.send(message)
    assert payloads(await emo.poll()) == [message]


async def test_messages_of_one_sender_come_in_order(plain: Emo) -> None:
    await plain.send_all(list(range(300)))
    assert payloads(await plain.poll(limit=1000)) == list(range(300))


async def test_an_empty_batch_does_nothing(emo: Emo) -> None:
    assert (await emo.post("sendbatch", [])).body == SUCCESS
    answer = await ask(emo.client, "POST", f"/{emo.service}/1/_sendbatch", json={emo.name: []})
    assert answer.body == SUCCESS
    assert await emo.size() == 0


async def test_a_batch_to_several_queues(emo: Emo) -> None:
    other = Emo(emo.client, emo.suite, emo.service, emo.name + "-other")
    batches = {emo.name: [1, None], other.name: ["a"]}
    answer = await ask(emo.client, "POST", f"/{emo.service}/1/_sendbatch", json=batches)
    assert answer.body == SUCCESS
    assert sorted(payloads(await emo.poll()), key=str) == [1, None]
    assert payloads(await other.poll()) == ["a"]


@pytest.mark.parametrize("bad", ['"' + "x" * 30_719 + '"', "1e400"])
async def test_one_bad_message_refuses_the_whole_batch(emo: Emo, bad: str) -> None:
    answer = await emo.post("sendbatch", f"[1,{bad},2]".encode())
    assert (answer.status, answer.headers[EXCEPTION]) == (400, ILLEGAL)
    body = f'{{"{emo.name}":[1],"other":[{bad}]}}'.encode()
    headers = {"Content-Type": "application/json"}
    answer = await ask(
        emo.client, "POST", f"/{emo.service}/1/_sendbatch", data=body, headers=headers
    )
    assert answer.status == 400
    body = f'{{"{emo.name}":[1],"_illegal":[2]}}'.encode()
    answer = await ask(
        emo.client, "POST", f"/{emo.service}/1/_sendbatch", data=body, headers=headers
    )
    assert (answer.status, answer.headers[EXCEPTION]) == (400, ILLEGAL)
    assert await emo.size() == 0


async def test_the_largest_message_and_a_large_batch(emo: Emo) -> None:
    assert (await emo.post("send", b'"' + b"x" * 30_718 + b'"')).body == SUCCESS
    assert (await emo.post("send", '"' + "😀" * 2559 + '"'.ljust(2))).body == SUCCESS
    await emo.post("sendbatch", [f"{n:05}" for n in range(1500)])
    assert await emo.size() == 1502


# -- claims ----------------------------------------------------------------------------------------


async def test_a_claim_ends_with_its_ttl(emo: Emo) -> None:
    await emo.send(1)
    started = time.monotonic()
    [first] = await emo.poll(ttl=1)
    while not (again := await emo.poll(ttl=30)):
        assert time.monotonic() - started < 20
    assert time.monotonic() - started >= 1
    assert again == [first]


async def test_a_ttl_of_zero_claims_nothing(emo: Emo) -> None:
    await emo.send(1, 2)
    shown = await emo.poll(ttl=0)
    assert payloads(shown) == [1, 2]
    assert await emo.poll(ttl=0) == shown
    assert await emo.claims() == 0
    assert await emo.poll(ttl=30) == shown


async def test_a_poll_returns_at_most_its_limit(emo: Emo) -> None:
    await emo.send(*range(5))
    assert len(await emo.poll(limit=2)) == 2
    assert len(await emo.poll(limit=2)) == 2
    assert len(await emo.poll(limit=2)) == 1


async def test_peek_shows_claimed_messages_too_and_claims_none(emo: Emo) -> None:
    await emo.send(1, 2, 3)
    [claimed] = await emo.poll(limit=1)
    shown = await emo.peek()
    assert payloads(shown) == [1, 2, 3]
    assert shown[0] == claimed
    assert await emo.claims() == 1
    assert payloads(await emo.poll()) == [2, 3]
    assert len(await emo.peek(limit=2)) == 2


async def test_size_and_claimcount_are_exact_at_once(emo: Emo) -> None:
    assert (await emo.size(), await emo.claims()) == (0, 0)
    for number in range(1, 6):
        assert (await emo.post("send", number)).body == SUCCESS
        assert await emo.size() == number
    assert await emo.size() == 5
    polled = await emo.poll(limit=3)
    assert (await emo.size(), await emo.claims()) == (5, 3)
    await emo.ack(polled[0])
    assert (await emo.size(), await emo.claims()) == (4, 2)
    await emo.renew(polled[1], ttl=0)
    assert (await emo.size(), await emo.claims()) == (4, 1)
    assert int((await emo.get("size", "limit=1")).body) >= 4
    assert (await emo.post("unclaimall", b"")).body == SUCCESS
    assert (await emo.size(), await emo.claims()) == (4, 0)
    assert (await ask(emo.client, "DELETE", emo.path())).body == SUCCESS
    assert (await emo.size(), await emo.claims()) == (0, 0)


async def test_an_ack_needs_no_claim(emo: Emo) -> None:
    await emo.send(1, 2)
    shown = await emo.peek()
    await emo.ack(shown[0])
    assert payloads(await emo.poll()) == [2]


async def test_one_malformed_id_refuses_the_whole_request(emo: Emo) -> None:
    await emo.send(1)
    [message] = await emo.poll()
    for verb in ("ack", "renew"):
        answer = await emo.post(verb, [message["id"], message["id"][:-1] + "x"])
        assert (answer.status, answer.headers[EXCEPTION]) == (400, ILLEGAL)
    assert await emo.size() == 1


async def test_ids_are_bound_to_their_queue(emo: Emo) -> None:
    await emo.send(1)
    [message] = await emo.poll()
    for service, name in (
        (emo.service, emo.name + "x"),
        ("queue" if emo.service == "dedupq" else "dedupq", emo.name),
    ):
        other = Emo(emo.client, emo.suite, service, name)
        for verb in ("ack", "renew"):
            answer = await other.post(verb, [message["id"]])
            assert (answer.status, answer.headers[EXCEPTION]) == (400, ILLEGAL)
    answer = await emo.post("ack", [message["id"].upper()])
    assert answer.body == SUCCESS
    assert await emo.size() == 0


async def test_a_renewal_never_shortens_a_claim(emo: Emo) -> None:
    await emo.send(1)
    [message] = await emo.poll(ttl=3600)
    before = _deadline(emo)
    await emo.renew(message, ttl=1)
    assert _deadline(emo) == before
    await emo.renew(message, ttl=3600)
    assert _deadline(emo) > before


async def test_a_renewal_claims_a_message_that_is_not_claimed(emo: Emo) -> None:
    await emo.send(1)
    [message] = await emo.peek()
    await emo.renew(message)
    assert await emo.claims() == 1
    assert await emo.poll() == []


async def test_a_renewal_of_a_removed_message_does_nothing(emo: Emo) -> None:
    await emo.send(1)
    [message] = await emo.poll()
    await emo.ack(message)
    await emo.renew(message)
    await emo.renew(message, ttl=0)
    await emo.renew()
    assert await emo.size() == 0


async def test_a_purged_queue_can_be_used_again(emo: Emo) -> None:
    await emo.send(1, 2)
    await emo.poll(limit=1)
    answer = await ask(emo.client, "DELETE", emo.path() + "?partitioned=false")
    assert (answer.status, answer.body) == (200, SUCCESS)
    assert await emo.peek() == []
    await emo.send(3)
    assert payloads(await emo.poll()) == [3]


async def test_queues_need_not_exist(emo: Emo) -> None:
    assert await emo.poll() == []
    assert await emo.poll(ttl=0) == []
    assert await emo.peek() == []
    assert (await emo.size(), await emo.claims()) == (0, 0)
    await emo.renew()
    await emo.ack()
    assert (await emo.post("unclaimall", b"")).body == SUCCESS
    assert (await ask(emo.client, "DELETE", emo.path())).body == SUCCESS
    queues = emo.suite.root / "queues"
    assert not any((queues / side).exists() for side in sides(emo.service, emo.name))


async def test_claims_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Suite(tmp_path_factory.mktemp("restart") / "mq") as suite:
        for service in ("queue", "dedupq"):
            async with ClientSession(suite.url) as client:
                emo = Emo(client, suite, service, "q")
                await emo.send(1, 2)
                [claimed] = await emo.poll(limit=1)
                await emo.post("send", 3)
            suite.kill("mq")
            suite.restart("mq")
            async with ClientSession(suite.url) as client:
                emo = Emo(client, suite, service, "q")
                assert await emo.claims() == 1
                assert payloads(await emo.poll()) == [2, 3]
                await emo.ack(claimed)
                assert await emo.size() == 2


async def test_concurrent_pollers_with_expiring_claims_lose_nothing(emo: Emo) -> None:
    everything = set(range(300))
    await emo.send_all(sorted(everything))
    seen: Counter[int] = Counter()
    held: dict[str, float] = {}

    async def poller(number: int) -> None:
        while await emo.size():
            # Some let their claims end, so their messages come again.
            forgetful = number == 0
            asked = time.monotonic()
            messages = await emo.poll(ttl=1 if forgetful else 60, limit=7)
            now = time.monotonic()
            for message in messages:
                assert held.get(message["id"], 0.0) <= now, "it is claimed by another"
                held[message["id"]] = asked + (0.99 if forgetful else 50)
                seen[message["payload"]] += 1
            if messages and not (forgetful and len(seen) < 200):
                await emo.ack(*messages)

    await asyncio.wait_for(asyncio.gather(*(poller(n) for n in range(4))), 60)
    assert set(seen) == everything
    assert max(seen.values()) > 1


# -- the same messages in the native dialect -------------------------------------------------------


async def test_messages_are_shared_with_the_native_dialect(plain: Emo) -> None:
    await plain.send({"a": 1})
    answer = await fetch(plain.client, plain.name)
    assert (answer.status, answer.body) == (200, b'{"a":1}')
    assert await plain.claims() == 1
    assert (await ask(plain.client, "DELETE", f"/{plain.name}/messages/{answer.id}")).status == 202
    bodies = [b'{ "b" : 2 }', b"no JSON", b"\xff\x00", b'"one" two', b"NaN"]
    for body in bodies:
        await post(plain.client, plain.name, body)
    await post(plain.client, plain.name, b"[]", id="order-4711")
    await post(plain.client, plain.name, b"late", priority=7, ttl=600)
    polled = await plain.poll()
    told = [
        {"b": 2},
        "no JSON",
        {"body_base64": base64.b64encode(b"\xff\x00").decode()},
        '"one" two',
        "NaN",
        [],
        "late",
    ]
    assert payloads(polled) == told
    await plain.renew(*polled)
    await plain.ack(*polled)
    assert await plain.size() == 0


async def test_a_dedup_queue_and_a_plain_queue_of_one_name_are_separate(
    plain: Emo, dedup: Emo
) -> None:
    twin = Emo(plain.client, plain.suite, "dedupq", plain.name)
    await plain.send("plain")
    await twin.send("dedup")
    assert payloads(await plain.poll()) == ["plain"]
    assert payloads(await twin.poll()) == ["dedup"]
    inside = Emo(plain.client, plain.suite, "queue", f"__dedupq_read:{plain.name}")
    assert payloads(await inside.peek()) == ["dedup"]


def _deadline(emo: Emo) -> int:
    queue = sides(emo.service, emo.name)[-1]
    [entry] = [e for e in (emo.suite.root / "delay").iterdir() if e.name.startswith(queue + ":")]
    return entry.stat().st_mtime_ns


async def test_a_poll_right_after_a_batch_returns_all_of_it(emo: Emo) -> None:
    for first in range(0, 300, 30):
        batch = list(range(first, first + 30))
        assert (await emo.post("sendbatch", batch)).body == SUCCESS
        assert sorted(payloads(await emo.poll(limit=30))) == batch


async def test_a_poll_of_an_empty_queue_is_answered_at_once(emo: Emo) -> None:
    await emo.send("M")
    await emo.ack(*await emo.poll())
    took = []
    for _ in range(10):
        asked = time.monotonic()
        assert await emo.poll() == []
        took.append(time.monotonic() - asked)
    assert min(took) < 0.04  # the machine may be busy
