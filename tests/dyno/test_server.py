"""The interface of dyno-queues on a server: each method once, with edge cases."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from fsmq import Client, InvalidValue, NoSuchQueue
from fsmq.client.by_id import ClientIndexed
from fsmq.dyno import DynoQueue, DynoQueues, Message
from fsmq.dyno.server import Server
from fsmq.spool.indexed import Indexed
from fsmq.spool.layout.uuids import uuid7
from tests.dyno.conftest import Make
from tests.dyno.helpers import HOUR_MS, ids, push
from tests.harness.suite import Suite, eventually
from tests.http.helpers import ask

WAIT_MS = 20_000


@pytest.fixture
def client(suite: Suite) -> Iterator[Client]:
    with Client(suite.url) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"dyno-{uuid7()}"


@pytest.fixture
def make(client: Client, name: str) -> Make:
    def make(**options: Any) -> DynoQueue:
        return DynoQueues(client, **{"zone": "a", **options}).get(name)

    return make


def test_messages_are_pushed_popped_and_acknowledged(make: Make) -> None:
    queue = make()
    push(queue, "über/☃", "b")
    push(queue, "later", timeout=HOUR_MS, priority=5)
    queue.push([Message("null", None), Message("empty", "")])
    popped = queue.pop(4, WAIT_MS)
    assert ids(popped) == ["über/☃", "b", "null", "empty"]
    assert [m.payload for m in popped] == ["payload of über/☃", "payload of b", None, ""]
    assert all((m.shard, m.deliveries) == ("a", 1) for m in popped)
    assert queue.pop(1) == []
    eventually(lambda: queue.shard_sizes() == {"a": {"size": 1, "uacked": 4}})
    assert queue.ack("b")
    assert not any(queue.ack(one) for one in ("b", "later", "none"))
    queue.ack_all(popped)
    assert ids(queue.get_all_messages()) == ["later"]
    assert queue.remove("later")
    assert not queue.remove("later")


def test_a_push_of_an_existing_id_replaces_the_message(make: Make) -> None:
    queue = make()
    push(queue, "x")
    queue.push([Message("x", "new")])
    assert [m.payload for m in queue.pop(9, 300)] == ["new"]
    found = queue.get("x")
    assert found is not None
    assert (found.payload, found.shard, found.deliveries) == ("new", "a", 1)


def test_pop_waits_for_a_message(make: Make) -> None:
    queue, producer = make(), make()
    timer = threading.Timer(0.1, lambda: push(producer, "x"))
    timer.start()
    began = time.monotonic()
    assert ids(queue.pop(1, WAIT_MS)) == ["x"]
    assert time.monotonic() - began < WAIT_MS / 1000
    timer.join()


@pytest.mark.parametrize("cross", ["never", "orphans"])
def test_the_server_waits_for_a_pop(
    make: Make, monkeypatch: pytest.MonkeyPatch, cross: Any
) -> None:
    queue = make()
    asked: list[float] = []
    claim = Server.claim

    def count(self: Server, queue: str, count: int, wait: float = 0.0) -> list[Any]:
        asked.append(wait)
        return claim(self, queue, count, wait)

    monkeypatch.setattr(Server, "claim", count)
    assert queue.pop(1, 1500, cross=cross) == []
    assert sum(asked) > 1.3
    assert len(asked) <= 6


def test_timeouts_are_set_by_id(make: Make) -> None:
    queue = make()
    push(queue, "a", "b")
    assert queue.set_timeout("b", HOUR_MS)
    assert ids(queue.pop(1, WAIT_MS)) == ["a"]
    assert not queue.set_timeout("a", 5)
    assert not queue.set_unack_timeout("b", 5)
    assert queue.set_unack_timeout("a", HOUR_MS)
    assert queue.nack("a")
    assert queue.set_timeout("b", 0)
    popped = {m.id: (m.timeout, m.deliveries) for m in queue.pop(2, WAIT_MS)}
    assert popped == {"a": (0, 2), "b": (0, 1)}
    push(queue, "c", timeout=HOUR_MS)
    found = queue.pop_with_msg_id("c")
    assert found is not None
    assert found.timeout == HOUR_MS
    assert queue.pop_with_msg_id("c") is None


def test_ensure_looks_into_all_shards(make: Make) -> None:
    queue = make(shards=["a", "b"])
    assert queue.ensure(Message("x", "1"))
    assert not any(queue.ensure(Message("x", "2")) for _ in range(3))
    eventually(lambda: queue.size() == 1)
    assert queue.remove("x")
    assert queue.ensure(Message("x", "3"))


def test_predicates_search_payloads(make: Make) -> None:
    queue = make()
    push(queue, "x1", "x2")
    push(queue, "x3", timeout=HOUR_MS)
    assert ids(queue.pop(1, WAIT_MS)) == ["x1"]
    found = {queue.get_msg_with_predicate(re.compile(f"of {one}")) for one in ("x1", "x2", "x3")}
    assert found == {"x1", "x2", "x3"}
    assert queue.get_msg_with_predicate(re.compile("of x1"), local=True) is None
    taken = queue.pop_msg_with_predicate(re.compile("of x"))
    assert taken is not None
    assert taken.id == "x2"
    assert queue.pop_msg_with_predicate(re.compile("of x")) is None


def test_peek_and_clear(make: Make) -> None:
    queue = make()
    push(queue, "a", "b", "c")
    assert ids(queue.pop(1, WAIT_MS)) == ["a"]
    eventually(lambda: len(queue.peek(-1)) == 2)
    assert ids(queue.peek(1)) == ["b"]
    assert ids(queue.unsafe_peek_all_shards(9)) == ["b", "c"]
    queue.clear()
    assert queue.get("a") is None
    eventually(lambda: queue.size() == 0)


def test_shards_are_rebalanced_and_retired(make: Make, client: Client, name: str) -> None:
    shards = make(shards=["a", "b"], strategy="local")
    push(shards, *"123456")
    push(shards, "later", timeout=HOUR_MS)
    eventually(lambda: shards.size() == 7)
    assert sum(shards.rebalance().values()) == 3
    eventually(lambda: sorted(n["size"] for n in shards.shard_sizes().values()) == [3, 4])
    assert {one: shards.get(one) is not None for one in "123456"} == dict.fromkeys("123456", True)
    shards.retire("b")
    assert not client.has_queue(f"{name}@b")
    assert sorted(ids(make().get_all_messages())) == [*"123456", "later"]


def test_a_dead_zone_is_read_and_a_live_one_is_not(make: Make) -> None:
    there = make(zone="b", strategy="local")
    push(there, "1", "2")
    assert ids(there.pop(1, WAIT_MS)) == ["1"]  # a pop is a heartbeat
    assert make().pop(1) == []
    dead = make(zone="c", strategy="local")
    push(dead, "3")
    assert ids(make().pop(1, WAIT_MS)) == ["3"]
    assert ids(make(cross="empty").pop(1, WAIT_MS)) == ["2"]


async def test_the_shards_of_a_queue_are_shown(name: str, make: Make, suite: Suite) -> None:
    shards = make(shards=["a", "b"])
    push(shards, "1", "2", "3")
    async with aiohttp.ClientSession(suite.url) as session:
        eventually(lambda: shards.size() == 3)
        answer = await ask(session, "GET", f"/{name}?shards=true")
        assert answer.status == 200
        assert sum(answer.json["messages"].values()) == 3 + answer.json["messages"]["unfinished"]
        assert sorted(answer.json["shards"]) == ["a", "b"]
        assert (await ask(session, "GET", f"/{name}")).status == 404
        assert (await ask(session, "GET", f"/{name}@a?shards=true")).status == 404


def test_a_client_has_the_methods_of_the_library(client: Client, name: str) -> None:
    assert {n for n in dir(Indexed) if n[0] != "_"} - {"scan"} == {
        n for n in dir(ClientIndexed) if n[0] != "_"
    }
    client.create_queue(name)
    with pytest.raises(InvalidValue, match="without"):
        client.create_queue(name, index=True)
    with pytest.raises(InvalidValue, match="without an index"):
        ClientIndexed(client, name).find("x")
    with pytest.raises(NoSuchQueue):
        ClientIndexed(client, f"{name}.none").find("x")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"do": "find", "ids": ["a"], "more": 1}', "expected one of"),
        (b'{"do": "fly", "ids": ["a"]}', "expected one of"),
        (b'{"do": "find", "ids": []}', "1 to 1 ids"),
        (b'{"do": "claim", "ids": ["a", "b"]}', "1 to 1 ids"),
        (b'{"do": "ack", "ids": [5]}', "must be text"),
        (b'{"do": "renew", "ids": ["a"]}', "is missing"),
        (b'{"do": "renew", "ids": ["a"], "visibility": "long"}', "seconds"),
        (b'{"do": "postpone", "ids": ["a"], "delay": -1}', "seconds"),
        (b'{"do": "ack", "ids": ["a"], "names": {"a": 5}}', "object of strings"),
        (b'{"do": "ack", "ids": ["a"], "names": {"a": "../x"}}', "cannot be an id"),
    ],
)
async def test_malformed_requests_by_id_are_refused(
    suite: Suite, client: Client, name: str, body: bytes, problem: str
) -> None:
    client.create_queue(name, index=True)
    async with (
        aiohttp.ClientSession(suite.url) as session,
        session.post(f"/{name}/by-id", data=body) as answer,
    ):
        assert answer.status == 400
        assert problem in (await answer.json(content_type=None))["detail"]
