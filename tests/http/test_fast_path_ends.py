"""Requests on the fast path when a queue is deleted, a sync fails, a client or the server ends."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from fsmq.http.native import forms
from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside, syncing
from tests.http.keyfile import add_key, bearer
from tests.http.pair import request
from tests.http.test_errors import is_problem

KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server whose disk syncs, with a queue."""
    with syncing(root) as server:
        yield server


def many(server: Inside, number: int, stack: ExitStack) -> list[Wire]:
    return [stack.enter_context(Wire(server.url)) for _ in range(number)]


def bodies_of(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in folder.iterdir() if path.is_file())


# -- syncs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "post",
    [
        request("POST /q/messages", body=b"x"),
        request("POST /q/batch", body=b'[{"body": "x"}, {"body_base64": "/w=="}]'),
    ],
    ids=["message", "batch"],
)
def test_requests_to_a_queue_that_is_deleted_during_their_sync(inside: Inside, post: bytes) -> None:
    [ready] = inside.queue("q", ready=[b"1"])
    ack = request("POST /q/ack", body=b'{"ids": ["%b"]}' % ready.encode())
    answers = inside.delete_while_syncing([post] * 5, ack)
    assert all(is_problem(answer, 404, "no-such-queue") for answer in answers)
    assert len(answers) == 6
    assert inside.taken >= 5  # aiohttp may answer an ack to a deleted queue
    assert not inside.tree()


