"""Native batches and acks get the same answers on the fast path as from aiohttp."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.http.helpers import Wire
from tests.http.inside import Inside, syncing
from tests.http.pair import LIMIT, Pair, request
from tests.soak.fuzz import BODIES

pytestmark = pytest.mark.usefixtures("emptied")
OPTIONS = {"dialects": ("emodb", "sqs"), "host_names": (), "max_message_bytes": LIMIT}

ID = "01900000-0000-7000-8000-0000000000{:02}"
EVENTS = "Content-Type: application/cloudevents-batch+json"


def batch(queue: str, given: Any, *lines: str) -> bytes:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    return request(f"POST /{queue}/batch", *lines, body=body)


def ack(queue: str, given: Any, *lines: str) -> bytes:
    body = given if isinstance(given, bytes) else json.dumps({"ids": given}).encode()
    return request(f"POST /{queue}/ack", *lines, body=body)


def acks(queue: str, of: int, *members: str) -> Callable[[list[bytes]], bytes]:
    """Acknowledge all messages of an earlier answer, by these members."""

    def step(bodies: list[bytes]) -> bytes:
        messages = json.loads(bodies[of])["messages"]
        if not members:
            return ack(queue, [one["id"] for one in messages])
        return ack(queue, [{name: one[name] for name in members} for one in messages])

    return step


MESSAGES: list[Any] = [
    {"body": "x"},
    {"body": "é\x00", "delay": 0.5, "priority": 7, "ttl": 60, "content_type": "a/b"},
    {"body_base64": "/w==", "attributes": {"a": "b", "traceparent": "00"}},
    {"body": "", "delay": None, "id": None, "group": None, "dedup_id": None},
]
BAD: list[Any] = [
    [],
    None,
    1,
    "x",
    {},
    [1],
    [{}],
    [{"body": 1}],
    [{"body": "x", "no": 1}],
    [{"body": "\ud800"}],
    [{"body": "x", "delay": -1}],
    [{"body": "x", "id": "a/b"}],
    [{"body_base64": "x"}],
    [[]],
    [{"body": "x"}, {"body": "x", "priority": 100}],
    [{"body": "x" * 60_000}],
    {"messages": []},
    [{"body": "x", "attributes": {"a": 1}}],
    [{"body": "x", "group": "g"}],
]


@pytest.mark.parametrize(
    "lines",
    [[], ["Content-Type: application/json", "Accept: application/json"], ["Content-Type: text/x"]],
    ids=len,
)
def test_the_fast_path_takes_small_batches_and_acks(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.filled(*(b"%d" % n for n in range(8)))
    told = pair.talk(
        batch(queue, MESSAGES, *lines),
        *(batch(queue, [one], *lines) for one in MESSAGES),
        batch(queue, MESSAGES * 8, *lines),
        request(f"GET /{queue}/messages?count=2"),
        acks(queue, 6),
        acks(queue, 6),
        request(f"GET /{queue}/messages?count=2"),
        acks(queue, 9, "id", "claim"),
        acks(queue, 9, "id", "claim"),
        ack(queue, [ID.format(7), ID.format(7), "none"], *lines),
    )
    assert {one.status for one in told} == {201, 200}
    assert pair.quick.taken == taken + len(told)
    assert pair.plain.taken == 0


def test_acks_of_ended_claims(pair: Pair) -> None:
    queue = pair.filled(b"1", b"2")
    told = pair.talk(
        request(f"GET /{queue}/messages?count=2"),
        request(f"PATCH /{queue}/messages/{ID.format(0)}?release=0"),
        request(f"GET /{queue}/messages?count=2"),
        acks(queue, 0, "id", "claim"),
        acks(queue, 2, "id", "claim"),
    )
    assert json.loads(told[3].body)["ended"]


def test_large_batches_are_left_to_aiohttp(pair: Pair) -> None:
    queue, taken = pair.filled(*(b"%d" % n for n in range(70))), pair.quick.taken
    # A request behind one of aiohttp's can go to aiohttp as well.
    told = pair.talk(
        request(f"GET /{queue}/messages?count=33"),
        batch(queue, [{"body": "x," * 100}] * 9),
        ack(queue, [{"id": f"none-{n}", "claim": None} for n in range(32)]),
        batch(queue, [{"body": "x"}] * 33),
        batch(queue, [{"body": '"body' * 5}] * 9),
        acks(queue, 0),
        acks(queue, 0, "id", "claim"),
    )
    assert {one.status for one in told} == {200, 201}
    assert pair.quick.taken == taken + 3


def test_own_ids(pair: Pair) -> None:
    queue = pair.queue()
    own = [{"body": "x", "id": "own"}, {"body": "y"}]
    told = pair.talk(
        batch(queue, own), batch(queue, own), batch(queue, own[:1]), ack(queue, ["own"])
    )
    assert [one.status for one in told] == [201, 409, 409, 200]


def test_a_concurrent_duplicate_fails_alone_in_its_group(inside: Inside) -> None:
    """One group: only the repeated id is refused."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(6)]
        with inside.held_sync() as gate:
            for number, wire in enumerate(wires):
                own = {"id": "own"} if number % 2 else {}
                wire.send(batch("q", [{"body": str(number)}, {"body": "x", **own}]))
            inside.until_open(4)  # the others are refused while the first own id is being stored
            gate.set()
            statuses = [wire.answer().status for wire in wires]
    assert statuses[::2] == [201] * 3
    first, *others = sorted(statuses[1::2])
    assert first == 201
    assert set(others) <= {409, 503}  # it is being taken
    assert len(inside.tree()) == 8


