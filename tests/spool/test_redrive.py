"""Redrives return dead letters to their queues; moves have rates, and can be listed and stopped."""

from __future__ import annotations

import errno
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import InvalidValue, Moved, NewMessage, NoSuchQueue, Queue, Spool, Unavailable
from fsmq.spool import queue as queue_module
from fsmq.spool.moves import work as move_work
from fsmq.spool.moves.order import save
from fsmq.spool.moves.runner import MoveRunner
from fsmq.spool.verbs.moves.redrive import Redriven
from tests.harness.calls import seen
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, visible


def bury(queue: Queue, *ids: str) -> None:
    """Put messages and bury them with the reason "no"."""
    queue.put_many([NewMessage(one.encode(), id=one) for one in ids])
    for message in queue.claim(len(ids)):
        message.bury("no")


@pytest.fixture
def dead(spool: Spool, jobs: Queue) -> Queue:
    """The dead-letter queue of `jobs` and `other`, with two messages of each."""
    for queue in (jobs, spool.queue("other", create=True)):
        queue.configure(max_deliveries=9, dead_letter_queue="dead")
        bury(queue, f"{queue.name}-1", f"{queue.name}-2")
    return spool.queue("dead")


def names(queue: Queue) -> list[str]:
    return [message.id for message in queue.peek(1000)]


def test_dead_letters_go_to_the_queue_from_which_they_were_buried(
    spool: Spool, jobs: Queue, dead: Queue
) -> None:
    assert dead.redrive() == Redriven(moved=4)
    assert names(jobs) == ["jobs-1", "jobs-2"]
    assert names(spool.queue("other")) == ["other-1", "other-2"]
    [first] = jobs.claim()
    assert first.deliveries == 1
    [order] = spool.moves()
    assert (order.source, order.status, order.total, order.moved) == ("dead", "complete", 4, 4)


def test_selected_messages_are_redriven(jobs: Queue, dead: Queue) -> None:
    assert dead.redrive(only=["jobs-2", "none", "jobs-2"]) == Redriven(moved=1)
    assert names(jobs) == ["jobs-2"]
    assert names(dead) == ["jobs-1", "other-1", "other-2"]


@pytest.mark.parametrize("only", [None, ["jobs-1", "jobs-2", "other-1", "other-2"]])
def test_all_messages_go_to_one_queue(spool: Spool, dead: Queue, only: list[str] | None) -> None:
    third = spool.queue("third", create=True)
    assert dead.redrive(only=only, to="third") == Redriven(moved=4)
    assert names(third) == ["jobs-1", "jobs-2", "other-1", "other-2"]


def test_a_redrive_resets_the_delivery_count(jobs: Queue, dead: Queue) -> None:
    for _ in range(3):
        dead.claim()[0].release()
    assert [m.deliveries for m in dead.peek()] == [3, 0, 0, 0]
    dead.redrive()
    assert [m.deliveries for m in jobs.peek()] == [0, 0]


def test_messages_without_an_existing_origin_stay_and_are_counted(
    spool: Spool, jobs: Queue, dead: Queue, root: Path
) -> None:
    dead.put(b"by hand", id="hand")
    spool.deliver()
    spool.delete_queue("other")
    assert dead.redrive() == Redriven(moved=2, no_origin=3)
    assert names(dead) == ["hand", "other-1", "other-2"]
    [order] = spool.moves()
    assert order.status == "error"
    assert order.error is not None
    assert "3 messages stay: nothing says from which queue" in order.error
    assert dead.redrive(only=["hand"]) == Redriven(no_origin=1)
    assert dead.redrive(to="jobs") == Redriven(moved=3)


def test_messages_whose_id_is_taken_stay_and_are_counted(
    spool: Spool, jobs: Queue, dead: Queue
) -> None:
    bury(jobs, "held-1", "new-1", "ready-1")
    jobs.put(b"again", id="held-1")
    jobs.claim(9)
    jobs.put(b"again", id="ready-1")
    spool.deliver()
    jobs.put(b"again", id="new-1")
    assert dead.redrive(to="jobs", only=["new-1", "ready-1", "held-1"]) == Redriven(conflicts=3)
    assert dead.redrive() == Redriven(moved=4, conflicts=3)


