"""Topics in the native dialect, over real HTTP; docs/topics.md has the usual ways."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.helpers import PROBLEM, Answer, Wire, ask, fetch


@pytest.fixture
async def topic(suite: Suite, client: ClientSession, queue: str) -> str:
    """A topic with one subscription, of a queue of the same name."""
    assert (await ask(client, "PUT", f"/_topics/{queue}")).status == 201
    assert (await ask(client, "PUT", f"/_topics/{queue}/queues/{queue}")).status == 201
    return queue


def kind(answer: Answer) -> str:
    assert answer.headers["Content-Type"] == PROBLEM
    return str(answer.json["type"]).removeprefix("urn:fsmq:problem:")


async def test_a_copy_has_the_body_and_attributes_of_the_publish(
    client: ClientSession, topic: str
) -> None:
    headers = {"Content-Type": "text/x", "X-Message-Attribute-Trace": "8f2"}
    published = await ask(
        client, "POST", f"/_topics/{topic}/messages?priority=3&ttl=60", data=b"\0x", headers=headers
    )
    assert published.status == 201
    fetched = await fetch(client, topic)
    assert published.json == {"topic": topic, "messages": {topic: fetched.id}}
    assert fetched.body == b"\0x"
    assert fetched.headers["Content-Type"] == "text/x"
    assert fetched.headers["X-Message-Attribute-Trace"] == "8f2"
    assert fetched.headers["X-Message-Priority"] == "3"


async def test_many_queues_and_a_large_body(
    suite: Suite, client: ClientSession, topic: str
) -> None:
    queues = [f"{topic}.{n}" for n in range(40)]
    for queue in queues:
        (suite.root / "queues" / queue).mkdir()
        (suite.root / "topics" / topic / queue).touch()
    body = bytes(100_000)
    published = await ask(client, "POST", f"/_topics/{topic}/messages", data=body)
    assert sorted(published.json["messages"]) == sorted([topic, *queues])
    answers = await asyncio.gather(*(fetch(client, queue) for queue in queues))
    assert {a.id for a in answers} == {published.json["messages"][queue] for queue in queues}
    assert {a.body for a in answers} == {body}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("PUT", "/_topics/{queue}/queues/none", b"", 404, "no-such-queue"),
        ("DELETE", "/_topics/{queue}/queues/none", b"", 404, "no-such-subscription"),
        ("PUT", "/_topics/_bad", b"", 400, "invalid-value"),
        ("PUT", "/_topics/{queue}/queues/_bad", b"", 400, "invalid-value"),
        ("PUT", "/_topics/{queue}/queues/{queue}", b"{", 400, "invalid-value"),
        ("PUT", "/_topics/{queue}/queues/{queue}", b"x" * 20_000, 413, "message-too-large"),
        ("POST", "/_topics/{queue}/messages?id=a", b"", 400, "invalid-value"),
        ("POST", "/_topics/{queue}/messages?priority=100", b"", 400, "invalid-value"),
        ("PATCH", "/_topics/{queue}", b"", 405, "method-not-allowed"),
        ("GET", "/_topics/", b"", 404, "no-such-path"),
    ],
)
async def test_refused_requests(
    client: ClientSession, topic: str, method: str, path: str, body: bytes, status: int, told: str
) -> None:
    answer = await ask(client, method, path.format(queue=topic), data=body)
    assert (answer.status, kind(answer)) == (status, told)


async def test_a_filter_is_shown_as_it_was_given(client: ClientSession, topic: str) -> None:
    policy: dict[str, Any] = {"Type": ["a", {"anything-but": ["b"]}], "x": [{"exists": False}]}
    path = f"/_topics/{topic}/queues/{topic}"
    changed = await ask(client, "PUT", path, data=json.dumps(policy))
    assert (changed.status, changed.json["filter"]) == (200, policy)
    shown = await ask(client, "GET", f"/_topics/{topic}")
    assert shown.json["subscriptions"] == [{"queue": topic, "filter": policy}]
    assert (await ask(client, "PUT", path)).json["filter"] is None


async def test_a_message_that_one_queue_refuses_is_delivered_to_none(
    suite: Suite, client: ClientSession, topic: str
) -> None:
    small = f"{topic}.small"
    await ask(client, "PUT", f"/{small}")
    await ask(client, "PATCH", f"/{small}", json={"max_message_bytes": 3})
    await ask(client, "PUT", f"/_topics/{topic}/queues/{small}")
    refused = await ask(client, "POST", f"/_topics/{topic}/messages", data=b"four")
    assert (refused.status, kind(refused)) == (413, "message-too-large")
    await ask(client, "PATCH", f"/{small}", json={"max_message_bytes": None, "max_depth": 1})
    assert (await ask(client, "POST", f"/_topics/{topic}/messages", data=b"1")).status == 201
    refused = await ask(client, "POST", f"/_topics/{topic}/messages", data=b"2")
    assert (refused.status, kind(refused)) == (503, "queue-full")
    assert refused.json["detail"].startswith(f"queue {small!r}")
    assert (await fetch(client, topic)).body == b"1"
    assert (await fetch(client, topic, wait=0)).status == 204


async def test_a_killed_server_leaves_each_queue_with_a_whole_copy_or_none(root: Any) -> None:
    with Suite(root) as suite:
        with Wire(suite.url) as wire:
            wire.ask("PUT", "/_topics/t")
            for n in range(8):
                wire.ask("PUT", f"/q{n}")
                wire.ask("PUT", f"/_topics/t/queues/q{n}")
            acknowledged = []
            for _ in range(20):
                wire.request("POST", "/_topics/t/messages", {}, b"x" * 5000)
                acknowledged.append(wire.answer().json["messages"])
            wire.request("POST", "/_topics/t/messages", {}, b"y" * 5000)
            suite.kill("mq")
        suite.restart("mq")
        async with ClientSession(suite.url) as client:
            for n in range(8):
                ids: dict[str, str] = {}
                while not {a[f"q{n}"] for a in acknowledged} <= set(ids):
                    found = await fetch(client, f"q{n}", count=100, visibility=600)
                    assert found.status == 200
                    ids |= {m["id"]: m["body"] for m in found.json["messages"]}
                assert set(ids.values()) <= {"x" * 5000, "y" * 5000}


async def test_a_topic_feeds_a_log(client: ClientSession, topic: str) -> None:
    log = f"log-of-{topic}"
    assert (await client.put(f"/_topics/{topic}/logs/{log}")).status == 404
    assert (await client.put(f"/_logs/{log}")).status == 201
    assert (await client.put(f"/_topics/{topic}/logs/{log}")).status == 201
    shown = await (await client.get(f"/_topics/{topic}")).json()
    assert {"log": log, "filter": None} in shown["subscriptions"]
    assert (await client.put(f"/_logs/{log}/channels/c?from=first")).status == 201
    waiting = asyncio.create_task(client.get(f"/_logs/{log}/channels/c/messages?wait=20"))
    answer = await client.post(
        f"/_topics/{topic}/messages", data=b"x", headers={"X-Message-Attribute-Key": "ann"}
    )
    assert answer.status == 201
    assert (await answer.json())["messages"][f"logs/{log}"] == "0"
    claimed = await waiting
    assert (claimed.status, await claimed.read()) == (200, b"x")
    assert claimed.headers["X-Message-Key"] == "ann"
    assert (await client.delete(f"/_topics/{topic}/logs/{log}")).status == 200
    assert (await client.delete(f"/_topics/{topic}/logs/{log}")).status == 404
