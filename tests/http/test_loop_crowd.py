"""Thousands of concurrent requests do not block the loop."""

from __future__ import annotations

import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.test_loop import HELD_S, TRIES, watch_over
from tests.http.watched import Watch

CONNECTIONS = 1200


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[tuple[Suite, Watch, list[socket.socket]]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip("so many files may not be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    for suite, watch in watch_over(tmp_path):
        with ExitStack() as stack:
            sockets = [
                stack.enter_context(socket.create_connection(("127.0.0.1", suite.port)))
                for _ in range(CONNECTIONS)
            ]
            with Wire(suite.url) as wire:
                assert wire.ask("PUT", "/q").status == 201
                assert wire.ask("PUT", "/packed", {}, b'{"compress": true}').status == 201
            yield suite, watch, sockets
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
