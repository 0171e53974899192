"""Requests of EmoDB's clients get the same answers on the fast path as from aiohttp."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fsmq.http.emodb.plain import PlainQueues
from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from fsmq.spool import NewMessage, prepare
from fsmq.spool.context import Context
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside, syncing
from tests.http.keyfile import add_key
from tests.http.pair import KIB, LIMIT, Pair, each_setting, pair_of, request
from tests.soak.fuzz import BODIES, VALUES

pytestmark = pytest.mark.usefixtures("emptied")
OPTIONS = {"dialects": ("emodb",), "host_names": (), "max_message_bytes": LIMIT}

TYPE = "Content-Type: application/json"
# The headers of EmoDB's Java client.
JAVA = [TYPE, "Accept: application/json", "User-Agent: emodb (Apache-HttpClient/4.5.13)"]
# Messages and other values in an array.
JSONS = [
    b"1",
    b"-0.0",
    b"1e3",
    b"1.50",
    b"null",
    b"true",
    b'"text"',
    b'"\xc3\xa9\xf0\x9f\x90\x9f"',
    b'{"a": [1, {"b": "\\u001f\\/"}], "a": 2}',
    b" [ ] ",
    b"12345678901234567890123",
    b'"' + b"x" * (30 * KIB - 2) + b'"',
]
BAD = [
    b"",
    b" ",
    b"{",
    b"nul",
    b"1 2",
    b"[1,]",
    b"NaN",
    b"\xff",
    b'"\xff"',
    b'"\\ud800"',
    b"1e400",
    b"[" * 9000,
    b"[," * 20_000,
    b'"' + b"x" * 31 * KIB + b'"',
    b"9" * 400,
    b"\xef\xbb\xbf1",
]


def send(queue: str, body: bytes, *lines: str, verb: str = "send") -> bytes:
    return request(f"POST /queue/1/{queue}/{verb}", *(lines or (TYPE,)), body=body)


def poll(queue: str, query: str = "?limit=2", *lines: str) -> bytes:
    return request(f"GET /queue/1/{queue}/poll{query}", *lines)


def ids_in(body: bytes) -> list[str]:
    return [one["id"] for one in json.loads(body)]


def ack(queue: str, of: int, *more: object, query: str = "") -> Callable[[list[bytes]], bytes]:
    """Acknowledge all messages of an earlier answer, and more ids."""

    def step(bodies: list[bytes]) -> bytes:
        ids = [*ids_in(bodies[of]), *more]
        return send(queue, json.dumps(ids).encode(), verb=f"ack{query}")

    return step


# -- taken by the fast path ------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [[TYPE], JAVA, ["content-type:application/JSON;charset=UTF-8"]])
def test_the_fast_path_takes_each_request(pair: Pair, lines: list[str]) -> None:
    taken, queue = pair.quick.taken, pair.filled(b"1", b'{"a":1}', b"no JSON", b"\xff")
    other = pair.filled()
    told = pair.talk(
        *(send(other, body, *lines) for body in JSONS),
        send(other, b"[" + b", ".join(JSONS[:-1]) + b"]", *lines, verb="sendbatch"),
        send(other, b"1", *lines, verb="send?unknown=1"),
        poll(queue, "", *lines[1:]),
        ack(queue, len(JSONS) + 2),
        ack(queue, len(JSONS) + 2, query="?partitioned=true"),
        poll(queue, "?ttl=30&limit=10&partitioned=false"),
    )
    assert {one.status for one in told} == {200}
    assert json.loads(told[-4].body)[3]["payload"] == {"body_base64": "/w=="}
    assert told[-1].body == "[]"
    assert pair.quick.taken == taken + len(told)
    assert pair.plain.taken == 0


@pytest.mark.parametrize("size", [95 * KIB, 256 * KIB, 256 * KIB + 1, 300 * KIB])
@pytest.mark.parametrize("form", ["json", "text", "binary"])
def test_messages_of_any_size_are_polled(pair: Pair, size: int, form: str) -> None:
    body = {"json": b'"%s"' % (b"x" * (size - 2)), "text": b"x" * size, "binary": b"\xff" * size}
    taken, queue = pair.quick.taken, pair.filled(b"1", body[form], b"2")
    pair.talk(poll(queue, "?limit=3"), ack(queue, 0))
    assert pair.quick.taken == taken + 2


def test_batches_up_to_256_messages_take_the_fast_path(pair: Pair) -> None:
    """A batch that is stored on the loop, one that is stored in a thread, and many polls."""
    queue, other = pair.filled(*(b"%d" % n for n in range(90))), pair.filled()
    few, many = (json.dumps(list(range(n))).encode() for n in (256, 257))
    taken = pair.quick.taken
    pair.talk(
        send(other, few, verb="sendbatch"),
        poll(queue, "?limit=1000"),
        ack(queue, 1),
        send(other, many, verb="sendbatch"),
        send(other, b"[" + b"1," * 2000 + b"1]", verb="sendbatch"),
    )
    assert pair.quick.taken == taken + 3


# -- left to aiohttp -------------------------------------------------------------------------------

HEADS = [
    ["Content-Type: text/plain"],
    ["Content-Type: json"],
    ["Accept: a/b"],
    [TYPE, "Accept: a/b"],
    [TYPE, TYPE],
    ["Content-Type:"],
    [TYPE, "Accept: application/json;q=0"],
    ["Accept: */*"],
    [TYPE, "Content-Encoding: gzip"],
    [TYPE, "X-Other: 1"],
    [TYPE, "Expect: 100-continue"],
    [TYPE, "Connection: close"],
    [TYPE, "Host: localhost"],
    [TYPE, "Origin: http://evil.example"],
    [TYPE, "X-BV-API-Key: any"],
    [TYPE, "X-BV-API-Key: anonymous"],
    [TYPE, "Authorization: x"],
    [TYPE, "Content-Length: 03"],
    [TYPE, "Accept: text/*"],
    ["Content-Type: application/json; a\xff"],
    [TYPE, "X-BV-API-Key:"],
    [TYPE, "x: " + "y" * 5000],
    [TYPE, "X-Message-Claim: c"],
]


@pytest.mark.parametrize("lines", HEADS, ids=lambda lines: " & ".join(lines)[:60])
def test_headers(pair: Pair, lines: list[str]) -> None:
    queue = pair.filled(b"1", b"2")
    pair.compare(send(pair.filled(), b"[1]", *lines, verb="sendbatch"))
    pair.compare(*[poll(queue, "", *lines)] * 2)


@pytest.mark.parametrize(
    "line",
    [
        "POST /queue/1/{}/send/",
        "POST /queue/1/{};a=b/send",
        "POST /queue/1//send",
        "PUT /queue/1/{}/send",
        "POST /dedupq/1/{}/send",
        "POST /queue/1/{}/renew",
        "POST /queue/2/{}/send",
        "POST /queue/1/X/send",
        "POST /queue/1/_a/send",
        "POST /queue/1/__a/send",
        "POST /queue/1/.a/send",
        "POST /queue/1/a:@b/send",
        "POST /queue/1/{}/send?APIKey=x",
        "POST /queue/1/{}/%73end",
        "POST /queue/1/_move/sendbatch",
        "POST http://localhost/queue/1/{}/send",
        "POST /queue/1/{}/ack?partitioned=x",
        "POST /queue/1/_sendbatch",
        "GET /queue/1/{}/send",
        "HEAD /queue/1/{}/poll",
        "POST /queue/1/{}/poll",
        "DELETE /queue/1/{}/send",
        *("POST /queue/1/" + "a" * length + "/send" for length in (178, 180, 181, 255, 256)),
    ],
)
def test_request_lines(pair: Pair, line: str) -> None:
    queue = pair.queue()
    pair.compare(request(line.format(queue), TYPE, body=b"[1]"))


@pytest.mark.parametrize("name", ["ttl", "limit", "partitioned", "APIKey", "x"])
def test_values_of_parameters(pair: Pair, name: str) -> None:
    for value in ("3600", "3601", "1001", "2147483648", "", *VALUES):
        queue = pair.filled(b"1", b"2")
        pair.compare(poll(queue, f"?{name}={value}"))
        pair.compare(send(queue, b"[]", verb=f"ack?{name}={value}"))
        pair.compare(send(queue, b"[]", verb=f"send?{name}={value}"))
        for one in pair.both:
            one.empty()


@pytest.mark.parametrize("query", ["?ttl=5&ttl=6", "?&limit=1", "?limit", "?=", "?ttl=0", "?#x"])
def test_forms_of_queries(pair: Pair, query: str) -> None:
    queue = pair.filled(b"1", b"2")
    pair.compare(*[poll(queue, query)] * 2)


@pytest.mark.parametrize("verb", ["send", "sendbatch", "ack"])
def test_bodies(pair: Pair, verb: str) -> None:
    queue = pair.queue()
    for body in (*BAD, *JSONS, *BODIES):
        pair.compare(send(queue, body, TYPE, f"Content-Length: {len(body)}", verb=verb))
        pair.compare(send(queue, b"[%s]" % body, verb=verb))


def test_queues_that_do_not_exist(pair: Pair) -> None:
    pair.talk(
        poll("made-by-a-poll"),
        send("made-by-an-ack", b"[]", verb="ack"),
        send("made-by-none", b"[]", verb="sendbatch"),
        send("made-by-a-batch", b"[1,2]", verb="sendbatch"),
        send("made-by-a-send", b"1"),
        send("made-by-a-send", b"2"),
    )
    assert [list_queues(one) for one in pair.both] == [list_queues(pair.quick)] * 2


def list_queues(server: Inside) -> list[str]:
    return sorted(name for name in os.listdir(server.root / "queues") if name.startswith("made"))


@each_setting
def test_settings_of_queues(pair: Pair, given: dict[str, object]) -> None:
    queue = pair.filled(b"1", b"2", **given)
    pair.talk(
        poll(queue, "?limit=1"),
        poll(queue, "?limit=3"),
        *(send(queue, body) for body in (b"1", b'"text"', b'"%s"' % (b"a" * 5000))),
        send(queue, b"[1,2,3]", verb="sendbatch"),
        ack(queue, 0),
    )


def test_ids_of_other_queues_and_ids_twice(pair: Pair) -> None:
    queue, other = pair.filled(b"1", b"2"), pair.filled(b"1", b"2")
    pair.talk(
        poll(queue),
        ack(other, 0),
        ack(queue, 0, "00"),
        ack(queue, 0, None),
        lambda bodies: send(queue, json.dumps(ids_in(bodies[0]) * 2).encode(), verb="ack"),
        poll(queue),
    )


def test_own_ids_and_ids_with_a_priority(pair: Pair) -> None:
    queue = pair.queue()
    for one in pair.both:
        one.fill(queue, {"own-name": b"1", "p07.01900000-0000-7000-8000-000000000000": b"2"})
    pair.talk(poll(queue), ack(queue, 0), poll(queue))


# -- deletions -------------------------------------------------------------------------------------


def test_a_failing_disk(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = pair.filled(b"1", b"2", b"3")
    [polled] = pair.talk(poll(queue, "?limit=1"))
    pair.fail_syncs(monkeypatch)
    told = pair.talk(
        send(queue, b"1"),
        send(queue, b"[1,2]", verb="sendbatch"),
        poll(queue, "?limit=1"),
        lambda _: ack(queue, 0)([polled.body.encode()]),
    )
    assert [one.status for one in told] == [503] * 4
    monkeypatch.undo()
    told = pair.talk(poll(queue, "?limit=3"), ack(queue, 0))
    assert [one.status for one in told] == [200] * 2


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server whose disk syncs, with a queue."""
    with syncing(root, "emodb") as server:
        yield server


