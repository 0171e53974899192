"""Claim, renew, release and bury messages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmq.spool import (
    InvalidValue,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    Queue,
    Spool,
    Unavailable,
    prepare,
)
from tests.spool.helpers import Clock, tree_of


def test_a_claim_hides_a_message_until_its_deadline(jobs: Queue, root: Path, clock: Clock) -> None:
    message_id = jobs.put(b"x")
    [message] = jobs.claim(visibility=7.5)
    assert (message.id, message.body, message.queue) == (message_id, b"x", "jobs")
    assert message.deadline == clock.now + 7.5
    assert message.deliveries == 1
    assert tree_of(root) == {"new": [], "delay": [f"jobs:{message_id}"], "queues/jobs": []}
    assert jobs.claim() == []


def test_a_claim_takes_at_most_count_messages(jobs: Queue) -> None:
    jobs.put_many([b"1", b"2", b"3"])
    assert [m.body for m in jobs.claim(2)] == [b"1", b"2"]
    assert [m.body for m in jobs.claim(2)] == [b"3"]


def test_the_default_is_the_queues_visibility_timeout(jobs: Queue, clock: Clock) -> None:
    first, _ = jobs.put_many([b"1", b"2"])
    assert jobs.claim()[0].deadline == clock.now + 30
    jobs.configure(visibility_timeout=5)
    assert jobs.claim()[0].deadline == clock.now + 5
    assert clock.now + 5 <= jobs.renew(first) < clock.now + 5.1


@pytest.mark.parametrize("count", [0, -1, 1001, True])
def test_a_count_out_of_range_is_refused(jobs: Queue, count: int) -> None:
    with pytest.raises(InvalidValue, match="count"):
        jobs.claim(count)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), 8 * 86_400.0])
def test_a_timeout_out_of_range_is_refused(jobs: Queue, seconds: float) -> None:
    message_id = jobs.put(b"x")
    with pytest.raises(InvalidValue, match="visibility"):
        jobs.claim(visibility=seconds)
    with pytest.raises(InvalidValue, match="visibility"):
        jobs.renew(message_id, seconds)
    with pytest.raises(InvalidValue, match="delay"):
        jobs.release(message_id, seconds * 100)


def test_a_message_is_redelivered_when_its_claim_ends(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    for expected in (1, 2, 3):
        [message] = jobs.claim(visibility=10)
        assert message.deliveries == expected
        clock.advance(9.9)
        assert jobs.claim() == []
        clock.advance(0.2)


def test_a_redelivered_message_goes_back_to_its_place(jobs: Queue, clock: Clock) -> None:
    jobs.put_many([b"1", b"2", b"3"])
    jobs.claim(visibility=1)
    clock.advance(1)
    assert [m.body for m in jobs.claim(3)] == [b"1", b"2", b"3"]


def test_a_visibility_of_zero_releases_the_message_at_once(jobs: Queue) -> None:
    jobs.put(b"x")
    assert [m.deliveries for _ in range(3) for m in jobs.claim(visibility=0)] == [1, 2, 3]


def test_renew_moves_the_deadline_and_keeps_the_count(jobs: Queue, clock: Clock) -> None:
    message_id = jobs.put(b"x")
    jobs.claim(visibility=10)
    clock.advance(9)
    assert jobs.renew(message_id, 10) == clock.now + 10
    clock.advance(9.9)
    assert jobs.claim() == []
    clock.advance(0.1)
    [message] = jobs.claim(visibility=100)
    assert message.deliveries == 2
    message.renew(1)  # it may shorten the claim
    clock.advance(1.1)
    assert len(jobs.claim()) == 1


def test_a_renewal_claims_a_ready_message_again(jobs: Queue, root: Path, clock: Clock) -> None:
    message_id = jobs.put(b"x")
    jobs.claim(visibility=1)
    clock.advance(2)
    jobs.spool.deliver()
    assert tree_of(root)["queues/jobs"] == [message_id]
    assert jobs.renew(message_id, 10) == clock.now + 10
    assert jobs.claim() == []


def test_renew_and_release_need_the_message(jobs: Queue) -> None:
    message_id = jobs.put(b"x")
    jobs.remove(message_id)
    with pytest.raises(NoSuchMessage, match=message_id):
        jobs.renew(message_id, 1)
    with pytest.raises(NoSuchMessage):
        jobs.release(message_id)
    with pytest.raises(NoSuchMessage):
        jobs.release(message_id, delay=1)


def test_bury_moves_a_claimed_message_to_the_dead_letters(spool: Spool, jobs: Queue) -> None:
    message_id = jobs.put(b"poison")
    with pytest.raises(InvalidValue, match="dead_letter_queue"):
        jobs.bury(message_id)
    jobs.configure(max_deliveries=9, dead_letter_queue="dead")
    with pytest.raises(NoSuchMessage):
        jobs.bury(message_id)
    jobs.claim()
    jobs.bury(message_id)
    assert jobs.counts().total == 0
    [dead] = spool.queue("dead").claim()
    assert (dead.id, dead.body, dead.deliveries) == (message_id, b"poison", 1)


def test_a_release_with_a_delay_hides_the_message(jobs: Queue, clock: Clock) -> None:
    message_id = jobs.put(b"x")
    jobs.claim(visibility=1)
    jobs.release(message_id, delay=60)
    clock.advance(59)
    assert jobs.claim() == []
    clock.advance(1.001)  # a release ends the claim, so its deadline has other digits
    assert jobs.claim()[0].deliveries == 2


def test_a_release_ends_the_delay_of_a_delayed_message(spool: Spool, jobs: Queue) -> None:
    message_id = jobs.put(b"x", delay=60)
    spool.deliver()
    jobs.release(message_id)
    assert jobs.claim()[0].deliveries == 1


@pytest.mark.parametrize("verb", ["claim", "renew", "release", "counts", "peek", "purge"])
def test_every_verb_refuses_a_missing_queue(spool: Spool, verb: str) -> None:
    gone = Queue(spool, "gone")
    arguments = ["some-id"] if verb in ("renew", "release") else []
    with pytest.raises(NoSuchQueue, match="gone"):
        getattr(gone, verb)(*arguments)


@pytest.mark.parametrize("verb", ["renew", "release", "remove", "find"])
@pytest.mark.parametrize("name", ["../jobs/x", "a/b", ".hidden", "", "..", "a:b", "x" * 255])
def test_every_verb_refuses_a_bad_id(jobs: Queue, verb: str, name: str) -> None:
    with pytest.raises(InvalidValue):
        getattr(jobs, verb)(name)


@pytest.mark.parametrize("name", ["../config", "a/b", ".", "_x", ""])
def test_every_verb_refuses_a_bad_queue_name(spool: Spool, name: str) -> None:
    bad = Queue(spool, name)
    calls = (
        lambda: bad.put(b""),
        bad.claim,
        lambda: bad.renew("x"),
        lambda: bad.release("x"),
        lambda: bad.remove("x"),
        bad.purge,
        bad.peek,
        lambda: bad.find("x"),
        lambda: bad.move_to("other"),
        bad.counts,
        bad.settings,
        lambda: bad.configure(max_depth=1),
        lambda: spool.delete_queue(name),
        lambda: spool.create_queue(name),
        lambda: spool.has_queue(name),
    )
    for call in calls:
        with pytest.raises(InvalidValue):
            call()


def test_a_deleted_dead_letter_queue_is_recreated(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.configure(max_deliveries=1, dead_letter_queue="dead")
    spool.delete_queue("dead")
    jobs.put(b"x")
    jobs.claim(visibility=1)
    clock.advance(1)
    spool.deliver()
    assert spool.queues() == ["dead", "jobs"]
    assert len(spool.queue("dead").claim()) == 1


def test_an_expired_message_is_not_delivered(jobs: Queue, clock: Clock, root: Path) -> None:
    jobs.put(b"x", ttl=10)
    kept = jobs.put(b"y", ttl=1000)
    clock.advance(100)
    assert [m.id for m in jobs.claim(2)] == [kept]
    assert len(list((root / "remove").iterdir())) == 1


def test_retention_expires_messages_without_a_ttl(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    jobs.configure(retention=60)
    clock.advance(600)
    assert jobs.claim() == []
    assert jobs.counts().total == 0


def test_an_expired_message_in_flight_is_not_redelivered(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x", ttl=5)
    jobs.claim(visibility=10)
    clock.advance(100)
    assert jobs.claim() == []
    assert jobs.counts().total == 0


def test_a_claim_of_many_bytes_takes_fewer_messages(jobs: Queue) -> None:
    jobs.put_many([b"x" * 15_000_000] * 6)
    claimed = jobs.claim(6)
    assert 0 < len(claimed) < 6
    assert len(jobs.claim(6)) == 6 - len(claimed)


def test_a_claim_skips_entries_that_cannot_be_claimed(jobs: Queue, root: Path) -> None:
    folder = root / "queues" / "jobs"
    (folder / "0-folder").mkdir()
    (folder / "0-link").symlink_to("/etc/hostname")
    os.mkfifo(folder / "0-pipe")
    jobs.put(b"x")
    assert [m.body for m in jobs.claim(5)] == [b"x"]
    assert [m.body for m in jobs.peek(5)] == []
    (folder / ("0" * 255)).write_bytes(b"no room for the queue's name")
    jobs.put(b"y")
    assert [m.body for m in jobs.claim(5)] == [b"y"]


def test_a_claim_skips_an_id_that_is_claimed_already(jobs: Queue, root: Path) -> None:
    jobs.put(b"x", id="0-twice")
    jobs.claim()
    (root / "queues" / "jobs" / "0-twice").write_bytes(b"a copy")
    jobs.put(b"y")
    assert [m.body for m in jobs.claim(5)] == [b"y"]
    assert (root / "delay" / "jobs:0-twice").read_bytes() == b"x"


def test_symbolic_links_are_not_followed(jobs: Queue, root: Path) -> None:
    secret = root / "secret"
    secret.write_bytes(b"secret")
    (root / "queues" / "jobs" / "link").symlink_to(secret)
    (root / "delay" / "jobs:link2").symlink_to(secret)
    before = secret.stat().st_mtime_ns
    assert jobs.claim(5) == []
    assert jobs.find("link") is None
    assert jobs.peek(state="delay") == []
    assert secret.stat().st_mtime_ns == before


def test_a_claim_removes_only_some_expired_messages(jobs: Queue, clock: Clock, root: Path) -> None:
    jobs.put_many([NewMessage(b"x", ttl=10) for _ in range(400)])
    kept = jobs.put(b"y")
    jobs.spool.deliver()
    clock.advance(600)
    assert [m.id for m in jobs.claim(2)] == [kept]
    # The mover removes the rest.
    assert 0 < len(list((root / "remove").iterdir())) < 400


def test_a_file_too_large_for_the_memory_is_skipped(spool: Spool, jobs: Queue, root: Path) -> None:
    with (root / "queues" / "jobs" / "0-first").open("wb") as sparse:
        sparse.truncate(8 << 40)
    jobs.put(b"small")
    spool.deliver()
    assert [m.body for m in jobs.peek()] == [b"small"]
    assert jobs.find("0-first") is None
    assert [m.body for m in jobs.claim(2)] == [b"small"]
    with pytest.raises(Unavailable, match="larger than this program accepts"):
        spool.complete(prepare.claim(spool.context, "jobs"))
    assert tree_of(root)["queues/jobs"] == ["0-first"]
