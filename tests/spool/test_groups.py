"""Groups of fifo queues: their order, and one message of each in flight, also after crashes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmq import InvalidValue, Message, NewMessage, NoSuchMessage, Queue, Spool
from fsmq.spool import prepare
from fsmq.spool.durability.locks import Lock, lock
from fsmq.spool.durability.shared_names import claims_name
from fsmq.spool.fsck import check
from fsmq.spool.index import listings
from fsmq.spool.index.events import Events
from fsmq.spool.index.listings import Unlisted
from fsmq.spool.index.ready_index import GRACE_S
from fsmq.spool.layout.transitions import CONFIG
from fsmq.spool.layout.uuids import group_bits
from fsmq.spool.verbs.latch import Latched
from tests.spool.crashing import begin_sends
from tests.spool.helpers import present
from tests.spool.test_delivery import someone_holds

QUEUE = "orders"


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none") as spool:
        spool.create_queue(QUEUE, fifo=True)
        yield spool


@pytest.fixture
def queue(spool: Spool) -> Queue:
    return spool.queue(QUEUE)


def bodies(messages: list[Message]) -> list[str]:
    return [m.body.decode() for m in messages]


def put(queue: Queue, *texts: str) -> list[str]:
    """Put texts, whose first letter is the group."""
    return queue.put_many([NewMessage(text.encode(), group=text[0]) for text in texts])


def test_a_group_has_one_message_in_flight(queue: Queue) -> None:
    put(queue, "a1", "a2", "b1", "a3", "b2")
    first = queue.claim(10)
    assert bodies(list(first)) == ["a1", "b1"]
    assert queue.claim(10) == []
    first[0].ack()
    assert bodies(list(queue.claim(10))) == ["a2"]


def test_a_message_has_its_group_and_its_place(queue: Queue) -> None:
    ids = put(queue, "a1", "b1", "a2")
    claimed = queue.claim(10)
    assert [message.group for message in claimed] == ["a", "b"]
    first, second = (message.sequence for message in claimed)
    assert first is not None
    assert second == first + 1
    assert ids[0][19:36] == ids[2][19:36] != ids[1][19:36]
    assert ids[0][19:36].replace("-", "") == group_bits(QUEUE, "a")


def lock_claims(spool: Spool) -> Lock:
    """Take the lock of claims, as a claim of another process does."""
    return present(lock(spool.tree, spool.tree.folder(CONFIG, claims_name(QUEUE)), os.O_CREAT))


def test_a_claim_that_may_not_wait_for_the_lock_raises(spool: Spool, queue: Queue) -> None:
    put(queue, "a1", "b1")
    assert bodies(list(queue.claim(1))) == ["a1"]
    other = lock_claims(spool)
    listings.forbid()
    try:
        with pytest.raises(Unlisted):
            queue.claim(1)
        other.unlock()
        assert bodies(list(queue.claim(1))) == ["b1"]
    finally:
        listings.allow()


def test_a_released_message_keeps_its_place(queue: Queue) -> None:
    put(queue, "a1", "a2")
    [claimed] = queue.claim()
    claimed.release()
    assert bodies(list(queue.claim(2))) == ["a1"]


def test_a_message_released_with_a_delay_blocks_its_group(queue: Queue) -> None:
    put(queue, "a1", "a2", "b1")
    [claimed] = queue.claim()
    claimed.release(delay=60)
    assert bodies(list(queue.claim(10))) == ["b1"]


def test_a_redelivered_message_keeps_its_place(queue: Queue) -> None:
    put(queue, "a1", "a2")
    queue.claim(visibility=0.05)
    assert bodies(list(queue.claim(10, wait=30))) == ["a1"]


def test_a_group_may_have_several_messages_in_flight_by_a_setting(queue: Queue) -> None:
    queue.configure(max_in_flight_per_group=2)
    put(queue, "a1", "a2", "a3")
    first = queue.claim(10)
    assert bodies(list(first)) == ["a1", "a2"]
    first[1].ack()
    assert bodies(list(queue.claim(10))) == ["a3"]


@pytest.mark.parametrize("fifo", [True, False])
def test_a_higher_limit_is_in_force_for_a_full_group(spool: Spool, fifo: bool) -> None:
    spool.create_queue("limited", fifo=fifo)
    limited = spool.queue("limited")
    limited.configure(max_in_flight_per_group=1, **({} if fifo else {"fetch_order": "fair"}))
    limited.put_many([NewMessage(b"x", group="one") for _ in range(4)])
    assert len(limited.claim(9)) == 1
    listings.forbid()  # a listing would find them, too
    try:
        assert limited.claim(9) == []
        limited.configure(max_in_flight_per_group=3)
        assert len(limited.claim(9)) == 2
    finally:
        listings.allow()


@pytest.mark.parametrize("fifo", [True, False])
def test_a_waiting_claim_soon_retries_a_latched_message(spool: Spool, fifo: bool) -> None:
    spool.create_queue("held", fifo=fifo)
    held = spool.queue("held")
    if not fifo:
        held.configure(fetch_order="fair")
    [message_id] = held.put_many([NewMessage(b"x", group="one")])
    with someone_holds(spool.tree.root / "queues" / "held" / message_id):
        assert held.claim() == []
        assert spool.context.pause_of("held", 10.0) < 2 * GRACE_S
    assert len(held.claim()) == 1


def test_a_whole_group_is_claimed_together(spool: Spool, queue: Queue) -> None:
    put(queue, "a1", "b1", "a2", "a3")

    def claim(count: int) -> list[str]:
        prepared = prepare.claim(spool.context, QUEUE, count, whole_groups=True)
        return [message.id for message in spool.complete(prepared)]

    together = claim(2)
    assert len(together) == 2
    assert len(claim(10)) == 1  # of b, as two of a are hidden
    queue.ack(together[0])
    assert claim(10) == []
    queue.ack(together[1])
    assert len(claim(10)) == 1


def test_groups_are_served_in_turn(queue: Queue) -> None:
    put(queue, *(f"a{n}" for n in range(5)), "b0", "c0", "b1")
    served = []
    while claimed := queue.claim():
        served += bodies(list(claimed))
        claimed[0].ack()
    assert served[:3] == ["a0", "b0", "c0"]
    assert [text for text in served if text[0] == "a"] == [f"a{n}" for n in range(5)]


def test_a_put_needs_a_group_and_takes_nothing_that_changes_the_order(queue: Queue) -> None:
    for given in ({}, {"group": ""}, {"group": "g" * 257}):
        with pytest.raises(InvalidValue, match="group"):
            queue.put("x", **given)  # type: ignore[arg-type]
    for field, value in (("id", "mine"), ("priority", 3), ("delay", 2.0)):
        with pytest.raises(InvalidValue, match=field):
            queue.put("x", group="g", **{field: value})  # type: ignore[arg-type]


def test_a_change_of_priority_is_refused(queue: Queue) -> None:
    [message_id] = put(queue, "a1")
    with pytest.raises(InvalidValue, match="fifo"):
        queue.set_priority(message_id, 3)


def test_a_standard_queue_keeps_the_group_and_no_order(spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    queue.put_many([NewMessage(b"1", group="g"), NewMessage(b"2", group="g")])
    assert [message.group for message in queue.claim(10)] == ["g", "g"]


def test_the_kind_of_a_queue_cannot_be_changed(spool: Spool, queue: Queue) -> None:
    with pytest.raises(InvalidValue, match="fifo"):
        queue.configure(fifo=False)
    spool.queue("jobs", create=True)
    with pytest.raises(InvalidValue, match="fifo"):
        spool.create_queue("jobs", fifo=True)
    with pytest.raises(InvalidValue, match="fifo"):
        spool.create_queue("both", fifo=True, index=True)
    assert spool.create_queue(QUEUE, fifo=True) is False


def test_a_renewal_does_not_claim_a_released_message_again(queue: Queue) -> None:
    put(queue, "a1", "a2")
    [claimed] = queue.claim()
    queue.release(claimed.id)
    with pytest.raises(NoSuchMessage):
        queue.renew(claimed.id)


def test_a_clock_that_goes_back_does_not_change_the_order(tmp_path: Path) -> None:
    now = [time.time()]
    with Spool(tmp_path / "spool", sync="none", clock=lambda: now[0]) as spool:
        spool.create_queue(QUEUE, fifo=True)
        queue = spool.queue(QUEUE)
        ids = put(queue, "a1")
        now[0] -= 3600
        ids += put(queue, "a2")
        with Spool(tmp_path / "spool", sync="none", clock=lambda: now[0]) as other:
            ids += put(other.queue(QUEUE), "a3")
    assert ids == sorted(ids)


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_two_processes_share_the_groups(tmp_path: Path, watch: str) -> None:
    """Each spool has its own index and events, or listings, as a host has."""
    root = tmp_path / "spool"
    with (
        Spool(root, sync="none", watch=watch) as here,  # type: ignore[arg-type]
        Spool(root, sync="none", watch="poll", poll_interval=0.01) as there,
    ):
        here.create_queue(QUEUE, fifo=True)
        one, two = here.queue(QUEUE), there.queue(QUEUE)
        put(one, *(f"{group}{n}" for n in range(4) for group in "abc"))
        served: list[str] = []
        while claimed := [*one.claim(2, wait=0.2), *two.claim(2, wait=0.2)]:
            assert len({message.group for message in claimed}) == len(claimed)
            served += bodies(list(claimed))
            for message in claimed:
                message.ack()
        for group in "abc":
            of_group = [text for text in served if text[0] == group]
            assert of_group == [f"{group}{n}" for n in range(4)]


def test_an_unwatched_queue_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this user has no watches left; also beside a program that gets events."""
    watch = Events.watch

    def refuse(events: Events, folder: str, **named: Any) -> bool:
        if folder.startswith("queues/"):
            events.unwatched[folder] = "fs.inotify.max_user_watches"
            return False
        return watch(events, folder, **named)

    with Spool(tmp_path / "spool", sync="none") as spool:
        spool.create_queue(QUEUE, fifo=True)
        spool.queue("fair", create=True).configure(fetch_order="fair")
        for name in (QUEUE, "fair"):
            watched = spool.queue(name)
            put(watched, "a1", "b1", "a2", "b2", "a3")
            with (
                monkeypatch.context() as patch,
                Spool(spool.tree.root, sync="none", poll_interval=0.01) as other,
            ):
                patch.setattr(Events, "watch", refuse)
                served, unwatched = [], other.queue(name)
                while claimed := [*unwatched.claim(wait=0.2), *watched.claim(wait=0.2)]:
                    served += bodies(list(claimed))
                    for message in claimed:
                        message.ack()
                put(watched, "a4")
                assert bodies(list(unwatched.claim(wait=30))) == ["a4"]
            assert sorted(served) == ["a1", "a2", "a3", "b1", "b2"]
            assert [text for text in served if text[0] == "a"] == ["a1", "a2", "a3"]


