"""What came and went leaves nothing: neither in a program that lives on, nor on the disk."""

from __future__ import annotations

import tempfile
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.harness.rounds import part_of
from tests.replay.place import scratch
from tests.stories.growth import BYTES_EACH, BYTES_OF_A_FEW, COMERS, Come, grown

NUMBER = part_of(300, 10_000)


@pytest.mark.parametrize("come", COMERS, ids=lambda come: come.__name__)
def test_what_came_and_went_leaves_nothing(come: Come) -> None:
    # In a process of its own: what other tests have left to be done does not count.
    with (
        tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-growth-") as folder,
        get_context("spawn").Pool(1) as alone,
    ):
        size = alone.apply(grown, (Path(folder) / "mq", come, NUMBER))
    assert (size.descriptors, size.names) <= (0, 0), size
    assert size.bytes < BYTES_EACH * NUMBER + BYTES_OF_A_FEW, size
