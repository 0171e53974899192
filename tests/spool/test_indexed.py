"""Queues with an index: messages are found by the ids that producers give."""

from __future__ import annotations

import errno
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
from tests.spool.helpers import Clock, back_to_new, present
from tests.spool.test_delivery import someone_holds

HOLD_S = 60.0


@pytest.fixture
def jobs(spool: Spool) -> Indexed:
    spool.create_queue("jobs", index=True)
    return spool.indexed("jobs")


def put(jobs: Indexed, *ids: str, delay: float = 0.0, body: bytes = b"x") -> list[str]:
    names = jobs.upsert([NewMessage(body, id=one, delay=delay) for one in ids])
    jobs.spool.deliver()
    return names


def claimed(jobs: Indexed) -> list[bytes]:
    """Claim all messages; their bodies."""
    return [message.body for message in jobs.spool.queue(jobs.name).claim(9)]


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
    found = present(jobs.find(given))
    assert (found.body, found.state) == (b"x", "ready")
    assert_clean(jobs)
    assert jobs.remove(given) == [True]
    assert jobs.find(given) is None


@pytest.mark.parametrize("given", ["", "x" * 1025, "\ud800", None, 5])
def test_a_malformed_id_is_refused(jobs: Indexed, given: object) -> None:
    with pytest.raises(InvalidValue):
        jobs.upsert([NewMessage(b"x", id=given)])  # type: ignore[arg-type]
    assert os.listdir(jobs.spool.tree.root / "new") == []


def test_every_id_has_a_link_of_its_own() -> None:
    ids = ["a", "A", "%61", ".a", "%2Ea", "=" + "0" * 64, "a" * 300, "a" * 301, "a/", "a%2F"]
    assert len({link_name(one) for one in ids}) == len(ids)
    assert all(len(link_name(one)) <= 200 and link_name(one)[0] != "." for one in ids)


def test_the_index_of_a_queue_is_fixed_when_it_is_created(tmp_path: Path) -> None:
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


def test_an_upsert_replaces_the_message_of_its_id(jobs: Indexed) -> None:
    put(jobs, "a", body=b"old")
    put(jobs, "a", body=b"new")
    assert claimed(jobs) == [b"new"]
    put(jobs, "a", body=b"newer")  # also while it is in flight
    assert claimed(jobs) == [b"newer"]
    assert jobs.spool.queue("jobs").counts().total == 1
    assert_clean(jobs)


def test_the_last_message_of_an_id_in_a_batch_counts(jobs: Indexed) -> None:
    jobs.upsert([NewMessage(b"1", id="a"), NewMessage(b"2", id="b"), NewMessage(b"3", id="a")])
    jobs.spool.deliver()
    assert sorted(claimed(jobs)) == [b"2", b"3"]


def test_ensure_puts_once_until_the_message_is_removed(jobs: Indexed) -> None:
    assert jobs.ensure(NewMessage(b"1", id="a"))
    for _ in range(2):
        assert not jobs.ensure(NewMessage(b"2", id="a"))
        jobs.spool.deliver()
    assert jobs.claim("a") is not None
    assert not jobs.ensure(NewMessage(b"3", id="a"))
    assert jobs.ack("a") == [True]
    assert jobs.ensure(NewMessage(b"4", id="a"))  # the old link is stale
    assert_clean(jobs)


def test_only_messages_in_flight_are_acknowledged(jobs: Indexed, clock: Clock) -> None:
    put(jobs, "ready", "held")
    put(jobs, "later", delay=HOLD_S)
    jobs.claim("held", HOLD_S)
    assert jobs.ack("ready", "held", "later", "none", "held") == [False, True, False, False, False]
    jobs.claim("ready", HOLD_S)
    clock.advance(HOLD_S + 1)
    assert jobs.ack("ready") == [True]  # no mover has seen the end of its claim
    assert_clean(jobs)


def test_an_ack_that_names_a_message_removes_no_newer_one(jobs: Indexed) -> None:
    [first] = put(jobs, "a")
    assert jobs.ack("a", names={"a": first}) == [False]
    jobs.claim("a")
    [second] = put(jobs, "a")
    jobs.claim("a")
    assert jobs.ack("a", names={"a": first}) == [False]
    assert jobs.ack("a", names={"a": second}) == [True]


