"""Messages of groups that cannot be claimed for now, and the messages behind them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fsmq import Message, NewMessage, Queue, Spool
from fsmq.spool import prepare
from fsmq.spool.durability.locks import lock
from fsmq.spool.durability.shared_names import claims_name
from fsmq.spool.errors import Unavailable
from fsmq.spool.layout.steps import FEW
from fsmq.spool.layout.transitions import CONFIG
from fsmq.spool.verbs.claim import claims_of
from tests.spool.test_delivery import someone_holds

LONG_S = 30.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none") as spool:
        spool.create_queue("fifo", fifo=True)
        spool.create_queue("fair")
        spool.configure("fair", {"fetch_order": "fair"})
        spool.create_queue("limited")
        spool.configure("limited", {"fetch_order": "fair", "max_in_flight_per_group": 4})
        yield spool


def put(queue: Queue, *texts: str) -> list[str]:
    """Put texts; the first letter is the group."""
    return queue.put_many([NewMessage(text.encode(), group=text[0]) for text in texts])


def bodies(messages: list[Message]) -> list[str]:
    return [m.body.decode() for m in messages]


def file_of(spool: Spool, queue: str, message_id: str) -> Path:
    return spool.tree.root / "queues" / queue / message_id


def spoil(file: Path) -> Callable[[], None]:
    """Make a message too large to be read; a function that repairs it."""
    size = file.stat().st_size
    os.truncate(file, 1 << 40)
    return lambda: os.truncate(file, size)


def load(spool: Spool, queue: str) -> None:
    """List a queue as mq does before a claim."""
    spool.context.ready.refresh()
    spool.context.ready.load(queue)


def count_waits(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The length of each wait of a claim."""
    waits: list[float] = []
    wait = spool.wait

    def counted(seconds: float, since: int | None = None) -> None:
        waits.append(seconds)
        wait(seconds, since)

    monkeypatch.setattr(spool, "wait", counted)
    return waits


@pytest.mark.parametrize("name", ["fair", "limited"])
def test_a_message_that_another_process_holds_hides_no_other(spool: Spool, name: str) -> None:
    queue = spool.queue(name)
    first, *_ = put(queue, "a1", "a2", "b1", "a3")
    with someone_holds(file_of(spool, name, first)):
        assert sorted(bodies(list(queue.claim(9)))) == ["a2", "a3", "b1"]
        put(queue, "a4")
        assert bodies(list(queue.claim(9))) == ["a4"]
    assert bodies(list(queue.claim(9, wait=LONG_S))) == ["a1"]


@pytest.mark.parametrize("name", ["fair", "limited"])
@pytest.mark.parametrize("watch", ["events", "poll"])
def test_a_message_that_cannot_be_read_hides_no_other(spool: Spool, name: str, watch: str) -> None:
    with Spool(spool.tree.root, sync="none", watch=watch, poll_interval=0.01) as other:  # type: ignore[arg-type]
        queue = other.queue(name)
        first, *_ = put(queue, "a1", "a2", "b1", "a3")
        repair = spoil(file_of(spool, name, first))
        claimed: list[Message] = [*queue.claim(2), *queue.claim(2)]
        assert sorted(bodies(claimed)) == ["a2", "a3", "b1"]
        with pytest.raises(Unavailable):
            queue.claim()  # the queue is not empty
        repair()
        assert bodies(list(queue.claim(wait=LONG_S))) == ["a1"]


def test_a_held_message_of_a_fifo_queue_holds_up_only_its_group(spool: Spool) -> None:
    queue = spool.queue("fifo")
    queue.configure(max_in_flight_per_group=2)
    first, *_ = put(queue, "a1", "a2", "b1", "b2", "b3")
    with someone_holds(file_of(spool, "fifo", first)):
        assert bodies(list(queue.claim(9))) == ["b1", "b2"]
        put(queue, "a3")
        assert queue.claim(9) == []
    assert bodies(list(queue.claim(9, wait=LONG_S))) == ["a1", "a2"]


