"""Posting: parameters, encodings of bodies, and limits."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite
from tests.http.helpers import Wire, ask, configure, counts, fetch, leads_to, post, send
from tests.http.test_limits import memory

MAX_BYTES = 16 * 1024 * 1024


async def test_the_answer_has_the_id_and_the_location(client: ClientSession, queue: str) -> None:
    for own in ("", "?id=a%3Db~1", "?id=order-4711"):
        path = f"/{queue}/messages{own}"
        answer = await ask(client, "POST", path, data=b"x")
        assert answer.status == 201
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json == {"id": answer.id}
        found = await ask(client, "GET", leads_to(path, answer))
        assert (found.status, found.id, found.body) == (200, answer.id, b"x")


async def test_a_delayed_message_is_hidden_until_its_delay_ends(
    client: ClientSession, queue: str
) -> None:
    posted = time.monotonic()
    message_id = await post(client, queue, b"later", delay=0.4)
    answer = await fetch(client, queue)
    assert time.monotonic() - posted >= 0.4
    assert (answer.id, answer.headers["X-Message-Deliveries"]) == (message_id, "1")


async def test_the_default_delay_of_the_queue(client: ClientSession, queue: str) -> None:
    await configure(client, queue, default_delay=500)
    await post(client, queue, b"late")
    await post(client, queue, b"now", delay=0)
    assert (await fetch(client, queue)).body == b"now"
    assert (await fetch(client, queue, wait=0.2)).status == 204


async def test_a_duplicate_id_is_refused_in_every_state(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"first", id="one")
    refused = [await send(client, queue, b"second", id="one")]
    assert (await fetch(client, queue)).body == b"first"
    refused.append(await send(client, queue, b"second", id="one"))
    assert [a.status for a in refused] == [409, 409]
    assert refused[0].json["type"] == "urn:fsmq:problem:duplicate-message"
    await ask(client, "DELETE", f"/{queue}/messages/one")
    assert (await send(client, queue, b"third", id="one")).status == 201


async def test_a_uuid_can_carry_a_priority(client: ClientSession, queue: str) -> None:
    uuid = "01900000-0000-7000-8000-000000000000"
    assert await post(client, queue, b"x", id=uuid, priority=3) == f"p03.{uuid}"
    assert await post(client, queue, b"x", id="plain", priority=3) == "p03.@plain@"


async def test_the_content_type_comes_back(client: ClientSession, queue: str) -> None:
    given = "application/json; charset=utf-8"
    headers = {"Content-Type": given}
    await ask(client, "POST", f"/{queue}/messages", data=b"{}", headers=headers)
    answer = await fetch(client, queue)
    assert (answer.headers["Content-Type"], answer.body) == (given, b"{}")


@pytest.mark.parametrize(
    "given", ["application/octet-stream", "application/x-www-form-urlencoded", None]
)
async def test_default_content_types_are_not_stored(
    suite: Suite, client: ClientSession, queue: str, given: str | None
) -> None:
    with Wire(suite.url) as wire:
        headers = {} if given is None else {"Content-Type": given}
        posted = wire.ask("POST", f"/{queue}/messages", headers, b"raw")
    assert ".h" not in posted.id
    answer = await fetch(client, queue)
    assert answer.headers["Content-Type"] == "application/octet-stream"


async def test_attributes_come_back(client: ClientSession, queue: str) -> None:
    headers = {"X-Message-Attribute-Trace": "a: b, c", "x-message-attribute-n": "ümlaut"}
    await ask(client, "POST", f"/{queue}/messages", data=b"x\n\ny", headers=headers)
    answer = await fetch(client, queue)
    assert answer.body == b"x\n\ny"
    assert answer.headers["X-Message-Attribute-Trace"] == "a: b, c"
    assert answer.headers["X-Message-Attribute-n"] == "ümlaut"


async def test_a_repeated_attribute_is_refused(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        answer = wire.ask(
            "POST",
            f"/{queue}/messages",
            {"X-Message-Attribute-A": "1", "x-message-attribute-a": "2"},
            b"x",
        )
    assert (answer.status, answer.json["field"]) == (400, "attributes")


@pytest.mark.parametrize(
    "header",
    ["X-Message-Attribute-: x", "X-Message-Attribute-a$: x", "X-Message-Attribute-A: \xff"],
)
async def test_invalid_attributes_are_refused(suite: Suite, queue: str, header: str) -> None:
    with Wire(suite.url) as wire:
        name, _, value = header.partition(": ")
        answer = wire.ask("POST", f"/{queue}/messages", {name: value}, b"x")
    assert (answer.status, answer.json["type"]) == (400, "urn:fsmq:problem:invalid-value")


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        *((name, gzip.compress) for name in ("gzip", "x-gzip", "X-GZip")),
        ("deflate", zlib.compress),
        ("identity", bytes),
    ],
)
async def test_an_encoded_body_is_stored_decoded(
    client: ClientSession, queue: str, encoding: str, encode: Callable[[bytes], bytes]
) -> None:
    body = b"many times the same " * 5000
    headers = {"Content-Encoding": encoding}
    answer = await ask(client, "POST", f"/{queue}/messages", data=encode(body), headers=headers)
    assert answer.status == 201
    assert (await fetch(client, queue)).body == body


@pytest.mark.parametrize("encoding", ["compress", "gzip, gzip", "aes128gcm"])
async def test_an_unknown_encoding_is_refused(
    client: ClientSession, queue: str, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding}
    answer = await ask(client, "POST", f"/{queue}/messages", data=b"????", headers=headers)
    assert answer.status == 415
    assert answer.json["type"] == "urn:fsmq:problem:unsupported-encoding"
    assert "gzip" in answer.headers["Accept-Encoding"]
    assert (await fetch(client, queue, wait=0.1)).status == 204


async def test_a_chunked_body(client: ClientSession, queue: str) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for n in range(10):
            yield b"%d" % n * 1000

    answer = await ask(client, "POST", f"/{queue}/messages", data=parts())
    assert answer.status == 201
    assert (await fetch(client, queue)).body == b"".join([b"%d" % n * 1000 for n in range(10)])


async def test_a_body_after_100_continue(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        wire.request(
            "POST", f"/{queue}/messages", {"Expect": "100-continue", "Content-Length": "5"}
        )
        assert wire.answer().status == 100
        wire.send(b"hello")
        assert wire.answer().status == 201
        assert wire.ask("GET", f"/{queue}/messages?wait=20").body == b"hello"


async def test_an_unknown_expectation(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        answer = wire.ask("POST", f"/{queue}/messages", {"Expect": "a miracle"}, b"x")
        assert answer.status == 417


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": str(10**12)},
        {"Expect": "100-continue", "Content-Length": str(MAX_BYTES + 1)},
    ],
    ids=["length", "expect"],
)
async def test_a_length_beyond_the_limit_is_refused_before_the_body_is_sent(
    suite: Suite, queue: str, headers: dict[str, str]
) -> None:
    with Wire(suite.url) as wire:
        answer = wire.ask("POST", f"/{queue}/messages", headers)
        assert (answer.status, answer.json["limit"]) == (413, MAX_BYTES)
        assert answer.headers["Connection"] == "close"


async def test_the_largest_body_is_accepted(client: ClientSession, queue: str) -> None:
    body = b"x" * MAX_BYTES
    await post(client, queue, body)
    assert (await fetch(client, queue)).body == body


async def test_a_gzip_bomb_is_refused(suite: Suite, queue: str) -> None:
    packed = gzip.compress(b"\0" * (220 * 1024 * 1024), 1)
    before = memory(suite, "VmHWM")
    with Wire(suite.url) as wire:
        wire.request("POST", f"/{queue}/messages", {"Content-Encoding": "gzip"}, packed)
        answer = wire.answer()
    assert answer.status == 413
    assert memory(suite, "VmHWM") - before < 200 * 1024 * 1024


async def test_gzip_of_several_members(client: ClientSession, queue: str) -> None:
    packed = gzip.compress(b"one, ") + gzip.compress(b"two")
    headers = {"Content-Encoding": "GZip"}
    await ask(client, "POST", f"/{queue}/messages", data=packed, headers=headers)
    assert (await fetch(client, queue)).body == b"one, two"


async def test_broken_gzip_is_refused(client: ClientSession, queue: str) -> None:
    packed = gzip.compress(b"something that was longer" * 100)
    broken = [b"no gzip at all", packed[:-20], packed[:10] + b"!!!!" + packed[14:], packed + b"?"]
    for body in [*broken, b""]:
        headers = {"Content-Encoding": "gzip"}
        answer = await ask(client, "POST", f"/{queue}/messages", data=body, headers=headers)
        assert (answer.status, answer.json["type"]) == (400, "urn:fsmq:problem:unreadable-body")
    assert (await fetch(client, queue, wait=0.1)).status == 204


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        ({"Content-Length": "100"}, b"only so much"),
        ({"Transfer-Encoding": "chunked"}, b"5\r\nhello\r\n"),
        ({"Transfer-Encoding": "chunked"}, b"5\r\nhello\r\n0\r\n"),
    ],
)
async def test_an_incomplete_body_is_not_stored(
    suite: Suite, queue: str, headers: dict[str, str], sent: bytes
) -> None:
    with Wire(suite.url) as wire:
        wire.request("POST", f"/{queue}/messages", headers)
        wire.send(sent)
    with Wire(suite.url) as wire:
        # A later request is answered, so the server has noticed.
        assert wire.ask("GET", f"/{queue}/messages?wait=0.2").status == 204
    assert not stored(suite, queue)


async def test_a_body_that_does_not_arrive_is_refused(root: Path) -> None:
    with Suite(root, mq_options=["--read-timeout=0.3"], mover=False, reaper=False) as suite:
        for method, path in (("POST", "/q/messages"), ("PUT", "/q"), ("PATCH", "/q")):
            with Wire(suite.url) as wire:
                wire.ask("PUT", "/q")
                wire.request(method, path, {"Content-Length": "10"})
                wire.send(b"12345")
                answer = wire.answer()
                assert (answer.status, answer.headers["Connection"]) == (408, "close")


async def test_the_queue_limits_the_size_of_bodies(client: ClientSession, queue: str) -> None:
    await configure(client, queue, max_message_bytes=10)
    assert (await send(client, queue, b"0123456789")).status == 201
    answer = await send(client, queue, b"0123456789a")
    assert (answer.status, answer.json["limit"]) == (413, 10)


async def test_the_limit_of_the_server_takes_precedence(root: Path) -> None:
    options = ["--max-message-bytes=1000"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        async with ClientSession(suite.url) as client:
            await ask(client, "PUT", "/q")
            await configure(client, "q", max_message_bytes=100_000)
            assert (await send(client, "q", b"x" * 1000)).status == 201
            answer = await send(client, "q", b"x" * 1001)
            assert (answer.status, answer.json["limit"]) == (413, 1000)


async def test_a_full_queue_refuses_until_there_is_room(client: ClientSession, queue: str) -> None:
    await configure(client, queue, max_depth=2)
    ids = [await post(client, queue) for _ in range(2)]
    answer = await send(client, queue)
    assert (answer.status, answer.json["type"]) == (503, "urn:fsmq:problem:queue-full")
    assert answer.headers["Retry-After"].isdecimal()
    await ask(client, "DELETE", f"/{queue}/messages/{ids[0]}")

    async def takes_again() -> bool:
        return (await send(client, queue)).status == 201

    for _ in range(200):
        if await takes_again():
            break
        await fetch(client, f"{queue}", wait=0.05, visibility=600)
    assert sum((await counts(client, queue)).values()) == 2


async def test_an_id_of_the_far_future_can_be_fetched(client: ClientSession, queue: str) -> None:
    uuid = "ffffffff-ffff-7fff-bfff-ffffffffffff"
    await post(client, queue, b"from the year 10889", id=uuid)
    [message] = (await fetch(client, queue, count=1)).json["messages"]
    assert message["id"] == uuid
    assert message["created_at"] == "9999-12-31T23:59:59.999Z"


def stored(suite: Suite, queue: str) -> list[Path]:
    """All files of a queue, including unfinished ones."""
    return [*(suite.root / "new").glob(f"*{queue}:*"), *(suite.root / "queues" / queue).iterdir()]
