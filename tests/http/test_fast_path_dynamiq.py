"""Requests of Dynamiq's clients get the same answers on the fast path as from aiohttp."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.http.inside import Inside, syncing
from tests.http.pair import KIB, LIMIT, Pair, each_setting, request
from tests.http.test_errors import BAD_IDS, BAD_NAMES
from tests.soak.fuzz import VALUES

pytestmark = pytest.mark.usefixtures("emptied")
OPTIONS = {"dialects": ("emodb", "dynamiq"), "host_names": (), "max_message_bytes": LIMIT}

ID = "01900000-0000-7000-8000-0000000000{:02}"
PREFIXES = ("", "/v1")


def put(queue: str, body: bytes, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"PUT {prefix}/queues/{queue}/message", *lines, body=body)


def fetch(queue: str, number: object = 2, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"GET {prefix}/queues/{queue}/messages/{number}", *lines)


def delete(queue: str, rest: str, *lines: str, prefix: str = "/v1") -> bytes:
    return request(f"DELETE {prefix}/queues/{queue}/{rest}", *lines)


def deletes(queue: str, of: int, **more: str) -> Callable[[list[bytes]], bytes]:
    """Delete all messages of an earlier answer."""

    def step(bodies: list[bytes]) -> bytes:
        ids = [one["id"] for one in json.loads(bodies[of])]
        return delete(queue, f"messages/{','.join(ids)}", **more)

    return step


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "lines",
    [[], ["Content-Type: application/x-www-form-urlencoded", "Accept: */*", "User-Agent: Ruby"]],
)
def test_the_fast_path_takes_each_request(pair: Pair, prefix: str, lines: list[str]) -> None:
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
def test_messages_of_any_size_are_fetched(pair: Pair, size: int, byte: bytes) -> None:
    taken, queue = pair.quick.taken, pair.filled(b"1", byte * size, b"2")
    pair.talk(fetch(queue, 3), deletes(queue, 0))
    assert pair.quick.taken == taken + 2


def test_more_than_32_ids_are_left_to_aiohttp(pair: Pair) -> None:
    queue = pair.filled(*(b"%d" % n for n in range(80)))
    taken = pair.quick.taken
    pair.talk(fetch(queue, 32), deletes(queue, 0), fetch(queue, 33), deletes(queue, 2))
    assert pair.quick.taken == taken + 3


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
def test_request_lines(pair: Pair, line: str) -> None:
    queue = pair.queue()
    for path in (f"/v1/queues/{queue}", f"/queues/{queue}", f"/v2/queues/{queue}", f"/{queue}"):
        pair.compare(request(line.format(path)))
        pair.compare(request(line.format(path), body=b"x"))


def test_numbers_of_messages(pair: Pair) -> None:
    for value in dict.fromkeys(("1001", "+1", "01", *VALUES)):
        queue = pair.filled(b"1", b"2")
        pair.compare(fetch(queue, value))
        pair.compare(fetch(f"{queue}-not", value))
        for one in pair.both:
            one.empty()


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_IDS, "a.h", "x.lock", "p07.x", "a" * 240]))
def test_ids_of_messages(pair: Pair, name: str) -> None:
    queue = pair.queue()
    pair.compare(delete(queue, f"message/{name}"))
    pair.compare(delete(queue, f"messages/{name}"))
    pair.compare(delete(queue, f"messages/none,{name},none"))


@pytest.mark.parametrize("name", dict.fromkeys([*BAD_NAMES, "not-there", "a" * 180, "1", "v1"]))
def test_names_of_queues(pair: Pair, name: str) -> None:
    for prefix in PREFIXES:
        pair.compare(put(name, b"x", prefix=prefix))
        pair.compare(fetch(name, prefix=prefix))
        pair.compare(delete(name, "message/none", prefix=prefix))
        pair.compare(delete(name, "messages/none,other", prefix=prefix))


@each_setting
def test_settings_of_queues(pair: Pair, given: dict[str, object]) -> None:
    queue = pair.filled(b"1", b"2", **given)
    pair.talk(
        fetch(queue, 1),
        fetch(queue, 3),
        deletes(queue, 0),
        *(put(queue, b"a" * size) for size in (1, 2, 5000)),
    )


# -- deletions -------------------------------------------------------------------------------------


def test_a_failing_disk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
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
