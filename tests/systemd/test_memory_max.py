"""At the limits of mq its memory stays below what the documentation says, and MemoryMax= allows.

The unit gives mq a share of the machine's memory. What the page of systemd promises beside it is
measured here: all limits reached at once, by a real mq with the settings that the unit has.
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
# A message as large as one may be; in JSON each byte of it is six.
LARGEST = 16 * MIB
WAITING = b"GET /empty/messages?wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"GET /q/messages HTTP/1.1\r\nHost: localhost\r\nX-Long: "
ANSWER = b"GET /q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
_FILES = 12_000  # of this process: its own ends of all connections


def promised() -> int:
    """How many bytes the documentation says that mq has at most."""
    share = re.search(r"(?m)^MemoryMax=(\d+)%$", UNIT)
    said = re.search(r"`MemoryMax=(\d+)%`", PAGE)
    most = re.search(r"at most (\d+) MB besides", PAGE)
    assert share
    assert said
    assert most
    assert share[1] == said[1]
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
    """Connections of which the server has as many as it takes."""

    def __init__(self, suite: Suite, stack: ExitStack) -> None:
        self._port = suite.port
        self._stack = stack

    def say(self, number: int, *says: bytes) -> None:
        """Say this on so many connections, as long as it is taken, and read no answer."""
        for _ in range(number):
            one = self._stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", self._port))
            one.settimeout(5)
            with suppress(OSError):
                for part in says:
                    one.sendall(part)

    def ask(self, says: bytes) -> bytes:
        """Say this; the beginning of the answer."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=20) as one:
            one.sendall(says)
            return one.recv(100)


def test_mq_has_no_more_memory_than_is_promised_with_all_its_limits_reached(root: Path) -> None:
    most = promised()
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
            for more, number, *says in (
                (40, 8_500, WAITING),
                (40, 600, WAITING, HEAD, rest_of_head),  # what is sent ahead
                (0, 600, HEAD, rest_of_head),  # heads without an end, in what that has left
                (200, 20, ANSWER),  # which nobody reads
                (0, 20, *post),  # bodies whose last byte does not come, in what those have left
            ):
                before = memory(suite, "VmHWM")
                clients.say(number, *says)
                eventually(lambda: memory(suite, "VmHWM") >= before + more * MIB)  # noqa: B023
            refused = Clients(suite, stack).ask(POST % LARGEST)
            assert b" 503 " in refused, "no more is taken"
            highest = memory(suite, "VmHWM")
        assert 400 * MIB <= highest <= most
