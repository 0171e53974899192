"""Requests of Dynamiq's clients on the fast path are answered as aiohttp would answer them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside, syncing
from tests.http.keyfile import add_key
from tests.http.pair import KIB, LIMIT, Pair, apart, pair_of, request  # noqa: F401 - a fixture
from tests.http.test_errors import BAD_IDS, BAD_NAMES
from tests.http.test_fast_path_pieces import compare_in_pieces, cuts
from tests.soak.fuzz import VALUES

ID = "01900000-0000-7000-8000-0000000000{:02}"
PREFIXES = ("", "/v1")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    options = {"dialects": ("emodb", "dynamiq"), "host_names": (), "max_message_bytes": LIMIT}
    with pair_of(tmp_path_factory.mktemp("pair"), **options) as running:
        yield running


def put(queue: str, body: bytes, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"PUT {prefix}/queues/{queue}/message", *lines, body=body)


def fetch(queue: str, number: object = 2, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"GET {prefix}/queues/{queue}/messages/{number}", *lines)


def delete(queue: str, rest: str, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"DELETE {prefix}/queues/{queue}/{rest}", *lines)


def deletes(queue: str, of: int, **more: str) -> Callable[[list[bytes]], bytes]:
    """What deletes all that an answer before has given."""

    def step(bodies: list[bytes]) -> bytes:
        ids = [one["id"] for one in json.loads(bodies[of])]
        return delete(queue, f"messages/{','.join(ids)}", **more)

    return step


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "lines",
    [[], ["Content-Type: application/x-www-form-urlencoded", "Accept: */*", "User-Agent: Ruby"]],
)
def test_each_request_is_taken(pair: Pair, prefix: str, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.filled(b"1", b"\xc3\xa9\x00\\", b"\xff", b"", b"5")
    other = pair.filled()
    told = pair.talk(
        put(other, b"user=7&text=hello", *lines, prefix=prefix),
        put(other, b"\xff" * 60 * KIB, "Content-Type: text/x-own", prefix=prefix),
        fetch(queue, 1, *lines, prefix=prefix),
        fetch(queue, 3, prefix=prefix),
        deletes(queue, 3, prefix=prefix),
        deletes(queue, 3, prefix=prefix),
        delete(queue, f"message/{ID.format(0)}", *lines, prefix=prefix),
        delete(queue, f"message/{ID.format(0)}", prefix=prefix),
        delete(queue, f"messages/{ID.format(4)},{ID.format(4)},none", prefix=prefix),
        fetch(queue, 1000, *lines, prefix=prefix),
    )
    assert {one.status for one in told} == {200}
    assert [one.body for one in told[4:]] == [
        '{"deleted":3}',
        '{"deleted":0}',
        "true",
        "false",
        '{"deleted":1}',
        "[]",
    ]
    assert pair.quick.taken == taken + len(told)
    assert pair.plain.taken == 0


@pytest.mark.parametrize("size", [95 * KIB, 256 * KIB + 1, 300 * KIB])
@pytest.mark.parametrize("byte", [b"x", b"\x01", b"\xff"])
def test_messages_of_any_size_are_given_out(pair: Pair, size: int, byte: bytes) -> None:
    taken, queue = pair.quick.taken, pair.filled(b"1", byte * size, b"2")
    pair.talk(fetch(queue, 3), deletes(queue, 0))
    assert pair.quick.taken == taken + 2


def test_many_messages(pair: Pair) -> None:
    queue = pair.filled(*(b"%d" % n for n in range(80)))
    taken = pair.quick.taken
    pair.talk(fetch(queue, 32), deletes(queue, 0), fetch(queue, 33), deletes(queue, 2))
    assert pair.quick.taken == taken + 3


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Other: 1"],
        ["Accept: application/json"],
        ["Connection: close"],
        ["Host: localhost"],
        ["Expect: 100-continue"],
        ["Origin: http://evil.example"],
        ["Content-Encoding: gzip"],
        ["X-Message-Attribute-A: b"],
        ["traceparent: 00-0-0-00"],
        ["Content-Length: 03"],
        ["Authorization: x"],
        ["Accept: a\x01"],
        ["Accept: application/cloudevents-batch+json"],
    ],
    ids=str,
)
def test_every_head(pair: Pair, lines: list[str]) -> None:
    queue = pair.filled(b"1", b"2")
    pair.compare(put(queue, b"abc", *lines))
    pair.compare(*[fetch(queue, 1, *lines)] * 2)
    pair.compare(delete(queue, f"message/{ID.format(0)}", *lines))


@pytest.mark.parametrize(
    "line",
    [
        "PUT {}/message/",
        "PUT {}/messages",
        "PUT {}/message?x=1",
        "PUT {};a=b/message",
        "PUT {}/message/1",
        "POST {}/message",
        "GET {}/message",
        "GET {}/message/1",
        "GET {}/messages",
        "GET {}/messages/",
        "GET {}/messages/1?x",
        "HEAD {}/messages/1",
        "GET {}/messages/1/2",
        "DELETE {}/message",
        "DELETE {}/messages",
        "DELETE {}/message/",
        "DELETE {}/messages/,",
        "DELETE {}/messages/a,,b",
        "DELETE {}/messages/a%2Cb",
        "DELETE {}/message/a,b",
        "DELETE {}/messages/" + "a," * 40,
        "DELETE {}/message?x=1",
    ],
)
def test_every_line(pair: Pair, line: str) -> None:
    queue = pair.queue()
    for path in (f"/v1/queues/{queue}", f"/queues/{queue}", f"/v2/queues/{queue}", f"/{queue}"):
        pair.compare(request(line.format(path)))
        pair.compare(request(line.format(path), body=b"x"))


def test_every_number(pair: Pair) -> None:
    for value in dict.fromkeys(("1001", "+1", "01", *VALUES)):
        queue = pair.filled(b"1", b"2")
        pair.compare(fetch(queue, value))
        pair.compare(fetch(f"{queue}-not", value))
        for one in pair.both:
            one.empty()


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_IDS, "a.h", "x.lock", "p07.x", "a" * 240]))
def test_every_id(pair: Pair, name: str) -> None:
    queue = pair.queue()
    pair.compare(delete(queue, f"message/{name}"))
    pair.compare(delete(queue, f"messages/{name}"))
    pair.compare(delete(queue, f"messages/none,{name},none"))


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_NAMES, "not-there", "a" * 180, "1", "v1"]))
def test_every_name_of_a_queue(pair: Pair, name: str) -> None:
    for prefix in PREFIXES:
        pair.compare(put(name, b"x", prefix=prefix))
        pair.compare(fetch(name, prefix=prefix))
        pair.compare(delete(name, "message/none", prefix=prefix))
        pair.compare(delete(name, "messages/none,other", prefix=prefix))


@pytest.mark.parametrize(
    "given",
    [
        {"default_delay": 5},
        {"max_message_bytes": 3},
        {"max_depth": 2},
        {"compress": True},
        {"visibility_timeout": 0},
        {"max_in_flight": 1},
        {"paused": True},
        {"fifo": True},
        {"max_deliveries": 1, "dead_letter_queue": "dead"},
        {"claim_order": "fair"},
        {"no": 1},
    ],
    ids=str,
)
def test_every_setting_of_a_queue(pair: Pair, given: dict[str, object]) -> None:
    queue = pair.filled(b"1", b"2", **given)
    pair.talk(
        fetch(queue, 1),
        fetch(queue, 3),
        deletes(queue, 0),
        *(put(queue, b"a" * size) for size in (1, 2, 5000)),
    )


# -- what goes away --------------------------------------------------------------------------------


def test_a_disk_that_fails(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = pair.filled(b"1", b"2", b"3")
    pair.fail_syncs(monkeypatch)
    told = pair.talk(put(queue, b"1"), fetch(queue, 1), delete(queue, f"message/{ID.format(0)}"))
    assert [one.status for one in told] == [503] * 3
    monkeypatch.undo()
    pair.talk(fetch(queue, 3), deletes(queue, 0))


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server whose disk syncs, with a queue."""
    with syncing(root, "dynamiq") as server:
        yield server


