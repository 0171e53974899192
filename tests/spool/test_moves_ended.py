"""Outcomes of moves are removed after some days, except the last ones of each source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Spool
from fsmq.spool.durability.locks import lock
from fsmq.spool.layout.uuids import derived_uuid7
from fsmq.spool.moves import order
from fsmq.spool.moves.ended import KEEP, KEEP_OF_A_SOURCE, KEEP_S, forget_ended
from fsmq.spool.moves.order import Move, Status
from fsmq.spool.verbs.dedup import write_side
from tests.harness.calls import seen

_NOW = 1_800_000_000.0


def ended(spool: Spool, root: Path, age_s: float, source: str, status: Status = "complete") -> str:
    """Write a move of this age, and return its reference."""
    ref = derived_uuid7(int((_NOW - age_s) * 1e9), f"{source} {age_s}".encode())
    move = Move(ref, source, "there", status=status)
    order.save(spool.tree, move)
    suffix = ".json" if status == "in_progress" else ".done"
    os.utime(root / "moves" / (ref + suffix), (_NOW - age_s, _NOW - age_s))
    return ref


def test_old_outcomes_are_removed_except_the_last_ten_of_a_source(spool: Spool, root: Path) -> None:
    for queue in ("often", "seldom"):
        spool.create_queue(queue)
    often = [ended(spool, root, KEEP_S + number, "often") for number in range(1, 16)]
    seldom = ended(spool, root, 100 * KEEP_S, "seldom")
    young = [ended(spool, root, number, "often") for number in range(3)]
    ongoing = ended(spool, root, 50 * KEEP_S, "often", "in_progress")
    slow = ended(spool, root, KEEP_S + 20, "often")
    os.utime(root / "moves" / f"{slow}.done", (_NOW - 1, _NOW - 1))  # it ended just now
    torn = derived_uuid7(int((_NOW - 2 * KEEP_S) * 1e9), b"torn")
    (root / "moves" / f"{torn}.done").write_bytes(b"{")
    os.utime(root / "moves" / f"{torn}.done", (_NOW - KEEP_S - 1, _NOW - KEEP_S - 1))
    (root / "moves" / "mine.done").write_bytes(b"of a shell user")
    stay = often[: KEEP_OF_A_SOURCE - len(young)]
    assert forget_ended(spool.tree, lambda: _NOW) == len(often) - len(stay) + 1
    left = {path.name for path in (root / "moves").iterdir() if path.name[0] != "."}
    expected = {f"{ref}.done" for ref in (*stay, *young, seldom, slow)}
    assert left == expected | {f"{ongoing}.json", "mine.done"}
    assert forget_ended(spool.tree, lambda: _NOW) == 0


def test_many_outcomes_are_removed_except_those_that_ended_last(spool: Spool, root: Path) -> None:
    """And except the last ten of each source, so that moves of others push none of them out."""
    for queue in ("seldom", "often"):
        spool.create_queue(queue)
    seldom = [ended(spool, root, 2000 + number, "seldom") for number in range(12)]
    often = [ended(spool, root, number, "often") for number in range(KEEP + 50)]
    assert forget_ended(spool.tree, lambda: _NOW) == len(seldom) - KEEP_OF_A_SOURCE + 50
    left = {path.name.removesuffix(".done") for path in (root / "moves").glob("*.done")}
    assert left == {*often[:KEEP], *seldom[:KEEP_OF_A_SOURCE]}
    assert forget_ended(spool.tree, lambda: _NOW) == 0


@pytest.mark.parametrize("dedup", [False, True])
def test_outcomes_of_a_deleted_source_are_removed(spool: Spool, root: Path, dedup: bool) -> None:
    spool.begin_move("jobs", "to", dedup=dedup)
    jobs = write_side("jobs") if dedup else "jobs"
    spool.create_queue(jobs)
    spool.make_moves()
    later = time.time() + 2 * KEEP_S
    assert forget_ended(spool.tree, lambda: later) == 0
    spool.delete_queue(jobs)
    assert forget_ended(spool.tree) == 0
    assert forget_ended(spool.tree, lambda: later) == 1
    assert os.listdir(root / "moves") == []


def test_unused_locks_are_removed(spool: Spool, root: Path) -> None:
    for name in (".dead.lock", ".dead.alone", ".held.lock"):
        (root / "moves" / name).touch()
    held = lock(spool.tree, "moves/.held.lock", 0)
    assert held is not None
    assert forget_ended(spool.tree) == 0
    assert os.listdir(root / "moves") == [".held.lock"]
    held.free()


def test_a_stop_of_an_ended_move_is_removed(spool: Spool, root: Path) -> None:
    ref = spool.begin_move("jobs", "to").ref
    ended: list[Move | None] = []

    def end(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "rename" and str(arguments[1]).endswith(".stop") and not ended:
            ended.append(spool.make_move(ref))

    with seen(end):
        assert spool.stop_move(ref) is not None
    assert ended
    assert (root / "moves" / f"{ref}.stop").exists()
    ongoing = spool.begin_move("jobs", "there").ref
    order.order_stop(spool.context, ongoing)
    (root / "moves" / "mine.stop").touch()
    forget_ended(spool.tree)
    assert {path.name for path in root.glob("moves/*.stop")} == {f"{ongoing}.stop", "mine.stop"}
