"""SIGKILL between any two system calls of a redrive, or of a move of so many messages: nothing is
lost or doubled, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool
from fsmq.spool.fsck import check
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock, visible

BODIES = {name: name.encode() for name in ("fresh", "tried", "other")}


def prepare(root: Path, clock: Clock) -> None:
    """Three dead letters: one of `jobs` that was claimed since, one that was not, one of `more`."""
    with Spool(root, sync="none", clock=clock) as spool:
        for queue in (spool.queue("jobs", create=True), spool.queue("more", create=True)):
            queue.configure(max_deliveries=9, dead_letter_queue="dead")
        for name in ("tried", "fresh"):
            spool.queue("jobs").put(BODIES[name], id=name)
            spool.queue("jobs").claim()[0].bury("no")
            if name == "tried":
                spool.queue("dead").claim()[0].release()
        spool.queue("more").put(BODIES["other"], id="other")
        spool.queue("more").claim()[0].bury("no")


def crashes(
    root: Path, clock: Clock, verb: Callable[[Spool], object]
) -> Iterator[tuple[bool, Spool]]:
    """Every crash of a verb: whether it was acknowledged, and the spool after the next start."""
    for at in range(1000):
        tree = root / str(at)
        prepare(tree, clock)
        acknowledged = run_and_die(tree, verb, at, clock)
        if acknowledged is None:
            assert at > 3
            return
        with Spool(tree, sync="none", clock=clock) as spool:
            yield acknowledged, spool
            report = check(tree, offline=True, clock=clock)
            assert [f for f in report.findings if f.severity.value == "error"] == []
            assert sorted(i for _, i in visible(tree)) == sorted(BODIES)
    raise AssertionError("the verb did not end")


def stands(spool: Spool, queue: str) -> dict[str, tuple[bytes, int | None]]:
    return {m.id: (m.body, m.deliveries) for m in Queue(spool, queue).peek(9)}


HOME = {
    "jobs": {"fresh": (b"fresh", 0), "tried": (b"tried", 0)},
    "more": {"other": (b"other", 0)},
    "dead": {},
}
BURIED = {
    "jobs": {},
    "more": {},
    "dead": {"fresh": (b"fresh", 0), "other": (b"other", 0), "tried": (b"tried", 1)},
}


def test_a_redrive_of_all_goes_on(root: Path, clock: Clock) -> None:
    for acknowledged, spool in crashes(root, clock, lambda s: Queue(s, "dead").redrive()):
        spool.make_moves()
        found = {queue: stands(spool, queue) for queue in HOME}
        # The order is there, or it is not; after the next start nothing stands in between.
        assert found == HOME or (found == BURIED and not acknowledged)
        assert not list((spool.tree.root / "moves").glob("*.json"))


def test_no_more_move_than_were_to_move(root: Path, clock: Clock) -> None:
    def move(spool: Spool) -> None:
        spool.begin_move("dead", "jobs", count=1)
        spool.make_moves()

    for acknowledged, spool in crashes(root, clock, move):
        spool.make_moves()
        [moved, stay] = [sorted(stands(spool, queue)) for queue in ("jobs", "dead")]
        assert (moved, stay) == (["tried"], ["fresh", "other"]) or (
            (moved, stay) == ([], sorted(BODIES)) and not acknowledged
        )
        for made in spool.moves():
            assert (made.status, made.moved, made.total) == ("complete", 1, 1)


@pytest.mark.parametrize("to", [None, "jobs"])
def test_a_redrive_of_some_can_be_asked_again(root: Path, clock: Clock, to: str | None) -> None:
    ids = ["fresh", "tried"]
    for acknowledged, spool in crashes(
        root, clock, lambda s: Queue(s, "dead").redrive(only=ids, to=to)
    ):
        if acknowledged:
            assert stands(spool, "jobs") == HOME["jobs"]
        Queue(spool, "dead").redrive(only=ids, to=to)
        assert stands(spool, "jobs") == HOME["jobs"]
        assert stands(spool, "dead") == {"other": (b"other", 0)}


def test_what_is_not_redriven_still_knows_its_queue(root: Path, clock: Clock) -> None:
    for _, spool in crashes(root, clock, lambda s: Queue(s, "dead").redrive(only=["tried"])):
        for queue in ("jobs", "dead"):
            for message in Queue(spool, queue).peek(9):
                assert message.dead_letter is not None
                assert message.dead_letter.reason == "no"


def test_a_stop_is_carried_out(root: Path, clock: Clock) -> None:
    def stop(spool: Spool) -> None:
        spool.stop_move(spool.begin_redrive("dead").ref)

    for acknowledged, spool in crashes(root, clock, stop):
        spool.make_moves()
        found = {queue: stands(spool, queue) for queue in HOME}
        assert found == BURIED or (found == HOME and not acknowledged)
        names = [path.suffix for path in (spool.tree.root / "moves").iterdir()]
        assert names in ([], [".done"]) or not acknowledged
        assert ".json" not in names


def test_a_bury_leaves_no_dead_letter_that_knows_nothing(root: Path, clock: Clock) -> None:
    def bury(spool: Spool) -> None:
        jobs = spool.queue("jobs")
        jobs.put_many([NewMessage(b"x", id="x")])
        jobs.claim()[0].bury("why")

    for at in range(1000):
        tree = root / str(at)
        prepare(tree, clock)
        acknowledged = run_and_die(tree, bury, at, clock)
        if acknowledged is None:
            break
        with Spool(tree, sync="none", clock=clock) as spool:
            for message in spool.queue("dead").peek(9):
                assert message.dead_letter is not None
            if acknowledged:
                assert "x" in stands(spool, "dead")