def test_only_messages_in_flight_are_renewed(jobs: Indexed, clock: Clock) -> None:
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
        message = present(jobs.claim(one, HOLD_S))
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
    clock.advance(2 * HOLD_S)
    assert jobs.claim("a") is None


def test_a_postponed_message_keeps_its_place(jobs: Indexed, clock: Clock) -> None:
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
    messages = jobs.spool.queue("jobs").claim(9)
    ids = [m.given_id for m in messages if m.given_id != "b"]
    assert ids[:1] == ["c"]
    assert set(ids) == {"a", "c", "d"}
    assert next(m for m in messages if m.given_id == "a").attributes["timeout"] == "60"
    assert_clean(jobs)


def test_a_postponement_of_zero_ends_a_delay(jobs: Indexed) -> None:
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
    put(jobs, "c")  # before the reaper runs
    jobs.spool.reap()
    assert links(jobs) == ["c"]
    assert _state(jobs, "c") == "ready"


def test_an_index_is_deleted_with_its_queue(jobs: Indexed) -> None:
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


@pytest.mark.parametrize("background", [False, True])
def test_messages_move_with_ids_and_timers(jobs: Indexed, clock: Clock, background: bool) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    more = spool.indexed("more")
    put(jobs, "ready", "held", "both")
    put(jobs, "later", delay=HOLD_S)
    more.ensure(NewMessage(b"mine", id="both"))
    jobs.claim("held", HOLD_S)
    if background:
        ref = spool.begin_move("jobs", "more", in_flight=False, delayed=True).ref
        assert spool.make_moves() == 1
        move = present(spool.find_move(ref))
        assert (move.moved, move.conflicts) == (2, 1)
    else:
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


def test_a_conflict_does_not_count_as_moved(jobs: Indexed) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    put(jobs, "a", "b", "c")
    put(spool.indexed("more"), "c")
    spool.deliver()
    ref = spool.begin_move("jobs", "more", in_flight=False, delayed=True, count=1).ref
    spool.make_moves()
    move = present(spool.find_move(ref))
    assert (move.moved, move.conflicts) == (1, 1)
    assert [_state(jobs, one) for one in "abc"] == ["ready", None, "ready"]
    assert_clean(jobs)


def test_a_move_of_some_takes_the_last_messages(jobs: Indexed) -> None:
    spool = jobs.spool
    spool.create_queue("more", index=True)
    put(jobs, *"abcdef")
    spool.begin_move("jobs", "more", in_flight=False, delayed=True, count=2)
    spool.make_moves()
    assert [_state(spool.indexed("more"), one) for one in "abcdef"] == [None] * 4 + ["ready"] * 2


