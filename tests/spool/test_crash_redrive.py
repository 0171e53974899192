"""SIGKILL between any two system calls of a redrive or of a move: it continues, and no message is
lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Queue, Spool
from fsmq.spool.fsck import check
from tests.spool.crashing import Verb, crashes_of
from tests.spool.helpers import Clock, visible

BODIES = {name: name.encode() for name in ("fresh", "tried", "other")}


def prepare(root: Path, clock: Clock) -> None:
    """Three dead letters: two of `jobs`, of which one was claimed since, and one of `more`."""
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


def crashes(root: Path, clock: Clock, verb: Verb) -> Iterator[tuple[bool, Spool]]:
    """Every crash of a verb: whether it was acknowledged, and the spool after the next start."""
    for acknowledged, tree in crashes_of(root, verb, clock, lambda tree: prepare(tree, clock), 4):
        with Spool(tree, sync="none", clock=clock) as spool:
            yield acknowledged, spool
            report = check(tree, offline=True, clock=clock)
            assert [f for f in report.findings if f.severity.value == "error"] == []
            assert sorted(i for _, i in visible(tree)) == sorted(BODIES)


def contents(spool: Spool, queue: str) -> dict[str, tuple[bytes, int | None]]:
    return {m.id: (m.body, m.deliveries) for m in Queue(spool, queue).peek(9)}


REDRIVEN = {
    "jobs": {"fresh": (b"fresh", 0), "tried": (b"tried", 0)},
    "more": {"other": (b"other", 0)},
    "dead": {},
}
BURIED = {
    "jobs": {},
    "more": {},
    "dead": {"fresh": (b"fresh", 0), "other": (b"other", 0), "tried": (b"tried", 1)},
}


def test_a_killed_redrive_continues(root: Path, clock: Clock) -> None:
    for acknowledged, spool in crashes(root, clock, lambda s: Queue(s, "dead").redrive()):
        spool.make_moves()
        found = {queue: contents(spool, queue) for queue in REDRIVEN}
        # The next start makes the whole redrive, or its order was not written yet.
        assert found == REDRIVEN or (found == BURIED and not acknowledged)
        assert not list((spool.tree.root / "moves").glob("*.json"))


def test_a_killed_move_moves_no_more_than_its_count(root: Path, clock: Clock) -> None:
    def move(spool: Spool) -> None:
        spool.begin_move("dead", "jobs", count=1)
        spool.make_moves()

    for acknowledged, spool in crashes(root, clock, move):
        spool.make_moves()
        [moved, stay] = [sorted(contents(spool, queue)) for queue in ("jobs", "dead")]
        assert (moved, stay) == (["tried"], ["fresh", "other"]) or (
            (moved, stay) == ([], sorted(BODIES)) and not acknowledged
        )
        for made in spool.moves():
            assert (made.status, made.moved, made.total) == ("complete", 1, 1)


@pytest.mark.parametrize("to", [None, "jobs"])
def test_a_redrive_by_ids_can_be_retried(root: Path, clock: Clock, to: str | None) -> None:
    ids = ["fresh", "tried"]
    for acknowledged, spool in crashes(
        root, clock, lambda s: Queue(s, "dead").redrive(only=ids, to=to)
    ):
        if acknowledged:
            assert contents(spool, "jobs") == REDRIVEN["jobs"]
        Queue(spool, "dead").redrive(only=ids, to=to)
        assert contents(spool, "jobs") == REDRIVEN["jobs"]
        assert contents(spool, "dead") == {"other": (b"other", 0)}


def test_a_killed_redrive_keeps_what_dead_letters_know(root: Path, clock: Clock) -> None:
    for _, spool in crashes(root, clock, lambda s: Queue(s, "dead").redrive(only=["tried"])):
        for queue in ("jobs", "dead"):
            for message in Queue(spool, queue).peek(9):
                assert message.dead_letter is not None
                assert message.dead_letter.reason == "no"


def test_a_move_whose_stop_was_acknowledged_is_stopped(root: Path, clock: Clock) -> None:
    def stop(spool: Spool) -> None:
        spool.stop_move(spool.begin_redrive("dead").ref)

    for acknowledged, spool in crashes(root, clock, stop):
        spool.make_moves()
        found = {queue: contents(spool, queue) for queue in REDRIVEN}
        assert found == BURIED or (found == REDRIVEN and not acknowledged)
        names = [path.suffix for path in (spool.tree.root / "moves").iterdir()]
        assert names in ([], [".done"]) or not acknowledged
        assert ".json" not in names


def test_a_killed_burial_leaves_no_dead_letter_without_its_origin(root: Path, clock: Clock) -> None:
    def bury(spool: Spool) -> None:
        jobs = spool.queue("jobs")
        jobs.put_many([NewMessage(b"x", id="x")])
        jobs.claim()[0].bury("why")

    for acknowledged, tree in crashes_of(root, bury, clock, lambda tree: prepare(tree, clock)):
        with Spool(tree, sync="none", clock=clock) as spool:
            for message in spool.queue("dead").peek(9):
                assert message.dead_letter is not None
            if acknowledged:
                assert "x" in contents(spool, "dead")
