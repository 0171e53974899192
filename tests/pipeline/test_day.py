"""A day of work through the real programs in seconds: tables and report match it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fsmq.pipeline.report import collect, page
from fsmq.words import number
from tests.pipeline.comparison import compare, make
from tests.soak.day import DEAD, KINDS, played


@pytest.mark.timeout(300)
def test_tables_and_report_match_the_counts(spark: SparkSession, tmp_path: Path) -> None:
    tally = played(tmp_path / "mq", seed=7, seconds=5, messages=1500)
    for happened in ("released", "redelivered", "buried", "expired", "purged"):
        assert sum(counts[happened] for counts in tally.counts.values()) > 0, happened
    compare(make(spark, tmp_path / "mq", tmp_path / "tables"), tally, 1.0)

    figures = collect(spark, str(tmp_path / "tables"))
    total = sum(tally.counts.values(), Counter())
    names = {"sent": "accepted", "received": "claimed", "deleted": "removed"}
    for name in ("sent", "received", "deleted", "buried", "expired", "purged"):
        assert figures.whole[name] == total[names.get(name, name)]
    assert {queue["queue"] for queue in figures.queues} == {*KINDS, DEAD}
    assert sum(queue["depth"] for queue in figures.queues) == total["buried"]
    assert [(row["queue"], row["went_to"], row["came"]) for row in figures.dead] == [
        ("payments", DEAD, total["buried"])
    ]
    poison = [row for row in figures.worst if row["outcome"] == "buried"]
    assert len(poison) == total["buried"]

    html = page(figures)
    assert f"<dt>sent</dt><dd>{number(total['accepted'])}</dd>" in html
    assert "<figcaption>Redelivered</figcaption>" in html
    assert "<code>fsmq redrive" in html
    assert f"<code>{poison[0]['id']}</code>" in html
    # The page is one file without external parts, and its ids are unique.
    assert not re.search(r"<script|<link|<img|src=|@import|url\((?!#)|href=\"(?!#)", html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    # All colors are variables of the page, with values for light and dark.
    drawn = html[html.index("</style>") :]
    assert not re.search(r"#0[0-9](?:[0-9]{4}|0[0-9]ff)\b", drawn)
    assert html.count("--c4:") == 2
