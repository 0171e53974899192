"""Limits on the fast path: timeouts, and the memory for bodies."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from fsmq.http.guard.limits import Limits
from fsmq.spool import NewMessage, Spool
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.test_fast_path_ends import many

KIB = 1024
MIB = 1024 * KIB

# -- time ------------------------------------------------------------------------------------------

IDLE_S = 0.6


@pytest.fixture
def hasty(root: Path) -> Iterator[Inside]:
    """A server with short timeouts."""
    limits = Limits(idle_timeout=IDLE_S, header_timeout=0.4, write_timeout=0.5)
    with Inside(root, limits=limits, send_buffer=65536) as server:
        server.queue("q")
        server.load("q")
        yield server
        eventually(lambda: server.admission.memory == 0)


@pytest.mark.parametrize("headers", [[], [{}], [{"X-Other": "1"}], [{}, {"X-Other": "1"}, {}]])
def test_idle_connections_are_closed(hasty: Inside, headers: list[dict[str, str]]) -> None:
    """With requests of the fast path, of aiohttp, and without any."""
    with Wire(hasty.url) as wire:
        started = time.monotonic()
        for one in headers:
            assert wire.ask("GET", "/q/messages", one).status == 204
        assert wire.is_closed()
        assert IDLE_S * 0.8 < time.monotonic() - started < PATIENCE_S


@pytest.mark.parametrize("headers", [{}, {"X-Other": "1"}])
def test_an_immediate_answer_starts_the_idle_timeout(
    hasty: Inside, headers: dict[str, str]
) -> None:
    with Wire(hasty.url) as wire:
        assert wire.ask("PATCH", "/q/messages/none?visibility=3", headers).status == 404
        assert wire.is_closed()


@pytest.mark.parametrize("first", [{}, {"X-Other": "1"}])
def test_a_connection_in_use_is_kept(hasty: Inside, first: dict[str, str]) -> None:
    while not is_kept(hasty, first):
        pass  # the client was delayed


def is_kept(hasty: Inside, first: dict[str, str]) -> bool:
    """Use one connection for long; False if this process was delayed meanwhile."""
    with Wire(hasty.url) as wire:
        assert wire.ask("GET", "/q/messages", first).status == 204
        answered = time.monotonic()
        end = answered + 3 * IDLE_S
        while answered < end:
            time.sleep(IDLE_S / 4)  # this run had a longer silence than intended
            try:
                assert wire.ask("GET", "/q/messages").status == 204
            except (AssertionError, OSError):
                if time.monotonic() - answered < IDLE_S * 0.9:
                    raise
                return False
            answered = time.monotonic()
    return True


@pytest.mark.parametrize("first", [[], [{}], [{"X-Other": "1"}]])
def test_a_connection_with_an_open_request_is_not_idle(
    hasty: Inside, first: list[dict[str, str]]
) -> None:
    with Wire(hasty.url) as wire, hasty.held_sync() as gate:
        hasty.queue("q", ready=[b"x"])
        for one in first:
            assert wire.ask("GET", "/not-there", one).status == 404
        hasty.call(lambda: None)  # aiohttp has finished
        wire.request("GET", "/q/messages")
        hasty.until_open(1)
        assert not gate.wait(3 * IDLE_S)
        gate.set()
        answer = wire.answer()
        assert (answer.status, answer.body) == (200, b"x")
        assert hasty.taken == 1


@pytest.mark.parametrize("query", ["", "?count=1", "?count=20"])
def test_a_client_that_reads_nothing_is_cut_off(hasty: Inside, query: str) -> None:
    bodies = [b"x" * 15 * MIB] * 2
    hasty.queue("q", ready=bodies)
    with Wire(hasty.url) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.request("GET", f"/q/messages{query}")
        eventually(lambda: hasty.admission.memory > 15 * MIB)
        eventually(lambda: not hasty.server._connections.open)
    eventually(lambda: hasty.admission.memory == 0)
    hasty.until_open(0)
    assert hasty.taken == 1


@pytest.mark.parametrize("query", ["", "?count=1"])
def test_a_slow_client_gets_the_whole_answer(root: Path, query: str) -> None:
    body = os.urandom(3 * MIB)
    with Inside(root, send_buffer=65536) as server, Wire(server.url) as wire:
        server.queue("q")
        server.load("q")
        server.queue("q", ready=[body])
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.request("GET", f"/q/messages{query}")
        eventually(lambda: server.admission.memory > 3 * MIB - 1)
        time.sleep(0.3)  # far below the timeout of unread answers
        answer = wire.answer()
        assert answer.status == 200
        assert len(answer.body) >= len(body)
        if not query:
            assert answer.body == body
        assert wire.ask("GET", "/q/messages").status == 204


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "?count=1"])
def test_unread_answers_count_as_memory(root: Path, query: str) -> None:
    """Also if they are written at once: they stay in memory until the client reads them."""
    size, number = 90 * KIB if query else 250 * KIB, 60
    with Inside(root, send_buffer=4096) as server, ExitStack() as stack:
        server.queue("q")
        server.load("q")
        server.queue("q", ready=[b"\x01" * size] * number)
        wires = many(server, number, stack)
        for wire in wires:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.request("GET", f"/q/messages{query}")
        eventually(lambda: server.taken == number)
        unsent = server.call(unsent_of, server)
        assert unsent > MIB
        assert server.admission.memory >= unsent
        for wire in wires[1:]:
            wire.close()
        assert wires[0].answer().status == 200
        eventually(lambda: server.admission.memory == 0)
        assert wires[0].ask("POST", "/q/messages", {}, b"x").status == 201


def unsent_of(server: Inside) -> int:
    """How many bytes are unsent."""
    wires = [connection._wire for connection in server.server._connections.open]
    return sum(wire.get_write_buffer_size() for wire in wires if wire is not None)


def test_requests_beyond_the_memory_limit_are_refused(root: Path) -> None:
    """Each of many concurrent fetches gets a message or 503: the queue is not empty."""
    limits = Limits(memory=4 * MIB)
    with Inside(root, limits=limits) as server, ExitStack() as stack:
        server.queue("q")
        server.load("q")
        server.queue("q", ready=[b"x" * MIB] * 20)
        wires = many(server, 12, stack)
        with server.held_sync() as gate:
            server.call(lambda: send_all(wires, "GET", "/q/messages"))
            eventually(lambda: server.admission.memory >= 3 * MIB)
            gate.set()
        answers = [wire.answer() for wire in wires]
        assert {answer.status for answer in answers} <= {200, 503}
        eventually(lambda: server.admission.memory == 0)


def send_all(wires: list[Wire], method: str, *targets: str) -> None:
    """Send one request on each, within one turn of the loop."""
    for wire, target in zip(wires, cycle(targets), strict=False):
        wire.request(method, target)


def test_one_turn_answers_many_large_messages(root: Path) -> None:
    with Inside(root) as server, ExitStack() as stack:
        server.queue("q")
        server.load("q")
        server.queue("q", ready=[b"x" * 8 * MIB] * 20)
        wires = many(server, 12, stack)
        server.call(lambda: send_all(wires, "GET", "/q/messages"))
        answers = [wire.answer() for wire in wires]
        assert [len(answer.body) for answer in answers] == [8 * MIB] * 12
        eventually(lambda: server.admission.memory == 0)


def test_an_answer_beyond_the_memory_limit_is_sent_once(root: Path) -> None:
    """The limit is reached after it was written."""
    lines = {f"a{n}": "\u00e9" * 6000 for n in range(5)}
    with Inside(root, limits=Limits(memory=4 * MIB), send_buffer=4096) as server:
        server.queue("q")
        with Spool(root) as spool:
            spool.queue("q").put_many([NewMessage(b"b", attributes=lines)] * 30)
            spool.deliver()
        server.load("q")
        with Wire(server.url) as wire:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.request("GET", "/q/messages?count=30")
            eventually(lambda: server.admission.memory > 2 * MIB)
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
            assert len(json.loads(wire.answer().body)["messages"]) == 30
            assert json.loads(wire.ask("GET", "/q").body)["queue"] == "q"


@pytest.mark.parametrize("headers", [{}, {"X-Other": "1"}])
def test_attributes_of_claimed_messages_count_as_memory(
    root: Path, headers: dict[str, str]
) -> None:
    with Inside(root, send_buffer=4096) as server, Wire(server.url) as wire:
        server.queue("q")
        with Spool(root) as spool:
            lines = {f"a{n}": "x" * 12_000 for n in range(5)}
            spool.queue("q").put_many([NewMessage(b"b", attributes=lines)] * 200)
            spool.deliver()
        server.load("q")
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.request("GET", "/q/messages?count=200", headers)
        eventually(lambda: server.admission.memory > 200 * 60_000)


@pytest.mark.parametrize("other", [b"", b"X-Other: 1\r\n"])
def test_the_request_behind_one_that_is_answered_at_once(root: Path, other: bytes) -> None:
    entries = [{"Id": "1", "MessageBody": "a", "DelaySeconds": 1000}]  # which is too long
    body = json.dumps({"QueueUrl": "http://localhost/000000000000/q", "Entries": entries}).encode()
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessageBatch\r\n"
    head += b"Content-Type: application/x-amz-json-1.0\r\n" + other
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with Inside(root, dialects=("sqs",)) as server, Wire(server.url) as wire:
        server.queue("q")
        wire.send(whole[:-10])
        server.until_open(1)
        wire.send(whole[-10:] + b"GET /q HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert "Failed" in json.loads(wire.answer().body)
        assert json.loads(wire.answer().body)["queue"] == "q"


SETTINGS_OF_LINES = [{"max_in_flight": 1}, {"max_rate": 20, "max_burst": 1}, {}]


@pytest.mark.parametrize("settings", SETTINGS_OF_LINES, ids=str)
def test_a_waiter_that_is_woken_in_vain_keeps_its_place(
    root: Path, settings: dict[str, int]
) -> None:
    with ExitStack() as stack, Inside(root) as server, Spool(root, delivers=False) as spool:
        server.queue("q", ready=[b"held"] if settings else [])
        spool.queue("q").configure(**settings)
        server.load("q")
        wires = [stack.enter_context(Wire(server.url)) for _ in range(6)]
        held = [wires[0].ask("GET", "/q/messages").headers["X-Message-Id"]] if settings else []
        for number, wire in enumerate(wires):
            wire.request("GET", "/q/messages?wait=20")
            eventually(partial(_wait, server, number + 1))
        server.call(server.service.receiver.waiters.wake, "q", 6)  # taken by another client
        for number, wire in enumerate(wires):
            spool.queue("q").put(f"{number}")
            with Spool(root) as mover:
                mover.deliver()
            if "max_in_flight" in settings:
                spool.queue("q").remove(held.pop())
            answer = wire.answer()
            assert answer.body == b"%d" % number
            held.append(answer.headers["X-Message-Id"])


def _wait(server: Inside, number: int) -> bool:
    return len(server.service.receiver.waiters) == number