def test_messages_in_flight_or_delayed_stay(jobs: Queue, dead: Queue) -> None:
    dead.claim()
    dead.claim()[0].release(delay=5)
    assert dead.redrive() == Redriven(moved=2)
    assert jobs.counts().total == 0
    assert dead.counts().total == 2


def test_errors(spool: Spool, dead: Queue) -> None:
    with pytest.raises(NoSuchQueue, match="none"):
        dead.redrive(to="none")
    with pytest.raises(NoSuchQueue, match="none"):
        dead.redrive(to="none", only=["jobs-1"])
    for only in (None, ["jobs-1"]):
        with pytest.raises(NoSuchQueue):
            Queue(spool, "none").redrive(only=only)
        with pytest.raises(InvalidValue, match="to: "):
            dead.redrive(to="dead", only=only)
        with pytest.raises(InvalidValue, match="to: "):
            dead.redrive(to="_x", only=only)
    for rate in (0, 0.001, 2_000_000, float("nan"), True):
        with pytest.raises(InvalidValue, match=r"rate: must be from 0\.01 to 1000000"):
            dead.redrive(rate=rate)
        with pytest.raises(InvalidValue, match="rate: "):
            dead.move_to("jobs", rate=rate)
    assert len(names(dead)) == 4
    assert spool.moves() == []


def test_redriven_messages_are_in_the_index_of_their_queue(spool: Spool) -> None:
    spool.create_queue("tasks", index=True)
    tasks = spool.indexed("tasks")
    queue = spool.queue("tasks")
    queue.configure(max_deliveries=9, dead_letter_queue="dead")
    tasks.upsert([NewMessage(b"x", id="one"), NewMessage(b"y", id="two")])
    for message in queue.claim(2):
        message.bury()
    assert tasks.find("one") is None
    tasks.upsert([NewMessage(b"new", id="two")])
    assert spool.queue("dead").redrive() == Redriven(moved=1, conflicts=1)
    found = tasks.find("one")
    assert found is not None
    assert found.body == b"x"


def test_a_lock_that_cannot_be_removed_does_not_fail_a_redrive(jobs: Queue, dead: Queue) -> None:
    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "unlink" and arguments[0].endswith(".lock"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with seen(fail):
        assert dead.redrive(only=["jobs-1"]) == Redriven(moved=1)
        assert dead.redrive() == Redriven(moved=3)
    bury(jobs, "jobs-3")
    assert dead.redrive() == Redriven(moved=1)
    assert names(jobs) == ["jobs-1", "jobs-2", "jobs-3"]


def test_a_rate_is_kept(jobs: Queue, dead: Queue) -> None:
    bury(jobs, *(f"more-{n:02}" for n in range(16)))
    begun = time.monotonic()
    seen: list[int] = []
    assert dead.redrive(rate=40, progress=seen.append) == Redriven(moved=20)
    took = time.monotonic() - begun
    assert took >= 16 / 40
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    begun = time.monotonic()
    assert jobs.move_to("dead", rate=50).moved == 18
    assert time.monotonic() - begun >= 17 / 50
    chosen = names(dead)[:6]
    begun = time.monotonic()
    assert dead.move_to("jobs", only=[*chosen, "none"], rate=20) == Moved(6)
    assert time.monotonic() - begun >= 5 / 20
    assert set(chosen) <= set(names(jobs))


def test_selected_messages_are_redriven_at_a_rate(
    jobs: Queue, dead: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_CHOSEN", 4)
    bury(jobs, *(f"more-{n:02}" for n in range(16)))
    chosen = [f"more-{n:02}" for n in range(10)]
    seen: list[int] = []
    begun = time.monotonic()
    found = dead.redrive(only=[*chosen, "none"], rate=40, progress=seen.append)
    assert found == Redriven(moved=10)
    assert time.monotonic() - begun >= (3 + 3 + 1) / 40
    assert (seen, seen[-1]) == (sorted(seen), 10)
    assert set(names(jobs)) == set(chosen)
    assert dead.redrive(only=[], rate=40) == Redriven()


def test_a_move_of_selected_messages_is_continued_by_another_process(
    spool: Spool, root: Path, jobs: Queue, dead: Queue
) -> None:
    bury(jobs, *(f"more-{n:02}" for n in range(16)))
    ids = [f"more-{n:02}" for n in range(9)]
    order = spool.begin_redrive("dead", rate=20, only=[*ids, "none", ids[0]])
    spool.make_moves(lambda: len(names(jobs)) > 2)
    assert 2 < len(names(jobs)) < 9
    with Spool(root) as other:
        assert other.make_moves() == 1
    assert set(names(jobs)) == set(ids)
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.status, found.moved, found.total, found.ids) == ("complete", 9, 10, None)
    move = spool.begin_move("jobs", "dead", rate=1000, only=ids[:2])
    spool.make_moves()
    assert getattr(spool.find_move(move.ref), "moved", None) == 2
    assert set(names(jobs)) == set(ids[2:])
    with pytest.raises(InvalidValue, match="at most 1000"):
        spool.begin_move("jobs", "dead", only=[str(number) for number in range(1001)])
    with pytest.raises(InvalidValue, match="neither dedup nor count"):
        spool.begin_move("jobs", "dead", only=ids, count=3)


def test_an_empty_selection_moves_nothing(spool: Spool, jobs: Queue, dead: Queue) -> None:
    spool.begin_redrive("dead", only=[])
    spool.begin_redrive("dead", to="jobs", only=[])
    spool.begin_move("dead", "jobs", only=[])
    assert spool.make_moves() == 3
    found = [(move.status, move.total, move.moved) for move in spool.moves()]
    assert found == [("complete", 0, 0)] * 3
    assert len(names(dead)) == 4


@pytest.mark.parametrize(("name", "is_moved"), [("x" * 251, False), ("\udce9" * 200, True)])
def test_a_move_of_names_that_a_shell_made_can_be_continued(
    spool: Spool, jobs: Queue, root: Path, name: str, is_moved: bool
) -> None:
    """Some are too long to be looked up; others are large in the file of the move."""
    spool.create_queue("other")
    ids = [f"{name[:-3]}{number:03}" for number in range(1000)]
    for one in ids:
        (root / "queues" / "jobs" / one).touch()
    order = spool.begin_move("jobs", "other", count=1000)
    spool.make_moves(lambda: len(os.listdir(root / "moves")) > 1)  # stop when it has begun
    found = spool.find_move(order.ref)
    assert found is not None
    spool.make_moves()
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.moved, found.conflicts) == ((1000, 0) if is_moved else (0, 1000))


