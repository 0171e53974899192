"""Moves between dedup queues in a circle: a message that is in all of them is not lost."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import pytest

from fsmq.spool import Spool, prepare
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.dedup import read_side, write_side
from tests.harness.calls import Trap, seen

BODY = b"order 17"
# More steps than the other moves need.
STEPS = 12


def fill(spool: Spool, names: str, shown: str) -> None:
    """Put the same message into each dedup queue, and peek at it in some of them."""
    for name in names:
        for side in (read_side(name), write_side(name)):
            spool.create_queue(side)
        spool.complete(prepare.dedup_send(spool.context, name, [BODY]))
    spool.deliver()
    for name in shown:
        assert len(spool.complete(dedup.peek(spool.context, name, 9))) == 1


def poll_all(spool: Spool, names: str) -> list[bytes]:
    spool.deliver()
    polls = (dedup.poll(spool.context, name, 9, 60) for name in names)
    return [message.body for poll in polls for message in spool.complete(poll)]


@pytest.mark.slow
@pytest.mark.parametrize(("names", "shown"), [("xy", ""), ("xyz", ""), ("xy", "x")])
def test_moves_in_a_circle_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str, shown: str
) -> None:
    monkeypatch.setattr("fsmq.spool.moves.runner._WAIT_S", 0.0)
    for at in count():
        root = tmp_path / str(at)
        with Spool(root, sync="none") as spool, Spool(root, sync="none") as other:
            fill(spool, names, shown)
            first, *_ = [
                spool.begin_move(source, target, dedup=True).ref
                for source, target in pairwise(names + names[0])
            ]

            def make_others(name: str, arguments: tuple[object, ...], other: Spool = other) -> None:
                asked = count()
                other.make_moves(lambda: next(asked) > STEPS)

            trap = Trap(at, make_others)
            with seen(trap, looks=True):
                spool.make_move(first)
            spool.make_moves()
            assert set(poll_all(spool, names)) == {BODY}, f"before call {at}: {trap.calls[at]}"
            if not trap.is_sprung:
                return
