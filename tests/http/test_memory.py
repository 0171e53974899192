"""The memory for all bodies has an end, whatever answers are asked for and whoever takes them."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from fsmq.spool.layout.compression import compress
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.stock import Stock, Stored
from tests.http.test_errors import is_problem
from tests.http.test_limits import memory

MIB = 1024 * 1024
LIMIT = 32 * MIB
# Beyond the limit come: one message that is being unpacked, twice (its parts, and the whole), and
# what the allocator keeps of it.
SPARE = 32 * MIB
# Each byte of it is six in JSON: one message takes most of the limit of a test, and four take six
# times as much. It takes nothing on the disk.
LARGE = Stored(compress(b"\x01" * 4 * MIB, "zstd"), packed=True)
QUARTER = Stored(compress(b"\x01" * (LIMIT // 4), "zstd"), packed=True)


@pytest.fixture
def small(root: Path) -> Iterator[Suite]:
    """mq alone, with little memory for bodies."""
    options = ["--sync=none", f"--max-body-memory={LIMIT}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        yield suite


def peak(suite: Suite) -> int:
    """The most that mq has had since the last time that this was asked."""
    most = memory(suite, "VmHWM")
    Path(f"/proc/{suite['mq'].pid}/clear_refs").write_text("5")
    return most


def exchange(suite: Suite, method: str, target: str) -> int:
    """Ask, and read the answer without keeping it; its status."""
    connection = http.client.HTTPConnection("127.0.0.1", suite.port, timeout=60)
    with closing(connection):
        connection.request(method, target)
        answer = connection.getresponse()
        while answer.read(MIB):
            pass
        return answer.status


def test_no_answer_takes_more_than_the_memory_for_all(root: Path) -> None:
    limit = LIMIT // 2
    options = ["--sync=none", f"--max-body-memory={limit}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        before, most = memory(suite), {}
        for asked in Stock(suite, LARGE, each=4, together=False):
            peak(suite)
            status = exchange(suite, asked.method, asked.target)
            most[asked] = (peak(suite) - before, status)
    told = "\n".join(f"{grown / MIB:.0f} MiB, {st}: {one}" for one, (grown, st) in most.items())
    assert max(grown for grown, _ in most.values()) <= limit + SPARE, told
    assert all(status != 500 for _, status in most.values()), told


@pytest.mark.parametrize(
    "target",
    [
        "/q/messages",
        "/q/messages?count=1000",
        "/q/peek?count=1000",
        "/queue/1/q/poll?limit=1000&ttl=60",
        "/queue/1/q/poll?limit=1000&ttl=0",
        "/queue/1/q/peek?limit=5000",
    ],
)
def test_answers_that_nobody_takes_hold_no_more_than_that(small: Suite, target: str) -> None:
    for queue, count in (("q", 40), ("other", 1)):
        (small.root / "queues" / queue).mkdir()
        for _ in range(count):
            QUARTER.place(small.root / "queues" / queue)
    before = memory(small)
    with ExitStack() as stack, Wire(small.url) as wire:

        def ask_and_take_nothing() -> None:
            slow = stack.enter_context(Wire(small.url))
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            slow.request("GET", target)

        def is_refused() -> Answer | None:
            answer = wire.ask("GET", "/other/peek")
            if answer.status == 503:
                return answer
            ask_and_take_nothing()  # of those before some were refused when others had begun
            return None

        for _ in range(20):
            ask_and_take_nothing()
        refused = eventually(is_refused)
        assert is_problem(refused, 503, "overloaded")
        assert refused.headers["Retry-After"]
        assert memory(small, "VmHWM") - before <= LIMIT + SPARE
    eventually(lambda: _is_stored(small, b"x" * 16 * MIB))  # what was held is given back


def _is_stored(suite: Suite, body: bytes) -> bool:
    try:
        with Wire(suite.url) as wire:
            return wire.ask("POST", "/q/messages", {}, body).status == 201
    except OSError:
        return False  # refused, and closed before all was sent


def test_what_does_not_fit_into_an_answer_stays_where_it_was(small: Suite) -> None:
    ready = small.root / "queues" / "q"
    ready.mkdir()
    ids = sorted(QUARTER.place(ready).name for _ in range(6))
    with Wire(small.url) as wire:
        seen = json.loads(wire.ask("GET", "/q/peek?count=1000").body)["messages"]
        assert [message["id"] for message in seen] == ids[: len(seen)]
        assert 1 <= len(seen) < 6
        got: list[str] = []
        while len(got) < 6:
            answer = wire.ask("GET", "/q/messages?count=1000&visibility=600")
            assert answer.status == 200
            some = json.loads(answer.body)["messages"]
            assert {message["deliveries"] for message in some} == {1}
            assert 1 <= len(some) < 6
            got += [message["id"] for message in some]
        assert sorted(got) == ids
