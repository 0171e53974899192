"""The report of little, and of many queues: nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fsmq.pipeline.journal.job import start
from fsmq.pipeline.report import collect, page
from tests.pipeline.journals import segment, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)


def test_one_minute_of_many_queues(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    came = [step(1, "accepted", f"q{n:02}", "1") for n in range(60)]
    # The slowest is the least busy: it has come to no table of the busiest.
    more = [step(1, "accepted", f"q{n:02}", "2") for n in range(59)]
    segment(root, [*came, *more, step(31, "claimed", "q59", "1", deliveries=1)])
    start(spark, str(root), str(tmp_path / "tables")).awaitTermination()
    figures = collect(spark, str(tmp_path / "tables"))
    assert len(figures.queues) == 60
    assert len(figures.times) == 2  # a line, and no single point
    assert figures.sums["accepted"] == [0, 119]
    assert figures.waiting == 119
    assert figures.depth["54 others"] == [0, 119 - 2 * 6]
    told = page(figures)
    assert "wait longest in <b>q59</b>: one in twenty waited more than 30 s" in told
    assert "The 50 busiest; 10 more are in the figures above." in told