def test_a_queue_that_is_deleted_during_the_sync(inside: Inside) -> None:
    answers = inside.delete_while_syncing([put("q", b"x")] * 4)
    assert {(one.status, one.body) for one in answers} == {(200, b"")}
    assert inside.taken == 4
    assert not inside.tree()


def test_what_is_claimed_for_one_who_hung_up_comes_back_at_once(inside: Inside) -> None:
    inside.queue("q", ready=[b"1", b"2"])
    with Wire(inside.url) as stays:
        inside.hang_up_while_syncing(fetch("q", 5))
        got: list[str] = []

        def fetched() -> bool:
            stays.send(fetch("q"))
            got.extend(one["body"] for one in stays.answer().json)
            return sorted(got) == ["1", "2"]

        eventually(fetched)


def test_records(inside: Inside) -> None:
    """The journal tells the dialect, and the metrics the route."""
    inside.queue("q", ready=[b"1"])
    with Wire(inside.url) as wire:
        wire.send(put("q", b"1", prefix=""))
        assert wire.answer().status == 200
        wire.send(fetch("q"))
        wire.send(deletes("q", 0)([wire.answer().body]))
        assert wire.answer().status == 200
        wire.send(request("GET /_metrics"))
        told = wire.answer().body.decode()
    assert inside.taken == 3
    events = ("accepted", "claimed", "claimed", "delivered", "removed", "removed")
    assert sorted(inside.steps("q")) == [(one, "dynamiq") for one in events]
    for route in ("dynamiq_put", "dynamiq_v1_fetch", "dynamiq_v1_delete_messages"):
        assert f'"{route}"' in told


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["Bearer {}", "bearer  {}", "Basic {}", "Bearer {}x", "Bearer"])
def test_keys(tmp_path: Path, form: str) -> None:
    file = tmp_path / "keys"
    keys = {
        "all": add_key(file, "all", "--send=*", "--receive=*"),
        "sender": add_key(file, "sender", "--send=*"),
        "other": add_key(file, "other", "--send=other", "--receive=other"),
    }
    with pair_of(tmp_path, access=Access(load(file)), dialects=("dynamiq",)) as pair:
        for name, key in keys.items():
            queue, header = pair.filled(b"1", b"2"), f"Authorization: {form.format(key)}"
            taken = pair.quick.taken
            pair.compare(*[put(queue, b"x", header)] * 2)
            pair.compare(fetch(queue, 1, header))
            pair.compare(delete(queue, f"message/{ID.format(0)}", header))
            pair.compare(delete(queue, f"messages/{ID.format(1)}", header))
            if (name, form) == ("all", "Bearer {}"):
                assert pair.quick.taken == taken + 5
            for one in pair.both:
                one.empty()
        assert pair.plain.taken == 0


