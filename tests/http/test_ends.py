"""Ends of connections: half-closed ones get their answers, and refused ones the error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp.web import Response

from fsmq.http.connection.connection import Connection
from fsmq.http.connection.lingering import MOST_CONNECTIONS
from fsmq.http.guard.limits import Limits
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside, syncing
from tests.http.pair import request
from tests.http.test_errors import is_problem

MIB = 1024 * 1024
OTHER = "X-Other: 1"  # makes aiohttp answer the request


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    """A server whose disk syncs, with a queue q."""
    with syncing(root, "sqs", "emodb", "dynamiq") as server:
        yield server


# -- half-closed connections -----------------------------------------------------------------------


def say(wire: Wire, data: bytes) -> None:
    """Send bytes and half-close the connection."""
    wire.send(data)
    wire.socket.shutdown(socket.SHUT_WR)


def of_sqs(action: str, body: str) -> bytes:
    lines = (f"X-Amz-Target: AmazonSQS.{action}", "Content-Type: application/x-amz-json-1.0")
    return request("POST /", *lines, body=body.encode())


POST = request("POST /q/messages", body=b"x")
STORING = {
    "fast path": POST,
    "aiohttp": request("POST /q/messages", OTHER, body=b"x"),
    "chunked": request("POST /q/messages", "Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n",
    "many chunks": request("POST /q/messages", "Transfer-Encoding: chunked")
    + b"1\r\nx\r\n" * 40_000
    + b"0\r\n\r\n",
    "long": request("POST /q/messages", OTHER, body=b"x" * 2 * MIB),
    "batch": request("POST /q/batch", body=b'[{"body": "x"}]'),
    "http 1.0": b"POST /q/messages HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
    "sqs": of_sqs("SendMessage", '{"QueueUrl": "q", "MessageBody": "x"}'),
    "sqs, aiohttp": of_sqs("SendMessage", '{"QueueUrl": "q", "MessageBody": "x", "More": 1}'),
    "emodb": request("POST /queue/1/q/send", "Content-Type: application/json", body=b'"x"'),
    "acknowledged": request("DELETE /q/messages/m"),
}


@pytest.mark.parametrize("data", STORING.values(), ids=STORING)
def test_a_half_closed_connection_gets_its_answer(inside: Inside, data: bytes) -> None:
    (inside.root / "queues" / "q" / "m").touch()
    with inside.held_sync() as gate, Wire(inside.url) as wire:
        say(wire, data)
        eventually(lambda: inside.server._open.number == 1 and not inside.talking())
        gate.set()
        assert wire.answer().status in (200, 201, 202)
        assert wire.is_closed()
    eventually(lambda: not inside.server._connections.open)


@pytest.mark.parametrize(
    "data",
    [STORING["many chunks"], request("POST /q/messages", OTHER, body=b"x" * 200_000)],
    ids=["many chunks", "long"],
)
def test_a_connection_half_closed_before_it_is_read_gets_its_answer(
    inside: Inside, data: bytes
) -> None:
    gate = threading.Event()
    inside.loop.call_soon_threadsafe(gate.wait)  # the half-close is right behind the body
    with Wire(inside.url) as wire:
        say(wire, data)
        gate.set()
        assert wire.answer().status == 201
        assert wire.is_closed()


@pytest.mark.parametrize("first", [POST, request("GET /q", OTHER)], ids=["fast path", "aiohttp"])
def test_a_half_closed_pipeline_is_answered_whole(inside: Inside, first: bytes) -> None:
    with inside.held_sync() as gate, Wire(inside.url) as wire:
        say(wire, first + POST * 40 + request("GET /q", OTHER) + POST[:-10])
        gate.set()
        statuses = [wire.answer().status for _ in range(42)]
        assert set(statuses) <= {200, 201}
        assert wire.is_closed()


@pytest.mark.parametrize("data", [b"", POST[:-1], POST[:20]], ids=["nothing", "body", "head"])
def test_a_half_close_within_a_request_ends_the_connection(inside: Inside, data: bytes) -> None:
    with Wire(inside.url) as wire:
        say(wire, data)
        assert wire.rest() == b""
    eventually(lambda: not inside.server._connections.open)


@pytest.mark.parametrize("other", [(), (OTHER,)], ids=["fast path", "aiohttp"])
def test_an_incomplete_request_before_a_half_close_is_not_waited_for(
    inside: Inside, other: tuple[str, ...]
) -> None:
    post = request("POST /q/messages", *other, body=b"x")
    with inside.held_sync() as gate, Wire(inside.url) as wire:
        say(wire, post + post[:-1])
        eventually(lambda: inside.server._open.number == 1 and not inside.talking())
        gate.set()
        assert wire.answer().status == 201
        started = time.monotonic()
        assert wire.is_closed()
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("data", [POST, request("GET /q", OTHER)], ids=["fast path", "aiohttp"])
def test_a_half_close_while_the_answer_is_written_ends_the_connection(
    inside: Inside, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half-close comes while the answer is being written."""
    finish, go_on = Connection.finish_response, Connection.go_on
    stays: list[bool] = []

    async def finish_and_end(self: Connection, *of: Any) -> Any:
        finished = await finish(self, *of)
        stays.append(self.eof_received())
        return finished

    def go_on_and_end(self: Connection, *of: Any, **more: Any) -> None:
        go_on(self, *of, **more)
        stays.append(self.eof_received())

    monkeypatch.setattr(Connection, "finish_response", finish_and_end)
    monkeypatch.setattr(Connection, "go_on", go_on_and_end)
    with Wire(inside.url) as wire:
        wire.send(data)
        assert wire.answer().status in (200, 201)
        assert eventually(lambda: stays) == [False]