def test_a_queue_that_is_deleted_during_the_sync_is_made_again(inside: Inside) -> None:
    answers = inside.delete_while_syncing([send("q", b"[1,2]", verb="sendbatch")] * 4)
    assert {one.status for one in answers} == {200}  # a queue appears on the first send
    assert len(inside.tree()) == 8


def test_a_poll_finds_a_message_that_was_just_delivered(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        wire.send(poll("q", "?limit=1"))
        assert ids_in(wire.answer().body) == []
        inside.queue("q", ready=[b"1"], are_kept=False)
        wire.send(poll("q", "?limit=1"))
        assert len(ids_in(wire.answer().body)) == 1


# -- keys ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, dict[str, str]]]:
    """Two servers with keys, and those keys."""
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys"
    keys = {
        "all": add_key(file, "all", "--send=*", "--receive=*"),
        "sender": add_key(file, "sender", "--send=*"),
        "receiver": add_key(file, "receiver", "--receive=*"),
        "other": add_key(file, "other", "--send=other", "--receive=other"),
        "nobody": "nobody",
        "anonymous": "anonymous",
    }
    with pair_of(folder, access=Access(load(file)), dialects=("emodb",)) as running:
        yield running, keys


@pytest.mark.parametrize("name", ["all", "sender", "receiver", "other", "nobody", "anonymous"])
@pytest.mark.parametrize(
    "form",
    [
        "X-BV-API-Key: {}",
        "x-bv-api-key:{} ",
        "X-BV-API-Key: {0}\r\nX-BV-API-Key: {0}",
        "X: {}",
        "Authorization: Bearer {}",
        "X-BV-API-Key: {}x",
        "X-BV-API-Key: {}, a",
        "?APIKey={}",
        "X-BV-API-Key:\r\nAccept: {}",
        "?APIKey={}&APIKey=x",
        "?apikey={}",
    ],
)
def test_keys(guarded: tuple[Pair, dict[str, str]], name: str, form: str) -> None:
    pair, keys = guarded
    for one in pair.both:
        one.empty()
    given, queue = form.format(keys[name]), pair.filled(b"1", b"2")
    query, lines = (given, [TYPE]) if given.startswith("?") else ("", [TYPE, given])
    taken = pair.quick.taken
    pair.compare(*[send(pair.filled(), b"1", *lines, verb=f"send{query}")] * 2)
    pair.compare(poll(queue, query, *lines[1:]))
    pair.compare(send(queue, b"[]", *lines, verb=f"ack{query}"))
    if (name, form) == ("all", "X-BV-API-Key: {}"):
        assert pair.quick.taken == taken + 3
    assert pair.plain.taken == 0


def test_memory_for_the_values_of_a_batch_counts_for_its_key(root: Path, tmp_path: Path) -> None:
    key = f"X-BV-API-Key: {add_key(tmp_path / 'keys', 'one', '--send=*')}"
    access = Access(load(tmp_path / "keys"))
    limits = Limits(memory_per_key=30 * KIB)
    options: dict[str, Any] = {"access": access, "limits": limits, "dialects": ("emodb",)}
    with Inside(root, **options) as server, Wire(server.url) as wire:
        server.queue("q")
        values = b"[" + b"1," * 700 + b"1]"  # in Python they take 50 KiB
        wire.send(send("q", values, TYPE, key, verb="sendbatch"))
        assert wire.answer().status == 429
        eventually(server.holds_nothing)


def test_sends_of_one_turn_are_one_put(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that aiohttp has read, too: see decision 25."""
    put, together = prepare.put, []

    def counting(context: Context, queue: str, messages: Sequence[NewMessage], **more: Any) -> Any:
        together.append((queue, [message.body for message in messages]))
        return put(context, queue, messages, **more)

    monkeypatch.setattr(prepare, "put", counting)
    with syncing(root, "emodb") as server:
        queues = PlainQueues(server.service)

        async def send() -> None:
            sends = ({"q": [b"1"]}, {"q": [b"2", b"3"]}, {"other": [b"4"]})
            await queues.send({"other": [b"0"]})  # makes the queue
            await asyncio.gather(*map(queues.send, sends))

        asyncio.run_coroutine_threadsafe(send(), server.loop).result(PATIENCE_S)
        stored = [body for _, body in server.tree()]
    assert together == [("other", [b"0"]), ("q", [b"1", b"2", b"3"]), ("other", [b"4"])]
    assert sorted(stored) == [b"0", b"1", b"2", b"3", b"4"]