def test_a_slow_move_holds_up_no_other(spool: Spool, jobs: Queue, dead: Queue) -> None:
    spool.queue("a", create=True).put(b"x")
    slow = spool.begin_redrive("dead", rate=0.01)
    quick = spool.begin_move("a", "b")

    def is_done() -> bool:
        found = spool.find_move(quick.ref)
        return found is not None and found.status == "complete"

    spool.make_moves(is_done)
    found = spool.find_move(slow.ref)
    assert found is not None
    assert (found.status, found.moved) == ("in_progress", 1)
    # A move that begins during the slow one is made as well.
    quick = spool.begin_move("b", "a")
    spool.make_moves(is_done)


def test_a_stopped_move_ends_and_is_not_undone(
    spool: Spool, root: Path, jobs: Queue, dead: Queue
) -> None:
    order = spool.begin_redrive("dead", rate=0.01)
    working = threading.Thread(target=spool.make_moves)
    working.start()
    eventually(lambda: len(names(dead)) == 3)
    stopped = spool.stop_move(order.ref)
    assert stopped is not None
    assert (stopped.status, stopped.moved, stopped.total) == ("stopped", 1, 4)
    working.join()
    assert names(jobs) == ["jobs-1"]
    assert len(names(dead)) == 3
    assert [path.name for path in (root / "moves").iterdir()] == [f"{order.ref}.done"]
    assert spool.stop_move(order.ref) == stopped
    assert spool.make_moves() == 0
    assert dead.redrive() == Redriven(moved=3)


def test_a_move_without_a_worker_can_be_stopped(spool: Spool, dead: Queue, root: Path) -> None:
    order = spool.begin_move("dead", "jobs")
    stopped = spool.stop_move(order.ref)
    assert stopped is not None
    assert (stopped.status, stopped.moved, stopped.total) == ("stopped", 0, None)
    assert len(names(dead)) == 4
    assert [path.name for path in (root / "moves").iterdir()] == [f"{order.ref}.done"]
    assert spool.stop_move("none") is None
    assert spool.stop_move("01977420-dc00-7abc-8def-0123456789ab") is None