TAKING = {
    "fast path": request("GET /q/messages?visibility=600"),
    "fast path, waiting": request("GET /q/messages?visibility=600&wait=20"),
    "aiohttp": request("GET /q/messages?visibility=600", OTHER),
    "aiohttp, waiting": request("GET /q/messages?visibility=600&wait=20", OTHER),
    "batch": request("GET /q/messages?visibility=600&count=5&wait=20"),
    "sqs": of_sqs("ReceiveMessage", '{"QueueUrl": "q", "VisibilityTimeout": 600}'),
    "sqs, aiohttp": of_sqs("ReceiveMessage", '{"QueueUrl": "q", "VisibilityTimeout": "600"}'),
    "emodb": request("GET /queue/1/q/poll?ttl=600&limit=5"),
    "dynamiq": request("GET /queues/q/messages/5"),
}


@pytest.mark.parametrize("hangs_up", [False, True], ids=["sends no more", "hangs up"])
@pytest.mark.parametrize("data", TAKING.values(), ids=TAKING)
def test_a_claim_is_released_if_its_client_may_be_gone(
    inside: Inside, data: bytes, hangs_up: bool
) -> None:
    """A half-closed connection may be a hang-up: its message must not stay hidden."""
    inside.queue("q", ready=[b"one"])
    with inside.held_sync() as gate, Wire(inside.url) as wire:
        wire.send(data)
        inside.until_open(1)
        if hangs_up:
            wire.close()
        else:
            wire.socket.shutdown(socket.SHUT_WR)
        eventually(lambda: not inside.talking())
        gate.set()
        assert hangs_up or wire.rest() == b""
        answer = eventually(lambda: claimed(inside))
    assert answer.headers["X-Message-Deliveries"] == "1"


@pytest.mark.parametrize("data", [TAKING["fast path, waiting"], TAKING["aiohttp, waiting"]])
def test_a_half_close_ends_a_wait(inside: Inside, data: bytes) -> None:
    with Wire(inside.url) as wire:
        wire.send(data)
        eventually(lambda: len(inside.service.receiver.waiters) == 1)
        wire.socket.shutdown(socket.SHUT_WR)
        started = time.monotonic()
        assert wire.rest() == b""
        assert time.monotonic() - started < 10
        assert not inside.service.receiver.waiters


def claimed(inside: Inside) -> Answer | None:
    with Wire(inside.url) as wire:
        answer = wire.ask("GET", "/q/messages?visibility=600")
    return answer if answer.status == 200 else None


# -- refusals --------------------------------------------------------------------------------------


REFUSED = {
    "no HTTP": (b"\x16\x03\x01 no HTTP\r\n\r\n", "malformed-request"),
    "a long head": (b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, "malformed-request"),
    "a long body": (
        request("POST /q/messages", f"Content-Length: {30 * MIB}"),
        "message-too-large",
    ),
    "a long body in chunks": (
        request("POST /q/messages", "Transfer-Encoding: chunked")
        + b"%x\r\n%b\r\n" % (5 * MIB, b"x" * 5 * MIB),
        "message-too-large",
    ),
    "an unknown encoding": (
        request("POST /q/messages", "Content-Encoding: br", f"Content-Length: {30 * MIB}"),
        "unsupported-encoding",
    ),
    "broken chunks": (
        request("POST /q/messages", "Transfer-Encoding: chunked") + b"-5\r\n",
        "unreadable-body",
    ),
}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = [f"--max-message-bytes={4 * MIB}", "--sync=none"]
    root = tmp_path_factory.mktemp("refusing") / "mq"
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        (root / "queues" / "q").mkdir()
        yield suite