def test_a_receiving_queue_is_not_deleted(jobs: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_message_without_a_link_is_delivered_and_reported(jobs: Indexed) -> None:
    """A shell user moved it back from the dead letters when another message had its id."""
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
    assert present(jobs.find("a")).id == new
    assert set(claimed(jobs)) == {b"old", b"new"}


def test_dead_letters_of_one_id_are_all_kept_without_it(jobs: Indexed) -> None:
    """Also if their queue has an index, and after their origin was deleted."""
    spool = jobs.spool
    spool.create_queue("dead", index=True)
    spool.configure("jobs", {"max_deliveries": 5, "dead_letter_queue": "dead"})
    for body in (b"one", b"two"):
        put(jobs, "a", body=body)
        spool.queue("jobs").bury(present(jobs.claim("a")).id)
        assert_clean(jobs)
    put(jobs, "a")
    assert_clean(jobs)
    spool.delete_queue("jobs")
    reap(spool.tree)
    assert check(spool.tree.root, offline=True).findings == []
    assert spool.indexed("dead").find("a") is None
    assert set(claimed(spool.indexed("dead"))) == {b"one", b"two"}


def test_a_dead_letter_that_comes_back_has_its_id_if_it_is_free(jobs: Indexed) -> None:
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


@pytest.mark.parametrize("steps", [0, 1])
def test_a_failed_upsert_leaves_the_old_or_the_new_message(jobs: Indexed, steps: int) -> None:
    put(jobs, "a", body=b"old")
    stored = prepare.upsert(jobs.spool.context, "jobs", [NewMessage(b"new", id="a")])
    for _ in range(steps):
        stored = present(jobs.spool.complete(stored).rest)
    stored.abort()
    # After the first step the old message is gone, so that the new one is shown.
    body = b"new" if steps else b"old"
    assert present(jobs.find("a")).body == body
    jobs.spool.deliver()
    assert claimed(jobs) == [body]
    jobs.spool.reap()
    assert_clean(jobs)


@pytest.mark.parametrize("steps", [0, 1])
def test_no_process_interferes_with_a_stopped_upsert(
    jobs: Indexed, clock: Clock, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mover starts, others put the id, and an hour passes."""
    monkeypatch.setattr("fsmq.spool.durability.ids.PATIENCE_S", 0.0)
    put(jobs, "a", body=b"old")
    stored = prepare.upsert(jobs.spool.context, "jobs", [NewMessage(b"new", id="a")])
    for _ in range(steps):
        stored = present(jobs.spool.complete(stored).rest)
    clock.advance(3600)
    with Spool(jobs.spool.tree.root, sync="none", clock=clock) as other:
        other.deliver()
        with pytest.raises(Unavailable):
            other.indexed("jobs").upsert([NewMessage(b"other", id="a")])
        with pytest.raises(Unavailable):
            other.indexed("jobs").ensure(NewMessage(b"other", id="a"))
        other.deliver()
        other.reap()  # the replaced message is left to the upsert
    result = jobs.spool.complete(stored)
    while result.rest is not None:
        result = jobs.spool.complete(result.rest)
    found = present(jobs.find("a"))
    assert (found.id, found.body) == (result.names[0], b"new")
    jobs.spool.deliver()
    assert claimed(jobs) == [b"new"]
    jobs.spool.reap()
    assert_clean(jobs)


def _die(jobs: Indexed, act: Callable[[Spool], object]) -> None:
    """Act in a process that then ends at once."""

    def run(root: Path) -> None:
        act(Spool(root, sync="none", delivers=False))
        os._exit(0)

    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=run, args=(jobs.spool.tree.root,))
    process.start()
    process.join()


def test_the_next_verb_finishes_a_dead_upsert(jobs: Indexed) -> None:
    put(jobs, "a", body=b"old")
    new = [NewMessage(b"new", id="a")]
    # The old message is gone, and the new one is not shown.
    _die(jobs, lambda spool: spool.complete(prepare.upsert(spool.context, "jobs", new)))
    assert links(jobs) == [f"{NEXT}a", "a"]
    assert present(jobs.find("a")).body == b"new"
    assert links(jobs) == ["a"]
    jobs.spool.deliver()
    assert claimed(jobs) == [b"new"]
    jobs.spool.reap()
    assert_clean(jobs)


def test_a_removal_ends_an_upsert_that_died_before_its_replacement(jobs: Indexed) -> None:
    put(jobs, "a", body=b"old")
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"new", id="a")]))
    assert links(jobs) == [f"{NEXT}a", "a"]
    assert jobs.remove("a") == [True]
    with Spool(jobs.spool.tree.root, sync="none") as other:
        other.deliver()
        assert other.queue("jobs").counts().total == 0


@pytest.mark.parametrize("by_id", [False, True])
def test_a_message_of_a_dead_put_is_delivered(jobs: Indexed, by_id: bool) -> None:
    def write(spool: Spool) -> object:
        messages = [NewMessage(b"x", id="a" if by_id else None, attributes={"k": "v"})]
        return (prepare.upsert if by_id else prepare.put)(spool.context, "jobs", messages)

    _die(jobs, write)
    with Spool(jobs.spool.tree.root, sync="none") as other:
        other.deliver()
        [message] = other.queue("jobs").claim(9)
        assert message.given_id == ("a" if by_id else None)
    assert_clean(jobs)


def test_a_file_that_lost_its_bytes_in_a_power_cut_leaves_no_link(jobs: Indexed) -> None:
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"x", id="a")]))
    root = jobs.spool.tree.root
    [torn] = (root / "new").glob(".*")
    os.truncate(torn, 0)
    with Spool(root, sync="none") as other:
        other.deliver()
    assert (links(jobs), os.listdir(root / "new")) == ([], [])
    assert jobs.ensure(NewMessage(b"y", id="a"))


@pytest.mark.parametrize("verb", ["find", "claim", "remove"])
def test_a_verb_by_id_waits_for_the_recovery_of_its_message(jobs: Indexed, verb: str) -> None:
    # The power was cut before the rename was synced.
    _die(jobs, lambda spool: prepare.upsert(spool.context, "jobs", [NewMessage(b"x", id="a")]))
    recovering = present(hold(jobs.spool.tree, {"jobs": ["a"]}))
    answers: SimpleQueue[object] = SimpleQueue()
    asking = threading.Thread(target=lambda: answers.put(getattr(jobs, verb)("a")))
    with recovering:
        asking.start()
        with pytest.raises(Empty):
            answers.get(timeout=0.1)
        settle(jobs.spool.tree, "jobs", ["a"])
    assert answers.get(timeout=60) not in (None, [False])
    asking.join()


def test_an_ensure_waits_for_an_unfinished_put(jobs: Indexed) -> None:
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
    assert present(jobs.find("a")).body == b"y"


def test_upserts_fail_if_the_removal_fails(jobs: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert claimed(jobs) == [b"old"]
    assert links(jobs) == ["a"]
    assert_clean(jobs)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_an_aborted_postponement_leaves_the_message(jobs: Indexed, is_claimed: bool) -> None:
    put(jobs, "a", body=b"x")
    postponing = present(prepare.postpone(jobs.spool.context, "jobs", "a", HOLD_S, {}))
    if is_claimed:
        assert claimed(jobs) == []  # a message that is about to be hidden cannot be claimed
    postponing.abort()
    jobs.spool.deliver()
    assert claimed(jobs) == [b"x"]
    assert_clean(jobs)


def test_ensure_among_queues_finds_a_message_that_moves_between_them(tmp_path: Path) -> None:
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


def test_fsck_repairs_the_index_of_a_copied_tree(tmp_path: Path, jobs: Indexed) -> None:
    put(jobs, "a", "b")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "mq", copy)  # hard links become files of their own
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


def test_a_scan_ends_when_it_is_over(jobs: Indexed) -> None:
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


def test_only_one_of_eight_processes_that_ensure_an_id_puts_it(tmp_path: Path) -> None:
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
        messages = spool.queue("jobs").claim(100)
        assert {(m.given_id, int(m.body)) for m in messages} == set(won)
        assert len(messages) == len(ids)
    assert not [f for f in check(root, offline=True).findings if f.severity is Severity.ERROR]


def test_a_reaper_keeps_the_inode_of_a_link(jobs: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a stopped reaper would unlink the link of a later message with that inode number."""
    put(jobs, "a")
    inode = (jobs.spool.tree.root / "ids" / "jobs" / "a").stat().st_ino
    jobs.remove("a")
    kept = []

    def reap_first(*arguments: Any) -> int | None:
        monkeypatch.setattr("fsmq.spool.durability.leaving.forget_links", forget_links)
        assert reap(jobs.spool.tree) == 1  # by another reaper
        for fd in map(int, os.listdir("/dev/fd")):
            with suppress(OSError):  # the descriptor of the listing
                kept.append(os.fstat(fd).st_ino)
        return forget_links(*arguments)

    monkeypatch.setattr("fsmq.spool.durability.leaving.forget_links", reap_first)
    assert reap(jobs.spool.tree) == 0
    assert inode in kept


def test_an_id_held_by_a_stopped_process_blocks_no_other_reaping(jobs: Indexed) -> None:
    spool = jobs.spool
    plain = spool.queue("plain", create=True)
    [name] = put(jobs, "a")
    with present(hold(spool.tree, {"jobs": ["a"]})):  # as a stopped process holds it
        assert jobs.remove("a") == [True]
        plain.put_many([b"1", b"2", b"3"])
        plain.purge()
        reaper = Reaper(spool.tree)
        assert reaper.run() == 3
        assert isinstance(reaper.fault, BlockingIOError)
        assert os.listdir(spool.tree.root / "remove") == [f"jobs:{name}"]
    assert Reaper(spool.tree).run() == 1
    assert links(jobs) == []


def test_a_message_latched_by_a_stopped_consumer_blocks_no_other_recovery(tmp_path: Path) -> None:
    """The message has moved; a dead upsert of its id has to wait in the first queue."""
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
    with someone_holds(moved), Spool(root, sync="none") as again:
        again.deliver()
        assert again.counts("plain").ready == 5


def test_a_failed_move_keeps_the_given_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its target is deleted during the move. No other message gets its id meanwhile."""
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
    assert present(jobs.find("a")).body == b"first"
