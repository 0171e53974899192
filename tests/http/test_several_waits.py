"""Waits for several queues: order, wake-ups, hang-ups and keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fsmq.http.guard.access import Access
from fsmq.http.guard.keys import load
from fsmq.http.guard.limits import Limits
from fsmq.http.native.messages import several as native
from fsmq.spool import Message
from fsmq.spool.context import Prepared
from fsmq.spool.layout.steps import Steps
from fsmq.spool.spool import Spool
from fsmq.spool.verbs.several import claim_several_in
from tests.harness.suite import PATIENCE_S, eventually
from tests.http.helpers import Answer, Wire
from tests.http.inside import Inside
from tests.http.keyfile import add_key, bearer
from tests.http.test_errors import is_problem

QUEUES = ("a", "b", "t-1")


@pytest.fixture
def server(root: Path) -> Iterator[Inside]:
    """A server with three queues; in the end no request is counted."""
    with Inside(root) as running:
        for queue in QUEUES:
            running.queue(queue)
        yield running
        eventually(running.holds_nothing)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def waits(server: Inside, stack: ExitStack, *asked: str, key: str = "") -> list[Wire]:
    """Waiting requests, in order: for several queues, or for one (``/a``)."""
    wires = []
    for queues in asked:
        wire = stack.enter_context(Wire(server.url))
        where = f"{queues}/messages?" if queues[0] == "/" else f"/_claim?queues={queues}&"
        before = server.call(len, server.service.receiver.waiters)
        wire.request("GET", f"{where}wait=20&visibility=600", bearer(key) if key else {})
        eventually(
            lambda before=before: server.call(len, server.service.receiver.waiters) == before + 1
        )
        wires.append(wire)
    return wires


def waiting(server: Inside) -> int:
    return server.call(len, server.service.receiver.waiters)


def came(server: Inside, *queues: str) -> None:
    """Put a message into each of these queues in turn."""
    for queue in queues:
        server.queue(queue, ready=[queue.encode()], are_kept=False)


def bodies(wires: list[Wire]) -> list[bytes]:
    return [wire.answer().body for wire in wires]


def ask(server: Inside, target: str) -> Answer:
    with Wire(server.url) as wire:
        return wire.ask("GET", target)


def test_waiters_are_served_in_order(server: Inside, stack: ExitStack) -> None:
    a, both, b, other, last = waits(server, stack, "/a", "a,b", "/b", "b:3,a", "t-*,b")
    for queue, wire in (("b", both), ("b", b), ("a", a), ("b", other), ("t-1", last)):
        came(server, queue)
        assert wire.answer().body == queue.encode()
    assert waiting(server) == 0


@pytest.mark.parametrize("queues", ["a,b", "b:1,a:9", "?", "*"])
def test_an_unused_wake_up_goes_to_the_next_waiter(
    server: Inside, stack: ExitStack, queues: str
) -> None:
    """Messages come into both queues at once; the waiter for both takes one."""
    for _ in range(20):
        both, alone_a, alone_b = waits(server, stack, queues, "/a", "/b")

        def at_once() -> None:
            # Before any woken waiter claims.
            came(server, "a", "b")
            server.spool.context.ready.refresh()

        server.call(at_once)
        first = both.answer().body
        rest = alone_b if first == b"a" else alone_a
        assert rest.answer().body != first
        came(server, first.decode())
        left = alone_a if rest is alone_b else alone_b
        assert left.answer().body == first


def test_a_waiter_that_is_woken_in_vain_keeps_its_place(server: Inside, stack: ExitStack) -> None:
    both, b = waits(server, stack, "a,b", "/b")
    server.call(server.service.receiver.waiters.wake, "a", 1)  # for a message that another took
    eventually(lambda: waiting(server) == 2)
    came(server, "b")
    assert both.answer().body == b"b"
    came(server, "b")
    assert b.answer().body == b"b"


def test_the_wake_up_of_a_closed_connection_goes_to_the_next_waiter(
    server: Inside, stack: ExitStack
) -> None:
    gone, b = waits(server, stack, "a,b", "/b")
    gone.close()
    eventually(lambda: waiting(server) == 1)
    came(server, "b")
    answer = b.answer()
    assert (answer.body, answer.headers["X-Message-Deliveries"]) == (b"b", "1")


@pytest.mark.parametrize("queues", ["a,b", "a:2,t-*,b:7", "*"])
def test_concurrent_hang_ups_and_arrivals_lose_nothing(server: Inside, queues: str) -> None:
    chance = Random(queues)
    for _ in range(40):
        with ExitStack() as stack:
            first, second, behind = waits(server, stack, queues, queues, "/b")
            came(server, chance.choice(QUEUES[:2]))
            chance.choice((first, second)).close()  # before or after it has got the message
            came(server, "b", "b")
            assert behind.answer().body == b"b"
        eventually(lambda: not server.server._open.number)
        while ask(server, "/_claim?queues=*&visibility=600").status == 200:
            pass


def test_a_hang_up_before_the_queues_are_listed(server: Inside) -> None:
    for _ in range(20):
        came(server, "b")
        with Wire(server.url) as wire:
            wire.request("GET", "/_claim?queues=*&wait=20")
        eventually(lambda: not server.server._open.number)
        assert waiting(server) == 0
    # Only requests that were answered before the hang-up have claimed.
    left = 0
    while ask(server, "/_claim?queues=b&visibility=600").status == 200:
        left += 1
    assert left > 0


def test_a_pattern_waits_for_new_queues(server: Inside, stack: ExitStack) -> None:
    every, others = waits(server, stack, "t-*", "u-*")
    server.queue("u-1")
    eventually(lambda: waiting(server) == 2 and "u-1" in server.service.receiver.waiters.queues())
    came(server, "u-1", "t-1")
    assert bodies([others, every]) == [b"u-1", b"t-1"]
    [several] = waits(server, stack, "none-*")
    came(server, "none-1")  # with its first message
    assert several.answer().body == b"none-1"


def test_a_deleted_queue_is_an_error_if_it_was_named(server: Inside, stack: ExitStack) -> None:
    named, pattern = waits(server, stack, "a,b", "?")
    (server.root / "queues/b").rmdir()
    answer = named.answer()
    assert is_problem(answer, 404, "no-such-queue")
    assert answer.json["queue"] == "b"
    came(server, "a")
    assert pattern.answer().body == b"a"


def test_a_waiter_counts_once_for_its_key(root: Path, tmp_path: Path) -> None:
    file, others = tmp_path / "keys", tmp_path / "others"
    key = add_key(file, "one", "--receive=*")
    add_key(others, "two", "--receive=*")
    limits = Limits(waiters_per_key=2)
    with Inside(root, access=Access(load(file)), limits=limits) as server, ExitStack() as stack:
        for queue in QUEUES:
            server.queue(queue)
        wires = waits(server, stack, "a,b,t-*", "none-*", key=key)
        with Wire(server.url) as wire:
            refused = wire.ask("GET", "/_claim?queues=a,b&wait=20", bearer(key))
            assert is_problem(refused, 429, "too-many-requests")
        server.call(server.service.take_keys, load(others))
        assert [wire.answer().status for wire in wires] == [204, 204]
        eventually(server.holds_nothing)


def test_a_resumed_queue_wakes_a_waiter(server: Inside, stack: ExitStack) -> None:
    server.spool.queue("a").configure(paused=True)
    came(server, "a")
    [both] = waits(server, stack, "a,b")
    server.spool.queue("a").configure(paused=None)
    assert both.answer().body == b"a"


def test_a_message_that_arrives_during_a_claim_in_a_thread_is_noticed(
    server: Inside, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes no waiter: the claiming request does not wait yet."""
    claimed, may_end = threading.Event(), threading.Event()

    def slow(*of: Any) -> Steps[Prepared[list[Message]]]:
        prepared = yield from claim_several_in(*of)
        yield  # the claim goes on in a thread
        claimed.set()
        assert may_end.wait(PATIENCE_S)
        return prepared

    monkeypatch.setattr(native, "claim_several_in", slow)
    wire = stack.enter_context(Wire(server.url))
    wire.request("GET", "/_claim?queues=a,b&wait=20")
    assert claimed.wait(PATIENCE_S)
    server.queue("b", ready=[b"b"])
    assert waiting(server) == 0
    may_end.set()
    assert wire.answer().body == b"b"
    assert not wire.is_readable()


