"""``retry_backoff``: a message whose claim ended without an ack waits before its redelivery."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool import ClaimEnded, InvalidValue, Message, NewMessage, Queue, Spool, prepare
from fsmq.spool.fsck import check
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.verbs.backoff import backoff_s
from tests.spool.helpers import Clock, present

FIRST_S = 10.0
DIGITS_S = 0.1  # a deadline may be this much later, to keep the digits of the claim


@pytest.fixture
def retried(jobs: Queue) -> Queue:
    """A queue whose messages wait 10, 20, 40 … seconds, and one message in it."""
    jobs.configure(retry_backoff=FIRST_S, retry_jitter=0.0, visibility_timeout=30)
    jobs.put(b"x")
    jobs.spool.deliver()
    return jobs


def end_claim(queue: Queue, clock: Clock) -> Message:
    """Claim the message, and let the claim end."""
    [held] = queue.claim()
    clock.advance(30.1)
    queue.spool.deliver()
    return held


def states(queue: Queue) -> dict[str, int]:
    return {name: count for name, count in queue.counts().as_dict().items() if count}


@pytest.mark.parametrize("is_released", [False, True])
def test_waits_grow_up_to_retry_most(retried: Queue, clock: Clock, is_released: bool) -> None:
    retried.configure(retry_factor=3.0, retry_most=60.0)
    for expected in (10.0, 30.0, 60.0, 60.0):
        if is_released:
            retried.claim()[0].release()
            retried.spool.deliver()
        else:
            end_claim(retried, clock)
        assert states(retried) == {"delayed": 1}
        clock.advance(expected - 0.1)
        retried.spool.deliver()
        assert retried.claim() == []
        clock.advance(0.1 + DIGITS_S)
        retried.spool.deliver()
        assert states(retried) == {"ready": 1, "unfinished": 1}
    assert retried.claim()[0].deliveries == 5


def test_jitter_shortens_waits_at_random() -> None:
    settings = QueueSettings().changed({"retry_backoff": 10.0, "retry_jitter": 0.5})
    waits = [backoff_s(settings, 2) for _ in range(500)]
    assert 10.0 <= min(waits) < 11.0
    assert 19.0 < max(waits) <= 20.0
    assert backoff_s(QueueSettings(), 3) == 0.0
    assert backoff_s(settings.changed({"retry_factor": 100.0}), 99) <= settings.retry_most


def test_a_delayed_release_of_the_last_delivery_buries_at_once(retried: Queue) -> None:
    retried.configure(max_deliveries=1, dead_letter_queue="dead")
    [message] = retried.claim()
    message.release(60.0)
    assert [one.id for one in retried.spool.queue("dead").peek()] == [message.id]


def test_a_release_with_a_delay_waits_for_that_delay(retried: Queue, clock: Clock) -> None:
    retried.claim()[0].release(3)
    assert states(retried) == {"delayed": 1}
    clock.advance(3.0 + DIGITS_S)
    retried.spool.deliver()
    assert retried.claim()[0].deliveries == 2


def test_without_the_setting_a_message_is_ready_at_once(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    end_claim(jobs, clock)
    jobs.claim()[0].release()
    assert jobs.claim()[0].deliveries == 3


def test_after_the_last_delivery_a_message_is_buried_at_once(retried: Queue, clock: Clock) -> None:
    retried.configure(max_deliveries=2, dead_letter_queue="dead")
    end_claim(retried, clock)
    assert states(retried) == {"delayed": 1}
    clock.advance(FIRST_S + DIGITS_S)
    retried.spool.deliver()
    end_claim(retried, clock)
    assert states(retried) == {}
    [dead] = retried.spool.queue("dead").peek()
    assert (dead.deliveries, dead.dead_letter and dead.dead_letter.deliveries) == (0, 2)


def test_the_name_of_an_ended_claim_is_refused(retried: Queue, clock: Clock) -> None:
    held = end_claim(retried, clock)
    retried.configure(max_deliveries=5, dead_letter_queue="dead")
    for act in (retried.ack, retried.renew, retried.release, retried.bury):
        with pytest.raises(ClaimEnded):
            act(held, claim=held.claim)  # type: ignore[operator]
    retried.ack(held.id)  # without the name of a claim it acts on the message
    assert states(retried) == {}


def test_a_late_renewal_claims_the_message_again(retried: Queue, clock: Clock) -> None:
    held = end_claim(retried, clock)
    spool = retried.spool
    renewal = spool.complete(prepare.renew(spool.context, "jobs", held.id, None))
    assert states(retried) == {"in_flight": 1, "unfinished": 1}
    assert renewal.claim not in (None, held.claim)
    assert retried.peek(state="in_flight")[0].deliveries == 2


def test_a_second_release_ends_the_wait(retried: Queue) -> None:
    [held] = retried.claim()
    held.release()
    retried.release(held.id)
    assert states(retried) == {"ready": 1, "unfinished": 1}


def test_release_many_ends_all_waits(retried: Queue) -> None:
    retried.claim()
    spool = retried.spool
    assert spool.complete(prepare.release_many(spool.context, "jobs")) == 1
    assert states(retried) == {"ready": 1, "unfinished": 1}
    [held] = retried.claim()
    assert spool.complete(prepare.release_many(spool.context, "jobs", [held.id])) == 1
    assert states(retried) == {"delayed": 1}
    assert spool.complete(prepare.release_many(spool.context, "jobs")) == 0


def test_all_views_agree_about_a_waiting_message(retried: Queue, clock: Clock, root: Path) -> None:
    spool = retried.spool
    held = end_claim(retried, clock)
    [peeked] = retried.peek(state="delayed")
    assert (peeked.id, peeked.deliveries, peeked.state) == (held.id, 1, "delayed")
    assert retried.peek(state="in_flight") == []
    assert spool.counts("jobs").delayed == 1
    assert check(root, clock=clock).findings == []


def test_a_message_waits_though_the_setting_was_removed(retried: Queue, clock: Clock) -> None:
    end_claim(retried, clock)
    retried.configure(retry_backoff=None)
    assert states(retried) == {"delayed": 1}
    clock.advance(FIRST_S + DIGITS_S)
    retried.spool.deliver()
    assert retried.claim()[0].deliveries == 2


def test_with_coarse_times_only_delayed_releases_wait(root: Path, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        spool.context.stamps.coarse = True
        jobs = spool.queue("jobs", create=True)
        jobs.configure(retry_backoff=FIRST_S, visibility_timeout=30)
        jobs.put(b"x")
        clock.advance(2)  # every coarse time is a deadline, also that of the put
        spool.deliver()
        jobs.claim()[0].release(3)
        assert jobs.claim() == []
        clock.advance(4)
        spool.deliver()
        [held] = jobs.claim()
        clock.advance(31)
        spool.deliver()
        [held] = jobs.claim()
        held.release()
        assert len(jobs.claim()) == 1


def test_claims_by_a_given_id_count_deliveries(spool: Spool, clock: Clock) -> None:
    spool.create_queue("given", index=True)
    queue, given = spool.queue("given"), spool.indexed("given")
    queue.configure(retry_backoff=FIRST_S, visibility_timeout=30)
    given.ensure(NewMessage(b"x", id="one"))
    spool.deliver()
    for deliveries in (1, 2, 3):
        assert present(given.claim("one")).deliveries == deliveries
        assert given.claim("one") is None
        clock.advance(30.1)
        spool.deliver()
        assert states(queue) == {"delayed": 1}
        assert given.ack("one") == [False]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"retry_backoff": 0}, "retry_backoff: must be a number of seconds from 0.001 to"),
        ({"retry_factor": 0.5}, "retry_factor: must be a number of times from 1 to 100"),
        ({"retry_most": None}, "retry_most: must be a number of seconds"),
        ({"retry_jitter": 1.5}, "retry_jitter: must be a number of shares from 0 to 1"),
        ({"retry_backoff": 7200}, "retry_backoff 7200 is more than retry_most 3600"),
    ],
)
def test_bad_settings_are_refused(jobs: Queue, changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        jobs.configure(**changes)
