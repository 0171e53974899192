"""A queue with an index: its messages are found by the ids that producers give, any text."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Spool, Unavailable, prepare
from fsmq.spool.durability import settings_lock
from fsmq.spool.durability.ids import LOCK, NEXT, hold, settle
from fsmq.spool.durability.leaving import forget_links
from fsmq.spool.fsck import Severity, check
from fsmq.spool.indexed import Indexed
from fsmq.spool.layout.messages.given_ids import link_name
from fsmq.spool.layout.transitions import MOVE_READY
from fsmq.spool.layout.tree import Tree
from fsmq.spool.reaper import Reaper, reap
from fsmq.spool.verbs.moves.links_of_move import receiving
from fsmq.spool.verbs.moves.move import move_messages, move_one
from tests.spool.helpers import Clock, back_to_new

HOLD_S = 60.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def jobs(tmp_path: Path, clock: Clock) -> Indexed:
    spool = Spool(tmp_path / "mq", sync="none", clock=clock)
    spool.create_queue("jobs", index=True)
    return spool.indexed("jobs")


def put(jobs: Indexed, *ids: str, delay: float = 0.0, body: bytes = b"x") -> list[str]:
    names = jobs.upsert([NewMessage(body, id=one, delay=delay) for one in ids])
    jobs.spool.deliver()
    return names


def links(jobs: Indexed) -> list[str]:
    names = os.listdir(jobs.spool.tree.root / "ids" / jobs.name)
    return sorted(name for name in names if name != LOCK)


def assert_clean(jobs: Indexed) -> None:
    assert check(jobs.spool.tree.root, offline=True, clock=jobs.spool.context.clock).findings == []


@pytest.mark.parametrize(
    "given", ["a", ".hidden", "a/b:c", "über\n☃", " ", "=x", "x" * 1024, "☃" * 300, "..", "%41"]
)
def test_an_id_is_any_text(jobs: Indexed, given: str) -> None:
    put(jobs, given)
    found = jobs.find(given)
    assert found is not None
    assert (found.body, found.state) == (b"x", "ready")
    assert_clean(jobs)
    assert jobs.remove(given) == [True]
    assert jobs.find(given) is None


@pytest.mark.parametrize("given", ["", "x" * 1025, "\ud800", None, 5])
def test_an_id_that_is_refused(jobs: Indexed, given: object) -> None:
    with pytest.raises(InvalidValue):
        jobs.upsert([NewMessage(b"x", id=given)])  # type: ignore[arg-type]
    assert os.listdir(jobs.spool.tree.root / "new") == []


def test_no_two_ids_have_one_link() -> None:
    ids = ["a", "A", "%61", ".a", "%2Ea", "=" + "0" * 64, "a" * 300, "a" * 301, "a/", "a%2F"]
    assert len({link_name(one) for one in ids}) == len(ids)
    assert all(len(link_name(one)) <= 200 and link_name(one)[0] != "." for one in ids)


def test_whether_a_queue_has_an_index_is_fixed_when_it_is_created(tmp_path: Path) -> None:
    with Spool(tmp_path / "mq", sync="none") as spool:
        assert spool.create_queue("jobs", index=True)
        assert not spool.create_queue("jobs", index=True)
        assert not spool.create_queue("jobs")
        assert spool.settings("jobs").index
        with pytest.raises(InvalidValue, match="fixed"):
            spool.configure("jobs", {"index": False})
        assert spool.configure("jobs", {"index": True, "max_depth": 5}).max_depth == 5
        spool.create_queue("plain")
        with pytest.raises(InvalidValue, match="without"):
            spool.create_queue("plain", index=True)
        with pytest.raises(InvalidValue, match="without an index"):
            spool.indexed("plain").ensure(NewMessage(b"x", id="a"))
        with pytest.raises(InvalidValue, match="without an index"):
            spool.indexed("plain").find("a")
        with pytest.raises(NoSuchQueue):
            spool.indexed("none").find("a")


def test_a_put_of_an_id_that_stands_takes_its_place(jobs: Indexed) -> None:
    put(jobs, "a", body=b"old")
    put(jobs, "a", body=b"new")
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"new"]
    put(jobs, "a", body=b"newer")  # also of one that is in flight
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"newer"]
    assert jobs.spool.queue("jobs").counts().total == 1
    assert_clean(jobs)


def test_of_an_id_that_comes_twice_in_a_batch_the_last_counts(jobs: Indexed) -> None:
    jobs.upsert([NewMessage(b"1", id="a"), NewMessage(b"2", id="b"), NewMessage(b"3", id="a")])
    jobs.spool.deliver()
    assert sorted(m.body for m in jobs.spool.queue("jobs").claim(9)) == [b"2", b"3"]


def test_ensure_puts_once_until_the_message_is_removed(jobs: Indexed) -> None:
    assert jobs.ensure(NewMessage(b"1", id="a"))
    for _ in range(2):
        assert not jobs.ensure(NewMessage(b"2", id="a"))
        jobs.spool.deliver()
    assert jobs.claim("a") is not None
    assert not jobs.ensure(NewMessage(b"3", id="a"))
    assert jobs.ack("a") == [True]
    assert jobs.ensure(NewMessage(b"4", id="a"))  # its old link is stale
    assert_clean(jobs)


def test_only_what_is_in_flight_is_acknowledged(jobs: Indexed, clock: Clock) -> None:
    put(jobs, "ready", "held")
    put(jobs, "later", delay=HOLD_S)
    jobs.claim("held", HOLD_S)
    assert jobs.ack("ready", "held", "later", "none", "held") == [False, True, False, False, False]
    jobs.claim("ready", HOLD_S)
    clock.advance(HOLD_S + 1)
    assert jobs.ack("ready") == [True]  # no mover has seen that its claim is over
    assert_clean(jobs)


def test_an_acknowledgement_that_names_a_message_means_no_newer_one(jobs: Indexed) -> None:
    [first] = put(jobs, "a")
    assert jobs.ack("a", names={"a": first}) == [False]
    jobs.claim("a")
    [second] = put(jobs, "a")
    jobs.claim("a")
    assert jobs.ack("a", names={"a": first}) == [False]
    assert jobs.ack("a", names={"a": second}) == [True]


def test_only_what_is_in_flight_is_renewed(jobs: Indexed, clock: Clock) -> None:
    put(jobs, "ready", "held")
    put(jobs, "later", delay=HOLD_S)
    jobs.claim("held", HOLD_S)
    assert [jobs.renew(one, 2 * HOLD_S) for one in ("ready", "later", "none")] == [False] * 3
    assert jobs.renew("held", 2 * HOLD_S)
    clock.advance(HOLD_S + 1)
    jobs.spool.deliver()
    assert _state(jobs, "held") == "in_flight"
    assert jobs.renew("held", 0)
    assert _state(jobs, "held") == "ready"
    assert not jobs.renew("held", 5)


def _state(jobs: Indexed, given: str) -> str | None:
    found = jobs.find(given)
    return None if found is None else found.state


def test_a_delayed_message_is_claimed_by_its_id(jobs: Indexed, clock: Clock) -> None:
    put(jobs, "later", delay=10 * HOLD_S)
    jobs.upsert([NewMessage(b"x", id="new", delay=HOLD_S)])  # not delivered yet
    for one in ("later", "new"):
        message = jobs.claim(one, HOLD_S)
        assert message is not None
        assert (message.deliveries, message.given_id) == (1, one)
        assert jobs.claim(one) is None
    clock.advance(HOLD_S + 1)
    jobs.spool.deliver()
    assert (_state(jobs, "later"), _state(jobs, "new")) == ("ready", "ready")


@pytest.mark.parametrize("delay", [0, 10 * HOLD_S])
@pytest.mark.parametrize("ttl", [HOLD_S, None])
def test_an_expired_message_is_not_claimed_by_its_id(
    jobs: Indexed, clock: Clock, delay: float, ttl: float | None
) -> None:
    jobs.upsert([NewMessage(b"x", id="a", ttl=ttl, delay=delay)])
    if ttl is None:
        jobs.spool.queue(jobs.name).configure(retention=HOLD_S)
        clock.advance(delay)
    clock.advance(HOLD_S + 1)
    assert jobs.claim("a") is None


def test_a_message_is_postponed_with_its_place(jobs: Indexed, clock: Clock) -> None:
    put(jobs, "a", "b", "c")
    assert jobs.postpone("a", HOLD_S, {"timeout": "60"})
    jobs.spool.deliver()
    assert _state(jobs, "a") == "delayed"
    jobs.claim("b")
    assert not jobs.postpone("b", 5)
    assert not jobs.postpone("none", 5)
    clock.advance(HOLD_S + 1)
    jobs.spool.deliver()
    put(jobs, "d")
    claimed = jobs.spool.queue("jobs").claim(9)
    ids = [m.given_id for m in claimed if m.given_id != "b"]
    assert ids[:1] == ["c"]
    assert set(ids) == {"a", "c", "d"}
    assert next(m for m in claimed if m.given_id == "a").attributes["timeout"] == "60"
    assert_clean(jobs)


def test_a_message_is_made_ready_early(jobs: Indexed) -> None:
    put(jobs, "a", delay=HOLD_S)
    assert jobs.postpone("a", 0)
    jobs.spool.deliver()
    assert _state(jobs, "a") == "ready"


def test_the_reaper_unlinks_the_links(jobs: Indexed) -> None:
    put(jobs, "a", "b")
    jobs.remove("a")
    jobs.spool.reap()
    assert links(jobs) == ["b"]
    jobs.spool.queue("jobs").purge()
    jobs.spool.reap()
    assert links(jobs) == []
    put(jobs, "c")
    jobs.remove("c")
    put(jobs, "c")  # before the reaper has come
    jobs.spool.reap()
    assert links(jobs) == ["c"]
    assert _state(jobs, "c") == "ready"


def test_a_queue_goes_with_its_index(jobs: Indexed) -> None:
    put(jobs, "a")
    jobs.spool.delete_queue("jobs")
    jobs.spool.reap()
    root = jobs.spool.tree.root
    assert (os.listdir(root / "ids"), os.listdir(root / "remove")) == ([], [])
    jobs.spool.create_queue("jobs")
    assert not jobs.spool.settings("jobs").index


def test_a_dead_letter_leaves_the_index(jobs: Indexed) -> None:
    jobs.spool.configure("jobs", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    put(jobs, "a")
    jobs.claim("a")
    assert jobs.renew("a", 0)
    assert jobs.find("a") is None
    assert jobs.spool.queue("dead").counts().ready == 1
    assert_clean(jobs)
    jobs.spool.queue("dead").purge()
    jobs.spool.reap()
    assert links(jobs) == []


@pytest.mark.parametrize("in_background", [False, True])
def test_messages_move_with_their_ids_and_timers(
    jobs: Indexed, clock: Clock, in_background: bool
) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    more = spool.indexed("more")
    put(jobs, "ready", "held", "both")
    put(jobs, "later", delay=HOLD_S)
    more.ensure(NewMessage(b"mine", id="both"))
    jobs.claim("held", HOLD_S)
    if in_background:
        ref = spool.begin_move("jobs", "more", in_flight=False, delayed=True).ref
        assert spool.make_moves() == 1
        move = spool.find_move(ref)
        assert move is not None
        assert (move.moved, move.conflicts) == (2, 1)
    else:
        from fsmq.spool.verbs.moves.move import move_messages

        moved = spool.complete(move_messages(spool.context, "jobs", "more", delayed=True))
        assert (moved.moved, moved.conflicts) == (2, 1)
    assert (_state(more, "ready"), _state(more, "later")) == ("ready", "delayed")
    assert (_state(jobs, "ready"), _state(jobs, "held")) == (None, "in_flight")
    assert _state(jobs, "both") == "ready"
    spool.reap()
    assert {"both", "later", "ready"} <= set(links(more))
    assert {"both", "held"} <= set(links(jobs))
    clock.advance(HOLD_S + 1)
    spool.deliver()
    assert _state(more, "later") == "ready"
    assert_clean(jobs)
    more.remove("ready", "later", "both")
    spool.reap()
    assert links(jobs) == ["both", "held"]
    assert set(links(more)) <= {"held"}
    jobs.remove("both", "held")
    spool.reap()
    assert (links(jobs), links(more)) == ([], [])


def test_what_has_to_stay_does_not_count_as_moved(jobs: Indexed) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    put(jobs, "a", "b", "c")
    put(spool.indexed("more"), "c")
    spool.deliver()
    ref = spool.begin_move("jobs", "more", in_flight=False, delayed=True, count=1).ref
    spool.make_moves()
    move = spool.find_move(ref)
    assert move is not None
    assert (move.moved, move.conflicts) == (1, 1)
    assert [_state(jobs, one) for one in "abc"] == ["ready", None, "ready"]
    assert_clean(jobs)


def test_so_many_are_moved_those_that_would_come_last(jobs: Indexed) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    put(jobs, *"abcdef")
    spool.begin_move("jobs", "more", in_flight=False, delayed=True, count=2)
    spool.make_moves()
    assert [_state(spool.indexed("more"), one) for one in "abcdef"] == [None] * 4 + ["ready"] * 2


def test_no_queue_is_deleted_while_a_message_comes_to_it_with_its_id(
    jobs: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_lock, "PATIENCE_S", 0.0)
    spool = jobs.spool
    spool.create_queue("more", index=True)
    [name] = put(jobs, "a")
    with receiving(spool.context, "jobs", "more", [name]):
        with pytest.raises(Unavailable, match=r"another process holds .*/config/\.more\.lock"):
            spool.delete_queue("more")
        assert move_one(spool.context, MOVE_READY, "jobs", name, "more")
    assert _state(spool.indexed("more"), "a") == "ready"
    reap(spool.tree)
    assert_clean(jobs)


def test_a_message_whose_id_another_one_has_is_handed_out_and_told_of(jobs: Indexed) -> None:
    """A shell user has brought it back from the dead letters, where it had gone with its id."""
    spool, root = jobs.spool, jobs.spool.tree.root
    spool.configure("jobs", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    [old] = put(jobs, "a", body=b"old")
    jobs.claim("a")
    jobs.renew("a", 0)
    [new] = put(jobs, "a", body=b"new")
    (root / "queues" / "dead" / old).rename(root / "queues" / "jobs" / old)
    report = check(root, repair=True, offline=True)
    assert [(f.kind.value, f.path) for f in report.findings] == [("no-link", f"queues/jobs/{old}")]
    assert report.repaired == []
    assert (found := jobs.find("a")) is not None
    assert found.id == new
    assert {m.body for m in spool.queue("jobs").claim(9)} == {b"old", b"new"}


def test_dead_letters_of_one_id_are_all_kept_and_have_no_id(jobs: Indexed) -> None:
    """Also where their queue has an index, and when the queue from which they came has gone."""
    spool = jobs.spool
    spool.create_queue("dead", index=True)
    spool.configure("jobs", {"max_deliveries": 5, "dead_letter_queue": "dead"})
    for body in (b"one", b"two"):
        put(jobs, "a", body=body)
        found = jobs.claim("a")
        assert found is not None
        spool.queue("jobs").bury(found.id)
        assert_clean(jobs)
    put(jobs, "a")
    assert_clean(jobs)
    spool.delete_queue("jobs")
    reap(spool.tree)
    assert check(spool.tree.root, offline=True).findings == []
    assert spool.indexed("dead").find("a") is None
    assert {m.body for m in spool.queue("dead").claim(9)} == {b"one", b"two"}


def test_a_dead_letter_that_comes_back_has_its_id_if_that_is_free(jobs: Indexed) -> None:
    spool, root = jobs.spool, jobs.spool.tree.root
    spool.configure("jobs", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    [name] = put(jobs, "a")
    jobs.claim("a")
    jobs.renew("a", 0)
    assert jobs.find("a") is None
    (root / "queues" / "dead" / name).rename(root / "queues" / "jobs" / name)
    check(root, repair=True, offline=True)
    assert _state(jobs, "a") == "ready"
    assert_clean(jobs)


@pytest.mark.parametrize("failed", [1, 2])
def test_an_upsert_whose_sync_fails_leaves_one_of_the_two(jobs: Indexed, failed: int) -> None:
    put(jobs, "a", body=b"old")
    stored = prepare.upsert(jobs.spool.context, "jobs", [NewMessage(b"new", id="a")])
    for _ in range(1, failed):
        told = jobs.spool.complete(stored)
        assert told.rest is not None
        stored = told.rest
    stored.abort()
    found = jobs.find("a")
    assert found is not None
    # From the second on what it replaces has gone, so that it is shown all the same.
    assert found.body == (b"new" if failed == 2 else b"old")
    jobs.spool.deliver()
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [found.body]
    jobs.spool.reap()
    assert_clean(jobs)


@pytest.mark.parametrize("steps", [0, 1])
def test_nobody_takes_part_in_an_upsert_that_is_stopped(
    jobs: Indexed, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mover starts, others put the id, an hour goes by: it ends as if nothing had been."""
    monkeypatch.setattr("fsmq.spool.durability.ids.PATIENCE_S", 0.0)
    root, clock = jobs.spool.tree.root, jobs.spool.context.clock
    put(jobs, "a", body=b"old")
    stored = prepare.upsert(jobs.spool.context, "jobs", [NewMessage(b"new", id="a")])
    for _ in range(steps):
        told = jobs.spool.complete(stored)
        assert told.rest is not None
        stored = told.rest
    clock.advance(3600)  # type: ignore[attr-defined]
    with Spool(root, sync="none", clock=clock) as other:
        other.deliver()
        with pytest.raises(Unavailable):
            other.indexed("jobs").upsert([NewMessage(b"other", id="a")])
        with pytest.raises(Unavailable):
            other.indexed("jobs").ensure(NewMessage(b"other", id="a"))
        other.deliver()
        other.reap()  # what is replaced is left to the upsert
    told = jobs.spool.complete(stored)
    while told.rest is not None:
        told = jobs.spool.complete(told.rest)
    assert (found := jobs.find("a")) is not None
    assert (found.id, found.body) == (told.names[0], b"new")
    jobs.spool.deliver()
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"new"]
    jobs.spool.reap()
    assert_clean(jobs)


