"""Peek, batch and ack; and delay, bury and release by PATCH."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, ask, configure, counts, fetch, post, until_ready

PLAIN = {"body": "x"}


async def batch(client: ClientSession, queue: str, content: Any) -> Answer:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await ask(client, "POST", f"/{queue}/batch", data=data)


async def ack(client: ClientSession, queue: str, content: Any) -> Answer:
    return await ask(client, "POST", f"/{queue}/ack", data=json.dumps(content).encode())


async def peek(client: ClientSession, queue: str, query: str = "") -> list[dict[str, Any]]:
    answer = await ask(client, "GET", f"/{queue}/peek{query}")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["messages"]
    return found


async def test_peek_shows_each_state(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"claimed")
    claimed = await fetch(client, queue)
    later = await post(client, queue, b"later", delay=100)
    await post(client, queue, b"\xff")
    await until_ready(client, queue, 1)
    [message] = await peek(client, queue)
    assert (message["body_base64"], message["state"], message["deliveries"]) == ("/w==", "ready", 0)
    assert [m["id"] for m in await peek(client, queue, "?state=in_flight")] == [claimed.id]
    while not (delayed := await peek(client, queue, "?state=delayed")):
        pass
    assert [(m["id"], m["state"]) for m in delayed] == [(later, "delayed")]
    assert len(await peek(client, queue, "?state=delay")) == 2
    assert await peek(client, queue, "?state=new") == []
    # No peek has claimed anything.
    assert (await fetch(client, queue)).headers["X-Message-Deliveries"] == "1"


async def test_peek_pages_with_after(client: ClientSession, queue: str) -> None:
    ids = ["1", "2+2", "3", "a~", "b"]
    assert (await batch(client, queue, [{"body": i, "id": i} for i in ids])).status == 201
    await until_ready(client, queue, 5)
    seen: list[str] = []
    while page := await peek(client, queue, f"?count=2&after={seen[-1] if seen else ''}"):
        assert len(page) <= 2
        seen += [m["id"].replace("+", "%2B") for m in page]
    assert seen == ["1", "2%2B2", "3", "a~", "b"]


async def test_after_can_be_any_file_name(client: ClientSession, queue: str, suite: Suite) -> None:
    for name in (b"a b", b"a%b", b"\xff"):
        path = bytes(suite.root / "queues" / queue) + b"/" + name
        with open(path, "wb") as file:
            file.write(b"by hand")
    ids = [m["id"] for m in await peek(client, queue)]
    assert ids == ["a%20b", "a%25b", "%FF"]
    rest = [m["id"] for m in await peek(client, queue, "?after=a%2525b")]
    assert rest == ["%FF"]
    assert (await ack(client, queue, {"ids": ids})).json["removed"] == ids


@pytest.mark.parametrize("query", ["state=remove", "state=x", "count=0", "count=1001", "limit=1"])
async def test_refused_peeks(client: ClientSession, queue: str, query: str) -> None:
    answer = await ask(client, "GET", f"/{queue}/peek?{query}")
    assert (answer.status, answer.json["field"]) == (400, query.partition("=")[0])


async def test_a_batch_is_stored_in_its_order(client: ClientSession, queue: str) -> None:
    content = [
        {"body": "text é", "content_type": "text/plain", "attributes": {"Trace": "é"}},
        {"body_base64": base64.b64encode(bytes(range(256))).decode(), "delay": None},
        {"body": "", "id": "own"},
        {"body": "later", "priority": 9, "ttl": 100},
    ]
    answer = await batch(client, queue, content)
    assert answer.status == 201
    await until_ready(client, queue, 4)
    messages = (await fetch(client, queue, count=10)).json["messages"]
    by_id = {m["id"]: m for m in messages}
    first, second, third, fourth = (by_id[i] for i in answer.json["ids"])
    assert (first["body"], first["content_type"]) == ("text é", "text/plain")
    assert (first["attributes"], first["state"]) == ({"Trace": "é"}, "in_flight")
    assert base64.b64decode(second["body_base64"]) == bytes(range(256))
    assert (third["id"], third["body"]) == ("own", "")
    assert (fourth["priority"], fourth["expires_at"] is None) == (9, False)


async def test_a_thousand_messages_in_one_batch_and_in_one_ack(
    client: ClientSession, queue: str
) -> None:
    answer = await batch(client, queue, [{"body": str(n)} for n in range(1000)])
    ids = answer.json["ids"]
    assert len(set(ids)) == 1000
    assert ids == sorted(ids)
    answer = await ack(client, queue, {"ids": [*ids, ids[0]][1:]})
    assert (answer.status, answer.json) == (200, {"removed": [*ids[1:], ids[0]], "missing": []})
    assert sum((await counts(client, queue)).values()) == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({}, "body"),
        ({"body": "x", "body_base64": "eA=="}, "body"),
        ({"body": 7}, "body"),
        ({"body": "\ud800"}, "body"),
        ({"body_base64": "x"}, "body_base64"),
        ({"body_base64": 7}, "body_base64"),
        ({"body": "x", "priority": 100}, "priority"),
        ({"body": "x", "priority": "1"}, "priority"),
        ({"body": "x", "delay": -1}, "delay"),
        ({"body": "x", "delay": "5"}, "delay"),
        ({"body": "x", "ttl": 1e300}, "ttl"),
        ({"body": "x", "id": 7}, "id"),
        ({"body": "x", "id": "a/b"}, "id"),
        ({"body": "x", "id": "@own@.h"}, "id"),
        ({"body": "x", "content_type": "a\nb"}, "content_type"),
        ({"body": "x", "attributes": ["a"]}, "attributes"),
        ({"body": "x", "attributes": {"a": 1}}, "attributes"),
        ({"body": "x", "attributes": {"a b": "1"}}, "attributes"),
        ({"body": "x", "attributes": {"a": "\ud800"}}, "attribute a"),
        ({"body": "x", "dealy": 1}, "dealy"),
        (7, "message"),
    ],
)
async def test_one_wrong_message_refuses_the_batch(
    client: ClientSession, queue: str, wrong: Any, field: str
) -> None:
    for content, index in (([PLAIN, PLAIN, wrong, PLAIN], 2), ([wrong], 0)):
        answer = await batch(client, queue, content)
        assert answer.status == 400
        assert (answer.json["index"], answer.json["field"]) == (index, field)
        assert answer.json["detail"].startswith(f"message {index}: {field}: ")
    assert sum((await counts(client, queue)).values()) == 0


async def test_a_duplicate_refuses_the_batch(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    await post(client, queue, b"1", id="twice")
    for content, index in (
        ([PLAIN, {"body": "2", "id": "twice"}], 1),
        ([{"body": "a", "id": "same"}, PLAIN, {"body": "b", "id": "same"}], 2),
    ):
        answer = await batch(client, queue, content)
        assert (answer.status, answer.json["index"]) == (409, index)
        assert answer.json["message_id"] == content[index]["id"]
    assert sum((await counts(client, queue)).values()) == 1
    # The first message is delivered; nothing of the batches is stored.
    eventually(lambda: not [p for p in (suite.root / "new").iterdir() if queue in p.name])


async def test_a_message_that_is_too_large_refuses_the_batch(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, max_message_bytes=10)
    answer = await batch(client, queue, [{"body": "x" * 10}, {"body": "x" * 11}])
    assert (answer.status, answer.json["index"], answer.json["limit"]) == (413, 1, 10)
    assert sum((await counts(client, queue)).values()) == 0


@pytest.mark.parametrize("path", ["batch", "ack"])
@pytest.mark.parametrize("body", [b"", b"{", b"7", b'"x"', b"null", b"[" * 100_000, b"\xff"])
async def test_unreadable_bodies(client: ClientSession, queue: str, path: str, body: bytes) -> None:
    answer = await ask(client, "POST", f"/{queue}/{path}", data=body)
    assert (answer.status, answer.json["type"]) == (400, "urn:fsmq:problem:unreadable-body")


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_batch_has_1_to_1000_entries(client: ClientSession, queue: str, count: int) -> None:
    answer = await batch(client, queue, [PLAIN] * count)
    assert (answer.status, answer.json["field"]) == (400, "messages")
    assert "1 to 1000" in answer.json["detail"]
    answer = await ack(client, queue, {"ids": ["x"] * count})
    assert (answer.status, answer.json["field"]) == (400, "ids")


async def test_the_size_of_a_batch_has_a_limit(client: ClientSession, queue: str) -> None:
    answer = await batch(client, queue, b" " * (32 * 1024 * 1024 + 1))
    assert (answer.status, answer.json["limit"]) == (413, 32 * 1024 * 1024)


async def test_an_ack_lists_removed_and_missing_ids(client: ClientSession, queue: str) -> None:
    here = await post(client, queue, b"x")
    answer = await ack(client, queue, {"ids": ["gone", here, here]})
    assert (answer.status, answer.json) == (200, {"removed": [here], "missing": ["gone", here]})
    nowhere = await ack(client, "nowhere", {"ids": ["x"]})
    assert nowhere.json["type"] == "urn:fsmq:problem:no-such-queue"


@pytest.mark.parametrize("content", [{"ids": ["x", "a/b"]}, {"ids": ["x", 7]}])
async def test_one_wrong_id_refuses_the_ack(
    client: ClientSession, queue: str, content: Any
) -> None:
    await post(client, queue, b"x", id="x")
    assert (await ack(client, queue, content)).status == 400
    assert sum((await counts(client, queue)).values()) == 1


async def test_a_release_with_a_delay_hides_the_message(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"x")
    await fetch(client, queue, visibility=600)
    path = f"/{queue}/messages/{message_id}"
    released = time.monotonic()
    assert (await ask(client, "PATCH", f"{path}?release=0.4")).status == 204
    again = await fetch(client, queue)
    assert time.monotonic() - released >= 0.4
    assert (again.id, again.headers["X-Message-Deliveries"]) == (message_id, "2")
    assert (await ask(client, "PATCH", f"{path}?release=0")).status == 204
    assert (await fetch(client, queue, wait=0)).id == message_id


async def test_a_buried_message_is_in_the_dead_letter_queue_at_once(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, max_deliveries=5, dead_letter_queue=f"{queue}.dead")
    message_id = await post(client, queue, b"x")
    path = f"/{queue}/messages/{message_id}?bury=true"
    assert (await ask(client, "PATCH", path)).status == 404
    await fetch(client, queue)
    assert (await ask(client, "PATCH", path)).status == 204
    buried = await fetch(client, f"{queue}.dead", wait=0)
    assert (buried.id, buried.headers["X-Message-Deliveries"]) == (message_id, "1")


async def test_bury_needs_a_dead_letter_queue(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"x")
    claimed = await fetch(client, queue)
    answer = await ask(client, "PATCH", f"/{queue}/messages/{claimed.id}?bury=true")
    assert (answer.status, answer.json["field"]) == (400, "dead_letter_queue")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("visibility=1&release=1", "visibility"),
        ("release=1&bury=true", "visibility"),
        ("bury=yes", "bury"),
        ("release=-1", "release"),
        ("release=soon", "release"),
    ],
)
async def test_refused_changes(client: ClientSession, queue: str, query: str, field: str) -> None:
    await post(client, queue, b"x")
    claimed = await fetch(client, queue)
    answer = await ask(client, "PATCH", f"/{queue}/messages/{claimed.id}?{query}")
    assert (answer.status, answer.json["field"]) == (400, field)


async def test_a_batch_into_a_missing_queue_is_refused(client: ClientSession, suite: Suite) -> None:
    answer = await batch(client, "nowhere", [PLAIN])
    assert answer.json["type"] == "urn:fsmq:problem:no-such-queue"
    assert (await ask(client, "GET", "/nowhere/peek")).status == 404
    eventually(lambda: not [p for p in (suite.root / "new").iterdir() if "nowhere" in p.name])


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("batch", b'{"a":[%s0]}' % (b"0," * 400_000)),
        ("batch", b"{%s}" % b",".join([b'"a":0'] * 400_000)),
        ("ack", b"[[%s0]]" % (b"0," * 400_000)),
    ],
)
async def test_a_long_body_of_the_wrong_form_is_refused_early(
    client: ClientSession, queue: str, route: str, body: bytes
) -> None:
    answer = await ask(client, "POST", f"/{queue}/{route}", data=body)
    assert answer.status == 400
    assert "one value is made of too many" in answer.json["detail"]
