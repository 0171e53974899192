"""What becomes of requests on the fast path when a queue, a sync, a client or the server goes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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


def test_a_queue_that_is_deleted_during_the_sync(inside: Inside) -> None:
    answers = inside.delete_while_syncing([request("POST /q/messages", body=b"x")] * 5)
    assert all(is_problem(answer, 404, "no-such-queue") for answer in answers)
    assert inside.taken == 5
    assert not bodies_of(inside.root / "new")


def failing(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(inside.spool.syncer, "_sync", fail)


def test_a_sync_that_fails(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored, and no claim counts; everybody is told."""
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


def test_a_fault_of_one_request_is_not_the_others(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong with an answer: the rest of the group gets theirs."""
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


# -- clients that go -------------------------------------------------------------------------------


def test_what_is_claimed_for_one_who_hung_up_comes_back_at_once(inside: Inside) -> None:
    inside.queue("q", ready=[b"one", b"two"])
    with Wire(inside.url) as stays, inside.held_sync() as gate:
        gone = [Wire(inside.url) for _ in range(2)]
        gone[0].request("GET", "/q/messages?visibility=600")
        gone[1].request("GET", "/q/messages?visibility=600&count=1")
        inside.until_open(2)
        for wire in gone:
            wire.close()
        eventually(lambda: inside.talking() == 1)
        gate.set()
        inside.until_open(0)
        for _ in range(2):
            answer = eventually(lambda: found(stays))
            assert answer.headers["X-Message-Deliveries"] == "1"


def found(wire: Wire) -> Any:
    answer = wire.ask("GET", "/q/messages?visibility=600")
    return answer if answer.status == 200 else None


def test_what_one_who_hung_up_has_posted_is_stored(inside: Inside) -> None:
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


def test_a_body_that_comes_slowly(root: Path) -> None:
    with Inside(root, read_timeout=0.3) as server, Wire(server.url) as wire:
        server.queue("q")
        server.load("q")
        wire.request("POST", "/q/messages", {"Content-Length": "50000"})
        wire.send(b"x" * 20000)
        assert is_problem(wire.answer(), 408, "slow-body")
        assert wire.is_closed()
        eventually(lambda: server.admission.memory == 0)


def test_a_body_that_comes_late_is_taken(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        for part in (b"", b"x", b"yz"):
            wire.request("POST", "/q/messages", {"Content-Length": "3"})
            wire.send(part)
            inside.until_open(1)
            wire.send(b"xyz"[len(part) :] if part != b"yz" else b"x")
            assert wire.answer().status == 201
    assert inside.taken == 3


def test_more_than_the_body_comes_with_its_rest(inside: Inside) -> None:
    with Wire(inside.url) as wire:
        wire.request("POST", "/q/messages", {"Content-Length": "3"})
        inside.until_open(1)
        wire.send(b"abcPOST /q/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nde")
        assert [wire.answer().status, wire.answer().status] == [201, 201]
    assert bodies_of(inside.root / "queues" / "q") == [b"abc", b"de"]


# -- pipelines -------------------------------------------------------------------------------------


def test_a_client_that_asks_on_and_on_is_held_back(inside: Inside) -> None:
    """While its first request waits, what comes behind that waits in the kernel."""
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
def test_reading_goes_on_when_aiohttp_takes_over(inside: Inside, body: bytes) -> None:
    """A request that the fast path gives up while more is behind it than it may take."""
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


def test_limits_of_a_key_hold_on_the_fast_path(root: Path, tmp_path: Path) -> None:
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


def test_a_key_that_is_taken_away(root: Path, tmp_path: Path) -> None:
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


def test_each_request_is_measured(inside: Inside) -> None:
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


def test_the_journal_tells_the_dialect(root: Path) -> None:
    """Also where requests in several dialects share a sync."""
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
        assert server.taken == 5  # one was aiohttp's
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


# -- the end of the server -------------------------------------------------------------------------


def test_a_stop_answers_what_the_lane_has(root: Path) -> None:
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