def _die(jobs: Indexed, act: Callable[[Spool], object]) -> None:
    """A process does something, and ends there without a word."""

    def run(root: Path) -> None:
        act(Spool(root, sync="none", delivers=False))
        os._exit(0)

    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=run, args=(jobs.spool.tree.root,))
    process.start()
    process.join()


def test_what_an_upsert_that_died_has_left_is_finished_by_who_comes(jobs: Indexed) -> None:
    put(jobs, "a", body=b"old")
    new = [NewMessage(b"new", id="a")]
    # What it replaces has gone, and it is not shown.
    _die(jobs, lambda spool: spool.complete(prepare.upsert(spool.context, "jobs", new)))
    assert links(jobs) == [f"{NEXT}a", "a"]
    assert (found := jobs.find("a")) is not None
    assert found.body == b"new"
    assert links(jobs) == ["a"]
    jobs.spool.deliver()
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"new"]
    jobs.spool.reap()
    assert_clean(jobs)


def test_what_died_before_it_replaced_a_message_does_not_come_behind_its_removal(
    jobs: Indexed,
) -> None:
    put(jobs, "a", body=b"old")
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"new", id="a")]))
    assert links(jobs) == [f"{NEXT}a", "a"]
    assert jobs.remove("a") == [True]
    with Spool(jobs.spool.tree.root, sync="none") as other:
        other.deliver()
        assert other.queue("jobs").counts().total == 0


