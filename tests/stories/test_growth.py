"""Deleted things leave nothing in a running program and on disk."""

from __future__ import annotations

import tempfile
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.harness.rounds import part_of
from tests.replay.place import scratch
from tests.stories.growth import BYTES_EACH, BYTES_OF_A_FEW, CYCLES, Cycle, grown

NUMBER = part_of(300, 10_000)


@pytest.mark.parametrize("cycle", CYCLES, ids=lambda cycle: cycle.__name__)
def test_deleted_things_leave_nothing(cycle: Cycle) -> None:
    # In a new process, without leftovers of other tests.
    with (
        tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-growth-") as folder,
        get_context("spawn").Pool(1) as alone,
    ):
        size = alone.apply(grown, (Path(folder) / "mq", cycle, NUMBER))
    assert (size.descriptors, size.names) <= (0, 0), size
    assert size.bytes < BYTES_EACH * NUMBER + BYTES_OF_A_FEW, size
