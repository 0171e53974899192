"""The report of one minute and many queues: it says what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.pipeline.journal.job import start
from fsmq.pipeline.report import collect, page
from fsmq.words import share
from tests.pipeline.journals import segment, step

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)


def test_a_report_of_one_minute_and_60_queues(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    came = [step(1, "accepted", f"q{n:02}", "1") for n in range(59)]
    # The slowest queue is the least busy: it is in no table of the busiest.
    more = [step(1, "accepted", f"q{n:02}", "2") for n in range(59)]
    slow = [step(1, "accepted", "<q&59>", "1"), step(31, "claimed", "<q&59>", "1", deliveries=1)]
    segment(root, [*came, *more, *slow])
    start(spark, str(root), str(tmp_path / "tables")).awaitTermination()
    figures = collect(spark, str(tmp_path / "tables"))
    assert len(figures.queues) == 60
    assert list(figures.steps["sent"]) == [0, 119]  # two points, for a line
    assert sum(queue["depth"] for queue in figures.queues) == 119
    assert list(figures.depth["54 others"]) == [0, 119 - 2 * 6]
    html = page(figures)
    assert "wait longest in <b>&lt;q&amp;59&gt;</b>: one in twenty waited more than 30 s" in html
    assert "The 50 busiest; 10 more are in the figures above." in html
    # Names are escaped, also in charts; only the chart of dead letters is missing.
    assert "<q&" not in html
    assert "&lt;q&amp;59&gt;</text>" in html
    assert html.count("<svg") == html.count("</svg>") == 8


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0 %"), (0.0004, "under 0.1 %"), (0.018, "1.8 %"), (0.5, "50 %")]
)
def test_a_share_is_rounded(part: float, text: str) -> None:
    assert share(part) == text
