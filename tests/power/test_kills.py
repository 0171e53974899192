"""Kills and pauses of programs and clients of two full suites on one spool.

The syncs of one suite are slow, so its shortest claims end before they are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.power.clients import CONTENDED, MIXED
from tests.power.kills import HOSTS, ONE_SLOWER, TwoSuites
from tests.power.programs import Programs

ROUNDS, LEAST = 12, 50


@pytest.mark.parametrize(
    ("processes", "weights"),
    [(2, MIXED), (1, CONTENDED)],
    ids=["2 processes", "few messages that many want"],
)
def test_kills_lose_and_duplicate_no_message(
    tmp_path: Path, processes: int, weights: Mapping[str, int]
) -> None:
    with Programs(tmp_path / "logs") as programs:
        results = TwoSuites(
            dict.fromkeys(HOSTS, programs),
            tmp_path,
            processes=processes,
            seed=processes,
            slow_s=ONE_SLOWER,
            weights=weights,
            least=LEAST,
        ).run(ROUNDS)
    print(f"kills: {results}")
    assert results.findings == []
    assert results.acknowledged >= LEAST
