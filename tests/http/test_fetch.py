"""Fetching: visibility, long polling, several at once, order, renewal and release."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http.helpers import (
    ARRIVAL_S,
    Wire,
    ask,
    configure,
    counts,
    fetch,
    moment,
    post,
    until_ready,
)

# How long a fetch waits for messages that were just stored.
PATIENCE_S = 0.045


async def test_a_message_is_redelivered_when_its_claim_ends(
    client: ClientSession, queue: str
) -> None:
    await post(client, queue, b"again")
    first = await fetch(client, queue, visibility=0.2)
    second = await fetch(client, queue, visibility=0.2)
    assert second.id == first.id
    assert [a.headers["X-Message-Deliveries"] for a in (first, second)] == ["1", "2"]
    # The first timer had ended before the second delivery.
    assert moment(second.headers["X-Message-Deadline"]) - moment(
        first.headers["X-Message-Deadline"]
    ) >= timedelta(seconds=0.2)


async def test_the_deadline_is_in_the_answer(client: ClientSession, queue: str) -> None:
    await post(client, queue)
    before = datetime.now(UTC)
    answer = await fetch(client, queue, visibility=100)
    deadline = moment(answer.headers["X-Message-Deadline"])
    after = datetime.now(UTC)
    millisecond = timedelta(milliseconds=1)
    assert before - millisecond <= deadline - timedelta(seconds=100) <= after


async def test_the_default_visibility_timeout_is_that_of_the_queue(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, visibility_timeout=0.2)
    await post(client, queue)
    first = await fetch(client, queue)
    assert (await fetch(client, queue)).id == first.id


async def test_lower_priority_numbers_come_first(client: ClientSession, queue: str) -> None:
    for priority in (99, 5, 0, 50):
        await post(client, queue, b"%d" % priority, priority=priority)
    await until_ready(client, queue, 4)
    answers = [await fetch(client, queue) for _ in range(4)]
    assert [a.body for a in answers] == [b"0", b"5", b"50", b"99"]
    assert [a.headers.get("X-Message-Priority") for a in answers] == [None, "5", "50", "99"]


async def test_several_messages_in_one_answer(client: ClientSession, queue: str) -> None:
    posted = [await post(client, queue, b"%d" % n) for n in range(5)]
    await until_ready(client, queue, 5)
    first = (await fetch(client, queue, count=3)).json["messages"]
    rest = (await fetch(client, queue, count=1000)).json["messages"]
    assert [m["id"] for m in first + rest] == posted
    assert [m["body"] for m in first] == ["0", "1", "2"]
    assert len(first) == 3


async def test_a_message_in_json(client: ClientSession, queue: str) -> None:
    headers = {"Content-Type": "text/plain", "X-Message-Attribute-Color": "grün"}
    path = f"/{queue}/messages?priority=7&ttl=3600"
    posted = await ask(client, "POST", path, data=b"x", headers=headers)
    [message] = (await fetch(client, queue, count=1, visibility=60)).json["messages"]
    times = {name: moment(message.pop(name)) for name in ("deadline", "created_at", "expires_at")}
    assert re.fullmatch(r"c1-\d\d", message.pop("claim"))
    assert message == {
        "id": posted.id,
        "body": "x",
        "content_type": "text/plain",
        "attributes": {"Color": "grün"},
        "state": "in_flight",
        "priority": 7,
        "deliveries": 1,
    }
    lifetime = times["expires_at"] - times["created_at"]
    assert timedelta(seconds=3600) <= lifetime < timedelta(seconds=3601)


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("application/json", True),
        ("text/plain;q=0.5, Application/JSON;q=0.9", True),
        ("application/json, text/plain, */*", False),  # for any other Accept the stored form
        ("application/jsonl", False),
        ("*/*", False),
        ("", False),
    ],
)
async def test_accept_chooses_the_form(
    client: ClientSession, queue: str, accept: str, is_json: bool
) -> None:
    message_id = await post(client, queue, b"hello")
    headers = {"Accept": accept}
    fetched = await ask(client, "GET", f"/{queue}/messages?wait=10", headers=headers)
    seen = await ask(client, "GET", f"/{queue}/messages/{message_id}", headers=headers)
    if is_json:
        assert [m["body"] for m in fetched.json["messages"]] == ["hello"]
        assert seen.json["id"] == message_id
    else:
        assert (fetched.body, seen.body) == (b"hello", b"hello")
        assert fetched.id == seen.id == message_id


async def test_binary_bodies_are_base64_in_json(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"\xff\x00\xfe")
    [message] = (await fetch(client, queue, count=1)).json["messages"]
    assert "body" not in message
    assert base64.b64decode(message["body_base64"]) == b"\xff\x00\xfe"


async def test_a_wait_ends_in_time(client: ClientSession, queue: str) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert (await fetch(client, queue, wait=0.5)).status == 204
    assert 0.5 <= loop.time() - started < ARRIVAL_S


async def test_a_wait_ends_with_404_when_its_queue_is_deleted(
    client: ClientSession, queue: str
) -> None:
    waiting = asyncio.create_task(fetch(client, queue, wait=20))
    await fetch(client, queue, wait=0.05)
    await ask(client, "DELETE", f"/{queue}")
    assert (await asyncio.wait_for(waiting, ARRIVAL_S - 1)).status == 404


async def test_hundreds_of_waiters_get_one_message_each(suite: Suite, queue: str) -> None:
    total = 300
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with ClientSession(suite.url, connector=connector, timeout=timeout) as many:
        waiting = [asyncio.create_task(fetch(many, queue, wait=20)) for _ in range(total)]
        await eventually_on_loop(lambda: len(connector._acquired) >= total)
        posting = [post(many, queue, b"%d" % n) for n in range(total)]
        posted = await asyncio.gather(*posting)
        fetched = await asyncio.gather(*waiting)
    assert [a.status for a in fetched] == [200] * total
    assert sorted(a.id for a in fetched) == sorted(posted)
    assert {a.body for a in fetched} == {b"%d" % n for n in range(total)}


@pytest.mark.parametrize("reset", [False, True])
async def test_a_waiter_that_hangs_up_loses_no_message(
    client: ClientSession, suite: Suite, queue: str, reset: bool
) -> None:
    gone = [Wire(suite.url) for _ in range(3)]
    for line in gone:
        line.request("GET", f"/{queue}/messages?wait=20&visibility=600")
    await fetch(client, queue, wait=0.05)
    for line in gone:
        if reset:
            line.socket.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: close with a reset
        line.close()
    message_id = await post(client, queue, b"for the living")
    assert (await fetch(client, queue)).id == message_id


def test_a_waiter_that_hangs_up_frees_its_place_at_once(tmp_path: Path) -> None:
    with Suite(tmp_path / "mq", mq_options=["--max-waiters=3"], mover=False, reaper=False) as suite:
        with Wire(suite.url) as line:
            line.request("PUT", "/jobs")
            assert line.answer().status == 201

        def waits() -> bool:
            with Wire(suite.url) as line:
                line.request("GET", "/jobs/messages?wait=0.01")
                return line.answer().status == 204

        gone = [Wire(suite.url) for _ in range(3)]
        for line in gone:
            line.request("GET", "/jobs/messages?wait=20")
        with Wire(suite.url) as line:
            for _ in range(2):  # everything sent before this was answered has been read
                assert line.ask("GET", "/jobs").status == 200
        eventually(lambda: not waits())
        for line in gone:
            line.close()
        started = time.monotonic()
        eventually(waits)
        assert time.monotonic() - started < 15


async def test_a_renewal_moves_the_deadline(client: ClientSession, queue: str) -> None:
    await post(client, queue)
    while True:
        fetched = await fetch(client, queue, visibility=0.4)
        path = f"/{queue}/messages/{fetched.id}"
        renewed = await ask(client, "PATCH", f"{path}?visibility=100")
        assert renewed.status == 204
        if datetime.now(UTC) < moment(fetched.headers["X-Message-Deadline"]):
            break  # else the machine was busy and the claim had ended before
        await release(client, queue, fetched.id)
    deadline = moment(renewed.headers["X-Message-Deadline"])
    assert deadline - moment(fetched.headers["X-Message-Deadline"]) > timedelta(seconds=99)
    assert (await fetch(client, queue, wait=0.8)).status == 204
    seen = await ask(client, "GET", path)
    assert seen.headers["X-Message-Deliveries"] == fetched.headers["X-Message-Deliveries"]


async def test_a_renewal_uses_the_visibility_timeout_of_the_queue(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, visibility_timeout=500)
    await post(client, queue)
    fetched = await fetch(client, queue, visibility=100)
    renewed = await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}")
    later = moment(renewed.headers["X-Message-Deadline"]) - moment(
        fetched.headers["X-Message-Deadline"]
    )
    assert later > timedelta(seconds=399)


async def test_a_renewal_can_shorten_a_claim(client: ClientSession, queue: str) -> None:
    await post(client, queue)
    fetched = await fetch(client, queue, visibility=600)
    await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}?visibility=0.1")
    assert (await fetch(client, queue)).id == fetched.id


async def test_a_late_renewal_claims_again(client: ClientSession, queue: str, suite: Suite) -> None:
    await post(client, queue)
    fetched = await fetch(client, queue, visibility=0)
    eventually((suite.root / "queues" / queue / fetched.id).exists)
    renewed = await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}?visibility=60")
    assert renewed.status == 204
    assert (await fetch(client, queue, wait=0.2)).status == 204


async def test_a_release_wakes_a_waiter(client: ClientSession, queue: str) -> None:
    await post(client, queue)
    fetched = await fetch(client, queue, visibility=600)
    waiting = asyncio.create_task(fetch(client, queue, wait=20))
    await fetch(client, queue, wait=0.05)
    await release(client, queue, fetched.id)
    assert (await asyncio.wait_for(waiting, ARRIVAL_S - 1)).id == fetched.id


async def test_a_deleted_message_is_not_found(client: ClientSession, queue: str) -> None:
    path = f"/{queue}/messages/{await post(client, queue)}"
    await ask(client, "DELETE", path)
    for method, query in (("GET", ""), ("PATCH", "?visibility=0"), ("PATCH", "?visibility=5")):
        assert (await ask(client, method, path + query)).status == 404


async def test_an_expired_message_is_not_claimed(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    message_id = await post(client, queue, b"stale", ttl=0.5)
    assert int(message_id.rpartition(".x")[2], 16) > 0
    path = suite.root / "queues" / queue / message_id
    await until_ready(client, queue, 1)
    expires = int(message_id.rpartition(".x")[2], 16)
    await eventually_on_loop(lambda: time.time() >= expires)
    assert (await fetch(client, queue, wait=0)).status == 204
    assert not path.exists()


async def test_counts_by_state(client: ClientSession, queue: str) -> None:
    for _ in range(3):
        await post(client, queue)
    await post(client, queue, delay=100)
    await fetch(client, queue)
    await until_ready(client, queue, 2)
    assert await counts(client, queue) == {"new": 0, "ready": 2, "in_flight": 1, "delayed": 1}


async def release(client: ClientSession, queue: str, message_id: str) -> None:
    answer = await ask(client, "PATCH", f"/{queue}/messages/{message_id}?visibility=0")
    assert answer.status == 204


async def test_a_claim_finds_a_message_that_was_just_stored(
    client: ClientSession, queue: str
) -> None:
    for number in range(50):
        posted = await post(client, queue, b"%d" % number)
        asked = time.monotonic()
        answer = await fetch(client, queue, wait=0)
        if answer.status == 204 and time.monotonic() - asked >= PATIENCE_S:
            answer = await fetch(client, queue)  # the mover was slow
        assert answer.id == posted
    several = [{"body": str(number)} for number in range(20)]
    assert (await ask(client, "POST", f"/{queue}/batch", json=several)).status == 201
    found: list[str] = []
    while len(found) < 20:
        asked = time.monotonic()
        answer = await ask(client, "GET", f"/{queue}/messages?count=20&wait={ARRIVAL_S}")
        found += [message["body"] for message in answer.json["messages"]]
        assert len(found) == 20 or time.monotonic() - asked >= PATIENCE_S
    assert found == [str(number) for number in range(20)]


async def test_a_claim_waits_only_briefly_for_stored_messages(
    client: ClientSession, queue: str
) -> None:
    await post(client, queue, b"later", delay=60)
    took = time.monotonic()
    assert (await fetch(client, queue, wait=0)).status == 204
    await post(client, queue, b"now")
    assert (await fetch(client, queue, wait=0)).body == b"now"
    # A fetch does not wait for 30 messages: it returns what there is.
    assert (await ask(client, "GET", f"/{queue}/messages?count=30")).status == 204
    assert time.monotonic() - took < 30