@pytest.mark.parametrize("by_id", [False, True])
def test_what_was_written_and_not_answered_comes_out(jobs: Indexed, by_id: bool) -> None:
    """Those that were given an id have it; the others are put as into any queue."""

    def write(spool: Spool) -> object:
        messages = [NewMessage(b"x", id="a" if by_id else None, attributes={"k": "v"})]
        return (prepare.upsert if by_id else prepare.put)(spool.context, "jobs", messages)

    _die(jobs, write)
    with Spool(jobs.spool.tree.root, sync="none") as other:
        other.deliver()
        [message] = other.queue("jobs").claim(9)
        assert message.given_id == ("a" if by_id else None)
    assert_clean(jobs)


def test_a_file_that_lost_its_bytes_with_the_power_leaves_no_link(jobs: Indexed) -> None:
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"x", id="a")]))
    root = jobs.spool.tree.root
    [torn] = (root / "new").glob(".*")
    os.truncate(torn, 0)
    with Spool(root, sync="none") as other:
        other.deliver()
    assert (links(jobs), os.listdir(root / "new")) == ([], [])
    assert jobs.ensure(NewMessage(b"y", id="a"))


@pytest.mark.parametrize("verb", ["find", "claim", "remove"])
def test_a_verb_by_id_waits_for_the_recovery_of_what_was_acknowledged(
    jobs: Indexed, verb: str
) -> None:
    """It does not say that there is none while a program that starts brings it out."""
    # Its rename was not synced when the power was cut; all before that was.
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"x", id="a")]))
    recovering = hold(jobs.spool.tree, {"jobs": ["a"]})
    assert recovering is not None
    answers: SimpleQueue[object] = SimpleQueue()
    asking = threading.Thread(target=lambda: answers.put(getattr(jobs, verb)("a")))
    with recovering:
        asking.start()
        with pytest.raises(Empty):
            answers.get(timeout=0.1)
        settle(jobs.spool.tree, "jobs", ["a"])
    assert answers.get(timeout=60) not in (None, [False])
    asking.join()


