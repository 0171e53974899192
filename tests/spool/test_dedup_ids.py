"""Deduplication ids of fifo queues: a second put stores nothing, also after a crash."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from fsmq import InvalidValue, NewMessage, Queue, Spool
from fsmq.spool import prepare
from fsmq.spool.durability import send_lines
from fsmq.spool.durability.dedup_records import KEPT_MS, WINDOW_MS, remove_old_records
from fsmq.spool.fsck import check
from fsmq.spool.layout.topics.deliveries import Delivery
from tests.spool.crashing import begin_sends, begin_to_send, crashes_of
from tests.spool.helpers import Clock

QUEUE = "orders"
NOW = 1_790_000_000.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", sync="none", clock=clock) as spool:
        spool.create_queue(QUEUE, fifo=True)
        yield spool


@pytest.fixture
def queue(spool: Spool) -> Queue:
    return spool.queue(QUEUE)


def put(queue: Queue, dedup_id: str | None, body: bytes = b"x", group: str = "g") -> str:
    return queue.put(body, group=group, dedup_id=dedup_id)


def windows(spool: Spool) -> list[str]:
    return [str(path) for path in (spool.tree.root / "config").glob(".*.dedup/*")]


def age(spool: Spool, by_s: float) -> None:
    """Make all records older."""
    for path in windows(spool):
        os.utime(path, (at := os.stat(path).st_mtime - by_s, at))


def in_dying_process(spool: Spool, step: Callable[[Spool], object]) -> None:
    """Run a step in a process that then ends at once."""
    child = os.fork()
    if not child:
        try:
            with Spool(
                spool.tree.root, sync="none", delivers=False, clock=spool.context.clock
            ) as dying:
                step(dying)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def message(dedup_id: str, body: bytes = b"x") -> list[NewMessage]:
    return [NewMessage(body, group="g", dedup_id=dedup_id)]


def test_a_second_put_stores_nothing_and_returns_the_first_id(queue: Queue) -> None:
    first = put(queue, "1", b"first")
    assert put(queue, "1", b"second", group="other") == first
    assert put(queue, "2") != first
    [claimed] = queue.claim(1)
    assert (claimed.body, claimed.dedup_id) == (b"first", "1")
    assert queue.counts().total == 2


def test_a_second_put_stores_nothing_after_the_first_is_acked(queue: Queue, clock: Clock) -> None:
    first = put(queue, "1")
    queue.claim()[0].ack()
    clock.now += 299
    assert put(queue, "1") == first
    assert queue.counts().total == 0


def test_a_second_put_does_not_prolong_the_window(queue: Queue, clock: Clock) -> None:
    first = put(queue, "1")
    clock.now += 200
    assert put(queue, "1") == first
    clock.now += 101
    second = put(queue, "1")
    assert second != first
    assert put(queue, "1") == second


def test_ids_are_deduplicated_within_a_batch(queue: Queue) -> None:
    known = put(queue, "old")
    given = [("a", b"1"), (None, b"2"), ("a", b"3"), ("old", b"4"), ("b", b"5")]
    ids = queue.put_many([NewMessage(body, group="g", dedup_id=one) for one, body in given])
    assert ids[2] == ids[0]
    assert ids[3] == known
    assert len(set(ids)) == 4
    assert [one.body for one in queue.peek(10)] == [b"x", b"1", b"2", b"5"]


def test_the_scope_may_be_the_group(queue: Queue) -> None:
    queue.configure(dedup_scope="group")
    first = put(queue, "1", group="a")
    assert put(queue, "1", group="b") != first
    assert put(queue, "1", group="a") == first


def test_the_body_may_be_the_id(queue: Queue) -> None:
    queue.configure(dedup_by_content=True, compression="zlib")
    body = b"the same " * 100
    first = put(queue, None, body)
    assert put(queue, None, body) == first
    assert put(queue, hashlib.sha256(body).hexdigest(), b"other") == first
    assert put(queue, "given", body) != first
    assert put(queue, None, body + b".") != first


@pytest.mark.parametrize("dedup_id", ["", "d" * 257, "é" * 129, "a\nb"])
def test_a_malformed_id_is_refused(queue: Queue, dedup_id: str) -> None:
    with pytest.raises(InvalidValue):
        put(queue, dedup_id)
    assert queue.counts().total == 0


def test_only_fifo_queues_take_deduplication_ids(spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    with pytest.raises(InvalidValue, match="fifo"):
        put(queue, "1")
    for changes in ({"dedup_scope": "group"}, {"dedup_by_content": True}):
        with pytest.raises(InvalidValue, match="fifo"):
            queue.configure(**changes)


def test_all_processes_share_the_ids(spool: Spool, queue: Queue, clock: Clock) -> None:
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        there = other.queue(QUEUE)
        first = put(queue, "1")
        assert put(there, "1") == first
        clock.now += 100
        second = put(there, "2")
        assert put(queue, "2") == second
        assert put(queue, "1") == first
        clock.now += 250
        assert put(queue, "1") != first
        assert put(queue, "2") == second


def test_a_purge_and_a_deletion_forget_the_ids(spool: Spool, queue: Queue, clock: Clock) -> None:
    with Spool(spool.tree.root, sync="none", clock=spool.context.clock) as other:
        there = other.queue(QUEUE)
        first = put(queue, "1")
        assert put(there, "1") == first
        queue.purge()
        second = put(there, "1")
        assert second != first
        assert put(queue, "1") == second
        queue.delete()
        assert windows(spool) == []
        clock.now += 1
        spool.create_queue(QUEUE, fifo=True)
        assert put(there, "1") not in (first, second)


def test_old_records_are_removed(spool: Spool, queue: Queue, clock: Clock) -> None:
    put(queue, "1")
    clock.now += KEPT_MS / 1000
    age(spool, KEPT_MS / 1000)
    put(queue, "2")
    assert remove_old_records(spool.tree) == 0
    age(spool, 1.5 * KEPT_MS / 1000)
    assert remove_old_records(spool.tree) == 1
    [path] = windows(spool)
    assert path.endswith(f".{QUEUE}.dedup/{int(NOW * 1000 + KEPT_MS) // WINDOW_MS}")
    age(spool, KEPT_MS / 1000)
    assert remove_old_records(spool.tree) == 1
    assert not (spool.tree.root / "config" / f".{QUEUE}.dedup").exists()
    put(queue, "3")
    assert len(windows(spool)) == 1


def delete_and_create(spool: Spool) -> None:
    spool.delete_queue(QUEUE)
    spool.create_queue(QUEUE, fifo=True)


def purge(spool: Spool) -> None:
    spool.queue(QUEUE).purge()


@pytest.mark.parametrize("ahead_s", [-900.0, 900.0])
@pytest.mark.parametrize("reset", [delete_and_create, purge])
def test_a_host_with_another_clock_forgets_ids(
    spool: Spool, queue: Queue, clock: Clock, reset: Callable[[Spool], object], ahead_s: float
) -> None:
    """A deletion or a purge removes all records, whatever the clock says."""
    first = put(queue, "1", b"old")
    clock.now += ahead_s
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        reset(other)
    clock.now += 1 - ahead_s
    assert put(queue, "1", b"new") != first
    assert [one.body for one in queue.claim(9)] == [b"new"]


@pytest.mark.parametrize("ahead_s", [-900.0, 900.0])
def test_recovery_by_another_clock_decides_about_all_records(
    spool: Spool, queue: Queue, clock: Clock, ahead_s: float
) -> None:
    """Else the record of a put that stored nothing would hold for later puts."""

    def write_and_lose(dying: Spool) -> None:
        begin_sends(dying, QUEUE, *message("1", b"lost"))
        for name in os.listdir(spool.tree.root / "new"):
            (spool.tree.root / "new" / name).unlink()

    in_dying_process(spool, write_and_lose)
    clock.now += ahead_s
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        put(other.queue(QUEUE), "2", b"other")
    clock.now -= ahead_s
    put(queue, "1", b"new")
    assert {one.body for one in queue.peek(9)} == {b"other", b"new"}


def test_an_id_of_a_clock_far_ahead_is_forgotten(queue: Queue, clock: Clock) -> None:
    clock.now += 86_400
    first = put(queue, "1")
    clock.now -= 86_400
    second = put(queue, "1")
    assert second > first
    clock.now -= 250
    assert put(queue, "1") == second


def test_a_second_put_waits_for_the_first(spool: Spool, queue: Queue) -> None:
    put(queue, None)
    first = begin_sends(spool, QUEUE, *message("1"))
    ids: list[str] = []
    waiting = threading.Thread(target=lambda: ids.append(put(queue, "1")))
    waiting.start()
    waiting.join(0.05)
    assert not ids
    first.commit()
    waiting.join()
    assert [one.id for one in queue.peek(10)][1:] == ids


def test_the_second_put_is_stored_if_the_first_fails(spool: Spool, queue: Queue) -> None:
    put(queue, None)
    first = begin_sends(spool, QUEUE, *message("1"), *message("2"))
    first.dirty.close()
    first.abort()
    with Spool(spool.tree.root, sync="none", clock=spool.context.clock) as other:
        ids = [put(other.queue(QUEUE), "1", b"again"), put(queue, "2", b"again")]
        assert ids == [put(queue, "1"), put(other.queue(QUEUE), "2")]
    assert [one.body for one in queue.peek(10)] == [b"x", b"again", b"again"]


def test_a_put_is_stored_if_the_first_died_before_its_sync(spool: Spool, queue: Queue) -> None:
    """The record exists, and the message does not."""

    def tear(dying: Spool) -> None:
        begin_sends(dying, QUEUE, *message("1"))
        [name] = os.listdir(dying.tree.root / "new")
        (dying.tree.root / "new" / name).write_bytes(b"torn")

    in_dying_process(spool, tear)
    put(queue, "1")
    assert queue.counts().total == 1
    put(queue, "1")
    assert queue.counts().total == 1


def test_a_put_is_a_duplicate_if_the_first_died_after_its_sync(spool: Spool, queue: Queue) -> None:
    in_dying_process(spool, lambda dying: begin_sends(dying, QUEUE, *message("1", b"left")))
    first = put(queue, "1")
    [claimed] = queue.claim(10)
    assert (claimed.id, claimed.body) == (first, b"left")


def test_dead_letters_of_two_subscriptions_differ_after_a_crash(spool: Spool, queue: Queue) -> None:
    """The sync was over for the letters of both, but not for their records."""
    policy = json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{QUEUE}"})
    topic = spool.topic("news", create=True)
    for name in ("a", "b"):
        gone = spool.queue(name, create=True)
        spool.subscribe("news", name, Delivery(raw=True, kept={"RedrivePolicy": policy}))
        gone.delete()

    def publish(dying: Spool) -> None:
        begin_to_send(dying, prepare.publish(dying.context, "news", *message("1")))
        for path in windows(dying):
            os.unlink(path)

    in_dying_process(spool, publish)
    topic.publish(b"x", group="g", dedup_id="1")
    assert queue.counts().total == 2
    put(queue, "1")
    assert queue.counts().total == 3


def lose_line(spool: Spool) -> None:
    """Restore the previous line of the sends, as a power cut may that comes before its sync."""
    path = spool.tree.root / "config" / f".{QUEUE}.sends"
    last, _, _ = path.read_text().split()
    with path.open("r+b") as file:
        send_lines.write_line(file.fileno(), send_lines.Line(int(last)))


def test_an_id_is_known_after_a_power_cut_that_took_the_line(
    spool: Spool, queue: Queue, clock: Clock
) -> None:
    first = put(queue, "1")
    lose_line(spool)
    with Spool(spool.tree.root, sync="none", clock=clock) as after:
        assert put(after.queue(QUEUE), "1") == first


def test_claims_after_a_power_cut_keep_the_record(spool: Spool, queue: Queue, clock: Clock) -> None:
    """The message is acknowledged before the next put."""
    first = put(queue, "1")
    lose_line(spool)
    with Spool(spool.tree.root, sync="none", clock=clock) as after:
        after.queue(QUEUE).claim()[0].ack()
        after.reap()
        assert put(after.queue(QUEUE), "1") == first
        assert after.queue(QUEUE).counts().total == 0


def test_a_claim_syncs_the_line_of_the_sends(spool: Spool, queue: Queue) -> None:
    put(queue, "1")
    put(queue, None, group="h")
    line = os.stat(spool.tree.root / "config" / f".{QUEUE}.sends").st_ino
    for expected in (True, False):
        prepared = prepare.claim(spool.context, QUEUE, 1)
        synced = {os.fstat(fd).st_ino for fd in prepared.dirty.files}
        assert (line in synced) is expected
        spool.complete(prepared)


def test_torn_records_are_skipped(spool: Spool, queue: Queue, clock: Clock) -> None:
    first = put(queue, "1")
    [name] = windows(spool)
    with (spool.tree.root / "config" / name).open("ab") as file:
        file.write(b"\0" * 150)
    second = put(queue, "2")
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        assert put(other.queue(QUEUE), "1") == first
        assert put(other.queue(QUEUE), "2") == second


def test_a_redriven_message_is_still_the_first_put(spool: Spool, queue: Queue) -> None:
    queue.configure(max_deliveries=1, dead_letter_queue="dead")
    first = put(queue, "1")
    queue.claim()[0].bury()
    spool.queue("dead").redrive()
    assert put(queue, "1") == first
    assert [one.id for one in queue.peek(10)] == [first]


def test_a_kill_at_any_call_leaves_one_message_for_all_puts(root: Path, clock: Clock) -> None:
    def put_one(spool: Spool) -> None:
        put(spool.queue(QUEUE), "1", b"one")

    def create(tree: Path) -> None:
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.create_queue(QUEUE, fifo=True)

    delivers = cycle([True, False])
    for acknowledged, tree in crashes_of(root, put_one, clock, create, 11):
        with Spool(tree, sync="none", clock=clock, delivers=next(delivers)) as spool:
            queue = spool.queue(QUEUE)
            before = [one.id for one in queue.peek(9)]
            known = put(queue, "1", b"two")
            assert before in ([], [known])
            assert before or not acknowledged
            [claimed] = queue.claim(9)
            assert claimed.id == known
            claimed.ack()
            assert put(queue, "1", b"three") == known
            assert os.listdir(tree / "new") == []


def test_the_recovery_of_a_killed_put_may_be_killed_too(root: Path, clock: Clock) -> None:
    def put_again(spool: Spool) -> None:
        put(spool.queue(QUEUE), "1", b"two")

    def create(tree: Path) -> None:
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.create_queue(QUEUE, fifo=True)
            in_dying_process(spool, lambda dying: begin_sends(dying, QUEUE, *message("1", b"one")))

    for _, tree in crashes_of(root, put_again, clock, create, 6):
        with Spool(tree, sync="none", clock=clock) as spool:
            queue = spool.queue(QUEUE)
            [claimed] = queue.claim(9)
            assert claimed.body == b"one"
            claimed.ack()
            spool.reap()
            assert put(queue, "1", b"three") == claimed.id
            assert queue.counts().total == 0


def test_fsck_finishes_puts_and_removes_records(spool: Spool, queue: Queue, clock: Clock) -> None:
    clock.now = time.time()
    put(queue, "1")
    queue.claim()
    in_dying_process(spool, lambda dying: begin_sends(dying, QUEUE, *message("2", b"left")))
    clock.now += 400
    [finding] = check(spool.tree, pause=0, clock=clock).findings
    assert finding.kind.value == "complete-dot-name"
    check(spool.tree, pause=0, clock=clock, repair=True)
    assert [one.body for one in queue.peek(9)] == [b"left"]
    clock.now += 3600
    age(spool, 3600)
    (spool.tree.root / "config" / ".gone.dedup").mkdir()
    (spool.tree.root / "config" / ".gone.dedup" / "7").touch()
    found = check(spool.tree, pause=0, clock=clock, repair=True).repaired
    assert {(one.kind.value, one.path) for one in found} == {
        ("leftover", f"config/.{QUEUE}.dedup"),
        ("leftover", "config/.gone.dedup"),
    }
    assert windows(spool) == []
