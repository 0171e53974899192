"""Retention counts from the arrival of a message, even if its id has an earlier time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool import DuplicateMessage, NoSuchMessage, Queue, Spool, prepare
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.layout.uuids import derived_uuid7
from fsmq.spool.log.consuming.forwarding import Feed
from tests.spool.helpers import Clock

HOUR_S = 3600.0
LATE_S = 5 * HOUR_S


@pytest.fixture
def kept_for_an_hour(spool: Spool) -> Queue:
    queue = spool.queue("kept", create=True)
    queue.configure(retention=HOUR_S)
    return queue


def expires_an_hour_later(queue: Queue, clock: Clock, body: bytes) -> None:
    """The message can be claimed for almost an hour, also after a claim ended, and not longer."""
    spool = queue.spool
    spool.deliver()
    for seconds in (HOUR_S / 2, HOUR_S / 2 - 31):
        assert [m.body for m in queue.claim(9, visibility=30)] == [body]
        clock.advance(seconds)
        spool.deliver()
    assert [m.body for m in queue.peek()] == [body]
    clock.advance(32)
    assert queue.claim(9) == []
    assert queue.counts().total == 0


def test_a_message_with_an_old_own_id(kept_for_an_hour: Queue, clock: Clock) -> None:
    old = derived_uuid7(int((clock() - LATE_S) * 1e9), b"x")
    assert kept_for_an_hour.put(b"x", id=old).startswith(old)
    with pytest.raises(DuplicateMessage):
        kept_for_an_hour.put(b"x", id=old)
    kept_for_an_hour.spool.deliver()
    [seen] = kept_for_an_hour.peek()
    assert (seen.body, seen.attributes, seen.created_at) == (b"x", {}, clock() - LATE_S)
    expires_an_hour_later(kept_for_an_hour, clock, b"x")


def test_a_delayed_message_with_an_old_own_id_is_claimed_after_its_delay(
    kept_for_an_hour: Queue, clock: Clock
) -> None:
    old = derived_uuid7(int((clock() - LATE_S) * 1e9), b"x")
    kept_for_an_hour.put(b"x", id=old, delay=60)
    kept_for_an_hour.spool.deliver()
    clock.advance(61)
    kept_for_an_hour.spool.deliver()
    assert [m.body for m in kept_for_an_hour.claim()] == [b"x"]


def test_another_process_expires_a_message_with_an_old_own_id(
    root: Path, kept_for_an_hour: Queue, clock: Clock
) -> None:
    kept_for_an_hour.put(b"x", id=derived_uuid7(int((clock() - LATE_S) * 1e9), b"x"))
    kept_for_an_hour.spool.deliver()
    clock.advance(HOUR_S + 1)
    with Spool(root, sync="none", clock=clock) as other:
        other.deliver()
        assert other.queue("kept").claim() == []


def test_a_message_of_a_late_schedule(root: Path, kept_for_an_hour: Queue, clock: Clock) -> None:
    spool = kept_for_an_hour.spool
    clock.now -= clock.now % 86_400
    spool.schedule("daily").define("0 3 * * *", "kept", b"report", catch_up="last")
    clock.advance(3 * HOUR_S + LATE_S)
    with Spool(root, sync="none", clock=clock) as other:  # two hosts put one message
        for host in (spool, other):
            host.run_schedules()
            clock.advance(1)
    spool.deliver()
    [message] = kept_for_an_hour.peek()
    assert message.created_at == clock() - 2 - LATE_S
    clock.advance(-2)
    expires_an_hour_later(kept_for_an_hour, clock, b"report")


def test_a_dead_letter_of_a_channel(kept_for_an_hour: Queue, clock: Clock) -> None:
    log = kept_for_an_hour.spool.log("events", create=True)
    log.publish(b"old")
    channel = log.channel("mail")
    channel.create("first", max_deliveries=1, dead_letter_queue="kept")
    clock.advance(LATE_S)
    channel.bury(channel.claim()[0])
    expires_an_hour_later(kept_for_an_hour, clock, b"old")


def test_a_message_that_a_channel_feeds_into_a_queue(kept_for_an_hour: Queue, clock: Clock) -> None:
    log = kept_for_an_hour.spool.log("events", create=True)
    log.publish(b"old")
    channel = log.channel("feed")
    channel.create("first")
    clock.advance(LATE_S)
    Feed(channel, kept_for_an_hour, "events", log.stats().uuid).step()
    assert channel.lag() == 0
    expires_an_hour_later(kept_for_an_hour, clock, b"old")


@pytest.mark.parametrize("delay", [0, 600], ids=["ready", "waits"])
@pytest.mark.parametrize("by", ["renew", "renew_at_least", "consumer"])
def test_a_renewal_claims_no_expired_message_again(
    spool: Spool, clock: Clock, delay: float, by: str
) -> None:
    queue = spool.queue("jobs", create=True)
    one = queue.put(b"x", ttl=60)
    with Consumer(spool, "spark", visibility=30) as consumer:
        batch = consumer.claim("s", 0, ["jobs"], 1)
        queue.release(one, delay=delay)
        clock.advance(120)
        if by == "consumer":
            assert batch is not None
            assert len(consumer.renew_batch(batch)) == 0
        elif by == "renew":
            with pytest.raises(NoSuchMessage):
                queue.renew(one, 30)
        else:
            verb = prepare.renew_at_least(spool.context, "jobs", [one], 30)
            assert spool.complete(verb) == [False]
    assert queue.counts().total == 0