# -- in pieces -------------------------------------------------------------------------------------

PARTS = st.one_of(
    st.builds(put, st.just("QUEUE"), st.sampled_from([b"x", b"\xff\r\n\r\n", b"y" * 1000])),
    st.sampled_from(
        [
            fetch("QUEUE"),
            fetch("QUEUE", 1, prefix=""),
            fetch("QUEUE", "x"),
            fetch("QUEUE", 0),
            fetch("not-there"),
            put("not-there", b"x"),
            delete("QUEUE", "message/none"),
            delete("QUEUE", "messages/a,b"),
            fetch("QUEUE", 1, "X-Other: 1"),
            delete("QUEUE", f"messages/{ID.format(0)},{ID.format(1)}", prefix=""),
            put("QUEUE", b"1\r\n1\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
            request("PUT /v1/queues/QUEUE/message", "Content-Length: 0"),
            request("PUT /v1/queues/QUEUE/message"),
            request("POST /QUEUE/messages", body=b"native"),
            request("GET /QUEUE/messages"),
        ]
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(PARTS, max_size=6), where=cuts)
def test_pieces_and_pipelines(pair: Pair, parts: list[bytes], where: list[tuple[int, int]]) -> None:
    for one in pair.both:
        one.empty()
    queue = pair.filled(b"1", b"\xff", b"x")
    compare_in_pieces(pair, queue, parts, where)
