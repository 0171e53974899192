"""The six endpoints of the original version."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually
from tests.http.helpers import ask, fetch, post, send


async def test_a_queue_is_created_once(client: ClientSession, suite: Suite) -> None:
    first = await ask(client, "PUT", "/created-once")
    assert (first.status, first.json) == (201, {"queue": "created-once", "created": True})
    assert (suite.root / "queues" / "created-once").is_dir()
    again = await ask(client, "PUT", "/created-once")
    assert (again.status, again.json) == (200, {"queue": "created-once", "created": False})


async def test_the_body_of_a_put_is_discarded(client: ClientSession) -> None:
    answer = await ask(client, "PUT", "/discards", data=b"not { json")
    assert answer.status == 201
    assert (await fetch(client, "discards", wait=0)).status == 204


async def test_a_queue_is_shown(client: ClientSession, queue: str) -> None:
    answer = await ask(client, "GET", f"/{queue}")
    assert answer.status == 200
    assert answer.json["queue"] == queue
    assert answer.json["messages"] == dict.fromkeys(
        ("new", "ready", "in_flight", "delayed", "unfinished"), 0
    )
    assert answer.json["settings"]["visibility_timeout"] == 30


async def test_queues_are_listed_in_order(client: ClientSession) -> None:
    for name in ("list-b", "list-a"):
        await ask(client, "PUT", f"/{name}")
    names = (await ask(client, "GET", "/")).json["queues"]
    assert [n for n in names if n.startswith("list-")] == ["list-a", "list-b"]


@pytest.mark.parametrize("body", [b"", bytes(range(256)) * 5], ids=len)
async def test_a_claim_returns_the_body_as_it_was_posted(
    client: ClientSession, queue: str, body: bytes
) -> None:
    message_id = await post(client, queue, body)
    answer = await fetch(client, queue)
    assert (answer.status, answer.body, answer.id) == (200, body, message_id)
    seen = await ask(client, "GET", f"/{queue}/messages/{message_id}")
    assert seen.headers["X-Message-State"] == "in_flight"
    assert seen.headers["X-Message-Deliveries"] == "1"
    assert seen.headers["X-Message-Deadline"] == answer.headers["X-Message-Deadline"]


@pytest.mark.parametrize("count", [{}, {"count": 10}], ids=["one", "several"])
async def test_a_claim_from_an_empty_queue_is_answered_with_204(
    client: ClientSession, queue: str, count: dict[str, int]
) -> None:
    answer = await fetch(client, queue, wait=0, **count)
    assert (answer.status, answer.body) == (204, b"")


async def test_a_message_is_stored_as_a_file(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    message_id = await post(client, queue, b"plain bytes", delay=1000)
    path = suite.root / "delay" / f"{queue}:{message_id}"
    assert eventually(path.exists)
    assert path.read_bytes() == b"plain bytes"


async def test_a_claimed_message_is_deleted(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    await post(client, queue, b"done")
    fetched = await fetch(client, queue, visibility=0.1)
    removed = await ask(client, "DELETE", f"/{queue}/messages/{fetched.id}")
    assert (removed.status, removed.body) == (202, b"")
    again = await ask(client, "DELETE", f"/{queue}/messages/{fetched.id}")
    assert again.status == 404
    assert (await fetch(client, queue, wait=0.3)).status == 204
    left = suite.root / "remove" / f"{queue}:{fetched.id}"
    eventually(lambda: not left.exists())


async def test_a_ready_message_is_deleted(client: ClientSession, queue: str) -> None:
    first = await post(client, queue, b"first")
    second = await post(client, queue, b"second")
    # It has left new/ when a later one is fetched.
    assert (await fetch(client, queue)).id == first
    assert (await ask(client, "DELETE", f"/{queue}/messages/{second}")).status == 202
    assert (await fetch(client, queue, wait=0)).status == 204


async def test_a_delayed_message_is_deleted(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"later", delay=0.2)
    assert (await ask(client, "DELETE", f"/{queue}/messages/{message_id}")).status == 202
    assert (await fetch(client, queue, wait=0.5)).status == 204


async def test_deleting_a_queue_removes_its_messages_in_every_state(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    await post(client, queue, b"in flight")
    await fetch(client, queue)
    await post(client, queue, b"delayed", delay=100)
    await post(client, queue, b"new or ready")
    answer = await ask(client, "DELETE", f"/{queue}")
    assert (answer.status, answer.json) == (200, {"queue": queue, "deleted": True})
    assert not (suite.root / "queues" / queue).exists()
    for folder in ("new", "delay"):
        assert not list((suite.root / folder).glob(f"*{queue}:*"))
    assert (await ask(client, "DELETE", f"/{queue}")).status == 404


async def test_a_queue_that_is_created_again_is_empty(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"old")
    await ask(client, "DELETE", f"/{queue}")
    assert (await ask(client, "PUT", f"/{queue}")).status == 201
    assert (await fetch(client, queue, wait=0.2)).status == 204
    assert await post(client, queue, b"young")
    assert (await fetch(client, queue)).body == b"young"


async def test_a_purge_keeps_the_queue_and_its_settings(client: ClientSession, queue: str) -> None:
    await ask(client, "PATCH", f"/{queue}", json={"visibility_timeout": 7})
    await post(client, queue, b"1")
    await fetch(client, queue)
    await post(client, queue, b"2")
    answer = await ask(client, "DELETE", f"/{queue}/messages")
    assert (answer.status, answer.json) == (200, {"queue": queue, "purged": True})
    assert (await fetch(client, queue, wait=0.2)).status == 204
    shown = (await ask(client, "GET", f"/{queue}")).json
    assert shown["settings"]["visibility_timeout"] == 7


async def test_queues_with_colons_in_their_names_are_separate(client: ClientSession) -> None:
    for name in ("colon", "colon:", "colon::a"):
        assert (await ask(client, "PUT", f"/{name}")).status == 201
    await post(client, "colon::a", b"a")
    assert (await fetch(client, "colon::a")).body == b"a"
    assert (await fetch(client, "colon", wait=0)).status == 204
    assert (await fetch(client, "colon:", wait=0)).status == 204


async def test_a_message_is_read_without_a_claim(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"look", delay=100)
    path = f"/{queue}/messages/{message_id}"
    seen = [await ask(client, "GET", path) for _ in range(2)]
    assert [a.body for a in seen] == [b"look"] * 2
    assert [a.headers["X-Message-Deliveries"] for a in seen] == ["0", "0"]
    # The mover may not have delivered it yet.
    assert {a.headers["X-Message-State"] for a in seen} <= {"new", "delayed"}


async def test_a_message_is_read_as_json(client: ClientSession, queue: str) -> None:
    attributes = {f"a{n}": "x" * 500 for n in range(120)}  # more than headers can have
    content = [{"body": "x", "attributes": attributes}]
    [message_id] = (await ask(client, "POST", f"/{queue}/batch", json=content)).json["ids"]
    path = f"/{queue}/messages/{message_id}?json="
    seen = (await ask(client, "GET", path + "true")).json
    assert (seen["id"], seen["body"], seen["attributes"]) == (message_id, "x", attributes)
    assert (await ask(client, "GET", path + "false")).status == 400


async def test_answers_must_not_be_cached(client: ClientSession, queue: str) -> None:
    await send(client, queue, b"x")
    answers = [
        await fetch(client, queue),
        await fetch(client, queue, wait=0),
        await ask(client, "GET", f"/{queue}"),
        await ask(client, "GET", "/not-there"),
    ]
    assert [a.headers["Cache-Control"] for a in answers] == ["no-store"] * 4
