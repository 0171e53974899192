"""A queue is deleted and created again during a put into it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Spool, Unavailable
from fsmq.spool.durability import settings_lock
from tests.harness.spool_errors import errors_in
from tests.interleave.gate import Actor, Gate

KINDS = ["fifo", "index"]


def put(spool: Spool, kind: str, body: bytes, given: str) -> str:
    if kind == "index":
        [message_id] = spool.indexed("jobs").upsert([NewMessage(body, id=given)])
        return message_id
    return spool.queue("jobs").put(body, group="g", dedup_id=given)


def drain(root: Path) -> list[bytes]:
    found: list[bytes] = []
    while True:
        with Spool(root, sync="none", watch="poll") as spool:
            spool.deliver()
            messages = spool.queue("jobs").claim(9)
            spool.queue("jobs").ack(*messages)
            if not messages:
                return found
            found += [message.body for message in messages]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.0)


@pytest.mark.parametrize("again", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_put_follows_the_settings_of_the_new_queue(
    scratch: Path, kind: str, again: str
) -> None:
    gate = Gate()
    refused = 0
    with gate.open():
        for stop in range(1000):
            root = scratch / str(stop)
            one, other = (
                Spool(root, sync="none", delivers=not number, watch="poll") for number in range(2)
            )
            with one, other:
                one.create_queue("jobs", **{kind: True})
                put(one, kind, b"old", "old")
                ids: list[str] = []

                def stopped(one: Spool = one, ids: list[str] = ids) -> None:
                    with suppress(NoSuchQueue, Unavailable, InvalidValue):
                        ids.append(put(one, kind, b"stopped", "x"))

                actor = Actor(gate, stopped)
                if actor.run(stop):
                    break
                try:
                    other.delete_queue("jobs")
                except Unavailable:
                    # The put holds the lock: the deletion succeeds after its end.
                    actor.run(None)
                    assert set(drain(root)) == {b"old", b"stopped"}
                    other.delete_queue("jobs")
                    refused += 1
                assert other.create_queue("jobs", **{again: True})
                actor.run(None)
                assert actor.error is None
                # A retry of a refused put is stored, and so is another put.
                is_retried = not ids and again == kind
                if is_retried:
                    put(other, again, b"stopped", "x")
                put(other, again, b"last", "y")
                found = drain(root)
                assert [*found].count(b"last") == 1
                assert set(found) <= {b"stopped", b"last"}
                if kind == again == "fifo":
                    assert found in ([b"stopped", b"last"], [b"last"])
                if b"stopped" not in found and again == kind:
                    # It was put before the deletion and removed with the queue: its id is free.
                    assert not is_retried
                    put(other, again, b"stopped", "x")
                    assert drain(root) == [b"stopped"], f"stopped before {stop}"
            assert errors_in(root) == []
        else:
            raise AssertionError("the put did not end")
        assert 0 < refused < stop - 2  # only while the put holds the lock