def test_an_ensure_waits_for_the_put_that_is_under_way(jobs: Indexed) -> None:
    """It does not say that a message is there which may yet be taken back."""
    stored = prepare.upsert(jobs.spool.context, "jobs", [NewMessage(b"x", id="a")])
    with Spool(jobs.spool.tree.root, sync="none", delivers=False) as other:
        answers: SimpleQueue[bool] = SimpleQueue()
        racer = threading.Thread(
            target=lambda: answers.put(other.indexed("jobs").ensure(NewMessage(b"y", id="a")))
        )
        racer.start()
        with pytest.raises(Empty):
            answers.get(timeout=0.1)
        stored.abort()  # its sync has failed
        assert answers.get(timeout=60)
        racer.join()
    assert (found := jobs.find("a")) is not None
    assert found.body == b"y"


def test_a_removal_that_fails_is_told_and_the_old_message_stays(
    jobs: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    [old] = put(jobs, "a", body=b"old")
    rename = Tree.rename

    def fail(tree: Tree, source: str, target: str, *, replace: bool = False) -> bool:
        if source.endswith(old):
            raise OSError(errno.EIO, os.strerror(errno.EIO), source)
        return rename(tree, source, target, replace=replace)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "rename", fail)
        with pytest.raises(Unavailable):
            jobs.upsert([NewMessage(b"new", id="a")])
    jobs.spool.deliver()
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"old"]
    assert links(jobs) == ["a"]
    assert_clean(jobs)