def test_the_deadline_of_a_claim_counts_from_the_end_of_its_wait(tmp_path: Path) -> None:
    now = [1_790_000_000.0]
    with Spool(tmp_path / "spool", sync="none", clock=lambda: now[0]) as spool:
        spool.create_queue(QUEUE, fifo=True)
        queue = spool.queue(QUEUE)
        put(queue, "a1")
        other = lock_claims(spool)
        found: list[Message] = []
        waiting = threading.Thread(target=lambda: found.extend(queue.claim(visibility=5)))
        waiting.start()
        waiting.join(0.1)
        now[0] += 100
        other.unlock()
        waiting.join()
        assert [message.deadline for message in found] == [now[0] + 5]


def send_and_die(spool: Spool, *messages: NewMessage) -> None:
    """Send messages from a process that dies before it shows them."""
    child = os.fork()
    if not child:
        with Spool(spool.tree.root, sync="none", delivers=False) as dying:
            begin_sends(dying, QUEUE, *messages)
            os._exit(0)
    os.waitpid(child, 0)


def test_messages_of_a_dead_sender_come_before_later_ones(spool: Spool, queue: Queue) -> None:
    send_and_die(spool, NewMessage(b"a1", group="a"), NewMessage(b"a2", group="a"))
    put(queue, "a3")
    served = []
    while claimed := queue.claim():
        served += bodies(list(claimed))
        claimed[0].ack()
    assert served == ["a1", "a2", "a3"]