def test_a_group_that_is_freed_during_a_claim_in_a_thread_is_noticed(
    server: Inside, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of messages is the same, but one is no longer blocked."""
    claimed, may_end = threading.Event(), threading.Event()

    def slow(*of: Any) -> Steps[Prepared[list[Message]]]:
        prepared = yield from claim_several_in(*of)
        if not may_end.is_set():
            yield  # the claim goes on in a thread
            claimed.set()
            assert may_end.wait(PATIENCE_S)
        return prepared

    with Spool(server.root, sync="none") as other:
        other.create_queue("f", fifo=True)
        fifo = other.queue("f")
        for body in (b"first", b"second"):
            fifo.put(body, group="one")
        other.deliver()
        server.seen("f", 2)
        [first] = fifo.claim(visibility=600)
        assert ask(server, "/_claim?queues=a,f").status == 204  # it has been listed
        monkeypatch.setattr(native, "claim_several_in", slow)
        wire = stack.enter_context(Wire(server.url))
        wire.request("GET", "/_claim?queues=a,f&wait=20")
        assert claimed.wait(PATIENCE_S)
        before = server.service.receiver.arrivals
        assert first.ack()
        eventually(lambda: server.service.receiver.arrivals > before)
    may_end.set()
    started = time.monotonic()
    assert wire.answer().body == b"second"
    assert time.monotonic() - started < 10  # rather than at the end of its wait


def test_many_waiters_for_many_queues(server: Inside, stack: ExitStack) -> None:
    for number in range(100):
        server.queue(f"m-{number}")
    wires = waits(server, stack, *["m-*"] * 40)
    came(server, *(f"m-{number}" for number in range(40)))
    assert sorted(bodies(wires)) == sorted(b"m-%d" % number for number in range(40))
    assert (waiting(server), server.service.receiver.waiters.queues()) == (0, [])


def test_concurrent_claims_share_a_listing(
    server: Inside, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_listed, may_end, listings = threading.Event(), threading.Event(), []
    queues = server.spool.queues

    def slow() -> list[str]:
        listings.append(queues())
        is_listed.set()
        assert may_end.wait(PATIENCE_S)
        return listings[-1]

    def asks() -> Wire:
        wire = stack.enter_context(Wire(server.url))
        wire.request("GET", "/_claim?queues=new-*&visibility=600")
        return wire

    monkeypatch.setattr(server.spool, "queues", slow)
    before = asks()
    assert is_listed.wait(PATIENCE_S)
    came(server, "new-1")
    others = [asks() for _ in range(20)]
    server.until_open(21)
    may_end.set()
    assert before.answer().status == 204
    assert sorted(wire.answer().status for wire in others) == [200, *[204] * 19]
    assert len(listings) <= 3