@pytest.mark.parametrize(("data", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_reaches_a_client_that_sends_everything_first(
    refusing: Suite, data: bytes, kind: str
) -> None:
    with Wire(refusing.url) as wire:
        wire.send(data)
        for _ in range(16):
            wire.send(b"x" * MIB)
        answer = wire.answer()
        assert is_problem(answer, answer.status, kind)
        assert wire.is_closed()
    assert not [*(refusing.root / "new").iterdir(), *(refusing.root / "queues" / "q").iterdir()]


HEADS = [
    b"GET\r\n\r\n",
    *(b"GET /q%b\r\nHost: x\r\n\r\n" % version for version in (b"", b" HTTP/0.9", b" HTTP/2.0")),
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n",
    b"\0\0\0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no TLS here\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000,
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    request("GET /q", "Transfer-Encoding: chunked", "Content-Length: 1"),
    request("POST /q/messages", "Content-Encoding: br", body=b"x"),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: f"{head[:30]!r}..{len(head)}")
def test_every_refusal_of_a_head_is_a_problem_and_ends_the_connection(
    refusing: Suite, head: bytes
) -> None:
    with Wire(refusing.url) as wire:
        with suppress(OSError):  # the answer can come before the end of the body
            wire.send(head)
        whole = wire.rest()
    kind = b"unsupported-encoding" if b"br" in head else b"malformed-request"
    assert whole.startswith(b"HTTP/1.1 415 " if b"br" in head else b"HTTP/1.1 400 Bad Request\r\n")
    assert b"urn:fsmq:problem:" + kind in whole
    lines = whole.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert {"cache-control: no-store", "connection: close"} <= set(lines)
    [server] = [line for line in lines if line.startswith("server:")]
    assert server.startswith("server: fsmq/")
    assert len([line for line in lines if line.startswith("date:")]) == 1
    assert any(line.startswith("content-type: application/problem+json") for line in lines)


@pytest.mark.parametrize("part", [b"x" * MIB, b"x"], ids=["much", "long"])
def test_a_refused_client_that_never_stops_sending_is_cut_off(refusing: Suite, part: bytes) -> None:
    """The discarded bytes and the time are limited."""
    with Wire(refusing.url) as wire:
        wire.send(b"no HTTP\r\n\r\n")

        def is_cut_off() -> bool:
            try:
                wire.send(part)
            except ConnectionError:
                return True
            return False

        eventually(is_cut_off)


def test_the_number_of_lingering_connections_is_limited(root: Path) -> None:
    with Inside(root, limits=Limits(connections=4)) as inside, ExitStack() as stack:
        connections = inside.server._connections
        for number in range(MOST_CONNECTIONS + 40):
            wire = stack.enter_context(Wire(inside.url))
            wire.send(b"no HTTP\r\n\r\n")
            if number < MOST_CONNECTIONS:
                assert wire.answer().status == 400
            assert inside.call(lambda: len(connections.lingering)) <= MOST_CONNECTIONS
            assert inside.call(lambda: len(connections.open)) <= 4
        eventually(lambda: not connections.lingering)
        assert inside.server.service.connections() == {"open": 0, "in_use": 0}


def test_a_refusal_for_too_many_connections_reaches_the_client(root: Path) -> None:
    with Inside(root, limits=Limits(connections=1)) as inside, Wire(inside.url) as busy:
        inside.queue("q")
        busy.request("GET", "/q/messages?wait=20")
        eventually(lambda: len(inside.service.receiver.waiters) == 1)
        for _ in range(20):
            with Wire(inside.url) as wire:
                wire.send(POST * 100)
                assert is_problem(wire.answer(), 503, "overloaded")
                assert wire.is_closed()


# -- logs ------------------------------------------------------------------------------------------


def test_an_answer_that_cannot_be_written_is_logged(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client only sees the end of the connection."""
    with Inside(root) as inside, Wire(inside.url) as wire:

        async def broken(request: object) -> Response:
            return Response(headers={"X-Broken": "a\r\nb"})

        monkeypatch.setattr(inside.server._server, "_handler", broken)
        wire.send(request("GET /", OTHER))
        wire.rest()
        assert [one.levelname for one in caplog.records] == ["ERROR"]


def test_broken_requests_are_not_logged_as_errors(
    inside: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    for data in (*[data for data, _ in REFUSED.values()], *TAKING.values(), *STORING.values()):
        for cut in (len(data) // 2, len(data) - 1, len(data)):
            with Wire(inside.url) as wire:
                wire.send(data[:cut])
    expecting = request("POST /q/messages", "Expect: 100-continue", "Content-Length: 5")
    for number in range(20):
        with Wire(inside.url) as wire:
            wire.send(expecting)
            if number % 2:
                wire.answer()
    eventually(lambda: not inside.server._connections.open)
    assert [one.getMessage() for one in caplog.records if one.levelname != "DEBUG"] == []


@pytest.mark.parametrize("path", ["/q/messages", "/q/batch", "/none/messages", "/queue/1/q/send"])
def test_a_hang_up_before_the_request_is_begun(
    inside: Inside, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with Wire(inside.url) as wire:
        assert wire.ask("GET", "/q", {"X-Other": "1"}).status == 200
        head = request(f"POST {path}", OTHER, "Content-Length: 50")

        def come_and_go() -> None:
            [connection] = inside.server._connections.open
            connection.data_received(head + b"x")
            inside.loop.call_soon(connection.force_close)

        inside.call(come_and_go)
        assert wire.rest() == b""
    eventually(lambda: inside.holds_nothing() and not inside.server._connections.open)
    assert [one.getMessage() for one in caplog.records if one.levelname != "DEBUG"] == []