def test_messages_of_a_dead_sender_are_delivered_without_another_send(spool: Spool) -> None:
    send_and_die(spool, NewMessage(b"a1", group="a"))
    with Spool(spool.tree.root, sync="none") as later:
        assert bodies(list(later.queue(QUEUE).claim(10))) == ["a1"]


def test_a_purge_and_a_deletion_unblock_groups(spool: Spool, queue: Queue) -> None:
    put(queue, "a1", "a2")
    queue.claim()
    queue.purge()
    put(queue, "a3")
    assert bodies(list(queue.claim(10))) == ["a3"]
    queue.delete()
    spool.create_queue(QUEUE, fifo=True)
    put(queue, "a4")
    assert bodies(list(queue.claim(10))) == ["a4"]
    assert not [name for name in os.listdir(spool.tree.root / "config") if "limits" in name]


@pytest.mark.parametrize("by_ids", [False, True])
def test_a_redrive_into_another_fifo_queue_is_refused(
    spool: Spool, queue: Queue, by_ids: bool
) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    jobs.put(b"plain")
    jobs.claim()[0].bury()
    dead = spool.queue("dead")
    letters = [message.id for message in dead.peek()]
    with pytest.raises(InvalidValue, match=r"to: .*fifo queue"):
        dead.redrive(only=letters if by_ids else None, to=queue.name)
    assert [message.id for message in dead.peek()] == letters
    assert queue.counts().total == 0


