"""Errors: their common form, and invalid names, parameters and methods."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from fsmq.words import meant
from tests.harness.cost import counted
from tests.harness.suite import Suite
from tests.http.helpers import PROBLEM, Answer, Wire, ask, fetch, post, send

# Invalid names of queues, as written in a path.
BAD_NAMES = [
    "..",
    ".",
    ".hidden",
    "%2e%2e",
    "a%2fb",
    "%2fetc%2fpasswd",
    "..%2f..%2fetc",
    "a%00b",
    "a%0ab",
    "a%0d%0ab",
    "%7f",
    "a%20b",
    "%ff%fe",
    "%c3%a4",
    "_one",
    "%zz",
    "a*b",
    "~",
    "a" * 181,
]
BAD_IDS = ["..", ".x", "a%2fb", "a:b", "a%00b", "x" * 300, "%2e%2e%2fnew"]


def is_problem(answer: Answer, status: int, kind: str) -> bool:
    """Whether an answer is a problem of that type, in the common form."""
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith(PROBLEM)
    problem = answer.json
    assert problem["type"] == f"urn:fsmq:problem:{kind}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return True


async def test_no_such_queue(client: ClientSession) -> None:
    answer = await fetch(client, "not-there", wait=0)
    assert is_problem(answer, 404, "no-such-queue")
    assert answer.json["queue"] == "not-there"
    assert "create it" in answer.json["detail"]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("metrics", "/_metrics"),
        ("health", "/_health/ready"),
        ("healthz", "/_health/live"),
        ("openapi.json", "/_openapi.json"),
        ("ui", "/_ui"),
        ("{queue}/message", "messages"),
    ],
)
async def test_a_misspelt_path_gets_a_suggestion(
    client: ClientSession, queue: str, path: str, there: str
) -> None:
    answer = await ask(client, "GET", f"/{path.format(queue=queue)}")
    assert answer.status == 404
    assert answer.json["detail"].endswith(f"; did you mean {there}?")
    if there.startswith("/"):
        assert (await ask(client, "GET", there)).status == 200


def test_a_long_name_is_not_compared() -> None:
    with counted() as cost:
        assert meant("messages" * 10_000, ["messages", "peek"]) == ""
    assert cost.calls < 100


async def test_no_such_message(client: ClientSession, queue: str) -> None:
    for method in ("GET", "PATCH", "DELETE"):
        answer = await ask(client, method, f"/{queue}/messages/lost")
        assert is_problem(answer, 404, "no-such-message")
        assert (answer.json["queue"], answer.json["message_id"]) == (queue, "lost")


async def test_no_such_path(suite: Suite, queue: str) -> None:
    for path in (f"/{queue}/elsewhere", f"/{queue}/messages/1/2", "//", f"//{queue}"):
        with Wire(suite.url) as wire:
            assert is_problem(wire.ask("GET", path), 404, "no-such-path")


async def test_an_empty_id_does_not_delete_the_queue(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"still here")
    # As a script with an empty variable for the id.
    assert is_problem(await ask(client, "DELETE", f"/{queue}/messages/"), 404, "no-such-path")
    assert is_problem(await ask(client, "DELETE", f"/{queue}/"), 404, "no-such-path")
    assert (await fetch(client, queue)).body == b"still here"


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_invalid_names_of_queues(suite: Suite, name: str) -> None:
    with Wire(suite.url) as wire:
        for method, path in (("PUT", f"/{name}"), ("GET", f"/{name}/messages")):
            answer = wire.ask(method, path)
            assert is_problem(answer, 400, "invalid-value")
            assert answer.json["field"] == "queue"


@pytest.mark.parametrize("message_id", BAD_IDS)
async def test_invalid_ids_of_messages(suite: Suite, queue: str, message_id: str) -> None:
    with Wire(suite.url) as wire:
        for method in ("GET", "PATCH", "DELETE"):
            answer = wire.ask(method, f"/{queue}/messages/{message_id}")
            assert is_problem(answer, 400, "invalid-value")
            assert answer.json["field"] == "id"


@pytest.mark.parametrize("name", ["a", "A.b-c_d:e@f", "__dunder", "a" * 180, "a:", "0"])
async def test_valid_names_of_queues(client: ClientSession, name: str) -> None:
    assert (await ask(client, "PUT", f"/{name}")).status == 201
    assert (await ask(client, "GET", f"/{name}")).json["queue"] == name


async def test_a_name_can_be_percent_encoded(client: ClientSession) -> None:
    assert (await ask(client, "PUT", "/%65scaped%3Aname")).json["queue"] == "escaped:name"
    assert (await ask(client, "GET", "/escaped:name")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "query", "field"),
    [
        ("GET", "/messages", "visibility=-1", "visibility"),
        ("GET", "/messages", "visibility=nan", "visibility"),
        ("GET", "/messages", "visibility=inf", "visibility"),
        ("GET", "/messages", "visibility=604801", "visibility"),
        ("GET", "/messages", "visibility=soon", "visibility"),
        ("GET", "/messages", "visibility=", "visibility"),
        ("GET", "/messages", "visibility=1_0", "visibility"),
        ("GET", "/messages", "visibility=%201", "visibility"),
        ("GET", "/messages", "visibility=%EF%BC%91", "visibility"),
        ("GET", "/messages", "wait=21", "wait"),
        ("GET", "/messages", "wait=-0.1", "wait"),
        ("GET", "/messages", "count=0", "count"),
        ("GET", "/messages", "count=1001", "count"),
        ("GET", "/messages", "count=1.5", "count"),
        ("GET", "/messages", "count=-1", "count"),
        ("GET", "/messages", "count=" + "9" * 100, "count"),
        ("POST", "/messages", "priority=100", "priority"),
        ("POST", "/messages", "priority=-1", "priority"),
        ("POST", "/messages", "priority=high", "priority"),
        ("POST", "/messages", "delay=-1", "delay"),
        ("POST", "/messages", "delay=1e300", "delay"),
        ("POST", "/messages", "ttl=nan", "ttl"),
        ("POST", "/messages", "ttl=-5", "ttl"),
        ("POST", "/messages", "id=", "id"),
        ("POST", "/messages", "id=.hidden", "id"),
        ("POST", "/messages", "id=a%2Fb", "id"),
        ("POST", "/messages", "id=a%3Ab", "id"),
        ("POST", "/messages", "id=a%00b", "id"),
        ("POST", "/messages", "id=%FF", "id"),
        ("POST", "/messages", "id=a%20b", "id"),
        ("POST", "/messages", "id=" + "a" * 65, "id"),
        ("POST", "/messages", "id=p01.01900000-0000-7000-8000-000000000000", "id"),
        ("PATCH", "/messages/1", "visibility=-1", "visibility"),
        ("PATCH", "/messages/1", "visibility=nan", "visibility"),
    ],
)
async def test_invalid_values_of_parameters(
    client: ClientSession, queue: str, method: str, path: str, query: str, field: str
) -> None:
    answer = await ask(client, method, f"/{queue}{path}?{query}")
    assert is_problem(answer, 400, "invalid-value")
    assert answer.json["field"] == field


async def test_valid_numbers(client: ClientSession, queue: str) -> None:
    message_id = await post(client, queue, b"x", priority="007", delay="0.0", ttl="1e3")
    assert message_id.startswith("p07.")
    assert (await fetch(client, queue, visibility="60.5", count="01")).status == 200


async def test_a_method_that_http_does_not_have_is_refused(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("BREW", "/q/messages").status in (400, 405)


async def test_a_head_is_answered_like_a_get_without_a_body(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        posted = wire.ask("POST", f"/{queue}/messages?delay=50", {}, b"12345")
        for path in (f"/{queue}", "/", f"/{queue}/messages/{posted.id}"):
            head = wire.ask("HEAD", path)
            got = wire.ask("GET", path)
            assert (head.status, got.status) == (200, 200)
            assert head.headers["Content-Type"] == got.headers["Content-Type"]
            assert int(head.headers["Content-Length"]) == len(got.body)


async def test_a_refused_head_has_no_body(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("HEAD", "/not-there").status == 404
        assert wire.ask("HEAD", "/not-there/messages").status == 405
        assert wire.ask("GET", "/not-there").status == 404  # the connection is in step


async def test_the_body_of_a_refused_post_is_skipped(suite: Suite, queue: str) -> None:
    with Wire(suite.url) as wire:
        assert wire.ask("POST", f"/{queue}/messages?delay=x", {}, b"GET / HTTP/1.1").status == 400
        assert wire.ask("GET", f"/{queue}/messages").status == 204


async def test_a_detail_is_plain_ascii(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        answer = wire.ask("GET", "/%ff%0d%0aSet-Cookie:x=1")
        assert is_problem(answer, 400, "invalid-value")
        assert answer.body.isascii()
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b"\xff",
        b'{"visibility_timeout": ' + b"9" * 5000 + b"}",
        b"[" * 60_000,
        b'{"a":' * 12_000,
    ],
)
async def test_settings_have_to_be_a_json_object(
    client: ClientSession, queue: str, body: bytes
) -> None:
    answer = await ask(client, "PATCH", f"/{queue}", data=body)
    assert is_problem(answer, 400, "unreadable-body")


async def test_settings_have_a_limit(client: ClientSession, queue: str) -> None:
    answer = await ask(client, "PATCH", f"/{queue}", data=b" " * 70_000 + b"{}")
    assert is_problem(answer, 413, "message-too-large")


async def test_a_refusal_stores_nothing(client: ClientSession, queue: str, suite: Suite) -> None:
    for query in ("delay=-1", "priority=500", "ttl=x", "id=a/b", "unknown=1"):
        name, _, value = query.partition("=")
        assert (await send(client, queue, b"x", **{name: value})).status == 400
    assert not list((suite.root / "new").glob(f"*{queue}*"))
    assert not list((suite.root / "queues" / queue).iterdir())
