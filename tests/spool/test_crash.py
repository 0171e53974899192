"""SIGKILL between any two system calls of any verb, then a restart: no message is lost or torn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import DuplicateMessage, NewMessage, Queue, Spool, prepare
from fsmq.spool.durability.dotnames import recover as recover_dot_names
from fsmq.spool.fsck import check
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.verbs.queues import deletion
from tests.spool.crashing import Verb, crashes_of, leave
from tests.spool.helpers import Clock, visible

BODIES = {"one": b"first body", "two": b"second body"}
LATER_S = 200.0  # longer than any timer here, and than a mover leaves dot-names alone


def make_ready(root: Path, clock: Clock) -> None:
    """``one`` is in flight, ``two`` is ready."""
    with Spool(root, sync="none", clock=clock) as spool:
        jobs = spool.queue("jobs", create=True)
        spool.create_queue("other")
        jobs.put(BODIES["one"], id="one")
        jobs.claim(visibility=50)
        jobs.put(BODIES["two"], id="two")
        spool.deliver()


def crashes(
    root: Path, clock: Clock, verb: Verb, left: Sequence[NewMessage] = ()
) -> Iterator[tuple[bool, Path]]:
    """Every crash of a verb. left: messages of another process that died before it."""

    def prepare_tree(tree: Path) -> None:
        make_ready(tree, clock)
        if left:
            leave(tree, *left)

    return crashes_of(root, verb, clock, prepare_tree)


def recover(tree: Path, clock: Clock) -> dict[str, bytes]:
    """Restart on a tree, check it, and claim all messages; bodies by id."""
    later = Clock(clock.now + LATER_S)
    with Spool(tree, sync="none", clock=later) as spool:
        spool.deliver()
        report = check(tree, offline=True, clock=later)
        assert [f for f in report.findings if f.severity.value == "error"] == []
        assert [f for f in report.findings if f.kind.value == "torn-dot-name"] == []
        ids = [message_id for _, message_id in visible(tree)]
        assert len(ids) == len(set(ids)), "a message exists twice"
        claimed = {m.id: m.body for q in spool.queues() for m in spool.queue(q).claim(9)}
        assert sorted(claimed) == sorted(ids), "a message cannot be claimed"
        queue = spool.queue("jobs", create=True)
        queue.put(b"next")
        assert [m.body for m in queue.claim()] == [b"next"]
        return claimed


def jobs(spool: Spool) -> Queue:
    return Queue(spool, "jobs")


@pytest.mark.parametrize("arguments", [{}, {"delay": 5}, {"content_type": "a/b"}, {"id": "three"}])
def test_a_killed_put_is_whole_or_absent(
    root: Path, clock: Clock, arguments: dict[str, Any]
) -> None:
    def put(spool: Spool) -> None:
        jobs(spool).put(b"third body", **arguments)

    for acknowledged, tree in crashes(root, clock, put):
        bodies = list(recover(tree, clock).values())
        assert bodies.count(b"third body") <= 1
        if acknowledged:
            assert b"third body" in bodies
        assert set(bodies) - {b"third body"} == set(BODIES.values())


@pytest.mark.parametrize("more", [{}, {"id": "three"}, {"group": "a"}], ids=["", "own id", "fifo"])
def test_a_killed_put_keeps_its_delay(root: Path, clock: Clock, more: dict[str, Any]) -> None:
    """Also if the retry finds what the killed one has left."""
    name = "fifo" if "group" in more else "jobs"

    def prepare_tree(tree: Path) -> None:
        make_ready(tree, clock)
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.create_queue("fifo", fifo=True)
            spool.queue(name).configure(default_delay=LATER_S + 60)

    def put(spool: Spool) -> None:
        spool.queue(name).put(b"third body", **more)

    for _, tree in crashes_of(root, put, clock, prepare_tree):
        retry = Spool(tree, sync="none", clock=clock, delivers=False)
        with retry, suppress(DuplicateMessage):
            put(retry)
        for later_s in (LATER_S, 2 * LATER_S):
            with Spool(tree, sync="none", clock=Clock(clock.now + later_s)) as spool:
                spool.deliver()
                found = [message.body for message in spool.queue(name).claim(9)]
                assert (b"third body" in found) == (later_s > LATER_S)


def test_a_killed_put_with_an_own_id_can_be_retried_at_once(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(
        root, clock, lambda spool: jobs(spool).put(b"third body", id="three")
    ):
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            try:
                jobs(spool).put(b"third body", id="three")
                assert not acknowledged
            except DuplicateMessage:
                pass
        assert recover(tree, clock) == {**BODIES, "three": b"third body"}


@pytest.mark.parametrize("again", [{"attempt": "2"}, {}], ids=["other attributes", "without"])
@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_retry_with_other_attributes_stores_the_message_once(
    root: Path, clock: Clock, again: dict[str, str], is_recovered: bool
) -> None:
    """The retry writes another file, and perhaps another name."""
    own = uuid7()
    for _, tree in crashes(
        root,
        clock,
        lambda spool: jobs(spool).put(b"third body", id=own, attributes={"attempt": "1"}),
    ):
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            if is_recovered:  # by a running mover, which leaves young files alone
                recover_dot_names(spool.tree, clock())
            with suppress(DuplicateMessage):
                jobs(spool).put(b"third body", id=own, attributes=again)
            assert jobs(spool).remove(own, f"{own}.h") == 1
        assert recover(tree, clock) == BODIES


@pytest.mark.parametrize("by", ["retry", "mover"])
def test_the_recovery_of_a_killed_put_may_be_killed_too(root: Path, clock: Clock, by: str) -> None:
    own, other = uuid7(), uuid7()

    def message(attempt: str, one: str = own) -> NewMessage:
        return NewMessage(b"third body", id=one, attributes={"attempt": attempt})

    def retry(spool: Spool) -> None:
        with suppress(DuplicateMessage):
            spool.complete(prepare.put(spool.context, "jobs", [message("2")]))

    def deliver(spool: Spool) -> None:
        recover_dot_names(spool.tree, clock())

    verb = retry if by == "retry" else deliver
    for acknowledged, tree in crashes(root, clock, verb, [message("1"), message("1", other)]):
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            if acknowledged:
                assert jobs(spool).find(f"{own}.h") is not None
            retry(spool)
            assert jobs(spool).remove(f"{own}.h") == 1
        assert recover(tree, clock) == {**BODIES, f"{other}.h": b"third body"}


def test_the_retry_of_a_batch_stores_each_message_once(root: Path, clock: Clock) -> None:
    ids = [uuid7() for _ in range(3)]

    def batch(attempt: str) -> list[NewMessage]:
        return [NewMessage(b"x", id=one, attributes={"attempt": attempt}) for one in ids]

    for _, tree in crashes(root, clock, lambda spool: jobs(spool).put_many(batch("1"))):
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            for message in batch("2"):
                with suppress(DuplicateMessage):
                    spool.complete(prepare.put(spool.context, "jobs", [message]))
            assert jobs(spool).remove(*(f"{one}.h" for one in ids)) == 3
        assert recover(tree, clock) == BODIES


def test_an_acknowledged_batch_is_stored(root: Path, clock: Clock) -> None:
    batch = [NewMessage(b"body of %d" % n, id=f"batch-{n}") for n in range(3)]
    for acknowledged, tree in crashes(root, clock, lambda spool: jobs(spool).put_many(batch)):
        stored = {i: b for i, b in recover(tree, clock).items() if i.startswith("batch")}
        assert stored.items() <= {m.id: m.body for m in batch}.items()
        if acknowledged:
            assert len(stored) == 3


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(
            lambda spool: spool.complete(prepare.claim(spool.context, "jobs")), id="claim"
        ),
        pytest.param(lambda spool: jobs(spool).renew("one", 60), id="renew"),
        pytest.param(lambda spool: jobs(spool).renew("two", 60), id="renew-ready"),
        pytest.param(lambda spool: jobs(spool).release("one"), id="release"),
        pytest.param(lambda spool: jobs(spool).release("one", 10), id="back-off"),
        pytest.param(lambda spool: jobs(spool).move_to("other", in_flight=True), id="move"),
        pytest.param(lambda spool: spool.create_queue("third"), id="create-queue"),
    ],
)
def test_a_killed_verb_neither_loses_nor_doubles_a_message(
    root: Path, clock: Clock, verb: Verb
) -> None:
    for _, tree in crashes(root, clock, verb):
        assert recover(tree, clock) == BODIES


def test_a_killed_mover_loses_no_message(root: Path, clock: Clock) -> None:
    def deliver(spool: Spool) -> None:
        for n in range(3):
            (spool.tree.root / "new" / f"jobs:file-{n}").write_bytes(b"%d" % n)
        clock.advance(100)  # the child's copy only
        spool.deliver()

    for _, tree in crashes(root, clock, deliver):
        recovered = recover(tree, clock)
        assert recovered.items() >= BODIES.items()
        # The shell user who writes these files may die between two of them.
        for name in set(recovered) - set(BODIES):
            assert recovered[name] in (name[-1:].encode(), b"")


def test_a_killed_burial_loses_no_message(root: Path, clock: Clock) -> None:
    def bury(spool: Spool) -> None:
        jobs(spool).configure(max_deliveries=1, dead_letter_queue="dead")
        jobs(spool).release("one")

    for acknowledged, tree in crashes(root, clock, bury):
        if acknowledged:
            assert ("dead", "one") in visible(tree)
        assert recover(tree, clock) == BODIES


def test_an_acknowledged_removal_is_lasting(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(root, clock, lambda spool: jobs(spool).remove("one", "two")):
        left = recover(tree, clock)
        assert left.items() <= BODIES.items()
        if acknowledged:
            assert left == {}


@pytest.mark.parametrize("few", [deletion._FEW, 0], ids=["few", "many"])
def test_an_acknowledged_purge_leaves_no_message(
    root: Path, clock: Clock, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_FEW", few)
    for acknowledged, tree in crashes(root, clock, lambda spool: jobs(spool).purge()):
        left = recover(tree, clock)
        assert left.items() <= BODIES.items()
        if acknowledged:
            assert left == {}


@pytest.mark.parametrize("few", [deletion._FEW, 0], ids=["few", "many"])
def test_a_killed_deletion_can_be_retried(
    root: Path, clock: Clock, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_FEW", few)
    for acknowledged, tree in crashes(root, clock, lambda spool: spool.delete_queue("jobs")):
        if acknowledged:
            assert visible(tree) == []
            continue
        with Spool(tree, sync="none", clock=clock) as spool:
            spool.create_queue("jobs")  # a client that gets a 404 can create the queue and retry
            spool.delete_queue("jobs")
            assert not (tree / "config" / "jobs.json").exists()
        assert visible(tree) == []


def test_a_killed_change_leaves_the_old_or_the_new_settings(root: Path, clock: Clock) -> None:
    for acknowledged, tree in crashes(
        root, clock, lambda spool: jobs(spool).configure(max_depth=77)
    ):
        with Spool(tree, sync="none", clock=clock) as spool:
            depth = spool.settings("jobs").max_depth
            assert depth in (None, 77)
            assert depth == 77 or not acknowledged
            assert spool.context.settings.problem("jobs") is None
        assert recover(tree, clock) == BODIES


def test_a_killed_reaper_takes_only_removed_messages(root: Path, clock: Clock) -> None:
    def reap(spool: Spool) -> None:
        jobs(spool).remove("one")
        spool.delete_queue("other")
        spool.reap()

    for _, tree in crashes(root, clock, reap):
        left = recover(tree, clock)
        assert left.get("two") == BODIES["two"]
        assert left.items() <= BODIES.items()
