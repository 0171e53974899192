"""Names of claims: a verb that names a claim acts only while that claim holds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from fsmq.spool import ClaimEnded, InvalidValue, Message, NoSuchMessage, Queue, Spool, prepare
from fsmq.spool.layout.claim_names import check_claim, claim_name, of_same_claim
from fsmq.spool.layout.stamps import Stamp, Stamps
from tests.spool.helpers import Clock, present, tree_of

Verb = Callable[[Queue, str, str | None], object]
VERBS: dict[str, Verb] = {
    "ack": lambda jobs, i, claim: jobs.ack(i, claim=claim),
    "renew": lambda jobs, i, claim: jobs.renew(i, 60, claim=claim),
    "release": lambda jobs, i, claim: jobs.release(i, claim=claim),
    "back off": lambda jobs, i, claim: jobs.release(i, 60, claim=claim),
    "bury": lambda jobs, i, claim: jobs.bury(i, claim=claim),
}


@pytest.fixture(params=VERBS)
def verb(request: pytest.FixtureRequest, dead: Queue) -> Verb:
    return VERBS[request.param]


@pytest.fixture(params=["plain", "ours"])
def own(request: pytest.FixtureRequest) -> str | None:
    """An own id, which may be used again, or none."""
    return "plain" if request.param == "plain" else None


@pytest.fixture
def dead(jobs: Queue) -> Queue:
    jobs.configure(max_deliveries=99, dead_letter_queue="dead")
    return jobs.spool.queue("dead")


def mtime(root: Path, message_id: str) -> int:
    return (root / "delay" / f"jobs:{message_id}").stat().st_mtime_ns


def test_a_name_has_the_count_and_two_digits_of_the_deadline(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    [message] = jobs.claim(visibility=7.123)
    digits = round((clock.now + 7.123) * 1000) % 100
    assert message.claim == f"c1-{digits:02d}"
    assert present(jobs.find(message.id)).claim is None


def test_a_verb_acts_in_the_current_claim(jobs: Queue, verb: Verb, own: str | None) -> None:
    jobs.put(b"x", id=own)
    [message] = jobs.claim(visibility=10)
    verb(jobs, message.id, message.claim)
    if verb is VERBS["renew"]:
        verb(jobs, message.id, message.claim)
    else:
        with pytest.raises((ClaimEnded, NoSuchMessage)):
            jobs.renew(message, claim=message.claim)


def test_a_verb_changes_nothing_in_an_older_claim(
    jobs: Queue, verb: Verb, own: str | None, root: Path, clock: Clock
) -> None:
    jobs.put(b"x", id=own)
    [mine] = jobs.claim(visibility=1)
    clock.advance(2)
    [other] = jobs.claim(visibility=60)
    assert (mine.id, mine.claim) == (other.id, other.claim.replace("c2", "c1"))  # type: ignore[union-attr]
    before, stamp = tree_of(root), mtime(root, mine.id)
    with pytest.raises(ClaimEnded, match=mine.id):
        verb(jobs, mine.id, mine.claim)
    assert (tree_of(root), mtime(root, mine.id)) == (before, stamp)
    assert jobs.ack(other, claim=other.claim) == 1


def test_a_verb_changes_nothing_in_a_released_claim(
    jobs: Queue, verb: Verb, own: str | None, root: Path
) -> None:
    jobs.put(b"x", id=own)
    [message] = jobs.claim()
    jobs.release(message)
    before = tree_of(root)
    with pytest.raises(ClaimEnded):
        verb(jobs, message.id, message.claim)
    assert tree_of(root) == before


def test_a_release_with_a_delay_ends_the_claim(jobs: Queue, verb: Verb) -> None:
    jobs.put(b"x")
    [message] = jobs.claim(visibility=30)
    jobs.release(message, 30)  # until the deadline of the claim
    with pytest.raises(ClaimEnded):
        verb(jobs, message.id, message.claim)


def test_a_verb_finds_no_removed_message(jobs: Queue, verb: Verb) -> None:
    jobs.put(b"x")
    [message] = jobs.claim()
    jobs.remove(message)
    if verb is VERBS["ack"]:
        assert verb(jobs, message.id, message.claim) == 0
    else:
        with pytest.raises(NoSuchMessage):
            verb(jobs, message.id, message.claim)


def test_a_delayed_message_has_no_claim(jobs: Queue, verb: Verb) -> None:
    message_id = jobs.put(b"x", delay=60)
    jobs.spool.deliver()
    with pytest.raises(ClaimEnded):
        verb(jobs, message_id, "c0-00")


@pytest.mark.parametrize("name", ["", "c1", "1-47", "c1-7", "c01-47", "c100-47", "c1-47 ", "*"])
def test_a_malformed_name_is_refused(jobs: Queue, verb: Verb, name: str) -> None:
    with pytest.raises(InvalidValue, match=r"claim: .* is no claim; expected a name") as error:
        verb(jobs, "x", name)
    assert error.value.field == "claim"


def test_renewals_keep_the_name(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    [message] = jobs.claim(visibility=30)
    for step in range(50):
        clock.advance(0.0137)
        asked = round((clock.now + 30 + step) * 1000)
        deadline = round(jobs.renew(message, 30 + step, claim=message.claim) * 1000)
        assert asked <= deadline <= asked + 99
    for renewal in (lambda: jobs.renew(message.id, 5.5), lambda: extend(jobs, message)):
        renewal()
        assert jobs.renew(message, 3, claim=message.claim)


def extend(jobs: Queue, message: Message) -> None:
    verb = partial(prepare.renew_at_least, jobs.spool.context)
    assert jobs.spool.complete(verb("jobs", [message.id], 70.077)) == [True]


def test_after_an_uncounted_release_the_next_claim_has_another_name(jobs: Queue) -> None:
    jobs.put(b"x")
    names = []
    for _ in range(3):
        [message] = jobs.claim(visibility=30)  # the clock stands still
        assert message.deliveries == 1
        names.append(message.claim)
        jobs.spool.complete(prepare.release_unseen(jobs.spool.context, message))
    assert len({names[0], names[1]}) == len({names[1], names[2]}) == 2


def test_after_99_deliveries_the_next_claim_has_another_name(jobs: Queue, clock: Clock) -> None:
    message_id = jobs.put(b"x")
    jobs.spool.deliver()
    stamp = jobs.spool.context.stamps.encode(message_id, int(clock.now * 1000), 99)
    os.utime(jobs.spool.tree.root / "queues" / "jobs" / message_id, ns=(stamp, stamp))
    [first] = jobs.claim(visibility=1)
    clock.advance(2)
    [second] = jobs.claim(visibility=30)
    assert first.deliveries == second.deliveries == 99
    with pytest.raises(ClaimEnded):
        jobs.ack(first, claim=first.claim)
    assert jobs.ack(second, claim=second.claim) == 1


def test_after_a_redrive_the_next_claim_has_another_name(jobs: Queue, dead: Queue) -> None:
    jobs.put(b"x")
    [first] = jobs.claim(visibility=30)
    jobs.bury(first)
    dead.move_to("jobs")
    [second] = jobs.claim(visibility=30)
    assert (first.deliveries, second.deliveries) == (1, 1)
    with pytest.raises(ClaimEnded):
        jobs.release(first, claim=first.claim)


def test_a_copy_without_times_loses_claims(jobs: Queue, root: Path) -> None:
    message_id = jobs.put(b"x")
    [message] = jobs.claim(visibility=30)
    os.utime(root / "delay" / f"jobs:{message_id}")
    with pytest.raises(ClaimEnded):
        jobs.ack(message, claim=message.claim)


def test_ack_each_returns_the_outcome_of_each_message(jobs: Queue) -> None:
    jobs.put_many([b"%d" % n for n in range(4)])
    mine, gone, released, other = jobs.claim(4)
    jobs.remove(gone)
    jobs.release(released)
    outcomes = jobs.ack_each([mine, gone, released, other.id])
    assert outcomes == ["removed", "missing", "ended", "removed"]
    assert jobs.ack_each([released.id, mine.id], [None, "c1-00"]) == ["removed", "missing"]
    assert jobs.counts().total == 0
    with pytest.raises(InvalidValue, match="claims: must be as many"):
        jobs.ack_each([mine], [])
    with pytest.raises(InvalidValue, match="claim: belongs to one message"):
        jobs.ack("a", "b", claim="c1-00")


def test_the_methods_of_a_message_name_its_claim(jobs: Queue, dead: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    [mine] = jobs.claim(visibility=1)
    clock.advance(2)
    [other] = jobs.claim(visibility=60)
    for act in (mine.ack, mine.renew, mine.release, mine.bury):
        with pytest.raises(ClaimEnded):
            act()
    assert other.ack()


def test_claim_one_raises_if_its_claim_has_ended(jobs: Queue, clock: Clock) -> None:
    jobs.put(b"x")
    others = []

    def work() -> None:
        with jobs.claim_one(visibility=1):
            clock.advance(2)
            others.extend(jobs.claim(visibility=60))

    with pytest.raises(ClaimEnded):
        work()
    assert [other.ack() for other in others] == [True]


def test_with_coarse_times_any_name_fits(root: Path, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        spool.context.stamps.coarse = True
        jobs = spool.queue("jobs", create=True)
        jobs.put(b"x")
        clock.advance(60)  # every time counts as a deadline
        [message] = jobs.claim(visibility=30)
        assert message.claim == "c0-00"
        jobs.renew(message, 60, claim="c7-47")
        assert jobs.ack(message, claim=message.claim) == 1


def test_an_ack_unlinks_the_message_on_a_full_disk(jobs: Queue) -> None:
    jobs.put(b"x")
    [message] = jobs.claim()
    tree = jobs.spool.tree
    full = OSError(28, "No space left on device")
    with mock.patch.object(type(tree), "move", side_effect=full):
        assert jobs.ack(message, claim=message.claim) == 1
    assert tree_of(Path(tree.root)) == {"new": [], "delay": [], "queues/jobs": []}


def test_no_mover_ends_a_timer_during_an_ack(jobs: Queue, clock: Clock) -> None:
    """Between the check of the stamp and the rename."""
    jobs.put(b"x")
    [message] = jobs.claim(visibility=1)
    clock.advance(2)
    move = type(jobs.spool.tree).move
    others = []

    def slowly(*of: object) -> bool:
        with Spool(jobs.spool.tree.root, sync="none", clock=clock) as other:
            other.deliver()
            others.append(other.queue("jobs").claim())
        return move(*of)  # type: ignore[arg-type]

    with mock.patch.object(type(jobs.spool.tree), "move", slowly):
        assert jobs.ack(message, claim=message.claim) == 1
    assert others == [[]]


def test_names_are_read_as_they_are_written() -> None:
    stamps = Stamps()
    for deliveries, digits in ((1, 0), (9, 9), (10, 10), (99, 99)):
        deadline_ms = 1_750_000_000_000 + digits
        name = claim_name(stamps, deliveries, deadline_ms)
        assert check_claim(name) == name == f"c{deliveries}-{digits:02d}"
        later = of_same_claim(Stamp(deadline_ms, deliveries), int(time.time() * 1000))
        assert claim_name(stamps, deliveries, later) == name


def test_an_error_names_the_whole_id_of_an_own_id(jobs: Queue) -> None:
    whole = jobs.put(b"x", id="bob", attributes={"a": "b"})
    jobs.claim()
    with pytest.raises(NoSuchMessage, match=f"its whole id is {whole}"):
        jobs.release("bob")
    assert "own_id='bob'" in repr(jobs.find(whole))