@pytest.mark.parametrize("name", ["fifo", "fair"])
def test_any_number_of_held_messages_hides_no_other(spool: Spool, name: str) -> None:
    queue = spool.queue(name)
    ids = queue.put_many([NewMessage(b"held", group=str(n)) for n in range(2 * FEW)])
    put(queue, "free")
    with ExitStack() as held:
        for one in ids:
            held.enter_context(someone_holds(file_of(spool, name, one)))
        assert bodies(list(queue.claim(9))) == ["free"]
    found: list[Message] = []
    while len(found) < len(ids) and (claimed := queue.claim(99, wait=LONG_S)):
        found += claimed
    assert sorted(m.id for m in found) == sorted(ids)


def test_a_whole_group_is_claimed_up_to_a_held_message(spool: Spool) -> None:
    queue = spool.queue("fifo")
    _, second, _, _ = put(queue, "a1", "a2", "a3", "b1")
    with someone_holds(file_of(spool, "fifo", second)):
        together = prepare.claim(spool.context, "fifo", 9, whole_groups=True)
        assert bodies(spool.complete(together)) == ["a1", "b1"]


def test_a_waiter_sleeps_though_a_failed_message_of_a_full_group_is_due(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = spool.queue("limited")
    queue.configure(max_in_flight_per_group=1)
    load(spool, "limited")
    message_id = queue.put(b"x", group="a", priority=60)
    spoil(file_of(spool, "limited", message_id))
    with pytest.raises(Unavailable):
        queue.claim()
    put(queue, "a2")
    assert bodies(list(queue.claim())) == ["a2"]
    waits = count_waits(spool, monkeypatch)
    assert queue.claim(wait=1.5) == []
    assert len(waits) < 20


@pytest.mark.parametrize(("order", "then"), [("oldest", "fair"), ("fair", "oldest")])
def test_a_waiter_sleeps_after_a_change_of_the_order(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, order: str, then: str
) -> None:
    """Messages that were set aside in the old order are not tried."""
    queue = spool.queue("fair")
    load(spool, "fair")
    [message_id, *_] = put(queue, "a1", "a2")
    queue.configure(fetch_order=order)
    with someone_holds(file_of(spool, "fair", message_id)):
        assert bodies(list(queue.claim(2))) == ["a2"]
        queue.configure(fetch_order=then, max_in_flight_per_group=1 if then == "fair" else None)
        waits = count_waits(spool, monkeypatch)
        assert queue.claim(wait=0.5) == []
        assert len(waits) < 20


def test_a_waiter_sleeps_after_a_held_message_is_gone(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index knows that it is gone before the claim that met it ends."""
    queue = spool.queue("fair")
    [message_id, _] = put(queue, "a1", "b1")
    context = spool.context
    load(spool, "fair")
    with someone_holds(file_of(spool, "fair", message_id)):
        claiming = claims_of(context, "fair", context.settings_of("fair"), iter(()), None)
        claim = next(claiming)
        assert claim is not None
        os.close(claim.fd)
        file_of(spool, "fair", message_id).unlink()
        context.ready.refresh()
        claiming.close()
    waits = count_waits(spool, monkeypatch)
    assert queue.claim(wait=0.5) == []
    assert len(waits) < 20
    assert context.pause_of("fair", 10.0) == 10.0


def test_a_held_message_is_retried_after_a_long_look_at_other_queues(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the retry has passed when the claim begins to wait."""
    spool.create_queue("later", fifo=True)
    put(spool.queue("later"), "a1", "a2")
    assert bodies(list(spool.queue("later").claim())) == ["a1"]
    [message_id] = put(spool.queue("fifo"), "a1")
    both = spool.select(["fifo", "later"])
    others = lock(spool.tree, spool.tree.folder(CONFIG, claims_name("later")), os.O_CREAT)
    assert others is not None
    with ExitStack() as held:
        held.callback(others.unlock)
        held.enter_context(someone_holds(file_of(spool, "fifo", message_id)))
        freeing = threading.Timer(0.2, held.close)  # after the time of the retry
        freeing.start()
        waits = count_waits(spool, monkeypatch)
        assert bodies(list(both.claim(wait=LONG_S))) == ["a1"]
        freeing.join()
    assert max(waits) < 1.0


def test_a_held_message_is_retried_less_and_less_often(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = spool.queue("fair")
    [message_id] = put(queue, "a1")
    with someone_holds(file_of(spool, "fair", message_id)):
        waits = count_waits(spool, monkeypatch)
        assert queue.claim(wait=1.0) == []
        assert 3 <= len(waits) <= 6
