"""Every row of Dynamiq's HTTP contract, with ``/v1`` and without."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from fsmq.http.dynamiq.status import _alone
from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http.helpers import Answer, ask, post

JSON = "application/json; charset=UTF-8"
TEXT = "text/plain; charset=utf-8"


@pytest.fixture(params=["", "/v1"], ids=["bare", "v1"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(answer: Answer) -> Any:
    """The JSON of an answer."""
    assert answer.headers["Content-Type"] == JSON
    compact = json.dumps(answer.json, ensure_ascii=False, separators=(",", ":"))
    assert answer.body.decode() == compact
    return answer.json


async def fetched(client: ClientSession, queue: str, count: int = 10) -> list[Any]:
    """A batch that is not empty."""

    async def batch() -> Any:
        return told(await ask(client, "GET", f"/queues/{queue}/messages/{count}"))

    return list(await eventually_on_loop(batch))


# Request, body, status and answer of each row, in an order in which one can be asked after
# the other. {q} is a queue that exists, {t} a topic that does not yet.
SETTINGS = {
    "VisibilityTimeout": 30,
    "MinPartitions": 1,
    "MaxPartitions": 10,
    "MaxPartitionAge": 432000,
    "CompressedMessages": False,
    "partitions": 1,
}
NO_TOPIC = {"error": "Topic did not exist."}
NO_QUEUE = {"error": "There is no queue named none"}
ROWS: list[tuple[str, bytes, int, Any]] = [
    ("GET /topics/{t}", b"", 404, NO_TOPIC),
    ("DELETE /topics/{t}", b"", 404, NO_TOPIC),
    (
        "PUT /topics/{t}/queues/{q}",
        b"",
        422,
        {"error": "Topic does not exist. Please create it first."},
    ),
    ("PUT /topics/{t}", b"ignored", 201, {"Queues": []}),
    ("PUT /topics/{t}", b"", 422, {"error": "Topic already exists."}),
    ("GET /topics/{t}", b"", 200, {"Queues": []}),
    (
        "PUT /topics/{t}/queues/none",
        b"",
        422,
        {"error": "Queue does not exist. Please create it first"},
    ),
    ("PUT /topics/{t}/queues/{q}", b"", 200, {"Queues": ["{q}"]}),
    ("PUT /topics/{t}/queues/{q}", b"", 200, {"Queues": ["{q}"]}),
    ("GET /topics/{t}", b"", 200, {"Queues": ["{q}"]}),
    ("DELETE /topics/{t}/queues/none", b"", 200, {"Queues": ["{q}"]}),
    ("DELETE /topics/{t}/queues/{q}", b"", 200, {"Queues": []}),
    ("PUT /topics/{t}/message", b"x", 200, {}),
    ("DELETE /topics/{t}", b"", 200, {"Deleted": True}),
    # Requests that create a topic implicitly.
    ("DELETE /topics/{t}/queues/{q}", b"", 200, {"Queues": []}),
    ("DELETE /topics/{t}", b"", 200, {"Deleted": True}),
    ("PUT /topics/{t}/message", b"x", 200, {}),
    ("DELETE /topics/{t}", b"", 200, {"Deleted": True}),
    ("GET /queues/{q}", b"", 200, SETTINGS),
    ("GET /queues/none", b"", 404, NO_QUEUE["error"]),
    ("PUT /queues/{q}", b"", 422, {"error": "Queue already exists."}),
    ("PUT /queues/{q}.2", b"ignored", 201, "created"),
    ("DELETE /queues/{q}.2", b"", 200, {"Deleted": True}),
    ("DELETE /queues/{q}.2", b"", 404, {"error": "Queue did not exist."}),
    ("PUT /queues/{q}.2", b"", 201, "created"),
    ("DELETE /queue/{q}.2", b"", 200, {"Deleted": True}),
    ("DELETE /queue/{q}.2", b"", 404, {"error": "Queue did not exist."}),
    ("PATCH /queues/{q}", b'{"visibility_timeout": 2.5, "min_partitions": 2}', 200, "ok"),
    (
        "GET /queues/{q}",
        b"",
        200,
        {**SETTINGS, "VisibilityTimeout": 2.5, "MinPartitions": 2, "partitions": 2},
    ),
    (
        "PATCH /queues/{q}/",
        b'{"max_partitions": 7, "max_partition_age": 60, "compressed_messages": true, "other": 1}',
        200,
        "ok",
    ),
    (
        "GET /queues/{q}",
        b"",
        200,
        {
            "VisibilityTimeout": 2.5,
            "MinPartitions": 2,
            "MaxPartitions": 7,
            "MaxPartitionAge": 60,
            "CompressedMessages": True,
            "partitions": 2,
        },
    ),
    ("PATCH /queues/none", b"{}", 404, NO_QUEUE),
    ("GET /queues/{q}/messages/5", b"", 200, []),
    ("GET /queues/none/messages/5", b"", 404, NO_QUEUE["error"]),
    ("GET /queues/none/messages/0", b"", 404, NO_QUEUE["error"]),
    ("GET /queues/none/messages/five", b"", 404, NO_QUEUE["error"]),
    (
        "GET /queues/{q}/messages/five",
        b"",
        422,
        "'five' is not a batch size: a whole number from 1",
    ),
    ("GET /queues/{q}/messages/0", b"", 422, "'0' is not a batch size: a whole number from 1"),
    ("GET /queues/{q}/messages/-1", b"", 422, "'-1' is not a batch size: a whole number from 1"),
    ("GET /queues/{q}/message/17", b"", 404, {"error": "Message 17 not found."}),
    ("GET /queues/none/message/17", b"", 404, NO_QUEUE),
    ("DELETE /queues/{q}/message/17", b"", 200, False),
    ("DELETE /queues/none/message/17", b"", 200, False),
    ("DELETE /queues/{q}/message/.hidden", b"", 200, False),
    ("DELETE /queues/{q}/messages/17,18", b"", 200, {"deleted": 0}),
    ("DELETE /queues/none/messages/17,18", b"", 404, NO_QUEUE),
    ("GET /status/partitionrange", b"", 200, {"bottom": "0", "top": str(2**63 - 1)}),
]


def filled(value: Any, names: dict[str, str]) -> Any:
    """The names of a row filled in."""
    text = json.dumps(value)
    for name, own in names.items():
        text = text.replace("{" + name + "}", own)
    return json.loads(text)


async def test_each_row_of_the_contract(client: ClientSession, queue: str, prefix: str) -> None:
    names = {"q": queue, "t": f"topic-of-{queue}"}
    for request, body, status, expected in ROWS:
        method, _, path = request.partition(" ")
        where = prefix + filled(path, names)
        answer = await ask(client, method, where, data=body)
        assert answer.status == status, f"{method} {where}: {answer}"
        assert told(answer) == filled(expected, names), f"{method} {where}"


async def test_topics_and_queues_are_listed(client: ClientSession, queue: str, prefix: str) -> None:
    topic = f"t-{queue}"
    await ask(client, "PUT", f"{prefix}/topics/{topic}")
    assert topic in told(await ask(client, "GET", f"{prefix}/topics"))["topics"]
    assert queue in told(await ask(client, "GET", f"{prefix}/queues"))["queues"]


async def test_put_fetch_peek_and_delete(client: ClientSession, queue: str, prefix: str) -> None:
    put = await ask(client, "PUT", f"{prefix}/queues/{queue}/message", data=b"a=1&b=%20")
    assert (put.status, put.headers["Content-Type"]) == (200, TEXT)
    message_id = put.body.decode()
    assert await fetched(client, queue) == [{"id": message_id, "body": "a=1&b=%20"}]
    looked = await ask(client, "GET", f"{prefix}/queues/{queue}/message/{message_id}")
    assert told(looked) == {"messages": [{"id": message_id, "body": "a=1&b=%20"}]}
    deleted = await ask(client, "DELETE", f"{prefix}/queues/{queue}/message/{message_id}")
    assert told(deleted) is True
    again = await ask(client, "DELETE", f"{prefix}/queues/{queue}/message/{message_id}")
    assert (again.status, told(again)) == (200, False)


async def test_a_put_to_an_unknown_queue_has_an_empty_answer(
    client: ClientSession, prefix: str
) -> None:
    put = await ask(client, "PUT", f"{prefix}/queues/none/message", data=b"x" * 100_000)
    assert (put.status, put.body, put.headers["Content-Type"]) == (200, b"", TEXT)


async def test_a_batch_and_its_deletion(client: ClientSession, queue: str, prefix: str) -> None:
    sent = {await post(client, queue, b"%d" % n) for n in range(12)}
    got: dict[str, str] = {}
    while len(got) < 12:
        found = await fetched(client, queue, 5)
        assert len(found) <= 5
        got |= {m["id"]: m["body"] for m in found}
    assert set(got) == sent
    assert sorted(got.values(), key=int) == [str(n) for n in range(12)]
    some = list(got)
    joined = ",".join([*some[:5], "none", some[0]])
    deleted = await ask(client, "DELETE", f"{prefix}/queues/{queue}/messages/{joined}")
    assert told(deleted) == {"deleted": 5}


async def test_a_fetch_can_ask_for_any_number(client: ClientSession, queue: str) -> None:
    await post(client, queue, b"one")
    assert len(await fetched(client, queue, 1_000_000)) == 1


async def test_invalid_utf8_is_stored_and_shown_replaced(
    suite: Suite, client: ClientSession, queue: str, prefix: str
) -> None:
    body = b"caf\xe9 \xf0\x9f\x98\x80 \xff"
    await ask(client, "PUT", f"{prefix}/queues/{queue}/message", data=body)
    [message] = await fetched(client, queue)
    assert message["body"] == "caf\ufffd \U0001f600 \ufffd"
    looked = await ask(client, "GET", f"/{queue}/messages/{message['id']}")
    assert looked.body == body


async def test_a_publish_lists_the_queues_that_got_it(
    client: ClientSession, queue: str, prefix: str
) -> None:
    topic, other = f"t-{queue}", f"{queue}.other"
    await ask(client, "PUT", f"{prefix}/queues/{other}")
    await ask(client, "PUT", f"{prefix}/topics/{topic}")
    for one in (queue, other):
        await ask(client, "PUT", f"{prefix}/topics/{topic}/queues/{one}")
    published = told(await ask(client, "PUT", f"{prefix}/topics/{topic}/message", data=b"news"))
    assert sorted(published) == sorted([queue, other])
    for one in (queue, other):
        assert await fetched(client, one) == [{"id": published[one], "body": "news"}]
    # Deleting the queue ends its subscription; deleting the topic keeps the queues.
    await ask(client, "DELETE", f"{prefix}/queues/{other}")
    assert told(await ask(client, "GET", f"{prefix}/topics/{topic}")) == {"Queues": [queue]}
    await ask(client, "DELETE", f"{prefix}/topics/{topic}")
    assert (await ask(client, "GET", f"{prefix}/queues/{queue}")).status == 200


async def test_subscribing_again_keeps_the_filter(client: ClientSession, queue: str) -> None:
    topic = f"t-{queue}"
    await ask(client, "PUT", f"/_topics/{topic}")
    await ask(client, "PUT", f"/_topics/{topic}/queues/{queue}", data=b'{"type": ["order"]}')
    await ask(client, "PUT", f"/v1/topics/{topic}/queues/{queue}")
    assert told(await ask(client, "PUT", f"/v1/topics/{topic}/message")) == {}
    headers = {"X-Message-Attribute-Type": "order"}
    taken = await ask(client, "PUT", f"/v1/topics/{topic}/message", headers=headers)
    assert list(told(taken)) == [queue]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"visibility_timeout": "2"}', "visibility_timeout"),
        ('{"visibility_timeout": true}', "visibility_timeout"),
        ('{"visibility_timeout": -1}', "visibility_timeout"),
        ('{"visibility_timeout": 5, "min_partitions": 1.5}', "min_partitions"),
        ('{"visibility_timeout": 5, "max_partitions": 0}', "max_partitions"),
        ('{"visibility_timeout": 5, "min_partitions": 11}', "min_partitions"),
        ('{"max_partition_age": []}', "max_partition_age"),
        ('{"visibility_timeout": 5, "compressed_messages": "yes"}', "compressed_messages"),
        ("[]", "JSON object"),
        ("{", "JSON"),
    ],
)
async def test_a_value_of_the_wrong_type_changes_nothing(
    client: ClientSession, queue: str, body: str, field: str
) -> None:
    refused = await ask(client, "PATCH", f"/v1/queues/{queue}", data=body)
    assert refused.status == 422
    assert field in told(refused)["error"]
    assert told(await ask(client, "GET", f"/v1/queues/{queue}")) == SETTINGS


async def test_null_changes_nothing(client: ClientSession, queue: str) -> None:
    changed = await ask(client, "PATCH", f"/queues/{queue}", data='{"min_partitions": null}')
    assert (changed.status, told(changed)) == (200, "ok")


async def test_compression_can_be_switched_at_any_time(
    suite: Suite, client: ClientSession, queue: str
) -> None:
    bodies = {}
    for n, compressed in enumerate((True, False, True)):
        settings = json.dumps({"compressed_messages": compressed})
        await ask(client, "PATCH", f"/v1/queues/{queue}", data=settings)
        body = f"{n} " + "again and " * 100
        put = await ask(client, "PUT", f"/v1/queues/{queue}/message", data=body)
        assert put.body.decode().endswith(".z") is compressed
        bodies[put.body.decode()] = body
    got: dict[str, str] = {}
    while len(got) < 3:
        got |= {m["id"]: m["body"] for m in await fetched(client, queue)}
    assert got == bodies
    size = sum(p.stat().st_size for p in (suite.root / "delay").glob(f"{queue}:*.z"))
    assert 0 < size < 500


async def test_settings_are_shared_with_the_native_dialect(
    client: ClientSession, queue: str
) -> None:
    await ask(client, "PATCH", f"/v1/queues/{queue}", data='{"visibility_timeout": 0.2}')
    shown = (await ask(client, "GET", f"/{queue}")).json["settings"]
    assert shown["visibility_timeout"] == 0.2
    await post(client, queue, b"again")
    [first] = await fetched(client, queue)
    assert await fetched(client, queue) == [first]  # its claim has ended
    await ask(client, "PATCH", f"/{queue}", json={"compression": "zstd"})
    assert told(await ask(client, "GET", f"/queues/{queue}"))["CompressedMessages"] is True
    await ask(client, "PATCH", f"/queues/{queue}", data='{"compressed_messages": true}')
    assert (await ask(client, "GET", f"/{queue}")).json["settings"]["compression"] == "zstd"


async def test_the_servers_are_listed(suite: Suite, client: ClientSession, prefix: str) -> None:
    answer = await ask(client, "GET", f"{prefix}/status/servers")
    assert answer.headers["Content-Type"] == TEXT
    assert re.fullmatch(r"Member: \S+ 127\.0\.0\.1\n", answer.body.decode())


@pytest.mark.parametrize(
    ("address", "alone"),
    [("10.1.2.3:8080", "10.1.2.3"), ("[::1]:8080", "::1"), ("mq.sock", "mq.sock"), ("", "")],
)
def test_the_address_of_a_server_has_no_port(address: str, alone: str) -> None:
    assert _alone(address) == alone


async def test_a_thousand_ids_in_one_delete(client: ClientSession, queue: str, prefix: str) -> None:
    ids = [await post(client, queue, b"x") for _ in range(3)]
    ids += [f"01900000-0000-7000-8000-{n:012}" for n in range(997)]
    path = f"{prefix}/queues/{queue}/messages/{','.join(ids)}"
    assert told(await ask(client, "DELETE", path)) == {"deleted": 3}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1", 404),
        ("GET", "/v1/none", 404),
        ("POST", "/v1/queues", 405),
        ("GET", "/queues/_bad", 422),
        ("PUT", "/topics/two%20words", 422),
        ("GET", "/status", 404),
    ],
)
async def test_other_errors_have_the_form_of_dynamiq(
    client: ClientSession, method: str, path: str, status: int
) -> None:
    answer = await ask(client, method, path)
    assert answer.status == status
    assert list(told(answer)) == ["error"]


async def test_a_full_queue_is_answered_with_retry_after(client: ClientSession, queue: str) -> None:
    await ask(client, "PATCH", f"/{queue}", json={"max_depth": 1})
    await ask(client, "PUT", f"/v1/queues/{queue}/message", data=b"1")
    refused = await ask(client, "PUT", f"/v1/queues/{queue}/message", data=b"2")
    assert refused.status == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert "full" in told(refused)["error"]


class RubyClient:
    """Sends what the published Ruby client sends: prefix /v1, one kept connection, a timeout of
    100 ms (here more: tests run beside others) and two retries on any status it does not expect."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.requests = 0

    async def ask(self, method: str, path: str, expected: int, **options: Any) -> Answer:
        for _ in range(3):
            self.requests += 1
            answer = await ask(self.session, method, f"/v1{path}", **options)
            if answer.status == expected:
                return answer
        raise AssertionError(f"{method} {path}: {answer}")


