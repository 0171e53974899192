"""The report of little, and of many queues: nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fsmq.pipeline.journal.job import start
from fsmq.pipeline.report import collect, page
from fsmq.words import share
from tests.pipeline.journals import segment, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)


def test_one_minute_of_many_queues(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    came = [step(1, "accepted", f"q{n:02}", "1") for n in range(59)]
    # The slowest is the least busy: it has come to no table of the busiest.
    more = [step(1, "accepted", f"q{n:02}", "2") for n in range(59)]
    slow = [
        step(1, "accepted", "<q&59>", "1"),
        step(31, "claimed", "<q&59>", "1", deliveries=1),
    ]
    segment(root, [*came, *more, *slow])
    start(spark, str(root), str(tmp_path / "tables")).awaitTermination()
    figures = collect(spark, str(tmp_path / "tables"))
    assert len(figures.queues) == 60
    assert list(figures.steps["sent"]) == [0, 119]  # a line, and no single point
    assert sum(queue["depth"] for queue in figures.queues) == 119
    assert list(figures.depth["54 others"]) == [0, 119 - 2 * 6]
    told = page(figures)
    assert "wait longest in <b>&lt;q&amp;59&gt;</b>: one in twenty waited more than 30 s" in told
    assert "The 50 busiest; 10 more are in the figures above." in told
    # No name is markup, on the page or in a chart; all charts but that of dead letters are there.
    assert "<q&" not in told
    assert "&lt;q&amp;59&gt;</text>" in told
    assert told.count("<svg") == told.count("</svg>") == 8


@pytest.mark.parametrize(
    ("part", "told"), [(0, "0 %"), (0.0004, "under 0.1 %"), (0.018, "1.8 %"), (0.5, "50 %")]
)
def test_a_share(part: float, told: str) -> None:
    assert share(part) == told
