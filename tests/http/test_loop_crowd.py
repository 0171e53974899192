"""Thousands of concurrent requests do not block the loop."""

from __future__ import annotations

import gzip
import resource
import selectors
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.harness.certificates import HAS_OPENSSL, make
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.test_limits import open_sockets
from tests.http.test_loop import HELD_S, TRIES, watch_over
from tests.http.watched import Watch

CONNECTIONS = 1200
# Each turn of the loop answers many small requests, too.
LONG_S = 0.4


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip("so many files may not be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def connected(suite: Suite) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", suite.port)))
            for _ in range(CONNECTIONS)
        ]


@pytest.fixture
def crowd(tmp_path: Path, many_files: None) -> Iterator[tuple[Suite, Watch, list[socket.socket]]]:
    for suite, watch in watch_over(tmp_path):
        with connected(suite) as sockets:
            with Wire(suite.url) as wire:
                assert wire.ask("PUT", "/q").status == 201
                assert wire.ask("PUT", "/packed", {}, b'{"compress": true}').status == 201
            yield suite, watch, sockets


def ask_all(sockets: list[socket.socket], data: bytes) -> set[bytes]:
    """Send the same request on all connections; the status of each answer."""
    found = set()
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            one.sendall(data)
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                answer = key.fileobj.recv(65536)  # type: ignore[union-attr]
                found.add(answer[9:12])
                selector.unregister(key.fileobj)
    return found


@pytest.mark.parametrize(
    ("target", "size"),
    [("/q/messages", 1000), ("/q/messages", 60_000), ("/packed/messages", 60_000)],
)
def test_thousands_of_posts_do_not_block_the_loop(
    crowd: tuple[Suite, Watch, list[socket.socket]], target: str, size: int
) -> None:
    _, watch, sockets = crowd
    if size > 10_000:
        # Reading thousands of them takes the loop that long by itself.
        sockets = sockets[: CONNECTIONS // 4]
    body = bytes(range(250)) * (size // 250)
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    held = []
    while len(held) < TRIES and (not held or held[-1] > HELD_S):
        watch.clear()
        assert ask_all(sockets, head.encode() + body) == {b"201"}
        held.append(watch.longest)
    assert min(held) <= HELD_S


def test_thousands_of_claims_do_not_block_the_loop(
    crowd: tuple[Suite, Watch, list[socket.socket]],
) -> None:
    suite, watch, sockets = crowd
    held = []
    while len(held) < TRIES and (not held or held[-1] > HELD_S):
        ready = suite.root / "queues" / "q"
        for number in range(CONNECTIONS):
            (ready / f"m{len(held)}-{number}").write_bytes(b"x" * 20_000)
        with Wire(suite.url) as wire:
            assert wire.ask("GET", "/q/messages").status == 200
            (ready / f"m{len(held)}-more").write_bytes(b"x" * 20_000)
        watch.clear()
        assert ask_all(sockets, b"GET /q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n") == {b"200"}
        held.append(watch.longest)
        for one in sockets:
            drain(one)
    assert min(held) <= HELD_S


def drain(one: socket.socket) -> None:
    """Read the rest of an answer."""
    try:
        while one.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return


CHUNKS = b"1\r\nx\r\n" * 10_000
PACKED = b"".join(gzip.compress(b"") for _ in range(3000))
CHUNKED = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = CHUNKED.replace(
    b"Transfer-Encoding: chunked", b"Content-Encoding: gzip\r\nContent-Length: %d" % len(PACKED)
)
NO_PATH = b"GET /" + b"%41" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "then"),
    [(CHUNKED, CHUNKS), (GZIPPED, PACKED), (b"", NO_PATH)],
    ids=["chunks", "gzip", "path"],
)
def test_what_thousands_send_at_the_same_moment_is_read_in_turns(
    crowd: tuple[Suite, Watch, list[socket.socket]], first: bytes, then: bytes
) -> None:
    """Each of them takes milliseconds, so that all of them together would take seconds."""
    suite, watch, sockets = crowd
    if first:
        for one in sockets:
            one.sendall(first)
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "/q").status == 200  # they are read by now
        watch.clear()
        for one in sockets:
            one.send(then)
        for _ in range(3):
            assert wire.ask("GET", "/q").status == 200
        assert watch.longest <= LONG_S
        for one in sockets:
            one.close()
        assert wire.ask("GET", "/q").status == 200
    assert not [line for line in suite.logs("mq") if line["level"] == "error"]


@pytest.mark.skipif(not HAS_OPENSSL, reason="there is no openssl")
def test_handshakes_of_thousands_are_made_in_turns(tmp_path: Path, many_files: None) -> None:
    certificate, key = make(tmp_path, "live")
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(
            ssl.MemoryBIO(), hello, server_hostname="localhost"
        ).do_handshake()
    said = hello.read()
    options = [f"--tls-cert={certificate}", f"--tls-key={key}"]
    watched = contextmanager(watch_over)(tmp_path, *options)
    with watched as (suite, watch), connected(suite) as sockets:
        eventually(lambda: open_sockets(suite) > CONNECTIONS)
        watch.clear()
        for one in sockets:
            one.sendall(said)
        for one in sockets:
            assert one.recv(1) == b"\x16"
        assert watch.longest <= HELD_S
