"""Peek, find, counts, lists of queues, and moves of messages between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Queue, Spool, State
from fsmq.spool.moves import order as moves
from fsmq.spool.views.browse import peek_all
from tests.spool.helpers import Clock, back_to_new, present, tree_of, visible


def test_peek_shows_messages_in_order_and_claims_none(spool: Spool, jobs: Queue) -> None:
    jobs.put_many([b"2", b"3", NewMessage(b"9", priority=9), b"4"])
    spool.deliver()
    for _ in range(2):
        peeked = jobs.peek(3)
        assert [m.body for m in peeked] == [b"2", b"3", b"4"]
        assert {(m.state, m.deliveries, m.deadline) for m in peeked} == {("ready", 0, None)}
    assert [m.body for m in jobs.peek(9, after=peeked[-1].id)] == [b"9"]


def test_peek_uses_the_index(spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.put_many([b"%d" % n for n in range(6)])
    spool.deliver()
    with Spool(spool.tree.root, sync="none", delivers=False) as other:
        other.queue("jobs").remove(other.queue("jobs").peek(1)[0].id)
    assert [m.body for m in jobs.claim()] == [b"1"]
    listed: list[str] = []
    listing = spool.tree.ready_names
    monkeypatch.setattr(
        spool.tree, "ready_names", lambda queue: listed.append(queue) or listing(queue)
    )
    assert [m.body for m in jobs.peek(3)] == [b"2", b"3", b"4"]
    assert [m.body for m in peek_all(spool.context, "jobs", 3)] == [b"1", b"2", b"3"]
    assert listed == []
    assert [m.body for m in jobs.peek(9)] == [b"2", b"3", b"4", b"5"]
    assert listed == []


def test_peek_skips_entries_that_are_no_messages(spool: Spool, jobs: Queue) -> None:
    (spool.tree.root / "queues" / "jobs" / "00-a-link").symlink_to("/dev/null")
    jobs.put_many([b"1", b"2", b"3"])
    spool.deliver()
    spool.context.ready.refresh()  # reads the creation of the queue
    spool.context.ready.load("jobs")
    assert spool.context.ready.first("jobs", 1) == ["00-a-link"]
    assert [m.body for m in jobs.peek(2)] == [b"1", b"2"]


def test_peek_shows_messages_of_every_state(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"in flight")
    delayed = jobs.put(b"delayed", delay=9)
    [held] = jobs.claim(visibility=5)
    jobs.put(b"new", id="new")
    (spool.tree.root / "queues" / "jobs" / "new").rename(spool.tree.root / "new" / "jobs:new")
    assert [m.body for m in jobs.peek(state="new")] == [b"new"]
    hidden = {m.id: m for m in jobs.peek(state="delay")}
    assert (hidden[held.id].state, hidden[held.id].deadline) == ("in_flight", clock.now + 5)
    assert (hidden[delayed].state, hidden[delayed].deadline) == ("delayed", clock.now + 9)
    assert [m.id for m in jobs.peek(state="in_flight")] == [held.id]
    assert [m.id for m in jobs.peek(1, state="delayed")] == [delayed]
    assert jobs.peek(state="ready") == []
    jobs.remove(held.id)
    assert [m.id for m in jobs.peek(state="remove")] == [held.id]
    with pytest.raises(InvalidValue, match="in_flight"):
        jobs.peek(state="flying")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(jobs: Queue, limit: int) -> None:
    with pytest.raises(InvalidValue):
        jobs.peek(limit)


def test_find_finds_messages_of_every_state(spool: Spool, jobs: Queue) -> None:
    message_id = jobs.put(b"x", content_type="text/plain", attributes={"Trace": "1"})
    back_to_new(spool.tree.root)
    states = []
    for step in (lambda: None, spool.deliver, jobs.claim):
        step()
        found = present(jobs.find(message_id))
        assert (found.body, found.content_type) == (b"x", "text/plain")
        assert found.attributes == {"Trace": "1"}
        states.append(found.state)
    assert states == ["new", "ready", "in_flight"]
    jobs.remove(message_id)
    assert jobs.find(message_id) is None


def test_an_own_id_is_found_in_every_state(spool: Spool, jobs: Queue) -> None:
    jobs.put(b"x", id="order-17", priority=7, ttl=60)
    jobs.put(b"x", id="order-17", priority=2)
    jobs.put(b"x", id="order-18", delay=60, priority=7)
    spool.queue("others", create=True).put(b"x", id="order-1", ttl=60)
    assert [place.state for place in spool.find("order-17")] == ["ready", "ready"]
    claimed = jobs.claim(2)
    assert {place.state for place in spool.find("order-17")} == {"in_flight"}
    claimed[0].ack()
    [one] = spool.find("order-17")
    assert one.id == claimed[1].id
    assert [place.state for place in spool.find("order-18")] == ["delayed"]
    assert [place.queue for place in spool.find("order-1")] == ["others"]
    assert spool.find("order-") == []


def test_all_messages_of_an_own_id_are_found(spool: Spool) -> None:
    for queue in ("jobs", "others"):
        spool.create_queue(queue)
    for queue, priority in (("jobs", 3), ("jobs", 5), ("jobs", 0), ("others", 3)):
        spool.queue(queue).put(b"x", id="order-4711", priority=priority)
    found = [(place.queue, place.id) for place in spool.find("order-4711")]
    assert found == [
        ("jobs", "order-4711"),
        ("jobs", "p03.@order-4711@"),
        ("jobs", "p05.@order-4711@"),
        ("others", "p03.@order-4711@"),
    ]
    assert [place.id for place in spool.find("p03.@order-4711@")] == ["p03.@order-4711@"] * 2


def test_find_reads_nothing_outside_its_queue(spool: Spool, jobs: Queue) -> None:
    jobs.configure(max_depth=5)
    other = spool.queue("other", create=True).put(b"not yours")
    spool.deliver()
    for name in (f"../other/{other}", "../../config/jobs.json", f"../../queues/other/{other}"):
        with pytest.raises(InvalidValue):
            jobs.find(name)
    assert jobs.find(other) is None


def test_counts_are_by_state(spool: Spool, jobs: Queue) -> None:
    jobs.put_many([b"1", b"2", b"3", NewMessage(b"4", delay=9)])
    jobs.claim(2)
    jobs.put(b"5", id="5")
    (spool.tree.root / "queues" / "jobs" / "5").rename(spool.tree.root / "new" / "jobs:5")
    assert jobs.counts() == (1, 1, 2, 1)
    assert jobs.counts().total == 5


def test_queues_are_listed_by_name(spool: Spool, root: Path) -> None:
    for name in ("b", "a:b", "B", "__meta"):
        assert spool.create_queue(name) is True
        assert spool.create_queue(name) is False
    (root / "queues" / ".hidden").mkdir()
    (root / "queues" / "a file").touch()
    (root / "queues" / "link").symlink_to(root)
    assert spool.queues() == ["B", "__meta", "a:b", "b"]
    assert not spool.has_queue("link")


def test_naming_a_queue_does_not_create_it(spool: Spool) -> None:
    with pytest.raises(NoSuchQueue):
        spool.queue("gone").put(b"x")
    assert spool.queues() == []


def test_move_takes_new_and_ready_messages(spool: Spool, jobs: Queue, root: Path) -> None:
    spool.create_queue("other")
    ids = jobs.put_many([b"held", b"ready"])
    jobs.claim()
    new = jobs.put(b"new", delay=9)
    (root / "delay" / f"jobs:{new}").rename(root / "new" / f"jobs:{new}")
    assert jobs.move_to("other") == (2, 0)
    assert visible(root) == [("jobs", ids[0]), ("other", ids[1]), ("other", new)]
    assert [m.body for m in spool.queue("other").claim(5)] == [b"ready"]


def test_move_takes_messages_in_flight_if_told_to(spool: Spool, jobs: Queue) -> None:
    spool.create_queue("other")
    message_id = jobs.put(b"x")
    jobs.claim()
    assert jobs.move_to("other", in_flight=True) == (1, 0)
    [message] = spool.queue("other").claim()
    assert (message.id, message.deliveries) == (message_id, 2)


def test_move_overwrites_nothing(spool: Spool, jobs: Queue, root: Path) -> None:
    spool.queue("other", create=True).put(b"theirs", id="one")
    jobs.put_many([NewMessage(b"ours", id="one"), NewMessage(b"two", id="two")])
    spool.deliver()
    assert jobs.move_to("other") == (1, 1)
    assert tree_of(root)["queues/jobs"] == ["one"]
    assert {m.body for m in spool.queue("other").claim(5)} == {b"theirs", b"two"}


@pytest.mark.parametrize("background", [False, True], ids=["now", "in the background"])
@pytest.mark.parametrize("ours", ["new", "ready", "held"])
@pytest.mark.parametrize("theirs", ["new", "ready", "held"])
def test_move_leaves_a_message_whose_id_is_in_the_other_queue(
    spool: Spool, jobs: Queue, root: Path, clock: Clock, ours: str, theirs: str, background: bool
) -> None:
    target = spool.queue("other", create=True)
    with Spool(root, sync="none", clock=clock, delivers=False) as writer:
        if ours != "new":
            bring(spool, jobs, b"ours", ours)
        if theirs != "new":
            bring(spool, target, b"theirs", theirs)
        for queue, state in (("jobs", ours), ("other", theirs)):
            if state == "new":
                writer.queue(queue, create=True).put(
                    b"ours" if queue == "jobs" else b"theirs", id="one"
                )
        if background:
            spool.begin_move("jobs", "other")
            assert writer.make_moves() == 1
        else:
            assert Queue(writer, "jobs").move_to("other", in_flight=True) == (0, 1)
    clock.advance(60)
    for queue, body in ((jobs, b"ours"), (target, b"theirs")):
        assert [m.body for m in queue.claim(5)] == [body]


def bring(spool: Spool, queue: Queue, body: bytes, state: str) -> None:
    """Put a message, and bring it to this state."""
    queue.put(body, id="one")
    spool.deliver()
    if state == "held":
        assert queue.claim(visibility=60)


def test_move_leaves_names_too_long_for_the_target(spool: Spool, jobs: Queue, root: Path) -> None:
    long = "q" * 180
    spool.create_queue(long)
    (root / "queues" / "jobs" / ("n" * 100)).write_bytes(b"fits here only")
    (root / "new" / ("jobs:" + "m" * 100)).write_bytes(b"and this")
    jobs.put(b"x")
    spool.deliver()
    moved = jobs.move_to(long)
    assert moved == (1, 2)
    some = ["n" * 100, "m" * 100, "none".ljust(100, "0")]
    assert jobs.move_to(long, only=some, in_flight=True) == (0, 2)
    assert [m.body for m in spool.queue(long).claim(5)] == [b"x"]
    assert len(jobs.claim(5)) == 2


def test_move_reports_its_progress(spool: Spool, jobs: Queue) -> None:
    spool.create_queue("other")
    jobs.put_many([b"x"] * 5)
    moved: list[int] = []
    jobs.move_to("other", progress=moved.append)
    assert moved[-1] == 5


def test_move_needs_two_queues(spool: Spool, jobs: Queue) -> None:
    with pytest.raises(NoSuchQueue, match="gone"):
        jobs.move_to("gone")
    with pytest.raises(NoSuchQueue, match="gone"):
        Queue(spool, "gone").move_to("jobs")
    with pytest.raises(InvalidValue, match="the same queue"):
        jobs.move_to("jobs")


def before_the_rename(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]
) -> None:
    """Run a step once, between the checks of a move and its rename in ``new/``."""
    rename = spool.tree.rename
    waiting = [step]

    def renaming(source: str, target: str, **more: bool) -> bool:
        if waiting and source.startswith("new/") and target.startswith("new/"):
            waiting.pop()()
        return rename(source, target, **more)

    monkeypatch.setattr(spool.tree, "rename", renaming)


def delete_without_lock(spool: Spool, queue: str) -> None:
    """Delete a queue to which messages move, as if the lock was lost with a network."""
    spool.tree.unlink(f"config/.{queue}.lock")
    spool.delete_queue(queue)


def test_a_message_comes_back_if_its_move_meets_a_deletion(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("other")
    jobs.put(b"x", id="x")
    back_to_new(root)
    before_the_rename(spool, monkeypatch, lambda: delete_without_lock(spool, "other"))
    with pytest.raises(NoSuchQueue, match="other"):
        jobs.move_to("other")
    assert tree_of(root)["new"] == ["jobs:x"]
    assert [m.body for m in jobs.claim()] == [b"x"]


def test_messages_come_back_if_a_background_move_meets_a_deletion(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put_many([NewMessage(b"x", id=one) for one in "abc"])
    back_to_new(root)
    order = spool.begin_move("jobs", "other")
    before_the_rename(spool, monkeypatch, lambda: delete_without_lock(spool, "other"))
    assert spool.make_moves() == 1
    found = present(spool.find_move(order.ref))
    assert (found.status, found.moved) == ("error", 0)
    assert "'other' was deleted" in (found.error or "")
    assert tree_of(root)["new"] == ["jobs:a", "jobs:b", "jobs:c"]


def test_a_move_that_ends_during_find_move_is_found(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = spool.begin_move("jobs", "other")
    load = moves.load

    def loaded_and_made(*of: Any) -> Any:
        found = load(*of)
        monkeypatch.undo()
        assert spool.make_moves() == 1
        return found

    monkeypatch.setattr(moves, "load", loaded_and_made)
    assert present(spool.find_move(order.ref)).status == "complete"


@pytest.mark.parametrize("state", [State.NEW, State.READY])
def test_a_move_to_a_deleted_queue_moves_nothing(spool: Spool, jobs: Queue, state: State) -> None:
    jobs.put(b"x", id="x")
    if state is State.READY:
        spool.deliver()
    order = spool.begin_move("jobs", "other")
    spool.delete_queue("other")
    assert spool.make_moves() == 1
    assert present(spool.find_move(order.ref)).status == "error"
    assert visible(spool.tree.root) == [("jobs", "x")]


def test_a_moving_message_is_deleted_with_both_queues(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("other")
    jobs.put(b"x", id="x")
    back_to_new(root)

    def delete_both() -> None:
        delete_without_lock(spool, "other")
        tree = spool.tree
        tree.rename(tree.folder("queues", "jobs"), tree.folder("remove", "jobs:by hand"))

    before_the_rename(spool, monkeypatch, delete_both)
    with pytest.raises(NoSuchQueue):
        jobs.move_to("other")
    assert visible(root) == []


def test_a_moving_message_stays_if_its_id_is_used_again(
    spool: Spool, jobs: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a new queue of the target's name."""
    spool.create_queue("other")
    jobs.put(b"first", id="x")
    back_to_new(root)
    has_queue = spool.tree.has_queue
    gone: list[str] = []

    def seen_and_put_again(queue: str) -> bool:
        if queue in gone:
            gone.clear()
            jobs.put(b"second", id="x")
            back_to_new(root)
        return has_queue(queue)

    def delete() -> None:
        delete_without_lock(spool, "other")
        gone.append("other")

    before_the_rename(spool, monkeypatch, delete)
    monkeypatch.setattr(spool.tree, "has_queue", seen_and_put_again)
    with pytest.raises(NoSuchQueue):
        jobs.move_to("other")
    assert visible(root) == [("jobs", "x"), ("other", "x")]
    spool.create_queue("other")
    assert [m.body for m in spool.queue("other").claim()] == [b"first"]
    assert [m.body for m in jobs.claim()] == [b"second"]
