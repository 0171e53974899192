"""Waiting requests on the fast path."""

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
    """A server with a key, and a key file without it; in the end no request is left."""
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
    """So many waiting requests, oldest first."""
    wires = [stack.enter_context(Wire(server.url)) for _ in range(number)]
    for at, wire in enumerate(wires, len(server.service.receiver.waiters) + 1):
        wire.request("GET", "/q/messages?wait=20&visibility=600", key)
        eventually(lambda at=at: len(server.service.receiver.waiters) == at)
    return wires


def test_a_revoked_key_ends_its_waits(guarded: tuple[Inside, dict[str, str], Path]) -> None:
    server, key, others = guarded
    with ExitStack() as stack:
        wires = wait(server, stack, key, WAITERS)
        started = time.monotonic()
        server.call(server.service.take_keys, load(others))
        assert [wire.answer().status for wire in wires] == [204] * WAITERS
        assert time.monotonic() - started < 15
        assert server.taken == WAITERS
        assert wires[0].ask("GET", "/q/messages", key).status == 401


def test_a_waiter_that_hung_up_leaves_the_message_to_the_next(
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


def test_concurrent_hang_ups_and_arrivals_lose_nothing(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    server, key, _ = guarded
    for number in range(20):
        with ExitStack() as stack:
            first, second = wait(server, stack, key, 2)
            server.queue("q", ready=[b"%d" % number], are_kept=False)
            first.close()  # before or after it has got the message
            server.queue("q", ready=[b"other"], are_kept=False)
            assert second.answer().status == 200
        eventually(lambda: not server.server._open.number)
        with Wire(server.url) as wire:
            while wire.ask("GET", "/q/messages?visibility=600", key).status == 200:
                pass


def test_a_waiter_is_refused_if_its_message_exceeds_the_memory_limit(
    guarded: tuple[Inside, dict[str, str], Path],
) -> None:
    """A waiter is refused like a new request if its message does not fit."""
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


@pytest.mark.parametrize("fast_path", [True, False], ids=["fast path", "aiohttp"])
@pytest.mark.parametrize("query", ["", "?count=10", "?wait=0.01"])
def test_a_claim_does_not_wait_for_messages_stored_after_it(
    root: Path, fast_path: bool, query: str
) -> None:
    """No mover runs, and the next message is stored before the claim gives up on the last one."""
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


def test_a_message_that_arrives_during_a_claim_in_a_thread_is_noticed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes no waiter: the claiming request does not wait yet."""
    claimed, may_end = threading.Event(), threading.Event()

    def slow(*of: Any) -> Steps[Prepared[list[Message]]]:
        prepared = yield from claim_in(*of)
        if not may_end.is_set():
            yield  # the claim goes on in a thread, as behind many that have expired
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
        assert time.monotonic() - started < 10  # rather than at the end of its wait