@pytest.mark.parametrize("taken_out", [False, True])
def test_a_postponement_that_is_cut_off_leaves_the_message(jobs: Indexed, taken_out: bool) -> None:
    put(jobs, "a", body=b"x")
    postponing = prepare.postpone(jobs.spool.context, "jobs", "a", HOLD_S, {})
    assert postponing is not None
    if taken_out:
        assert jobs.spool.queue("jobs").claim(9) == []  # nobody gets what is about to be hidden
    postponing.abort()
    jobs.spool.deliver()
    assert [m.body for m in jobs.spool.queue("jobs").claim(9)] == [b"x"]
    assert_clean(jobs)


def test_a_rebalance_beside_an_ensure_among_queues_hides_no_message(tmp_path: Path) -> None:
    """Between the looks into two queues the message may not change places."""
    root, n = tmp_path / "mq", 60
    with Spool(root, sync="none") as spool:
        queues = [f"t@{shard}" for shard in "abc"]
        for queue in queues:
            spool.create_queue(queue, index=True)
        spool.indexed("t@c").upsert([NewMessage(b"old", id=str(i)) for i in range(n)])
        spool.deliver()
        over = threading.Event()

        def rebalance() -> None:
            with Spool(root, sync="none", delivers=False) as other:
                while not over.is_set():
                    other.queue("t@c").move_to("t@b")
                    other.queue("t@b").move_to("t@c")

        mover = threading.Thread(target=rebalance)
        mover.start()
        try:
            for i in range(n):
                message = NewMessage(b"new", id=str(i))
                assert not spool.indexed("t@a").ensure(message, among=queues)
        finally:
            over.set()
            mover.join()


