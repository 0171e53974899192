"""Consumers: a batch is given again until it is committed, and never after that."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import (
    ConsumerInUse,
    FsmqError,
    InvalidValue,
    NewMessage,
    Queue,
    Spool,
    Unavailable,
)
from fsmq.spool.consumers import batches as batches_module
from fsmq.spool.consumers import consumer as consumers
from fsmq.spool.consumers.batches import finish_abandoned, forget, overview
from fsmq.spool.consumers.claims import release_claims
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.consumers.manifest import Batch
from fsmq.spool.consumers.window import Window
from fsmq.spool.fsck import check
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.verbs.remove_known import remove_known
from tests.harness.calls import seen
from tests.harness.suite import eventually
from tests.spool.helpers import Clock, await_a_later_ctime, forked, present, visible
from tests.spool.test_delivery import someone_holds


def fill(jobs: Queue, count: int, size: int = 1) -> list[str]:
    """Put ready messages; their ids in order."""
    ids = jobs.put_many([NewMessage(b"x" * size) for _ in range(count)])
    jobs.spool.deliver()
    return ids


def claim(consumer: Consumer, count: int, number: int = 0) -> Batch:
    """A batch of this many messages of the queue ``jobs`` for the stream ``s``."""
    return present(consumer.claim("s", number, ["jobs"], count))


def ids_of(batch: Batch | None, queue: str = "jobs") -> list[str]:
    return [claim.id for claim in present(batch).claims.get(queue, [])]


def test_a_batch_has_the_first_messages_in_order(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 5)
    less_urgent = jobs.put(b"later", priority=3)
    spool.deliver()
    with Consumer(spool, "spark") as consumer:
        assert ids_of(claim(consumer, 3)) == ids[:3]
        second = claim(consumer, 10)
        assert ids_of(second) == [*ids[3:], less_urgent]
        assert (second.number, len(second), second.size) == (2, 3, 1 + 1 + 5)
        assert consumer.claim("s", 0, ["jobs"], 10) is None
    assert jobs.claim() == []


def test_a_batch_has_at_most_max_bytes(spool: Spool, jobs: Queue) -> None:
    small, large = fill(jobs, 3, size=40), fill(jobs, 1, size=500)
    rest = fill(jobs, 1, size=100)
    with Consumer(spool, "spark") as consumer:
        sizes = []
        while batch := consumer.claim("s", 0, ["jobs"], 10, max_bytes=100):
            sizes.append(ids_of(batch))
    # A larger message is a batch of its own.
    assert sizes == [small[:2], small[2:], large, rest]


def test_a_backlog_keeps_no_other_queue_waiting(spool: Spool) -> None:
    queues = [f"q{n:02}" for n in range(20)]
    for queue in queues:
        fill(spool.queue(queue, create=True), 100 if queue == "q05" else 1)
    with Consumer(spool, "spark") as consumer:
        first = present(consumer.claim("s", 0, queues, 50))
        assert {queue: len(of) for queue, of in first.claims.items()} == {
            queue: 31 if queue == "q05" else 1 for queue in queues
        }
        ids = [claim.id for claim in first.claims["q05"]]
        assert ids == sorted(ids)
        assert len(present(consumer.claim("s", first.number, queues, 100))) == 69


def test_more_queues_than_fit_into_a_batch_have_turns(spool: Spool) -> None:
    queues = [f"q{n}" for n in range(8)]
    for queue in queues:
        fill(spool.queue(queue, create=True), 9)
    with Consumer(spool, "spark") as consumer:
        served = [[*present(consumer.claim("s", 0, queues, 3)).claims] for _ in range(3)]
    assert served == [["q0", "q1", "q2"], ["q3", "q4", "q5"], ["q6", "q7", "q0"]]


def test_the_shares_of_queues_are_within_max_bytes(spool: Spool) -> None:
    queues = ["a", "b", "c"]
    for queue, size in zip(queues, (10, 40, 60), strict=True):
        fill(spool.queue(queue, create=True), 9, size=size)
    with Consumer(spool, "spark") as consumer:
        batch = present(consumer.claim("s", 0, queues, 90, max_bytes=120))
        assert {queue: len(of) for queue, of in batch.claims.items()} == {"a": 8, "b": 1}
        # The next one begins with c, which found no room. A share that is smaller than the next
        # message has that one, if it fits into the batch.
        batch = present(consumer.claim("s", batch.number, queues, 90, max_bytes=90))
        assert {queue: len(of) for queue, of in batch.claims.items()} == {"c": 1, "a": 1}
        batch = present(consumer.claim("s", batch.number, queues, 90, max_bytes=60))
        assert {queue: len(of) for queue, of in batch.claims.items()} == {"b": 1}
        batch = present(consumer.claim("s", batch.number, queues, 90, max_bytes=60))
        assert {queue: len(of) for queue, of in batch.claims.items()} == {"c": 1}


@pytest.mark.parametrize("count", [2, 90])
def test_a_large_message_gets_its_turn(spool: Spool, count: int) -> None:
    """It needs a whole batch, and the other queues never run out of messages."""
    queues = [f"q{n}" for n in range(5)]
    for queue in queues:
        fill(spool.queue(queue, create=True), 9, size=60 if queue == "q1" else 30)
    with Consumer(spool, "spark") as consumer:
        batches = [present(consumer.claim("s", 0, queues, count, max_bytes=60)) for _ in range(4)]
    assert {queue for batch in batches for queue in batch.claims} == set(queues)


def test_a_window_keeps_few_ids_and_yields_all_in_order(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 25)
    window = Window(spool.tree, "jobs", size=4)
    assert list(window.ids()) == ids
    once = Window(spool.tree, "jobs", size=4, once=True)
    given = once.ids()
    assert [next(given) for _ in range(6)] == ids[:6]
    once.repeat(ids[5])
    jobs.put(b"after the last", priority=1)
    spool.deliver()
    assert list(once.ids()) == ids[5:]
    assert list(once.ids()) == []


def test_only_open_batches_are_given_again(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 4)
    with Consumer(spool, "spark") as consumer:
        first, second = claim(consumer, 2, 7), claim(consumer, 2, 7)
        assert [b.number for b in consumer.batches("s", 7)] == [8, 9]
        assert consumer.commit("s", 8) == 2
    with Consumer(spool, "spark") as consumer:
        assert consumer.batches("s", 0) == [second]
        assert ids_of(second) == ids[2:]
        assert first not in consumer.batches("s", 0)
        assert consumer.commit("s", 9) == 2
        assert consumer.batches("s", 0) == []
    assert visible(spool.tree.root) == []
    assert os.listdir(spool.tree.root / "consumers" / "spark") == [".lock"]


def test_a_commit_fails_if_the_file_of_the_batch_is_missing(spool: Spool, jobs: Queue) -> None:
    fill(jobs, 2)
    with Consumer(spool, "spark") as consumer:
        batch = claim(consumer, 2)
        os.unlink(f"consumers/spark/{batch.name}.json", dir_fd=spool.tree.fd)
        with pytest.raises(Unavailable, match="is gone"):
            consumer.commit("s", batch.number)
        assert consumer.batches("s", 0) == [batch]
        assert consumer.commit("s", batch.number) == 2


def test_a_stream_adopts_the_batches_of_another_stream(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 2)
    with Consumer(spool, "spark") as consumer:
        old = present(consumer.claim("old", 20, ["jobs"], 2))
    with Consumer(spool, "spark") as consumer:
        # The numbers of one stream mean nothing in another one.
        assert consumer.commit("new", 100) == 0
        consumer.adopt("new", 3)
        [batch] = consumer.batches("new", 3)
        assert (batch.name, batch.number, ids_of(batch)) == (old.name, 4, ids)
        assert consumer.batches("old", 0) == []


def test_the_claims_of_an_open_batch_are_renewed(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        fill(jobs, 3)
        with Consumer(spool, "spark", visibility=1.5) as consumer:
            batch = claim(consumer, 3)
            began = time.time()

            def deadlines() -> list[float]:
                return [path.stat().st_mtime for path in (root / "delay").iterdir()]

            eventually(lambda: min(deadlines()) > began + 2.2)
            spool.deliver()
            assert jobs.claim() == []
            [renewed] = consumer.batches("s", 0)
            assert ids_of(renewed) == ids_of(batch)
        eventually(lambda: jobs.claim(3))


def test_renew_batch_reclaims_and_reports_losses(spool: Spool, jobs: Queue, clock: Clock) -> None:
    back, taken, gone, again = fill(jobs, 4)
    lost: list[object] = []
    with Consumer(spool, "spark", visibility=10) as consumer:
        batch = claim(consumer, 4)
    jobs.remove(gone)
    clock.advance(20)
    spool.deliver()
    assert visible(spool.tree.root) == [("jobs", back), ("jobs", taken), ("jobs", again)]
    jobs.claim(2)
    jobs.release(back)
    with Consumer(spool, "spark", visibility=10, on_lost=lambda *of: lost.append(of)) as consumer:
        kept = consumer.renew_batch(batch)
        assert ids_of(kept) == [back, again]
        assert consumer.batches("s", 0) == [kept]
    assert lost == [("jobs", [taken, gone])]
    with Consumer(spool, "spark", visibility=10) as consumer:
        # The counts of the new claims are on the disk, too.
        assert consumer.renew_batch(kept) == kept
        assert consumer.commit("s", kept.number) == 2
    assert visible(spool.tree.root) == [("jobs", taken)]


def test_a_single_pass_ends_while_new_messages_arrive(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 3)
    with Consumer(spool, "spark") as consumer:
        await_a_later_ctime(spool.tree.root / "queues" / "jobs" / ids[-1])
        consumer.pass_once()
        await_a_later_ctime(spool.tree.root / "consumers" / "spark" / ".lock")
        jobs.put(b"between the others", id=ids[0][:-1] + "~")
        claimed: list[str] = []
        while batch := consumer.claim("s", 0, ["jobs", "side"], 2):
            claimed += ids_of(batch)
            fill(jobs, 2)
    assert claimed == ids


def test_consumers_of_different_names_share_queues(spool: Spool, jobs: Queue) -> None:
    ids = fill(jobs, 40)
    side = spool.queue("side", create=True)
    side.put_many([b"x"] * 4)
    spool.deliver()
    found: dict[str, list[str]] = {"jobs": [], "side": []}
    with Consumer(spool, "one") as one, Consumer(spool, "two") as two:
        for consumer in (one, two) * 10:
            batch = consumer.claim("s", 0, ["jobs", "side", "gone"], 5)
            for queue in batch.claims if batch else ():
                found[queue] += ids_of(batch, queue)
    assert sorted(found["jobs"]) == ids
    assert len(set(found["side"])) == len(found["side"]) == 4


def test_only_one_program_uses_a_name(spool: Spool, jobs: Queue) -> None:
    fill(jobs, 2)
    with Consumer(spool, "spark") as consumer:
        consumer.claim("s", 0, ["jobs"], 2)
        with pytest.raises(ConsumerInUse, match=r"'spark'.*different names share"):
            Consumer(spool, "spark", patience=0.1)
        with pytest.raises(ConsumerInUse):
            forget(spool.context, "spark")
        assert overview(spool.context)["spark"] == (True, 1, 2)
    assert overview(spool.context)["spark"] == (False, 1, 2)
    with pytest.raises(InvalidValue, match=r"consumer: '\.\./x'"):
        Consumer(spool, "../x")


def test_an_overview_keeps_no_program_from_a_name(spool: Spool) -> None:
    Consumer(spool, "spark").close()
    over = threading.Event()

    def view_all_the_time() -> None:
        while not over.is_set():
            overview(spool.context)

    thread = threading.Thread(target=view_all_the_time)
    thread.start()
    try:
        for _ in range(50):
            Consumer(spool, "spark").close()
    finally:
        over.set()
        thread.join()


def test_a_name_is_free_though_a_forked_child_of_its_program_lives(spool: Spool) -> None:
    consumer = Consumer(spool, "spark")
    with forked():
        consumer.close()
        Consumer(spool, "spark", patience=0.1).close()


def test_claims_of_a_forgotten_consumer_end(spool: Spool, jobs: Queue, clock: Clock) -> None:
    ids = fill(jobs, 2)
    with Consumer(spool, "spark", visibility=10) as consumer:
        consumer.claim("s", 0, ["jobs"], 2)
    assert forget(spool.context, "spark")
    assert not forget(spool.context, "spark")
    assert overview(spool.context) == {}
    clock.advance(20)
    assert [message.id for message in jobs.claim(5)] == ids


def test_a_claim_that_cannot_be_released_is_not_counted(spool: Spool, jobs: Queue) -> None:
    back, blocked = fill(jobs, 2)
    with Consumer(spool, "spark", visibility=10) as consumer:
        batch = claim(consumer, 2)
        # A shell user has moved another message of its id into the queue.
        stranger = spool.tree.root / "queues" / "jobs" / blocked
        stranger.write_bytes(b"another")
        prepared = release_claims(spool.context, "jobs", batch.claims["jobs"])
        assert spool.complete(prepared) == 1
        # Messages that are not claimed any more are left alone.
        assert spool.complete(release_claims(spool.context, "jobs", batch.claims["jobs"])) == 0
        stranger.unlink()
    spool.deliver()
    assert [(m.id, m.deliveries) for m in jobs.claim(2)] == [(back, 1), (blocked, 1)]


def test_claims_and_commits_are_in_the_journal_at_once(root: Path) -> None:
    """The program may end or be killed right after them."""
    with Spool(root, sync="none", journal=True) as spool:
        fill(spool.queue("jobs", create=True), 3)

        def noted() -> Counter[str]:
            lines = [line for path in (root / "journal").iterdir() for line in path.open()]
            return Counter(json.loads(line)["event"] for line in lines)

        with Consumer(spool, "spark") as consumer:
            batch = claim(consumer, 3)
            assert noted()["claimed"] == 3
            consumer.commit("s", batch.number)
            assert noted()["removed"] == 3


def test_divide_isolates_the_poison_of_a_batch(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.configure(max_deliveries=2, dead_letter_queue="dead")
    ids = fill(jobs, 5)

    def given_again() -> list[Batch]:
        """The batches of the next program, after the claims have ended."""
        clock.advance(20)
        spool.deliver()
        with Consumer(spool, "spark", visibility=10, counts_again=False) as consumer:
            [first, *_] = consumer.batches("s", 0)
            consumer.divide(consumer.renew_batch(first), 2)
            return [consumer.renew_batch(batch) for batch in consumer.batches("s", 0)]

    with Consumer(spool, "spark", visibility=10) as consumer:
        claim(consumer, 5)
    batches = given_again()
    assert [ids_of(batch) for batch in batches] == [ids[:3], ids[3:]]
    assert [batch.number for batch in batches] == [1, 2]
    batches = given_again()
    assert [ids_of(batch) for batch in batches] == [ids[:2], ids[3:], ids[2:3]]
    batches = given_again()
    assert [ids_of(batch) for batch in batches] == [ids[:1], ids[3:], ids[2:3], ids[1:2]]
    # The messages that were with it have used up no delivery.
    assert {claim.deliveries for batch in batches for claim in batch.claims["jobs"]} == {1}
    # Alone it is delivered once more, and then buried.
    assert [claim.deliveries for claim in given_again()[0].claims["jobs"]] == [2]
    with Consumer(spool, "spark", visibility=10, counts_again=False) as consumer:
        first = consumer.batches("s", 0)[0]
        assert [len(batch) for batch in consumer.divide(first, 2)] == [0]
        assert consumer.commit("s", 4) == 4
    assert [m.id for m in spool.queue("dead").peek()] == ids[:1]
    assert spool.counts("jobs").total == 0


def test_a_batch_buries_only_its_own_messages(spool: Spool, jobs: Queue, clock: Clock) -> None:
    """Its claim has ended, and the message was claimed by others or replaced by another one."""
    for deliveries in (1, 9):
        jobs.configure(max_deliveries=deliveries, dead_letter_queue="dead")
        for is_another in (False, True):
            jobs.put(b"x", id="own")
            spool.deliver()
            with Consumer(spool, "spark", visibility=10) as consumer:
                batch = claim(consumer, 1)
                clock.advance(20)
                jobs.configure(max_deliveries=9)
                if is_another:
                    jobs.remove("own")
                    spool.reap()
                    jobs.put(b"another", id="own")
                spool.deliver()
                [theirs] = jobs.claim(visibility=10)
                jobs.configure(max_deliveries=deliveries)
                assert [len(batch) for batch in consumer.divide(batch, 2)] == [0]
                consumer.commit("s", batch.number)
            clock.advance(5)
            assert jobs.claim() == []
            clock.advance(6)
            jobs.configure(max_deliveries=9)
            spool.deliver()
            [again] = jobs.claim()
            assert (again.body, again.deliveries) == (theirs.body, (theirs.deliveries or 0) + 1)
            jobs.remove("own")
            spool.reap()


def test_a_redriven_message_is_not_in_the_batch(spool: Spool, jobs: Queue, clock: Clock) -> None:
    """Its count of deliveries is the same as in the batch."""
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    fill(jobs, 1)
    with Consumer(spool, "spark", visibility=10) as consumer:
        claim(consumer, 1)
    clock.advance(20)
    spool.deliver()
    spool.queue("dead").redrive()
    spool.deliver()
    [theirs] = jobs.claim(visibility=10)
    assert theirs.deliveries == 1
    with Consumer(spool, "spark", visibility=10) as consumer:
        [batch] = consumer.batches("s", 0)
        assert ids_of(consumer.renew_batch(batch)) == []
        assert consumer.commit("s", 1) == 0
    jobs.renew(theirs.id, 10, claim=theirs.claim)


def test_a_message_in_its_backoff_is_claimed_again(spool: Spool, jobs: Queue, clock: Clock) -> None:
    """Nobody holds it, so the batch stays whole."""
    jobs.configure(retry_backoff=60)
    [message_id] = fill(jobs, 1)
    with Consumer(spool, "spark", visibility=10) as consumer:
        claim(consumer, 1)
    clock.advance(20)
    spool.deliver()
    assert jobs.peek(state="delayed")
    with Consumer(spool, "spark", visibility=10) as consumer:
        [batch] = consumer.batches("s", 0)
        again = consumer.renew_batch(batch)
        assert ids_of(again) == [message_id]
        assert again.counts == [2]
        assert jobs.peek(state="in_flight")
        assert consumer.commit("s", 1) == 1


def test_any_mover_finishes_a_commit(spool: Spool, jobs: Queue, clock: Clock) -> None:
    fill(jobs, 2)
    with Consumer(spool, "spark", visibility=10) as consumer:
        batch = claim(consumer, 2)
    folder = spool.tree.root / "consumers" / "spark"
    (folder / f"{batch.name}.json").rename(folder / f"{batch.name}.done")
    clock.advance(20)
    with Spool(spool.tree.root, sync="none", clock=clock) as other:
        other.deliver()
        assert other.queue("jobs").claim() == []
    assert visible(spool.tree.root) == []
    assert os.listdir(folder) == [".lock"]  # it names the queues that the consumer reads


def test_a_commit_that_cannot_be_finished_blocks_no_program(spool: Spool, jobs: Queue) -> None:
    bad, _, last = fill(jobs, 3)

    def refuse(name: str, arguments: tuple[Any, ...]) -> None:
        if name in ("_rename2", "rename") and bad in str(arguments[:2]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    problems: list[FsmqError] = []
    consumer = Consumer(spool, "spark")
    claim(consumer, 2)
    with seen(refuse):
        with pytest.raises(Unavailable):
            consumer.commit("s", 1)
        consumer.close()
        opened = Consumer(spool, "spark", on_problem=problems.append)
        assert ids_of(claim(opened, 9, 1)) == [last]
        assert visible(spool.tree.root) == [("jobs", bad), ("jobs", last)]
        eventually(lambda: problems)
    with opened:
        eventually(lambda: visible(spool.tree.root) == [("jobs", last)])


def test_a_message_a_mover_latches_is_not_lost(spool: Spool, jobs: Queue, clock: Clock) -> None:
    back, busy = fill(jobs, 2)
    lost: list[object] = []
    with Consumer(spool, "spark", visibility=10, on_lost=lambda *of: lost.append(of)) as consumer:
        batch = claim(consumer, 2)
        clock.advance(20)
        spool.deliver()
        # A mover was stopped after its rename.
        with someone_holds(spool.tree.root / "queues" / "jobs" / busy):
            assert ids_of(consumer.renew_batch(batch)) == [back, busy]
        kept = consumer.renew_batch(batch)
        assert [claim.deliveries for claim in kept.claims["jobs"]] == [2, 2]
        assert lost == []
        assert jobs.claim() == []
        assert consumer.commit("s", 1) == 2
    assert visible(spool.tree.root) == []


def test_messages_around_a_latched_one_are_claimed_again(spool: Spool, jobs: Queue) -> None:
    back, busy, last = fill(jobs, 3)
    lost: list[object] = []
    with Consumer(spool, "spark", visibility=10, on_lost=lambda *of: lost.append(of)) as consumer:
        batch = claim(consumer, 3)
        for message_id in (back, last):
            jobs.release(message_id)
        # A mover was stopped before its rename.
        with someone_holds(spool.tree.root / "delay" / f"jobs:{busy}"):
            assert ids_of(consumer.renew_batch(batch)) == [back, busy, last]
        kept = consumer.renew_batch(batch)
        assert ids_of(kept) == [back, busy, last]
        assert [claim.deliveries for claim in kept.claims["jobs"]] == [2, 1, 2]
        assert lost == []
        assert jobs.claim() == []


def test_batches_skip_what_expired_or_was_deleted(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.put(b"old", ttl=5)
    ids = fill(jobs, 1)
    side = spool.queue("side", create=True)
    fill(side, 1)
    clock.advance(100)
    with Consumer(spool, "spark") as consumer:
        batch = present(consumer.claim("s", 0, ["side", "jobs"], 5))
        assert ids_of(batch) == ids
        spool.delete_queue("side")
        assert ids_of(consumer.renew_batch(batch), "side") == []
        assert consumer.claim("s", 0, ["side", "jobs"], 5) is None


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda folder, batch: (folder / "notes").touch(), "stray"),
        (lambda folder, batch: batch.write_text("{"), "bad-batch"),
        (lambda folder, batch: batch.write_text('{"stream":"s","number":true,"claims":{}}'), "bad"),
        (lambda folder, batch: batch.write_text(_spoiled(batch, "../jobs")), "bad-batch"),
        (lambda folder, batch: (folder.parent / "two words").mkdir(), "stray"),
    ],
)
def test_fsck_reports_bad_files_of_a_consumer(
    spool: Spool, jobs: Queue, spoil: Callable[[Path, Path], object], kind: str
) -> None:
    ids = fill(jobs, 1)
    with Consumer(spool, "spark") as consumer:
        batch = claim(consumer, 1)
    root = spool.tree.root
    assert check(root, offline=True, clock=spool.context.clock).findings == []
    folder = root / "consumers" / "spark"
    spoil(folder, folder / f"{batch.name}.json")
    [finding] = check(root, offline=True, clock=spool.context.clock).findings
    assert finding.kind.value.startswith(kind)
    # The consumer works all the same, and touches no message for it.
    with Consumer(spool, "spark") as consumer:
        consumer.commit("s", 1)
    assert kind == "stray" or visible(root) == [("jobs", ids[0])]


def _spoiled(batch: Path, queue: str) -> str:
    stored = json.loads(batch.read_text())
    return json.dumps({**stored, "claims": {queue: stored["claims"]["jobs"]}})


def note_files(spool: Spool) -> list[str]:
    return sorted(p.name for p in (spool.tree.root / "consumers/spark").glob("*.stream"))


def test_a_consumer_notes_its_stream_and_its_commits(spool: Spool, jobs: Queue) -> None:
    fill(jobs, 4)
    first, second = uuid7(), uuid7()
    with Consumer(spool, "spark") as consumer:
        assert consumer.committed() is None
        consumer.begin(first, 0)
        for number in range(2):
            assert consumer.claim(first, number, ["jobs"], 2) is not None
        consumer.begin(first, 7)  # the stream is noted already
        assert consumer.commit(first, 1) == 2
        assert consumer.commit(first, 1) == 0
    assert note_files(spool) == [f"{first}.1.stream"]
    assert check(spool.tree.root, offline=True).findings == []
    with Consumer(spool, "spark") as consumer:
        assert consumer.committed() == (first, 1)
        consumer.adopt(second, 0)
        consumer.begin(second, 0)
        assert consumer.commit(first, 9) == 0
        assert consumer.commit(second, 1) == 2
    assert note_files(spool) == [f"{second}.1.stream"]
    assert forget(spool.context, "spark")
    with Consumer(spool, "spark") as consumer:
        assert consumer.committed() is None


def test_the_later_of_two_notes_in_a_copied_tree_counts(spool: Spool, jobs: Queue) -> None:
    first, second = uuid7(), uuid7()
    with Consumer(spool, "spark") as consumer:
        consumer.begin(second, 3)
    folder = spool.tree.root / "consumers/spark"
    for other in (f"{second}.2.stream", f"{first}.9.stream", f"{first}.x.stream"):
        (folder / other).touch()
    with Consumer(spool, "spark") as consumer:
        assert consumer.committed() == (second, 3)
        (folder / f"{second}.3.stream").unlink()  # by hand
        fill(jobs, 1)
        assert consumer.claim(second, 3, ["jobs"], 1) is not None
        assert consumer.commit(second, 4) == 1
    assert note_files(spool) == [f"{first}.x.stream", f"{second}.4.stream"]


def test_a_commit_is_noted_before_its_messages_are_removed(
    spool: Spool, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a mover, which finishes the commit of a dead consumer."""
    ids, stream = fill(jobs, 1), uuid7()
    with Consumer(spool, "spark") as consumer:
        consumer.begin(stream, 0)
        assert consumer.claim(stream, 0, ["jobs"], 1) is not None
        with monkeypatch.context() as patch:
            patch.setattr(consumers, "finish_committed", lambda context, name: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                consumer.commit(stream, 1)
    assert note_files(spool) == [f"{stream}.0.stream"]

    def remove(*given: Any, **more: Any) -> bool:
        assert note_files(spool) == [f"{stream}.1.stream"]
        return remove_known(*given, **more)

    monkeypatch.setattr(batches_module, "remove_known", remove)
    assert visible(spool.tree.root) == [("jobs", ids[0])]
    assert finish_abandoned(spool.context) == 1
    assert visible(spool.tree.root) == []
