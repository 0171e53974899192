"""A queue is deleted and recreated with another kind while a process is at work on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Queue, Spool, Unavailable, prepare
from fsmq.spool.consumers import claims as consumer_claims
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.durability import settings_lock
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.limits import sequencer
from fsmq.spool.log.log import Log
from fsmq.spool.moves.work import MoveWork
from fsmq.spool.verbs import publish, put, receive, reprioritize
from fsmq.spool.verbs.dedup import write_side
from fsmq.spool.verbs.moves import move, redrive
from fsmq.spool.verbs.put import Staging
from fsmq.spool.verbs.queues import subscribing
from tests.spool.helpers import Clock, tree_of
from tests.spool.test_identity import before


@pytest.fixture
def other(root: Path, clock: Clock, jobs: Queue) -> Iterator[Spool]:
    """The same spool in another process."""
    with Spool(root, sync="none", clock=clock) as spool:
        yield spool


def recreate(spool: Spool, queue: str = "jobs", **kind: bool) -> None:
    spool.delete_queue(queue)
    spool.create_queue(queue, **kind)


def test_a_put_does_not_reach_a_recreated_fifo_queue(
    jobs: Queue, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, put, "drafts", lambda: recreate(other, fifo=True))
    with pytest.raises(NoSuchQueue):
        jobs.put(b"x", group="g")
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


def test_a_put_that_is_renamed_during_the_deletion_leaves_nothing(
    jobs: Queue, spool: Spool, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing of the deletion has neither the old name nor the new one."""
    prepare.put(spool.context, "jobs", [NewMessage(b"x")])
    [dot_name] = (root / "new").glob(".jobs:*")
    names = other.tree.names

    def listed(path: str) -> list[str]:
        found = names(path)
        if path == "new" and dot_name.exists() and not other.tree.has_queue("jobs"):
            os.rename(dot_name, root / "new" / dot_name.name[1:].rpartition(":")[0])
            return []
        return [name for name in found if name != dot_name.name]

    monkeypatch.setattr(other.tree, "names", listed)
    other.delete_queue("jobs")
    assert tree_of(root)["new"] == []


