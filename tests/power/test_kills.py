"""Programs and clients that die or hang at random, two full suites on one tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.kills import HOSTS, Battle
from tests.power.nursery import Nursery

ROUNDS = 12


@pytest.mark.parametrize("processes", [1, 2])
def test_kills_lose_and_double_nothing(tmp_path: Path, processes: int) -> None:
    with Nursery(tmp_path / "logs") as nursery:
        tally = Battle(
            dict.fromkeys(HOSTS, nursery), tmp_path, processes=processes, seed=processes
        ).run(ROUNDS)
    print(f"kills: {tally}")
    assert tally.findings == []
    assert tally.acknowledged > 50, f"the load was too light to tell anything: {tally}"
    assert tally.came_out > 0
