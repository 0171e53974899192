"""Claims that end during their sync, with two mq on one spool, end no other claims."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.inject import SYNCS, injected
from tests.harness.suite import PATIENCE_S, Suite, eventually
from tests.http.helpers import Answer, Wire

CLIENTS = 8
WAIT_S = 20.0
SHORT_S, LONG_S = 3.0, 600.0  # the short one is longer than eight claims take on a busy machine
SYNC = ["--sync=syncfs"]


@pytest.fixture
def slow(root: Path) -> Iterator[Suite]:
    """An mq whose syncs will be delayed, and a mover."""
    with Suite(root, mq_options=SYNC, reaper=False) as running:
        yield running


@pytest.fixture
def quick(slow: Suite) -> Iterator[Suite]:
    """Another mq on the same spool."""
    logs = slow.root.parent / "logs-quick"
    with Suite(slow.root, mq_options=SYNC, mover=False, reaper=False, logs=logs) as running:
        yield running


def test_a_claim_that_ended_during_its_sync_ends_no_later_one(slow: Suite, quick: Suite) -> None:
    """Clients claim for a moment, and half of them hang up during the sync."""
    with ExitStack() as stack:
        one, other = (stack.enter_context(Wire(suite.url, PATIENCE_S)) for suite in (slow, quick))
        other.ask("PUT", "/q")
        stored = {other.ask("POST", "/q/messages", {}, b"%d" % n).id for n in range(CLIENTS)}
        eventually(lambda: len(os.listdir(slow.root / "queues" / "q")) == CLIENTS)
        clients = [stack.enter_context(Wire(slow.url, PATIENCE_S)) for _ in stored]
        # Until strace ends, when others hold all messages.
        with injected(slow, f"{SYNCS}:delay_enter={10 * PATIENCE_S:g}s", programs=["mq"]):
            for client in clients:
                client.request("GET", f"/q/messages?wait={WAIT_S:g}&visibility={SHORT_S:g}")
            eventually(lambda: len(os.listdir(slow.root / "delay")) == CLIENTS, SHORT_S)
            for client in clients[::2]:
                client.close()
            held = {answer.id: answer for answer in (fetch(other) for _ in stored)}
            assert held.keys() == stored
        answers = [client.answer() for client in clients[1::2]]
        # These requests are handled after the releases for the lost clients.
        assert one.ask("PUT", "/elsewhere").status == 201
        for _ in range(3):
            assert one.ask("POST", "/elsewhere/messages", {}, b"").status == 201
        assert {answer.status for answer in answers} == {200}
        assert {deliveries(answer) for answer in answers} == {1}
        assert {deliveries(answer) for answer in held.values()} == {2}
        for wire in (one, other):
            assert wire.ask("GET", "/q/messages").status == 204
        for message_id in held:
            found = one.ask("GET", f"/q/messages/{message_id}")
            assert deliveries(found) == 2
            assert one.ask("DELETE", f"/q/messages/{message_id}").status == 202


def fetch(wire: Wire) -> Answer:
    answer = wire.ask("GET", f"/q/messages?wait={WAIT_S:g}&visibility={LONG_S:g}")
    assert answer.status == 200
    return answer


def deliveries(answer: Answer) -> int:
    return int(answer.headers["X-Message-Deliveries"])