def test_a_claim_takes_nothing_from_a_recreated_fifo_queue(
    jobs: Queue, spool: Spool, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recreate_and_claim() -> None:
        recreate(other, fifo=True)
        for body in (b"1", b"2", b"3"):
            other.queue("jobs").put(body, group="g")
        assert [m.body for m in other.queue("jobs").claim()] == [b"1"]

    with monkeypatch.context() as patched:
        before(patched, receive, "claims_of", recreate_and_claim)
        assert jobs.claim(5) == []
    assert len(tree_of(root)["delay"]) == 1
    assert spool.queue("jobs").claim(5) == []


def test_a_consumer_takes_nothing_from_a_recreated_fifo_queue(
    jobs: Queue, spool: Spool, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recreate_and_put() -> None:
        recreate(other, fifo=True)
        for body in (b"1", b"2"):
            other.queue("jobs").put(body, group="g")

    jobs.put(b"x")
    spool.deliver()
    with monkeypatch.context() as patched, Consumer(spool, "spark", visibility=60) as consumer:
        before(patched, consumer_claims, "claims_of", recreate_and_put)
        consumer.claim("s", 0, ["jobs"], 5)
    assert tree_of(root)["delay"] == []


@pytest.fixture
def given_ids(spool: Spool) -> list[str]:
    """The ids of messages in a queue with an index; the queue ``to`` has no index."""
    spool.create_queue("given", index=True)
    spool.create_queue("to")
    ids = ["a", "b", "c"]
    spool.indexed("given").upsert([NewMessage(b"first", id=one) for one in ids])
    spool.deliver()
    return ids


def move_slowly(spool: Spool) -> None:
    spool.queue("given").move_to("to", rate=10)


def move_in_the_background(spool: Spool) -> None:
    spool.begin_move("given", "to", rate=10)
    spool.make_moves()


@pytest.mark.parametrize(
    ("owner", "step", "verb"),
    [(move.Turns, "pause", move_slowly), (MoveWork, "_count", move_in_the_background)],
    ids=["a move", "a move in the background"],
)
def test_messages_moved_to_a_recreated_queue_with_an_index_have_their_ids(
    given_ids: list[str],
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    verb: Callable[[Spool], None],
) -> None:
    with monkeypatch.context() as patched:
        before(patched, owner, step, lambda: recreate(other, "to", index=True))
        verb(spool)
    found = [m.given_id for m in spool.indexed("to").scan()]
    assert len(found) == 2
    for one in given_ids:
        is_stored = spool.indexed("to").ensure(NewMessage(b"second", id=one))
        assert bool(is_stored) == (one not in found)


_POINTS = [
    (put, "drafts", False),
    (Staging, "write_all", False),
    (Staging, "_check_queue", False),
    (put, "drafts", True),
    (sequencer, "lock_sends", True),
]


@pytest.mark.parametrize(("owner", "step", "fifo"), _POINTS)
@pytest.mark.parametrize("subscribes", [False, True])
def test_a_publish_does_not_reach_a_recreated_queue(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    fifo: bool,
    subscribes: bool,
) -> None:
    recreate(spool, fifo=fifo)
    topic = spool.topic("news", create=True)
    topic.subscribe("jobs")

    def recreate_it() -> None:
        recreate(other, fifo=fifo)
        if subscribes:
            other.topic("news").subscribe("jobs", {"kind": ["other"]})

    before(monkeypatch, owner, step, recreate_it)
    assert topic.publish(b"x", group="g" if fifo else None) == {}
    spool.deliver()
    assert jobs.counts().total == 0
    assert os.listdir(spool.tree.root / "new") == []


@pytest.mark.parametrize(("owner", "step"), [(Log, "_taking"), (publish._Copies, "reach")])
def test_a_publish_does_not_reach_a_recreated_log(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
) -> None:
    spool.log("users", create=True)
    topic = spool.topic("news", create=True)
    topic.subscribe("logs/users")
    topic.subscribe("jobs")

    def recreate_it() -> None:
        other.log("users").delete()
        other.log("users").create()

    before(monkeypatch, owner, step, recreate_it)
    assert list(topic.publish(b"x")) == ["jobs"]
    assert other.log("users").end() == 0


def test_a_subscription_checks_the_kind_of_the_recreated_queue(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: QueueSettings) -> None:
        if settings.fifo:
            raise InvalidValue("queue", "is a fifo queue")

    spool.create_topic("news")
    before(monkeypatch, subscribing, "settings_held", lambda: recreate(other, fifo=True))
    with pytest.raises(InvalidValue, match="is a fifo queue"):
        subscribing.subscribe(spool.context, "news", "jobs", check=refuse)
    assert spool.subscriptions("news") == {}


@pytest.mark.parametrize("dedup", [False, True])
@pytest.mark.parametrize("moves_first", [0, 2])
def test_a_resumed_move_does_not_create_its_deleted_target(
    spool: Spool, other: Spool, dedup: bool, moves_first: int
) -> None:
    source, target = (write_side("jobs"), write_side("to")) if dedup else ("jobs", "to")
    spool.queue(source, create=True).put_many([NewMessage(b"%d" % n) for n in range(4)])
    spool.deliver()
    ref = other.begin_move("jobs", "to", dedup=dedup, rate=5).ref
    assert spool.has_queue(target)
    other.make_moves(lambda: spool.counts(source).total <= 4 - moves_first)  # and stops there
    spool.delete_queue(target)
    assert spool.make_moves() == 1
    assert not spool.has_queue(target)
    assert spool.counts(source).total == 4 - moves_first
    ended = spool.find_move(ref)
    assert ended is not None
    assert ended.status == "error"
    assert "was deleted" in (ended.error or "")


def test_a_move_ends_when_its_target_is_recreated_as_a_fifo_queue(
    given_ids: list[str], spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        before(patched, move.Turns, "pause", lambda: recreate(other, "to", fifo=True))
        with pytest.raises(NoSuchQueue):
            move_slowly(spool)
    assert (spool.counts("given").total, spool.counts("to").total) == (2, 0)


@pytest.mark.parametrize(
    ("owner", "verb"),
    [
        (move, lambda spool: spool.queue("given").move_to("to")),
        (redrive, lambda spool: spool.queue("given").redrive(to="to")),
    ],
    ids=["move", "redrive"],
)
def test_a_target_cannot_be_recreated_between_check_and_rename(
    given_ids: list[str],
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    verb: Callable[[Spool], object],
) -> None:
    def fail_to_recreate() -> None:
        with pytest.raises(Unavailable, match="another process holds"):
            recreate(other, "to", index=True)

    with monkeypatch.context() as patched:
        patched.setattr(settings_lock, "PATIENCE_S", 0.0)
        before(patched, owner, "is_elsewhere", fail_to_recreate)
        verb(spool)
    assert spool.counts("to").total == 3
    recreate(other, "to", index=True)


def test_dead_letters_redriven_to_a_recreated_queue_with_an_index_have_their_ids(
    given_ids: list[str], spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.configure("to", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    spool.queue("given").move_to("to")
    for message in spool.queue("to").claim(3):
        message.bury()
    with monkeypatch.context() as patched:
        before(patched, redrive, "receiving", lambda: recreate(other, "to", index=True))
        spool.queue("dead").redrive()
    assert sorted(m.given_id or "" for m in spool.indexed("to").scan()) == given_ids
    assert all(spool.indexed("to").find(one) for one in given_ids)


def test_a_priority_cannot_be_set_in_a_recreated_queue_with_an_index(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    spool.deliver()
    spool.create_queue("aside")

    def recreate_and_move_back() -> None:
        other.queue("jobs").move_to("aside")
        recreate(other, index=True)
        other.queue("aside").move_to("jobs")

    with monkeypatch.context() as patched:
        before(patched, reprioritize, "deliver_one", recreate_and_move_back)
        with pytest.raises(InvalidValue, match="index"):
            spool.complete(prepare.set_priority(spool.context, "jobs", message_id, 5))
