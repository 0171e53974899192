"""The memory of mq with all its limits reached at once, against the documented maximum.

The documentation of systemd states this maximum beside the unit's MemoryMax=.
"""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from fsmq.http.guard.limits import Limits
from fsmq.spool.layout.messages.compression import compress
from tests.harness.suite import HOME, Suite, eventually
from tests.http.stock import Stored
from tests.http.test_limits import memory

MIB = 1024 * 1024
LIMITS = Limits()
UNIT = (HOME / "systemd" / "fsmq-mq@.service").read_text()
PAGE = (HOME / "docs" / "systemd.md").read_text()
# The largest message; in JSON each of its bytes takes six.
LARGEST = 16 * MIB
WAITING = b"GET /empty/messages?wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"GET /q/messages HTTP/1.1\r\nHost: localhost\r\nX-Long: "
ANSWER = b"GET /q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
_FILES = 12_000  # this process has the client ends of all connections


def documented_maximum() -> int:
    """The documented maximum of mq's memory in bytes."""
    share = re.search(r"(?m)^MemoryMax=(\d+)%$", UNIT)
    documented = re.search(r"`MemoryMax=(\d+)%`", PAGE)
    most = re.search(r"at most (\d+) MB besides", PAGE)
    assert share
    assert documented
    assert most
    assert share[1] == documented[1]
    return int(most[1]) * 1_000_000


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < _FILES:
        pytest.skip(f"this process may open {hard} files, and needs {_FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Clients:
    """Connections to a server, which may refuse some."""

    def __init__(self, suite: Suite, stack: ExitStack) -> None:
        self._port = suite.port
        self._stack = stack

    def send(self, number: int, *parts: bytes) -> None:
        """Send the parts on each of ``number`` connections; answers are not read."""
        for _ in range(number):
            connection = self._stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self._port))
            connection.settimeout(5)
            with suppress(OSError):
                for part in parts:
                    connection.sendall(part)

    def ask(self, request: bytes) -> bytes:
        """Send a request; the beginning of the answer."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as connection:
            connection.sendall(request)
            return connection.recv(100)


def test_memory_stays_below_the_documented_maximum_at_all_limits(root: Path) -> None:
    most = documented_maximum()
    large = Stored(compress(b"\x01" * LARGEST, "zstd"), packed=True)
    rest_of_head = b"x" * (LIMITS.header_bytes - 100)
    post = POST % LARGEST, b"x" * (LARGEST - 1)
    with many_files(), Suite(root, mq_options=["--sync=none"], mover=False, reaper=False) as suite:
        for queue in ("q", "empty"):
            (root / "queues" / queue).mkdir()
        for _ in range(40):
            large.place(root / "queues" / "q")
        with ExitStack() as stack:
            clients = Clients(suite, stack)
            for more, number, *parts in (
                (40, 8_500, WAITING),
                (40, 600, WAITING, HEAD, rest_of_head),  # sent ahead of the answer
                (0, 600, HEAD, rest_of_head),  # incomplete heads
                (200, 20, ANSWER),  # unread answers
                (0, 20, *post),  # bodies without their last byte
            ):
                before = memory(suite, "VmHWM")
                clients.send(number, *parts)
                eventually(lambda: memory(suite, "VmHWM") >= before + more * MIB)  # noqa: B023
            assert b" 503 " in clients.ask(POST % LARGEST), "the memory for bodies is not used up"
            highest = memory(suite, "VmHWM")
        assert 400 * MIB <= highest <= most
