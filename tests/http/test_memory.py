"""The memory limit for bodies holds for all answers; test_loop.py has single ones."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fsmq.http.guard.limits import Limits
from fsmq.http.routing.json_room import room_of_json
from fsmq.http.service.logs import _THREADS
from fsmq.spool.layout.messages.compression import compress
from fsmq.spool.layout.steps import LARGE_BYTES
from fsmq.spool.log.log import Batch, Log
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside
from tests.http.stock import Stored
from tests.http.test_errors import is_problem
from tests.http.test_limits import memory

MIB = 1024 * 1024
LIMIT = 32 * MIB  # a quarter of it is more than the kernel buffers of an unread answer
# Beyond the limit: the allocator's reserve.
SPARE = 32 * MIB
# Long enough for all reads to begin; one that is refused never does.
WAIT_S = 10
# Each byte takes six in JSON, and the file is sparse.
QUARTER = Stored(compress(b"\x01" * (LIMIT // 4), "zstd"), packed=True)


@pytest.fixture
def small(root: Path) -> Iterator[Suite]:
    """mq alone, with little memory for bodies."""
    options = ["--sync=none", f"--max-body-memory={LIMIT}"]
    with Suite(root, mq_options=options, mover=False, reaper=False) as suite:
        yield suite


def peak(suite: Suite) -> int:
    """The peak of mq's memory since the last call."""
    most = memory(suite, "VmHWM")
    Path(f"/proc/{suite['mq'].pid}/clear_refs").write_text("5")
    return most


def most_memory(
    suite: Suite, ask: Callable[[int], int], statuses: tuple[int, int], times: int, at_once: int
) -> int:
    """How many bytes mq takes for some requests, beyond what it had.

    ask: returns the status of one. statuses: the first is that of some; others may have the second.
    """
    peak(suite)
    before = memory(suite)
    with ThreadPoolExecutor(at_once) as pool:
        assert {statuses[0]} <= set(pool.map(ask, range(times))) <= set(statuses)
    return peak(suite) - before


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
def test_unread_answers_stay_within_the_memory_limit(small: Suite, target: str) -> None:
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
            ask_and_take_nothing()  # some of the earlier ones were refused
            return None

        for _ in range(20):
            ask_and_take_nothing()
        refused = eventually(is_refused)
        assert is_problem(refused, 503, "overloaded")
        assert refused.headers["Retry-After"]
        assert memory(small, "VmHWM") - before <= LIMIT + SPARE
    eventually(lambda: _is_stored(small, b"x" * 16 * MIB))  # all memory is given back


def _is_stored(suite: Suite, body: bytes) -> bool:
    try:
        with Wire(suite.url) as wire:
            return wire.ask("POST", "/q/messages", {}, body).status == 201
    except OSError:
        return False  # refused, and closed before all was sent


def test_messages_beyond_the_memory_limit_are_not_claimed(small: Suite) -> None:
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


@pytest.mark.parametrize("query", ["", "?count=2"])
def test_a_channel_does_not_count_a_delivery_that_the_memory_limit_prevents(
    small: Suite, query: str
) -> None:
    """Else the message would be skipped or buried, and nobody has ever got it."""
    body, path = b"x" * (LIMIT * 3 // 8), "/_logs/users/channels/c"
    settings = b'{"order": "none", "max_deliveries": 1, "on_poison": "skip"}'
    with Wire(small.url) as wire, ExitStack() as stack:
        assert wire.ask("PUT", "/_logs/users").status == 201
        assert wire.ask("PUT", f"{path}?from=first", {}, settings).status == 201
        for _ in range(3):
            assert wire.ask("POST", "/_logs/users/messages", {}, body).status == 201

        def are_in_flight(number: int) -> bool:
            return bool(json.loads(wire.ask("GET", path).body)["in_flight"] == number)

        readers = [stack.enter_context(Wire(small.url)) for _ in range(2)]
        for number, reader in enumerate(readers, 1):
            reader.request("GET", f"{path}/messages")  # the answer is not read
            eventually(lambda number=number: are_in_flight(number))
        for _ in range(3):
            assert wire.ask("GET", f"{path}/messages{query}").status == 503
            eventually(lambda: are_in_flight(2))
        assert [reader.answer().status for reader in readers] == [200, 200]
        eventually(lambda: wire.ask("GET", f"{path}/messages").status == 200)
        assert json.loads(wire.ask("GET", path).body)["skipped"] == 0


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES])
@pytest.mark.parametrize("number", [0, 1, 255, 256, 257, 40_000])
def test_all_values_of_json_are_counted(size: int, number: int) -> None:
    # Before, behind and across the end of a part.
    signs = (b",[{"[:1] + b"x[{," * number)[: size // 2]
    for body in (signs.ljust(size), signs.rjust(size), signs.center(size)):
        assert len(body) == size
        assert room_of_json(body) == 72 * sum(map(body.count, (b",", b"[", b"{")))


def test_reads_of_a_log_count_only_stored_bytes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read covers many messages, each of which could be as large as an answer."""
    read, others = Log.page, threading.Barrier(_THREADS + 1)

    def page(*args: Any) -> Batch:
        others.wait(WAIT_S)  # all of them are under way
        others.wait(WAIT_S)  # and the test has looked
        return read(*args)

    with Inside(root, limits=Limits(memory=LIMIT)) as inside, ExitStack() as stack:
        wire = stack.enter_context(Wire(inside.url))
        for path in ("/q", "/_logs/users"):
            assert wire.ask("PUT", path).status == 201
        assert wire.ask("POST", "/_logs/users/messages", {}, b"x").status == 201
        monkeypatch.setattr(Log, "page", page)
        readers = [stack.enter_context(Wire(inside.url)) for _ in range(_THREADS)]
        for reader in readers:
            reader.request("GET", "/_logs/users/messages?from=0")
        others.wait(WAIT_S)
        stored = wire.ask("POST", "/q/messages", {}, b"x")
        others.wait(WAIT_S)
        assert stored.status == 201, stored
        assert [reader.answer().status for reader in readers] == [200] * _THREADS


def test_whose_turn_it_is_takes_little_memory_for_many_choices_of_queues(small: Suite) -> None:
    """Patterns take many times their text when they are compiled."""
    choices = [
        ",".join(f"{choice:03}{part:03}{'x' * 172}*" for part in range(100))
        for choice in range(200)
    ]

    def claim(choice: str) -> None:
        with Wire(small.url) as wire:
            assert wire.ask("GET", f"/_claim?queues={choice}").status == 204

    claim(choices.pop())
    before = memory(small)
    for choice in choices:
        claim(choice)
    assert memory(small) - before < 24 * MIB


@pytest.mark.parametrize("query", ["", "?containing=nothing"])
def test_lists_of_the_dashboard_stay_within_the_memory_limit(small: Suite, query: str) -> None:
    """A list shows the beginning of bodies, but reads all of each."""
    packed = Stored(compress(os.urandom(8 * MIB) + bytes(8 * MIB), "zlib"), packed=True)
    (small.root / "queues" / "q").mkdir()
    for _ in range(6):
        packed.place(small.root / "queues" / "q")

    def ask(_: int) -> int:
        with Wire(small.url, 60) as wire:
            return wire.ask("GET", f"/_ui/q/q{query}").status

    assert ask(0) == 200
    assert most_memory(small, ask, (200, 503), 8, 8) <= LIMIT + SPARE
    eventually(lambda: ask(0) == 200)  # all memory is given back