def test_a_copied_tree_is_mended_by_fsck(tmp_path: Path, jobs: Indexed) -> None:
    put(jobs, "a", "b")
    jobs.spool.close()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "mq", copy)  # splits what has two names
    with Spool(copy, sync="none") as spool:
        again = spool.indexed("jobs")
        kinds = {f.kind.value for f in check(copy, offline=True).findings}
        assert kinds == {"no-link", "stale-link"}
        assert again.find("a") is None
        report = check(copy, repair=True, offline=True)
        assert not [f for f in report.findings if f.severity is Severity.ERROR]
        assert again.find("a") is not None
        assert again.find("b") is not None
        assert check(copy, offline=True).findings == []


def test_a_scan_reads_until_it_is_told_to_end(jobs: Indexed) -> None:
    put(jobs, "a", "b")
    put(jobs, "later", delay=HOLD_S)
    jobs.upsert([NewMessage(b"x", id="new")])
    jobs.claim("b")

    def ids(*states: str, by_name: bool = False) -> list[str]:
        found = jobs.scan(*states, sorted_by_name=by_name)
        return [message.given_id for message in found]

    assert sorted(ids()) == ["a", "b", "later", "new"]
    assert ids("in_flight") == ["b"]
    assert ids("delayed", by_name=True) == ["later"]
    reads = iter([False, True])
    assert len(list(jobs.scan(is_over=lambda: next(reads)))) == 1
    with pytest.raises(InvalidValue, match="expected one of"):
        list(jobs.scan("gone"))