def failing(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(inside.spool.syncer, "_sync", fail)


def test_a_failing_sync_fails_its_whole_group(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is stored or claimed, and every request is answered with the error."""
    ids = inside.queue("q", ready=[b"a", b"b", b"c"])
    with ExitStack() as stack:
        wires = many(inside, 9, stack)
        with inside.held_sync() as gate:
            wires[0].request("POST", "/q/messages", {}, b"first")
            inside.begun.acquire()
            failing(inside, monkeypatch)
            for wire in wires[1:4]:
                wire.request("POST", "/q/messages", {}, b"x")
            wires[4].request("GET", "/q/messages")
            wires[5].request("GET", "/q/messages?count=2")
            wires[6].request("DELETE", f"/q/messages/{ids[0]}")
            wires[7].request("POST", "/q/messages", {"X-Other": "1"}, b"x")
            inside.until_open(8)
            gate.set()
            for wire in wires[:8]:
                assert is_problem(wire.answer(), 503, "unavailable")
            monkeypatch.undo()
        assert not bodies_of(inside.root / "new")
        left = [wires[8].ask("GET", "/q/messages") for _ in range(3)]
        found = [answer.body for answer in left if answer.status == 200]
        assert set(found) >= {b"b", b"c"}
        assert {a.headers["X-Message-Deliveries"] for a in left if a.status == 200} == {"1"}
        # The connections live on.
        for wire in wires[:8]:
            assert wire.ask("POST", "/q/messages", {}, b"y").status == 201
    assert inside.taken >= 16


def test_an_error_in_one_answer_does_not_affect_its_group(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the group gets its answers."""
    answers = iter(range(1000))
    stored = forms.stored

    def one_fails(message_id: str) -> tuple[dict[str, str], bytes]:
        if next(answers) == 1:
            raise RuntimeError("of no request but one")
        return stored(message_id)

    monkeypatch.setattr(forms, "stored", one_fails)
    with ExitStack() as stack:
        wires = many(inside, 6, stack)
        with inside.held_sync() as gate:
            wires[0].request("POST", "/q/messages", {}, b"first")
            inside.begun.acquire()
            for wire in wires[1:5]:
                wire.request("POST", "/q/messages", {}, b"x")
            wires[5].request("POST", "/q/messages", {"X-Other": "1"}, b"x")
            inside.until_open(6)
            gate.set()
            statuses = sorted(wire.answer().status for wire in wires)
            assert statuses == [201] * 5 + [500]


# -- hang-ups --------------------------------------------------------------------------------------


def test_a_post_is_stored_though_its_client_hung_up(inside: Inside) -> None:
    with inside.held_sync() as gate:
        with Wire(inside.url) as wire:
            wire.request("POST", "/q/messages", {}, b"kept")
            inside.until_open(1)
        eventually(lambda: not inside.talking())
        gate.set()
        inside.until_open(0)
    assert bodies_of(inside.root / "queues" / "q") == [b"kept"]


def test_a_hang_up_in_the_middle_of_a_body(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        wire.request("POST", "/q/messages", {"Content-Length": "50000"})
        wire.send(b"x" * 20000)
        eventually(lambda: inside.admission.memory == 50000)
    eventually(lambda: inside.admission.memory == 0)
    inside.until_open(0)
    assert not bodies_of(inside.root / "new")
    assert not bodies_of(inside.root / "queues" / "q")


def test_a_slow_body_is_refused(root: Path) -> None:
    with Inside(root, read_timeout=0.3) as server, Wire(server.url) as wire:
        server.queue("q")
        server.load("q")
        wire.request("POST", "/q/messages", {"Content-Length": "50000"})
        wire.send(b"x" * 20000)
        assert is_problem(wire.answer(), 408, "slow-body")
        assert wire.is_closed()
        eventually(lambda: server.admission.memory == 0)


def test_a_body_in_several_pieces_is_stored(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        for part in (b"", b"x", b"yz"):
            wire.request("POST", "/q/messages", {"Content-Length": "3"})
            wire.send(part)
            inside.until_open(1)
            wire.send(b"xyz"[len(part) :] if part != b"yz" else b"x")
            assert wire.answer().status == 201
    assert inside.taken == 3


def test_the_next_request_comes_with_the_rest_of_a_body(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        wire.request("POST", "/q/messages", {"Content-Length": "3"})
        inside.until_open(1)
        wire.send(b"abcPOST /q/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nde")
        assert [wire.answer().status, wire.answer().status] == [201, 201]
    assert bodies_of(inside.root / "queues" / "q") == [b"abc", b"de"]


# -- pipelines -------------------------------------------------------------------------------------


def test_an_endless_pipeline_is_not_read_ahead(inside: Inside) -> None:
    """While the first request waits, the others stay in the kernel."""
    with Wire(inside.url) as wire, inside.held_sync() as gate:
        wire.request("POST", "/q/messages", {}, b"x")
        inside.until_open(1)
        again = (
            b"POST /q/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" + b"y" * 1000
        )
        wire.socket.settimeout(1)
        sent = 0
        try:
            while sent < 100 * MIB:
                sent += wire.socket.send(again)
        except TimeoutError:
            pass  # nobody reads
        assert sent < 100 * MIB
        wire.socket.settimeout(20)
        [connection] = inside.server._connections.open
        assert len(connection.ahead.behind) < MIB
        gate.set()
        assert [wire.answer().status for _ in range(100)] == [201] * 100


@pytest.mark.parametrize("body", [b"", b"y" * 1000], ids=len)
def test_a_pipeline_continues_when_aiohttp_takes_over(inside: Inside, body: bytes) -> None:
    """The fast path gives up a request while the pipeline behind it is full."""
    inside.queue("empty")
    inside.load("empty")
    with Wire(inside.url) as other, Wire(inside.url) as wire:
        assert other.ask("POST", "/q/messages", {}, b"x").status == 201
        wire.request("GET", "/empty/messages?wait=0.3")
        inside.until_open(1)
        behind = 2000
        data = (
            b"POST /q/messages HTTP/1.1\r\nHost: a\r\nUser-Agent: %s\r\nContent-Length: %d\r\n\r\n"
        )
        wire.send((data % (b"a" * 300, len(body)) + body) * behind)
        assert [wire.answer().status for _ in range(behind + 1)] == [204] + [201] * behind


# -- keys ------------------------------------------------------------------------------------------


def test_limits_of_a_key(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = bearer(add_key(file, "one", "--send=*", "--receive=*"))
    limits = Limits(requests_per_key=3, memory_per_key=100 * KIB)
    access = Access(load(file))
    with Inside(root, access=access, limits=limits) as server, ExitStack() as stack:
        server.queue("q")
        wires = many(server, 5, stack)
        with server.held_sync() as gate:
            for wire in wires[:3]:
                wire.request("POST", "/q/messages", key, b"x")
            server.until_open(3)
            assert is_problem(
                wires[3].ask("POST", "/q/messages", key, b"x"), 429, "too-many-requests"
            )
            gate.set()
            assert [wire.answer().status for wire in wires[:3]] == [201] * 3
        with server.held_sync() as gate:
            wires[0].request("POST", "/q/messages", key, b"x" * 60 * KIB)
            server.until_open(1)
            refused = wires[4].ask("POST", "/q/messages", key, b"x" * 60 * KIB)
            assert is_problem(refused, 429, "too-many-requests")
            gate.set()
            assert wires[0].answer().status == 201
        eventually(server.holds_nothing)
        assert server.taken == 4


def test_a_key_that_is_revoked(root: Path, tmp_path: Path) -> None:
    file, empty = tmp_path / "keys", tmp_path / "others"
    key = bearer(add_key(file, "one", "--send=*", "--receive=*"))
    add_key(empty, "two", "--send=*")
    with Inside(root, access=Access(load(file))) as server, Wire(server.url) as wire:
        server.queue("q")
        with server.held_sync() as gate:
            wire.request("POST", "/q/messages", key, b"x")
            server.until_open(1)
            server.call(server.service.take_keys, load(empty))
            gate.set()
            assert wire.answer().status == 201  # it was admitted
        assert wire.ask("POST", "/q/messages", key, b"x").status == 401
        with Wire(server.url) as half:
            half.request("POST", "/q/messages", key | {"Content-Length": "3"})
            assert half.answer().status == 401
        eventually(server.holds_nothing)


# -- records ---------------------------------------------------------------------------------------


def test_each_request_is_counted_in_the_metrics(inside: Inside) -> None:
    with ExitStack() as stack:
        wires = many(inside, 7, stack)
        with inside.held_sync() as gate:
            for wire in wires:
                wire.request("POST", "/q/messages", {}, b"x")
            inside.until_open(7)
            gate.set()
        assert [wire.answer().status for wire in wires] == [201] * 7
        assert wires[0].ask("GET", "/q/messages?count=7").status == 200
        assert wires[0].ask("GET", "/q/messages").status == 204
        assert wires[0].ask("DELETE", "/q/messages/none").status == 404
        told = wires[0].ask("GET", "/_metrics").body.decode()
    counts = {
        line.split("{")[1].split("}")[0]: float(line.split()[-1])
        for line in told.splitlines()
        if "request" in line and "_count{" in line
    }
    by_status = {name: n for name, n in counts.items() if "show" not in name}
    assert sum(n for name, n in by_status.items() if '"201"' in name) == 7, told
    assert sum(n for name, n in by_status.items() if '"204"' in name) == 1
    assert sum(n for name, n in by_status.items() if '"404"' in name) == 1


def test_the_journal_records_the_dialect(root: Path) -> None:
    """Also when requests of several dialects share a sync."""
    with Inside(root, journal=True, dialects=("emodb",)) as server, ExitStack() as stack:
        server.queue("q", ready=[b"a", b"b"])
        server.load("q")
        wires = many(server, 5, stack)
        with server.held_sync() as gate:
            kind = {"Content-Type": "application/json"}
            wires[0].request("POST", "/queue/1/q/send", kind, b"1")
            server.begun.acquire()
            wires[1].request("POST", "/queue/1/q/send", kind | {"X-Other": "1"}, b"2")
            server.until_open(2)
            wires[2].request("POST", "/q/messages", {}, b"x")
            wires[3].request("GET", "/q/messages")
            server.until_open(4)
            gate.set()
            assert [wire.answer().status for wire in wires[:4]] == [200, 200, 201, 200]
        claimed = wires[4].ask("GET", "/q/messages")
        assert wires[4].ask("DELETE", f"/q/messages/{claimed.id}").status == 202
        assert server.taken == 5  # aiohttp has answered one
    lines = [
        json.loads(line)
        for file in (root / "journal").glob("[!.]*.jsonl")
        for line in file.read_text().splitlines()
    ]
    told = sorted((line["event"], line["via"]) for line in lines)
    assert told == [
        ("accepted", "emodb"),
        ("accepted", "emodb"),
        ("accepted", "native"),
        ("claimed", "native"),
        ("claimed", "native"),
        ("delivered", "emodb"),
        ("delivered", "emodb"),
        ("delivered", "native"),
        ("removed", "native"),
    ]


# -- stops -----------------------------------------------------------------------------------------


def test_a_stop_answers_open_requests(root: Path) -> None:
    with ExitStack() as stack:
        with Inside(root) as server:
            server.queue("q")
            wires = many(server, 4, stack)
            assert wires[2].ask("POST", "/q/messages", {}, b"x").status == 201
            with server.held_sync() as gate:
                wires[0].request("POST", "/q/messages", {}, b"x")
                wires[1].request("POST", "/q/messages", {"Content-Length": "2"})
                server.until_open(2)
                server.loop.call_soon_threadsafe(server._stop.set)
                eventually(lambda: server.fast_path.is_off)
                wires[2].request("POST", "/q/messages", {}, b"x")
                wires[1].send(b"yz")
                server.until_open(3)
                gate.set()
                answers = [wire.answer() for wire in wires[:3]]
        assert [answer.status for answer in answers] == [201] * 3
        assert [answer.headers["Connection"] for answer in answers] == ["close"] * 3
        assert all(wire.is_closed() for wire in wires)
    eventually(server.holds_nothing)


def test_the_next_head_begins_with_the_end_of_a_body(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        wire.send("POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbo")
        inside.until_open(1)
        wire.send("dyGET /q/messages HTTP/1.1\r\nHo")
        first = wire.answer()
        assert (first.status, first.headers["Connection"]) == (201, None)
        wire.send("st: localhost\r\n\r\n")
        assert wire.answer().body == b"body"
