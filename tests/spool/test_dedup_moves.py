"""Moves of dedup queues: claimed messages stay, and delayed messages keep their delay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Message, Spool, prepare
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.calls import seen
from tests.spool.helpers import Clock, back_to_new, present

BODIES = [b"m%d" % number for number in range(6)]


@pytest.fixture
def claimed(spool: Spool) -> list[Message]:
    """Messages of x that were claimed for a minute. y is empty."""
    create_queues(spool)
    send(spool, "x", *BODIES)
    return poll(spool, "x")


def create_queues(spool: Spool) -> None:
    for name in "xy":
        for side in (read_side(name), write_side(name)):
            spool.create_queue(side)


def send(spool: Spool, name: str, *bodies: bytes) -> None:
    spool.complete(prepare.dedup_send(spool.context, name, list(bodies)))
    spool.deliver()


def poll(spool: Spool, name: str) -> list[Message]:
    return spool.complete(dedup.poll(spool.context, name, 10, 60))


def acked(spool: Spool, messages: list[Message]) -> list[bool]:
    return [spool.queue(one.queue).ack(one.id, claim=one.claim) for one in messages]


def at_the_first_rename(step: Callable[[], object]) -> Callable[[str, tuple[Any, ...]], None]:
    """Run a step before a move renames its first message."""
    steps = [step]

    def see(name: str, arguments: tuple[Any, ...]) -> None:
        if (
            name == "_rename2"
            and str(arguments[2]).startswith(f"queues/{write_side('y')}")
            and steps
        ):
            steps.pop()()

    return see


def test_messages_claimed_during_a_move_stay(spool: Spool, claimed: list[Message]) -> None:
    for message in claimed:
        spool.queue(message.queue).release(message)
    ref = spool.begin_move("x", "y", dedup=True, in_flight=False).ref
    again: list[Message] = []
    with seen(at_the_first_rename(lambda: again.extend(poll(spool, "x")))):
        spool.make_move(ref)
    assert len(again) == len(BODIES)
    assert poll(spool, "y") == []
    assert all(acked(spool, again))


def test_a_delayed_message_that_is_still_new_moves_with_its_delay(
    spool: Spool, claimed: list[Message], clock: Clock
) -> None:
    assert all(acked(spool, claimed))
    spool.configure(write_side("x"), {"default_delay": 600})
    spool.complete(prepare.dedup_send(spool.context, "x", [b"later"]))
    back_to_new(spool.tree.root, write_side("x"))
    assert spool.counts(write_side("x")).new == 1
    spool.make_move(spool.begin_move("x", "y", dedup=True, in_flight=False, delayed=True).ref)
    assert poll(spool, "y") == []
    assert spool.counts(write_side("y")).delayed == 1
    clock.advance(601)
    spool.deliver()
    assert [message.body for message in poll(spool, "y")] == [b"later"]


def test_a_message_too_large_to_be_read_stays_and_is_counted(root: Path) -> None:
    with Spool(root, sync="none", max_message_bytes=100 << 20) as large:
        create_queues(large)
        send(large, "x", bytes(70 << 20), b"small")
        with Spool(root, sync="none") as small:
            order = present(small.make_move(small.begin_move("x", "y", dedup=True).ref))
        assert (order.status, order.moved, order.conflicts) == ("error", 1, 1)
        assert large.counts(write_side("x")).total == 1


def test_a_move_keeps_delays(spool: Spool, claimed: list[Message], clock: Clock) -> None:
    send(spool, "y", BODIES[1])
    spool.configure(read_side("x"), {"retry_backoff": 60.0})  # a release then keeps its delay
    for message in claimed[:2]:
        spool.queue(read_side("x")).release(message, delay=600)
    ref = spool.begin_move("x", "y", dedup=True, in_flight=False, delayed=True).ref
    assert present(spool.make_move(ref)).moved == 2
    assert all(acked(spool, claimed[2:]))
    assert spool.counts(read_side("x")).total == 0
    assert [message.body for message in poll(spool, "y")] == [BODIES[1]]
    assert spool.counts(write_side("y")).delayed == 1
    clock.advance(601)
    spool.deliver()
    assert BODIES[0] in [message.body for message in poll(spool, "y")]