def _ensure(root: Path, process: int, ids: list[str], answers: multiprocessing.Queue) -> None:
    with Spool(root, delivers=False) as spool:
        jobs = spool.indexed("jobs")
        for one in ids:
            if jobs.ensure(NewMessage(b"%d" % process, id=one)):
                answers.put((one, process))
    answers.put(None)


def test_of_eight_processes_that_ensure_an_id_one_puts_it(tmp_path: Path) -> None:
    root, ids = tmp_path / "mq", [f"id-{n}" for n in range(40)]
    with Spool(root) as spool:
        spool.create_queue("jobs", index=True)
        for one in ids[:10]:
            spool.indexed("jobs").ensure(NewMessage(b"old", id=one))
        spool.indexed("jobs").remove(*ids[:10])  # their links are stale
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    racers = [fork.Process(target=_ensure, args=(root, n, ids, answers)) for n in range(8)]
    for racer in racers:
        racer.start()
    won: list[tuple[str, int]] = []
    ended = 0
    while ended < len(racers):
        answer = answers.get(timeout=60)
        ended += answer is None
        won += [answer] if answer is not None else []
    for racer in racers:
        racer.join()
    assert Counter(one for one, _ in won) == dict.fromkeys(ids, 1)
    with Spool(root) as spool:
        spool.deliver()
        claimed = spool.queue("jobs").claim(100)
        assert {(m.given_id, int(m.body)) for m in claimed} == set(won)
        assert len(claimed) == len(ids)
    assert not [f for f in check(root, offline=True).findings if f.severity is Severity.ERROR]


