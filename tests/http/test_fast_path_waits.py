"""Requests that wait for messages in the fast path."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from fsmq.spool import Message, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.layout.steps import Steps
from fsmq.spool.prepare import claim_in
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.keyfile import add_key, bearer
from tests.http.test_errors import is_problem

KIB = 1024
WAITERS = 3


@pytest.fixture
def guarded(root: Path, tmp_path: Path) -> Iterator[tuple[Inside, dict[str, str], Path]]:
    """A server with a key, and another file of keys that lacks it; nothing is left in the end."""
    file, others = tmp_path / "keys", tmp_path / "others"
    key = bearer(add_key(file, "one", "--send=*", "--receive=*"))
    add_key(others, "two", "--send=*", "--receive=*")
    limits = Limits(waiters_per_key=WAITERS, memory=64 * KIB, idle_timeout=1.0)
    with Inside(root, access=Access(load(file)), limits=limits) as server:
        server.queue("q")
        server.load("q")
        yield server, key, others
        eventually(server.holds_nothing)


def wait(server: Inside, stack: ExitStack, key: dict[str, str], number: int) -> list[Wire]:
    """So many requests that wait, the first one longest."""
    wires = [stack.enter_context(Wire(server.url)) for _ in range(number)]
    for at, wire in enumerate(wires, len(server.service.receiver.waiters) + 1):
        wire.request("GET", "/q/messages?wait=20&visibility=600", key)
        eventually(lambda at=at: len(server.service.receiver.waiters) == at)
    return wires


def test_a_key_that_is_taken_away_from_those_who_wait(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, others = guarded
    with ExitStack() as stack:
        wires = wait(server, stack, key, WAITERS)
        started = time.monotonic()
        server.call(server.service.take_keys, load(others))
        assert [wire.answer().status for wire in wires] == [204] * WAITERS
        assert time.monotonic() - started < 15
        assert server.taken == WAITERS
        assert wires[0].ask("GET", "/q/messages", key).status == 401


def test_no_more_may_wait_than_the_key_allows(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, _ = guarded
    with ExitStack() as stack:
        wires = wait(server, stack, key, WAITERS)
        with Wire(server.url) as wire:
            refused = wire.ask("GET", "/q/messages?wait=20", key)
            assert is_problem(refused, 429, "too-many-requests")
            assert wire.ask("GET", "/q/messages?wait=0", key).status == 204
        server.queue("q", ready=[b"a", b"b", b"c"], are_kept=False)
        assert {wire.answer().body for wire in wires} == {b"a", b"b", b"c"}


def test_who_hung_up_loses_nothing_for_the_next(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, _ = guarded
    with ExitStack() as stack:
        first, second = wait(server, stack, key, 2)
        first.close()
        eventually(lambda: len(server.service.receiver.waiters) == 1)
        server.queue("q", ready=[b"x"], are_kept=False)
        answer = second.answer()
        assert (answer.body, answer.headers["X-Message-Deliveries"]) == (b"x", "1")


def test_many_hang_ups_and_arrivals_lose_nothing(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, _ = guarded
    for number in range(20):
        with ExitStack() as stack:
            first, second = wait(server, stack, key, 2)
            server.queue("q", ready=[b"%d" % number], are_kept=False)
            first.close()  # perhaps before it has got it, perhaps behind that
            server.queue("q", ready=[b"other"], are_kept=False)
            assert second.answer().status == 200
        eventually(lambda: not server.server._open.number)
        with Wire(server.url) as wire:
            while wire.ask("GET", "/q/messages?visibility=600", key).status == 200:
                pass


def test_a_wait_longer_than_connections_are_kept(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, _ = guarded
    with Wire(server.url) as wire:
        started = time.monotonic()
        assert wire.ask("GET", "/q/messages?wait=2.5", key).status == 204
        assert time.monotonic() - started > 2.4
        assert wire.is_closed()


def test_no_memory_for_one_who_waits(guarded: tuple[Inside, dict[str, str], Path]) -> None:
    """Whoever waits is refused when its message does not fit, as if it had come just now."""
    server, key, _ = guarded
    with ExitStack() as stack, server.held_sync() as gate:
        [waiting] = wait(server, stack, key, 1)
        with Wire(server.url) as posting:
            posting.request("POST", "/q/messages", key, b"x" * 60 * KIB)
            eventually(lambda: server.admission.memory >= 60 * KIB)
            server.queue("q", ready=[b"y" * 300 * KIB], are_kept=False)
            answer = waiting.answer()
            assert is_problem(answer, 503, "overloaded")
            gate.set()
            assert posting.answer().status == 201


def test_a_pipeline_behind_a_wait(guarded: tuple[Inside, dict[str, str], Path]) -> None:
    server, key, _ = guarded
    with ExitStack() as stack:
        [wire] = wait(server, stack, key, 1)
        for _ in range(500):
            wire.request("POST", "/q/messages", {**key, "User-Agent": "a" * 300}, b"x")
        server.queue("q", ready=[b"first"], are_kept=False)
        assert wire.answer().body == b"first"
        assert [wire.answer().status for _ in range(500)] == [201] * 500


@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "aiohttp"])
@pytest.mark.parametrize("query", ["", "?count=10", "?wait=0.01"])
def test_a_claim_waits_for_nothing_that_is_stored_later(
    root: Path, fast_path: bool, query: str
) -> None:
    """No mover delivers, and before one message is given up as late the next one is stored."""
    with (
        Inside(root, fast_path=fast_path) as server,
        Wire(server.url) as asking,
        Wire(server.url) as storing,
    ):
        server.queue("q")
        server.load("q")
        assert storing.ask("POST", "/q/messages", {}, b"x").status == 201
        started = time.monotonic()
        asking.request("GET", f"/q/messages{query}")
        while not asking.is_readable() and time.monotonic() < started + 5:
            assert storing.ask("POST", "/q/messages", {}, b"x").status == 201
        assert asking.answer().status in (200, 204)
        assert time.monotonic() - started < 2


def test_an_arrival_while_a_thread_claims_is_noticed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes nobody: the request that claims nothing does not wait yet."""
    claimed, may_end = threading.Event(), threading.Event()

    def slow(*of: Any) -> Steps[Prepared[list[Message]]]:
        prepared = yield from claim_in(*of)
        if not may_end.is_set():
            yield  # the rest is done in a thread, as behind many that have expired
            claimed.set()
            assert may_end.wait(PATIENCE_S)
        return prepared

    with Inside(root) as server, Wire(server.url) as wire:
        server.queue("q")
        server.load("q")
        monkeypatch.setattr(prepare, "claim_in", slow)
        wire.request("GET", "/q/messages?wait=20")
        assert claimed.wait(PATIENCE_S)
        server.queue("q", ready=[b"came"])
        may_end.set()
        started = time.monotonic()
        assert wire.answer().body == b"came"
        assert time.monotonic() - started < 10  # and not at the end of its wait