def test_a_fifo_queue_takes_moves_only_of_its_dead_letters(spool: Spool, queue: Queue) -> None:
    """A moved message keeps its name, and so the place that another queue gave it."""
    others = spool.queue("others", create=True)
    others.put("x", group="a")
    for move in (others.move_to, lambda target: spool.begin_move("others", target)):
        with pytest.raises(InvalidValue, match="fifo"):
            move(QUEUE)
    queue.configure(dead_letter_queue="dead", max_deliveries=9)
    put(queue, "a1", "a2")
    queue.claim()[0].bury()
    assert spool.queue("dead").move_to(QUEUE).moved == 1
    assert bodies(list(queue.claim(9))) == ["a1"]


def test_fsck_reports_files_without_a_place(spool: Spool, queue: Queue) -> None:
    put(queue, "a1")
    (spool.tree.root / "queues" / QUEUE / "by-hand").write_bytes(b"x")
    [finding] = check(spool.tree, pause=0).findings
    assert finding.kind.value == "no-place"


def test_the_view_of_a_process_that_does_not_claim_stays_small(queue: Queue) -> None:
    queue.put(b"x", group="first")
    assert len(queue.claim()) == 1
    view = queue.spool.context.groups._queues[queue.name].view
    with Spool(queue.spool.tree.root, sync="none") as other:
        theirs = other.queue(queue.name)
        for number in range(40):
            names = [f"{number}-{n}" for n in range(100)]
            theirs.put_many([NewMessage(b"x", group=name) for name in names])
            while messages := theirs.claim(100):
                theirs.ack(*messages)
            queue.spool.context.ready.refresh()
    assert len(view._order) <= 2 * 101 + 1024


def test_the_view_forgets_groups_without_messages(queue: Queue) -> None:
    view = None
    for number in range(30):
        queue.put_many([NewMessage(b"x", group=f"{number}-{n}") for n in range(10)])
        while messages := queue.claim(10):
            queue.ack(*messages)
        view = queue.spool.context.groups._queues[queue.name].view
    assert view is not None
    assert len(view._groups) + len(view._turns) + len(view._order) <= 30


def during_claim(monkeypatch: pytest.MonkeyPatch, spool: Spool, step: Callable[[], object]) -> None:
    """Run a step after the rename of the next claim, and let another thread read its events."""
    unlatch = Latched.unlatch

    def rest(latched: Latched) -> int:
        fd = unlatch(latched)
        monkeypatch.setattr(Latched, "unlatch", unlatch)
        step()
        refresh = threading.Thread(target=spool.context.ready.refresh)
        refresh.start()
        refresh.join()
        return fd

    monkeypatch.setattr(Latched, "unlatch", rest)


@pytest.fixture(params=["fifo", "limited"])
def grouped(request: pytest.FixtureRequest, spool: Spool) -> Queue:
    """A watched queue with at most one message of each group in flight."""
    queue = spool.queue("grouped")
    spool.create_queue(queue.name, fifo=request.param == "fifo")
    if request.param == "limited":
        queue.configure(fetch_order="fair", max_in_flight_per_group=1)
    queue.put("before", group="before")
    queue.claim()[0].ack()
    return queue


def test_a_message_that_arrives_during_a_claim_of_its_group_is_claimed_next(
    grouped: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(grouped.spool.tree.root, sync="none") as other:
        theirs = other.queue(grouped.name)
        grouped.put("first", group="a")
        during_claim(monkeypatch, grouped.spool, lambda: theirs.put("second", group="a"))
        [first] = grouped.claim()
        first.ack()
        assert bodies(list(grouped.claim())) == ["second"]


@pytest.mark.parametrize("then", ["release", "remove"])
def test_a_claim_that_ends_before_it_is_noted_blocks_nothing(
    grouped: Queue, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    with Spool(grouped.spool.tree.root, sync="none") as other:
        end = getattr(other.queue(grouped.name), then)
        first, second = sorted(grouped.put_many([NewMessage(b"x", group="a")] * 2))
        during_claim(monkeypatch, grouped.spool, lambda: end(first))
        grouped.claim()
        assert [m.id for m in grouped.claim()] == [first if then == "release" else second]


def test_a_backoff_that_begins_before_its_claim_is_noted_blocks_nothing(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(spool.tree.root, sync="none") as other:
        queue = spool.queue("limited", create=True)
        queue.configure(fetch_order="fair", max_in_flight_per_group=1, retry_backoff=60)
        queue.put("before", group="before")
        queue.claim()[0].ack()
        first, second = sorted(queue.put_many([NewMessage(b"x", group="a")] * 2))
        theirs = other.queue(queue.name)
        during_claim(monkeypatch, spool, lambda: theirs.release(first))
        queue.claim()
        assert [m.id for m in queue.claim()] == [second]