def test_while_a_reaper_unlinks_links_no_later_message_gets_the_inode_number(
    jobs: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would unlink that message's link, if it was stopped and another one went on."""
    put(jobs, "a")
    inode = (jobs.spool.tree.root / "ids" / "jobs" / "a").stat().st_ino
    jobs.remove("a")
    kept = []

    def meanwhile(*arguments: Any) -> int | None:
        monkeypatch.setattr("fsmq.spool.durability.leaving.forget_links", forget_links)
        assert reap(jobs.spool.tree) == 1  # another one
        for fd in map(int, os.listdir("/dev/fd")):
            with suppress(OSError):  # that of the listing
                kept.append(os.fstat(fd).st_ino)
        return forget_links(*arguments)

    monkeypatch.setattr("fsmq.spool.durability.leaving.forget_links", meanwhile)
    assert reap(jobs.spool.tree) == 0
    assert inode in kept


def test_what_a_stopped_process_holds_keeps_nothing_else_in_the_trash(tmp_path: Path) -> None:
    """Its link is left to it; the reaper goes on with the rest, and comes back."""
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        spool.create_queue("jobs", index=True)
        spool.create_queue("plain")
        jobs = spool.indexed("jobs")
        [name] = put(jobs, "a")
        held = hold(spool.tree, {"jobs": ["a"]})  # as a process has it that is stopped
        assert held is not None
        with held:
            assert jobs.remove("a") == [True]
            spool.queue("plain").put_many([b"1", b"2", b"3"])
            spool.queue("plain").purge()
            reaper = Reaper(spool.tree)
            assert reaper.run() == 3
            assert isinstance(reaper.fault, BlockingIOError)
            assert os.listdir(root / "remove") == [f"jobs:{name}"]
        assert Reaper(spool.tree).run() == 1
        assert links(jobs) == []


def test_what_a_stopped_consumer_holds_keeps_no_other_dot_name_back(tmp_path: Path) -> None:
    """Its message has moved; a dead upsert of the id, in the queue where it was, has to wait."""
    root = tmp_path / "mq"
    with Spool(root, sync="none", delivers=False) as spool:
        for queue in ("jobs", "other"):
            spool.create_queue(queue, index=True)
        spool.create_queue("plain")
        spool.indexed("jobs").upsert([NewMessage(b"old", id="a")])
        all_prepared = []
        for number in range(5):
            with Spool(root, sync="none", delivers=False) as dead:
                if number == 2:
                    prepare.upsert(dead.context, "jobs", [NewMessage(b"new", id="a")])
                message = NewMessage(str(number).encode())
                all_prepared.append(prepare.put(dead.context, "plain", [message]))
        assert spool.complete(move_messages(spool.context, "jobs", "other")).moved == 1
    [moved] = (root / "queues" / "other").iterdir()
    fd = os.open(moved, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with Spool(root, sync="none") as again:
            again.deliver()
            assert again.counts("plain").ready == 5
    finally:
        os.close(fd)


def test_a_message_that_a_move_brings_back_still_has_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue to which it moves is deleted just then. Its id is nobody else's meanwhile."""
    spool = Spool(tmp_path / "mq", sync="none", delivers=False)
    spool.create_queue("jobs", index=True)
    spool.create_queue("plain")
    jobs = spool.indexed("jobs")
    jobs.upsert([NewMessage(b"first", id="a")])
    back_to_new(spool.tree.root)
    monkeypatch.setattr("fsmq.spool.durability.ids.PATIENCE_S", 0.1)
    real = spool.tree.move

    def move(*arguments: Any, **more: Any) -> bool:
        done: bool = real(*arguments, **more)
        monkeypatch.setattr(spool.tree, "move", real)
        (spool.tree.root / "queues" / "plain").rmdir()
        with pytest.raises(Unavailable):
            jobs.ensure(NewMessage(b"second", id="a"))
        return done

    monkeypatch.setattr(spool.tree, "move", move)
    with pytest.raises(NoSuchQueue):
        spool.queue("jobs").move_to("plain")
    assert jobs.ensure(NewMessage(b"third", id="a")) is False
    found = jobs.find("a")
    assert found is not None
    assert found.body == b"first"