async def test_the_ruby_client_never_retries(suite: Suite, queue: str) -> None:
    one = aiohttp.TCPConnector(limit=1)
    async with ClientSession(suite.url, connector=one) as session:
        client = RubyClient(session)
        topic, name = f"t-{queue}", f"{queue}.ruby"
        form = aiohttp.FormData({"user": "7", "text": "a b"})
        await client.ask("PUT", f"/topics/{topic}", 201)
        await client.ask("PUT", f"/queues/{name}", 201)
        await client.ask("PATCH", f"/queues/{name}", 200, json={"visibility_timeout": 5})
        await client.ask("PUT", f"/topics/{topic}/queues/{name}", 200)
        published = (await client.ask("PUT", f"/topics/{topic}/message", 200, data=form)).json
        await client.ask("PUT", f"/queues/{name}/message", 200, data=b'"quoted"')
        bodies: dict[str, str] = {}
        while len(bodies) < 2:
            batch = (await client.ask("GET", f"/queues/{name}/messages/10", 200)).json
            bodies |= {m["id"]: m["body"] for m in batch}
        asked = client.requests
        assert bodies[published[name]] == "user=7&text=a+b"
        await client.ask("DELETE", f"/queues/{name}/message/{published[name]}", 200)
        await client.ask("DELETE", f"/queues/{name}/messages/{','.join(bodies)}", 200)
        assert (await client.ask("GET", f"/queues/{name}/messages/10", 200)).json == []
        await client.ask("DELETE", f"/topics/{topic}", 200)
        await client.ask("DELETE", f"/queues/{name}", 200)
        assert client.requests == asked + 5
    eventually(lambda: not (suite.root / "queues" / name).exists())
