"""Limits of pipelined requests and of unread answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fsmq.http.connection.ahead import FREE_BYTES
from fsmq.http.guard.limits import Limits
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.test_errors import is_problem

KIB = 1024
MIB = 1024 * KIB
ROOM = MIB
# One request for the fast path and one for aiohttp; both read from the same buffer.
FAST_PATH = {"Accept": "*/*"}
AIOHTTP = {"X-Other": "1"}
both = pytest.mark.parametrize("headers", [FAST_PATH, AIOHTTP], ids=["fast path", "aiohttp"])


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server with a small limit for pipelined bytes."""
    limits = Limits(header_timeout=1.0, write_timeout=1.0)
    with Inside(root, limits=limits, send_buffer=64 * KIB) as server:
        server.queue("q")
        server.load("q")
        ahead = server.server._connections.ahead
        ahead.room = ROOM
        yield server
        eventually(server.holds_nothing)
        eventually(lambda: ahead.size == 0)


def ask_for(wire: Wire, target: str, headers: dict[str, str], number: int = 1) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {target} HTTP/1.1\r\nHost: {wire.host}\r\n{lines}\r\n".encode() * number


@both
def test_thousands_of_pipelined_requests_are_answered(
    inside: Inside, headers: dict[str, str]
) -> None:
    number = 5000
    with Wire(inside.url) as wire:
        wire.send(ask_for(wire, "/q/messages?wait=0.3", headers))
        wire.send(ask_for(wire, "/q/messages", headers, number))
        for _ in range(number + 1):
            assert wire.answer().status == 204
        assert wire.ask("GET", "/q").status == 200


@both
def test_pipelined_bodies_are_stored_whole(inside: Inside, headers: dict[str, str]) -> None:
    with Wire(inside.url) as wire:
        wire.send(ask_for(wire, "/q/messages?wait=0.3", headers))
        for size in (10, 300 * KIB, 1, 2 * MIB):
            wire.request("POST", "/q/messages", headers, b"x" * size)
            chunked = headers | {"Transfer-Encoding": "chunked"}
            wire.request("POST", "/q/messages", chunked)
            wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"y" * size))
        assert wire.answer().status == 204
        assert [wire.answer().status for _ in range(8)] == [201] * 8
    sizes = sorted(path.stat().st_size for path in (inside.root / "queues" / "q").iterdir())
    assert sizes[:4] == [1, 1, 10, 10]


@both
def test_pipelines_of_all_connections_share_a_limit(
    inside: Inside, headers: dict[str, str]
) -> None:
    ahead = inside.server._connections.ahead
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(60)]
        for wire in wires:
            wire.send(ask_for(wire, "/q/messages?wait=2", headers))
            wire.send(ask_for(wire, "/q/messages", headers, 2000))
        eventually(lambda: ahead.size > ROOM / 2)
        most = 0
        while inside.server._open.number:
            most = max(most, ahead.size)
            time.sleep(0.01)
        assert most < ROOM + 512 * KIB  # the whole beginning of the last one
        answers = [wire.answer() for wire in wires]
    assert [answer.status for answer in answers] == [204] * len(wires)
    assert "close" in [answer.headers["Connection"] for answer in answers]


LONG = 2 * 100 * KIB  # a head of 100 KiB as bytes and as text


def test_incomplete_heads_of_all_connections_share_a_limit(inside: Inside) -> None:
    ahead = inside.server._connections.ahead
    with ExitStack() as stack:
        for _ in range(ROOM // LONG + 1):
            wire = stack.enter_context(Wire(inside.url))
            wire.send(b"GET /q HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 100 * KIB)
        eventually(lambda: ahead.size > ROOM - LONG)
        with Wire(inside.url) as small:
            assert small.ask("GET", "/q").status == 200
        with Wire(inside.url) as large:
            long = f"GET /q HTTP/1.1\r\nHost: {large.host}\r\nX-Long: {'a' * 120 * KIB}\r\n"
            large.send(long)
            assert is_problem(large.answer(), 503, "overloaded")


def test_a_head_beyond_the_limit_is_refused_if_it_is_read_in_several_turns(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the head is not read: the refusal does not wait for its end."""
    ahead = inside.server._connections.ahead
    with ExitStack() as stack:
        for _ in range(ROOM // LONG):
            wire = stack.enter_context(Wire(inside.url))
            wire.send(b"GET /q HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 100 * KIB)
        eventually(lambda: ahead.size > ROOM - 2 * LONG)
        monkeypatch.setattr(inside.server._connections.readings, "_seconds", 0.0)
        with Wire(inside.url) as large:
            answer = large.ask("GET", "/q", {"X-Long": "a" * 240 * KIB})
        assert is_problem(answer, 503, "overloaded")


def test_heads_of_waiting_requests_are_counted(inside: Inside) -> None:
    ahead = inside.server._connections.ahead
    with ExitStack() as stack:
        number = ROOM // LONG
        wires = [stack.enter_context(Wire(inside.url)) for _ in range(number)]
        for wire in wires:
            wire.request("GET", "/q/messages?wait=5", {"X-Long": "a" * 100 * KIB})
        inside.until_open(number)
        assert ahead.size > number * (LONG - FREE_BYTES)
        with Wire(inside.url) as one_more:
            answer = one_more.ask("GET", "/q/messages?wait=5", {"X-Long": "a" * 120 * KIB})
        assert is_problem(answer, 503, "overloaded")


@both
def test_a_hang_up_behind_unread_bytes_is_noticed(inside: Inside, headers: dict[str, str]) -> None:
    started = time.monotonic()
    with Wire(inside.url) as gone:
        gone.send(ask_for(gone, "/q/messages?wait=20", headers))
        gone.send(b"POST /q/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        gone.send(b"x" * 200 * KIB)
        inside.until_open(1)
    inside.until_open(0)
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("query", ["", "?count=1"])
@both
def test_a_client_that_reads_too_slowly_is_cut_off(
    inside: Inside, headers: dict[str, str], query: str
) -> None:
    """The limit is a rate: the client reads all the time."""
    inside.queue("q", ready=[b"x" * 12 * MIB])
    with Wire(inside.url) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
        slow.send(ask_for(slow, f"/q/messages{query}", headers))
        eventually(lambda: inside.admission.memory > 0)
        end = time.monotonic() + PATIENCE_S
        taken = 0
        while inside.admission.memory and time.monotonic() < end:
            taken += len(slow.socket.recv(4 * KIB))
            time.sleep(0.1)
        assert not inside.admission.memory
        assert taken < 4 * MIB
