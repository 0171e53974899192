"""SIGKILL between any two system calls of a staged job: all of it is stored, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq.spool import NewMessage, Spool
from fsmq.spool.staging.abandoned import ABANDONED_AFTER_S
from fsmq.spool.staging.commit import abort, commit
from fsmq.spool.staging.forward import Forward
from fsmq.spool.staging.part import Job, Part
from tests.spool.crashing import crashes_of
from tests.spool.helpers import Clock
from tests.spool.test_crash import BODIES, crashes, make_ready, recover

JOB = Job("load", 3)
STAGED = [b"staged 0", b"staged 1"]


def run(spool: Spool, own: bool, *, aside: Path | None = None) -> None:
    """Write a part, write another one that fails, and commit."""
    parts = []
    for numbers in ((0, 1), (7,)):
        part = Part(spool.context, spool.syncer.sync, JOB)
        for n in numbers:
            name = f"staged-{n}" if own else None
            part.write("jobs", NewMessage(b"staged %d" % n, id=name, delay=n or None))
        if aside is not None:
            part.reject(b"%d\n" % numbers[0])
        if numbers == (7,):
            part.abandon()
        else:
            parts.append(part.finish())
    commit(spool, JOB, parts, rejected_rows=aside)


def staged(recovered: dict[str, bytes]) -> list[bytes]:
    assert set(recovered.values()) >= set(BODIES.values())
    return sorted(body for body in recovered.values() if body.startswith(b"staged"))


def test_a_killed_job_is_stored_whole_or_not_at_all(root: Path, clock: Clock) -> None:
    seen = set()
    for acknowledged, tree in crashes(root, clock, lambda spool: run(spool, own=False)):
        found = staged(recover(tree, clock))
        assert found in ([], STAGED)
        assert found == STAGED or not acknowledged
        seen.add(len(found))
    assert seen == {0, 2}


def test_a_job_that_is_run_again_adds_only_what_is_missing(
    root: Path, clock: Clock, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    for _, tree in crashes(root, clock, lambda spool: run(spool, own=True, aside=bad)):
        with Spool(tree, sync="none", clock=clock, delivers=False) as spool:
            run(spool, own=True, aside=bad)
        assert staged(recover(tree, clock)) == STAGED
        assert [path.read_text() for path in bad.iterdir()] == ["0\n"]


def test_a_mover_killed_while_it_moves_a_job_forward_loses_nothing(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(tree: Path) -> None:
        make_ready(tree, clock)
        with monkeypatch.context() as patched, Spool(tree, sync="none", clock=clock) as spool:
            patched.setattr(Forward, "run", lambda forward: None)
            run(spool, own=False)

    for _, tree in crashes_of(root, Spool.deliver, clock, prepare, 11):
        assert staged(recover(tree, clock)) == STAGED


def test_leftovers_of_an_aborted_job_are_removed(root: Path, clock: Clock) -> None:
    def write_and_abort(spool: Spool) -> None:
        Part(spool.context, spool.syncer.sync, JOB).finish()
        abort(spool, JOB)

    for _, tree in crashes(root, clock, write_and_abort):
        later = Clock(clock.now + ABANDONED_AFTER_S + 100)
        with Spool(tree, sync="none", clock=later) as spool:
            spool.deliver()
            spool.deliver()
        assert list((tree / "staging").iterdir()) == []
        assert recover(tree, clock) == BODIES
