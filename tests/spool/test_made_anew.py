"""A queue is deleted and made anew as one of another kind, under who has looked at it before."""

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
    """The same spool as another process sees it."""
    with Spool(root, sync="none", clock=clock) as spool:
        yield spool


def make_anew(spool: Spool, queue: str = "jobs", **kind: bool) -> None:
    spool.delete_queue(queue)
    spool.create_queue(queue, **kind)


def test_a_put_shows_nothing_in_a_fifo_queue(
    jobs: Queue, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, put, "drafts", lambda: make_anew(other, fifo=True))
    with pytest.raises(NoSuchQueue):
        jobs.put(b"x", group="g")
    assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": []}


def test_nothing_is_left_of_a_put_whose_queue_goes_while_it_is_shown(
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


def test_a_claim_takes_nothing_from_a_fifo_queue(
    jobs: Queue, spool: Spool, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_and_claim() -> None:
        make_anew(other, fifo=True)
        for body in (b"1", b"2", b"3"):
            other.queue("jobs").put(body, group="g")
        assert [m.body for m in other.queue("jobs").claim()] == [b"1"]

    with monkeypatch.context() as patched:
        before(patched, receive, "claims_of", make_and_claim)
        assert jobs.claim(5) == []
    assert len(tree_of(root)["delay"]) == 1
    assert spool.queue("jobs").claim(5) == []


def test_a_consumer_takes_nothing_from_a_fifo_queue(
    jobs: Queue, spool: Spool, other: Spool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_and_put() -> None:
        make_anew(other, fifo=True)
        for body in (b"1", b"2"):
            other.queue("jobs").put(body, group="g")

    jobs.put(b"x")
    spool.deliver()
    with monkeypatch.context() as patched, Consumer(spool, "spark", visibility=60) as consumer:
        before(patched, consumer_claims, "claims_of", make_and_put)
        consumer.claim("s", 0, ["jobs"], 5)
    assert tree_of(root)["delay"] == []


@pytest.fixture
def letters(spool: Spool) -> list[str]:
    """Messages with given ids, in a queue with an index; ``to`` has none."""
    spool.create_queue("given", index=True)
    spool.create_queue("to")
    ids = ["a", "b", "c"]
    spool.indexed("given").upsert([NewMessage(b"first", id=one) for one in ids])
    spool.deliver()
    return ids


def moved(spool: Spool) -> None:
    spool.queue("given").move_to("to", rate=10)


def moved_in_the_background(spool: Spool) -> None:
    spool.begin_move("given", "to", rate=10)
    spool.make_moves()


@pytest.mark.parametrize(
    ("owner", "step", "verb"),
    [(move.Turns, "pause", moved), (MoveWork, "_count", moved_in_the_background)],
    ids=["a move", "a move in the background"],
)
def test_what_moves_to_an_index_that_came_meanwhile_has_its_id_there(
    letters: list[str],
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    verb: Callable[[Spool], None],
) -> None:
    with monkeypatch.context() as patched:
        before(patched, owner, step, lambda: make_anew(other, "to", index=True))
        verb(spool)
    came = [m.given_id for m in spool.indexed("to").scan()]
    assert len(came) == 2
    for one in letters:
        again = spool.indexed("to").ensure(NewMessage(b"second", id=one))
        assert bool(again) == (one not in came)


_POINTS = [
    (put, "drafts", False),
    (Staging, "write_all", False),
    (Staging, "_check_queue", False),
    (put, "drafts", True),
    (sequencer, "lock_sends", True),
]


@pytest.mark.parametrize(("owner", "step", "fifo"), _POINTS)
@pytest.mark.parametrize("subscribes", [False, True])
def test_a_publish_reaches_none_that_was_never_subscribed(
    jobs: Queue,
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    fifo: bool,
    subscribes: bool,
) -> None:
    make_anew(spool, fifo=fifo)
    topic = spool.topic("news", create=True)
    topic.subscribe("jobs")

    def anew() -> None:
        make_anew(other, fifo=fifo)
        if subscribes:
            other.topic("news").subscribe("jobs", {"kind": ["other"]})

    before(monkeypatch, owner, step, anew)
    assert topic.publish(b"x", group="g" if fifo else None) == {}
    spool.deliver()
    assert jobs.counts().total == 0
    assert os.listdir(spool.tree.root / "new") == []


@pytest.mark.parametrize(("owner", "step"), [(Log, "_taking"), (publish._Copies, "reach")])
def test_nor_a_log(
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

    def anew() -> None:
        other.log("users").delete()
        other.log("users").create()

    before(monkeypatch, owner, step, anew)
    assert list(topic.publish(b"x")) == ["jobs"]
    assert other.log("users").end() == 0


def test_who_subscribes_looks_at_the_kind_of_the_queue_that_is_subscribed(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: QueueSettings) -> None:
        if settings.fifo:
            raise InvalidValue("queue", "is a fifo queue")

    spool.create_topic("news")
    before(monkeypatch, subscribing, "settings_held", lambda: make_anew(other, fifo=True))
    with pytest.raises(InvalidValue, match="is a fifo queue"):
        subscribing.subscribe(spool.context, "news", "jobs", check=refuse)
    assert spool.subscriptions("news") == {}


@pytest.mark.parametrize("dedup", [False, True])
@pytest.mark.parametrize("moves_first", [0, 2])
def test_who_goes_on_with_a_move_makes_no_queue_that_was_deleted(
    spool: Spool, other: Spool, dedup: bool, moves_first: int
) -> None:
    source, target = (write_side("jobs"), write_side("to")) if dedup else ("jobs", "to")
    spool.queue(source, create=True).put_many([NewMessage(b"%d" % n) for n in range(4)])
    spool.deliver()
    ref = other.begin_move("jobs", "to", dedup=dedup, rate=5).ref
    assert spool.has_queue(target)
    other.make_moves(lambda: spool.counts(source).total <= 4 - moves_first)  # it is left there
    spool.delete_queue(target)
    assert spool.make_moves() == 1
    assert not spool.has_queue(target)
    assert spool.counts(source).total == 4 - moves_first
    ended = spool.find_move(ref)
    assert ended is not None
    assert ended.status == "error"
    assert "was deleted" in (ended.error or "")


def test_a_move_ends_where_its_target_is_made_anew_as_a_fifo_queue(
    letters: list[str], spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        before(patched, move.Turns, "pause", lambda: make_anew(other, "to", fifo=True))
        with pytest.raises(NoSuchQueue):
            moved(spool)
    assert (spool.counts("given").total, spool.counts("to").total) == (2, 0)


@pytest.mark.parametrize(
    ("owner", "verb"),
    [
        (move, lambda spool: spool.queue("given").move_to("to")),
        (redrive, lambda spool: spool.queue("given").redrive(to="to")),
    ],
    ids=["move", "redrive"],
)
def test_no_queue_is_made_anew_between_the_look_and_the_rename(
    letters: list[str],
    spool: Spool,
    other: Spool,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    verb: Callable[[Spool], object],
) -> None:
    def make() -> None:
        with pytest.raises(Unavailable, match="another process holds"):
            make_anew(other, "to", index=True)

    with monkeypatch.context() as patched:
        patched.setattr(settings_lock, "PATIENCE_S", 0.0)
        before(patched, owner, "is_elsewhere", make)
        verb(spool)
    assert spool.counts("to").total == 3
    make_anew(other, "to", index=True)


def test_letters_that_go_home_take_their_ids_along(
    letters: list[str], spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their queue has an index when they come there, and had none when they were found."""
    spool.configure("to", {"max_deliveries": 1, "dead_letter_queue": "dead"})
    spool.queue("given").move_to("to")
    for message in spool.queue("to").claim(3):
        message.bury()
    with monkeypatch.context() as patched:
        before(patched, redrive, "receiving", lambda: make_anew(other, "to", index=True))
        spool.queue("dead").redrive()
    assert sorted(m.given_id or "" for m in spool.indexed("to").scan()) == letters
    assert all(spool.indexed("to").find(one) for one in letters)


def test_no_priority_changes_in_a_queue_with_an_index(
    jobs: Queue, spool: Spool, other: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = jobs.put(b"x")
    spool.deliver()
    spool.create_queue("aside")

    def make_and_bring_back() -> None:
        other.queue("jobs").move_to("aside")
        make_anew(other, index=True)
        other.queue("aside").move_to("jobs")

    with monkeypatch.context() as patched:
        before(patched, reprioritize, "deliver_one", make_and_bring_back)
        with pytest.raises(InvalidValue, match="index"):
            spool.complete(prepare.set_priority(spool.context, "jobs", message_id, 5))