def test_a_list_of_moves_has_none_of_their_ids(spool: Spool, dead: Queue) -> None:
    order = spool.begin_move("dead", "jobs", only=["jobs-1"])
    [listed] = spool.moves()
    assert (listed.ref, listed.ids) == (order.ref, None)
    found = spool.find_move(order.ref)
    assert found is not None
    assert found.ids == ("jobs-1",)


def test_moves_are_listed_newest_first(spool: Spool, dead: Queue) -> None:
    refs = []
    for number in range(4):
        refs.append(spool.begin_move("dead", f"to-{number}").ref)
        if number < 3:
            spool.make_moves()
    assert [move.ref for move in spool.moves()] == refs[::-1]
    assert [move.ref for move in spool.moves(2)] == refs[:1:-1]
    assert [move.status for move in spool.moves(1)] == ["in_progress"]
    with pytest.raises(InvalidValue, match="count"):
        spool.moves(0)


def test_a_continued_redrive_leaves_messages_that_were_buried_since(
    spool: Spool, jobs: Queue, dead: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_work, "PART", 1)
    clock.now = time.time()
    order = spool.begin_redrive("dead")

    def one_has_moved() -> bool:
        return len(names(dead)) < 4

    assert MoveRunner(spool.context, spool.syncer, one_has_moved).run() == 0
    assert names(jobs) == ["jobs-1"]
    clock.advance(60)
    jobs.claim()[0].bury("once more")
    assert spool.make_moves() == 1
    assert names(dead) == ["jobs-1"]
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.status, found.total, found.moved) == ("complete", 4, 4)


def test_a_continued_redrive_moves_messages_buried_by_a_host_whose_clock_is_ahead(
    root: Path, spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_work, "PART", 1)
    jobs.configure(max_deliveries=9, dead_letter_queue="dead")
    with Spool(root, sync="none", clock=lambda: spool.context.clock() + 30) as ahead:
        bury(ahead.queue("jobs"), "jobs-1", "jobs-2", "jobs-3")
    order, dead = spool.begin_redrive("dead"), spool.queue("dead")
    assert MoveRunner(spool.context, spool.syncer, lambda: len(names(dead)) < 3).run() == 0
    assert spool.make_moves() == 1
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.status, found.total, found.moved) == ("complete", 3, 3)
    assert (names(dead), names(jobs)) == ([], ["jobs-1", "jobs-2", "jobs-3"])


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"jobs-1": 1'])
def test_a_move_with_a_damaged_list_fails_and_holds_up_no_other(
    spool: Spool, jobs: Queue, dead: Queue, content: bytes
) -> None:
    damaged = spool.begin_redrive("dead")
    save(spool.tree, replace(damaged, total=4))  # it has begun
    (spool.tree.root / "moves" / f"{damaged.ref}.found").write_bytes(content)
    jobs.put(b"moves", id="moves")
    spool.deliver()
    spool.begin_move("jobs", "other")
    with pytest.raises(Unavailable, match=damaged.ref):
        spool.make_moves()
    assert names(spool.queue("other")) == ["moves"]
    assert len(names(dead)) == 4
    assert [move.status for move in spool.moves() if move.ref == damaged.ref] == ["in_progress"]


def test_a_message_of_another_user_stays(
    spool: Spool, dead: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = spool.tree.open

    def refused(path: str, *of: Any) -> int:
        if path.endswith("jobs-1"):
            raise PermissionError(13, os.strerror(13), path)
        return real(path, *of)

    monkeypatch.setattr(spool.tree, "open", refused)
    assert dead.redrive() == Redriven(moved=3, no_origin=1)


def test_a_redrive_fails_when_its_target_is_deleted_meanwhile(
    spool: Spool, jobs: Queue, dead: Queue, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.create_queue("third")
    rename = spool.tree.rename

    def deleted(source: str, target: str, **of: bool) -> bool:
        monkeypatch.undo()
        spool.delete_queue("third")
        return rename(source, target, **of)

    monkeypatch.setattr(spool.tree, "rename", deleted)
    with pytest.raises(NoSuchQueue, match="third"):
        dead.redrive(to="third")
    assert len(names(dead)) == 4
    assert {queue for queue, _ in visible(root)} == {"dead"}
