"""Memory of connections is counted, and nothing of a request is kept."""

from __future__ import annotations

import gc
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fsmq.http.connection.ahead import FREE_BYTES
from fsmq.http.connection.connection import Connection
from fsmq.http.connection.pieces import PIECE_BYTES
from fsmq.http.guard.limits import Limits
from tests.harness.suite import eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside, syncing

KIB = 1024
MIB = 1024 * KIB
NUMBER = 20
# The memory of a connection, here and at the client.
ITSELF = 32 * KIB
AIOHTTP = "X-Other: 1\r\n"
both = pytest.mark.parametrize("other", ["", AIOHTTP], ids=["fast path", "aiohttp"])


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    with Inside(root, limits=Limits(write_timeout=60), send_buffer=4096) as server:
        server.queue("q")
        server.load("q")
        yield server
        eventually(server.holds_nothing)
        eventually(lambda: server.server._connections.ahead.size == 0)
        eventually(lambda: server.server._connections.unsent.size == 0)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """How much more memory this process has since then."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]

        def more() -> int:
            gc.collect()
            return tracemalloc.get_traced_memory()[0] - before

        yield more
    finally:
        tracemalloc.stop()


def many(stack: ExitStack, server: Inside) -> list[Wire]:
    return [stack.enter_context(Wire(server.url)) for _ in range(NUMBER)]


def slow(stack: ExitStack, server: Inside) -> list[socket.socket]:
    """Connections whose clients have small buffers."""
    found = []
    for _ in range(NUMBER):
        found.append(stack.enter_context(socket.socket()))
        found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        found[-1].connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
    return found


def ask_for(target: str, lines: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()


# -- heads -----------------------------------------------------------------------------------------

LONG = 120 * KIB
HEADS = {
    "one field": f"X-Long: {'a' * LONG}\r\n",
    "long fields": "".join(f"X-{number}: {'a' * 1000}\r\n" for number in range(115)),
    "short fields": "".join(f"X-{number}: {'a' * 50}\r\n" for number in range(115)),
    "beyond ASCII": f"X-Long: {'a' * LONG}\N{GRINNING FACE}\r\n",
}
heads = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


@heads
@pytest.mark.parametrize("is_whole", [True, False], ids=["waiting", "without an end"])
def test_the_count_for_a_head_covers_its_memory(inside: Inside, head: str, is_whole: bool) -> None:
    ahead = inside.server._connections.ahead
    with traced() as more, ExitStack() as stack:
        for wire in many(stack, inside):
            wire.send(ask_for("/q/messages?wait=20", head)[: None if is_whole else -2])
        if is_whole:
            inside.until_open(NUMBER)
        else:
            eventually(lambda: inside.call(lambda: all_have_begun(inside)))
        assert more() < ahead.size + NUMBER * (FREE_BYTES + ITSELF)


def all_have_begun(inside: Inside) -> bool:
    """Whether the server has read all bytes of the heads."""
    connections = inside.server._connections.open
    return len(connections) == NUMBER and all(one.ahead.head > LONG // 4 for one in connections)


@heads
def test_heads_are_freed_with_their_requests(inside: Inside, head: str) -> None:
    with traced() as more, ExitStack() as stack:
        for wire in many(stack, inside):
            wire.send(ask_for("/q", head))
            assert wire.answer().status == 200
        assert more() < NUMBER * (FREE_BYTES + ITSELF)


# -- bodies and answers ----------------------------------------------------------------------------

SIZE = 60 * KIB


@both
def test_answers_are_freed_with_their_requests(inside: Inside, other: str) -> None:
    inside.queue("q", ready=[b"x" * SIZE] * NUMBER)
    with traced() as more, ExitStack() as stack:
        for wire in many(stack, inside):
            wire.send(ask_for("/q/messages", other))
            assert len(wire.answer().body) == SIZE
        assert more() < NUMBER * ITSELF


def test_a_body_is_in_memory_once_while_it_is_stored(root: Path) -> None:
    post = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % SIZE
    with syncing(root) as server, traced() as more, server.held_sync(), ExitStack() as stack:
        for wire in many(stack, server):
            wire.send(post + b"x" * SIZE)
        server.until_open(NUMBER)
        server.call(lambda: None)  # the server has begun to read the last of them, too
        server.begun.acquire()
        assert more() < NUMBER * (SIZE + ITSELF)


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "without its end"])
@pytest.mark.parametrize("size", [SIZE, 300 * KIB])
def test_an_unexpected_body_is_not_kept(inside: Inside, size: int, is_whole: bool) -> None:
    length = f"Content-Length: {size if is_whole else MIB}\r\n"
    with traced() as more, ExitStack() as stack:
        wires = many(stack, inside)
        for wire in wires:
            wire.send(ask_for("/q/messages?wait=20", length))
        eventually(lambda: len(inside.service.receiver.waiters) == NUMBER)
        for wire in wires:
            wire.send(b"x" * size)
        eventually(lambda: all(wire.is_read() for wire in wires))
        inside.call(lambda: None)  # the last bytes have been processed, too
        assert more() < NUMBER * ITSELF
        if is_whole:
            inside.queue("q", ready=[b""] * NUMBER, are_kept=False)
            for wire in wires:
                assert wire.answer().status == 200
                assert wire.ask("GET", "/q").status == 200


# -- unread answers --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("size", [20 * KIB, SIZE, 250 * KIB])
def test_the_count_for_an_unread_answer_covers_its_memory(
    inside: Inside, other: str, size: int
) -> None:
    """For all sizes, also if the kernel has taken most of it."""
    inside.queue("q", ready=[b"x" * size] * 2 * NUMBER)
    waits = inside.server._connections.unsent
    with traced() as more, ExitStack() as stack:
        clients = slow(stack, inside)
        if size <= SIZE:  # which the kernel buffers
            for client in clients:
                client.sendall(ask_for("/q/messages", other))
                client.recv(1, socket.MSG_PEEK)
        for client in clients:
            client.sendall(ask_for("/q/messages", other))
        eventually(lambda: inside.call(lambda: len(writing(inside))) == NUMBER)
        counted = max(inside.admission.memory, waits.size)
        assert counted >= NUMBER * size
        assert waits.size >= NUMBER * min(size, PIECE_BYTES)
        assert more() < counted + NUMBER * (ITSELF + (size > SIZE) * 2 * PIECE_BYTES)


def writing(inside: Inside) -> list[Connection]:
    """The connections with unsent bytes."""
    return [one for one in inside.server._connections.open if one.unsent]


def test_the_slowest_client_is_cut_off_at_the_memory_limit(root: Path) -> None:
    """Answers without messages are never refused."""
    with Inside(root, limits=Limits(memory=4 * MIB), send_buffer=4096) as server:
        waits = server.server._connections.unsent
        with ExitStack() as stack:
            clients = slow(stack, server)
            for client in clients:
                client.sendall(ask_for("/_openapi.json"))
                client.recv(1, socket.MSG_PEEK)
            assert MIB < server.call(lambda: waits.size) <= waits.room
            with Wire(server.url) as quick:
                for _ in range(3):
                    assert quick.ask("GET", "/_openapi.json").status == 200
            left = server.call(lambda: {port_of(one) for one in writing(server)})
            assert clients[0].getsockname()[1] not in left
            assert clients[-1].getsockname()[1] in left
        eventually(server.holds_nothing)
        eventually(lambda: waits.size == 0)


def port_of(connection: Connection) -> int:
    """The port of its client."""
    assert connection.transport is not None
    return int(connection.transport.get_extra_info("peername")[1])