def test_a_duplicate_of_a_stored_message_fails_alone_in_its_group(inside: Inside) -> None:
    """The duplicate is found behind a sync; the rest of the group is stored."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(6)]
        assert wires[0].ask("POST", "/q/messages?id=own", body=b"x").status == 201
        with inside.held_sync() as gate:
            wires[0].send(batch("q", [{"body": "first"}, {"body": "x"}]))
            inside.until_open(1)  # the others wait for its sync, and are one group then
            for number, wire in enumerate(wires[1:]):
                own = {"id": "own"} if number % 2 else {}
                wire.send(batch("q", [{"body": str(number)}, {"body": "x", **own}]))
            gate.set()
            statuses = [wire.answer().status for wire in wires]
    assert statuses == [201, 201, 409, 201, 409, 201]
    assert len(inside.tree()) == 9


@pytest.mark.parametrize("given", BAD, ids=lambda one: repr(one)[:40])
def test_refused_batches(pair: Pair, given: Any) -> None:
    queue = pair.queue()
    pair.compare(batch(queue, given))
    pair.compare(ack(queue, given))
    pair.compare(ack(queue, json.dumps(given).encode()))


def test_bodies(pair: Pair) -> None:
    queue = pair.queue()
    for body in BODIES:
        pair.compare(batch(queue, body, f"Content-Length: {len(body)}"))
        pair.compare(ack(queue, body, f"Content-Length: {len(body)}"))
    for body in (b"[" * 9000, b"[{}," * 15_000, b'{"ids":[' + b'"a",' * 15_000 + b'"a"]}'):
        pair.compare(batch(queue, body))
        pair.compare(ack(queue, body))


@pytest.mark.parametrize(
    "ids",
    [
        ["a/b"],
        [""],
        ["x%2Fy"],
        ["%"],
        [{"id": "x"}],
        [{"id": "x", "claim": None}],
        [None],
        [{"id": "x", "claim": "c1-00"}, "y"],
        [{"claim": "c1-00"}],
        [{"id": "x", "claim": "x"}],
        [{"id": "x", "no": 1}],
        ["p07.x", "a.h"],
        ["a" * 300],
    ],
    ids=str,
)
def test_ids_to_acknowledge(pair: Pair, ids: Any) -> None:
    pair.compare(ack(pair.queue(), ids))
    pair.compare(ack("not-there", ids))


@pytest.mark.parametrize(
    "line",
    [
        "POST /{}/batch/",
        "POST /{}/batch/1",
        "POST /{}/batch?x=1",
        "POST /{}/batch?",
        "GET /{}/ack",
        "POST /{}/ack/1",
        "POST /{}/ack?ids=1",
        "PATCH /{}/batch",
        "DELETE /{}/ack/1",
        "PUT /{}/batch",
        "POST /_logs/{}/batch",
        "POST /_logs/{}/channels/c/done",
        "POST /not-there/batch",
        "POST /queue/batch",
        "POST /123456789012/batch",
        "POST /123456789012/ack",
        "POST /%61/ack",
    ],
)
def test_request_lines(pair: Pair, line: str) -> None:
    queue, body = pair.queue(), b'{"ids":["x"]}' if "ack" in line else b'[{"body":"x"}]'
    pair.compare(request(line.format(queue), body=body))
    pair.compare(request(line.format(queue), "X-Amz-Target: AmazonSQS.SendMessage", body=body))


@pytest.mark.parametrize(
    "lines",
    [
        [EVENTS],
        [EVENTS.upper()],
        [f"{EVENTS}; charset=utf-8"],
        ["Content-Encoding: gzip"],
        ["Accept: application/cloudevents-batch+json"],
        ["Idempotency-Key: x"],
        ["X-Other: 1"],
        ["X-Message-Attribute-A: b"],
        ["X-Message-Claim: c1-00"],
        ["Connection: close"],
        ["Transfer-Encoding: chunked"],
        ["Content-Length: 03"],
        ["Origin: http://evil.example"],
    ],
    ids=str,
)
def test_headers(pair: Pair, lines: list[str]) -> None:
    queue = pair.filled(b"1")
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": "x"}
    pair.compare(batch(queue, [{"body": "x"}], *lines))
    pair.compare(batch(queue, [event], *lines))
    pair.compare(ack(queue, [ID.format(0)], *lines))


@pytest.mark.parametrize(
    "given", [{"max_message_bytes": 3}, {"max_depth": 2}, {"fifo": True}], ids=str
)
def test_batches_that_a_setting_refuses(pair: Pair, given: dict[str, object]) -> None:
    queue = pair.queue(**given)
    grouped = [{"body": f"b{n}", "group": f"g{n % 2}", "dedup_id": f"d{n}"} for n in range(4)]
    pair.talk(
        batch(queue, [{"body": "x"}]),
        batch(queue, [{"body": "x" * size} for size in (1, 3)]),
        batch(queue, grouped),
        batch(queue, grouped[:1] * 2),
        batch(queue, [{"body": "x" * 5000}]),
    )


# -- deletions -------------------------------------------------------------------------------------


def test_a_failing_disk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = pair.filled(b"1", b"2")
    pair.fail_syncs(monkeypatch)
    told = pair.talk(batch(queue, MESSAGES), ack(queue, [ID.format(0), "none"]))
    assert [one.status for one in told] == [503] * 2


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server whose disk syncs, with a queue."""
    with syncing(root) as server:
        yield server


def test_a_large_group_is_handled_in_portions(inside: Inside) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(20)]
        with inside.held_sync() as gate:
            for wire in wires:
                wire.send(batch("q", MESSAGES * 8))
            inside.until_open(20)
            gate.set()
            answers = [wire.answer() for wire in wires]
        ids = [one for answer in answers for one in answer.json["ids"]]
        assert len(set(ids)) == 20 * 32
        for at, wire in enumerate(wires):
            wire.send(ack("q", ids[at * 32 : at * 32 + 32]))
        for at, wire in enumerate(wires):
            assert wire.answer().json == {"removed": ids[at * 32 : at * 32 + 32], "missing": []}
    assert inside.taken == 40
    assert not inside.tree()
